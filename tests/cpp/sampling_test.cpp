// The sampling policy on a backend whose clock is scripted: batch length, stopping, brackets, contention, cancellation.
#include "core/sampling.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>
#include <thread>

namespace roofline {
namespace {

class Nothing : public Queue {};

// Every launch adds its cost to the batch; nothing sleeps.
class Scripted : public Backend {
 public:
  double launch_s = 1e-3;
  double batch_overhead_s = 0;
  Load load;
  int loads = 0;
  std::vector<std::int64_t> first_sets;
  std::vector<std::pair<const void*, bool>> flushed;  // of each batch: the sets, and whether they are flushed
  std::int64_t launches = 0;

  std::string name() const override { return "scripted"; }
  Turn& turn() override { return turn_; }
  std::vector<std::pair<std::string, Value>> facts() const override { return {}; }
  const std::vector<KernelEntry>& kernels() const override { return kernels_; }
  std::string lacks(const Requires&) const override { return ""; }
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void fill(void*, DType, std::int64_t, Fill, std::uint64_t) override {}
  double clock_hz() override {
    log += "C";
    return 3e9;
  }
  void begin_load() override { log += "("; }
  Load end_load() override {
    log += ")";
    ++loads;
    return load;
  }
  double run_batch(const Batch& batch) override {
    if (log.empty() || log.back() != 'b') log += "b";
    cost_s = 0;
    first_sets.push_back(batch.first);
    flushed.push_back({batch.memory->empty() ? nullptr : batch.memory->at(0).at(0).start, batch.flush_each});
    Nothing queue;
    for (std::int64_t i = 0; i < batch.launches; ++i)
      for (const Launch& step : (*batch.sets)[(batch.first + i) % batch.sets->size()]) step(queue);
    launches += batch.launches;
    return cost_s + batch_overhead_s;
  }

  bool host_memory() const override { return on_host; }

  double cost_s = 0;
  std::string log;  // b: batches, C: the clock, (: begin_load, ): end_load
  bool on_host = true;

 private:
  std::vector<KernelEntry> kernels_;
  Turn turn_{"scripted"};
};

Policy quick() {
  return {.warmup_min_s = 0, .warmup_max_s = 1e-3, .batch_s = 5e-3, .min_samples = 10, .min_s = 0, .max_s = 0.01, .noise = 0.005,
          .bracket_s = 1e-3, .tries = 3};
}

// work() at every launch.
template <class F>
Target doing(F work) {
  Target made;
  made.sets = {{[work](Queue&) { work(); }}};
  return made;
}
Target target(Scripted& backend) {
  return doing([&backend] { backend.cost_s += backend.launch_s; });
}

// The prediction has nothing to freeze, and the first roof decides.
Bracketed bracketed(Scripted& backend, const Target& target, const std::vector<Target>& roofs) {
  return sample_bracketed(backend, target, roofs, quick(), [](const auto&) { return std::size_t{0}; }, nullptr);
}

TEST(MedianInterval, IsTheOrderStatisticsOfTheFormula) {
  // n = 25: ranks floor((25 - 9.8) / 2) = 7 and ceil(1 + (25 + 9.8) / 2) = 19, by hand.
  std::vector<double> samples;
  for (int i = 0; i < 25; ++i) samples.push_back(1 + 7 * i % 25);  // in an order without autocorrelation
  const Interval interval = median_interval(samples);
  EXPECT_EQ(interval.median, 13);
  EXPECT_EQ(interval.low, 7);
  EXPECT_EQ(interval.high, 19);
}

TEST(MedianInterval, OfFewSamplesIsTheirRange) {
  const Interval interval = median_interval({3, 1, 2, 4});
  EXPECT_EQ(interval.median, 2.5);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 4);
  EXPECT_TRUE(std::isnan(median_interval({}).median));
}

TEST(MedianInterval, IsWiderWhereSamplesResembleTheOneBefore) {
  // 0 0 0 ... 1 1 1, 50 of each: r = (sum of products of neighbours) / (sum of squares) = (98 / 4 - 1 / 4) / (100 / 4) = 0.97, so
  // that 1.96 sqrt 100 = 19.6 grows by sqrt(1.97 / 0.03) = 8.1 to 158.8: every rank.
  std::vector<double> drifting(100);
  for (int i = 0; i < 100; ++i) drifting[i] = i < 50 ? 1 + 1e-3 * i : 2 + 1e-3 * i;
  EXPECT_EQ(median_interval(drifting).low, 1);
  EXPECT_EQ(median_interval(drifting).high, 2 + 1e-3 * 99);
  std::vector<double> shuffled;  // the same numbers, no two of one half in a row: ranks 40 and 61
  for (int i = 0; i < 50; ++i) shuffled.push_back(drifting[i]), shuffled.push_back(drifting[50 + i]);
  EXPECT_EQ(median_interval(shuffled).low, drifting[39]);
  EXPECT_EQ(median_interval(shuffled).high, drifting[60]);
}

TEST(Sample, RefusesAPolicyThatCannotEnd) {
  Scripted backend;
  const auto refused = [&](auto change) {
    Policy policy = quick();
    change(policy);
    EXPECT_THROW(sample(backend, target(backend), policy, nullptr), Error);
  };
  refused([](Policy& p) { p.batch_s = NAN; });
  refused([](Policy& p) { p.max_s = INFINITY; });
  refused([](Policy& p) { p.noise = -1; });
  refused([](Policy& p) { p.min_samples = 2; });
  refused([](Policy& p) { p.tries = 0; });
  refused([](Policy& p) { p.warmup_min_s = 1; });
}

TEST(Sample, WarmsUpUntilTheTimeIsSpentWhereNothingIsSteady) {
  for (const double limit : {0.0, 0.02}) {
    Scripted backend;
    int turn = 0;
    const Target noisy = doing([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      backend.cost_s += ++turn % 2 ? 5e-3 : 9e-3;
    });
    Policy policy = quick();
    policy.warmup_max_s = limit;
    EXPECT_GE(sample(backend, noisy, policy, nullptr).warmup_s, limit);
  }
  Scripted steady;
  Policy policy = quick();
  policy.warmup_max_s = 60;
  EXPECT_LT(sample(steady, target(steady), policy, nullptr).warmup_s, 30);
}

TEST(Sample, BatchesAreAtLeastAsLongAsAsked) {
  Scripted backend;
  backend.launch_s = 1e-6;
  const Sampled result = sample(backend, target(backend), quick(), nullptr);
  EXPECT_GE(result.launches_per_sample * backend.launch_s, 5e-3);
  EXPECT_LT(result.launches_per_sample * backend.launch_s, 10e-3);
  for (const double sample_s : result.samples_s) EXPECT_NEAR(sample_s, 1e-6, 1e-12);
}

TEST(Sample, StopsWhenTheIntervalIsNarrow) {
  Scripted backend;
  Policy policy = quick();
  policy.max_s = 5;
  const Sampled result = sample(backend, target(backend), policy, nullptr);
  EXPECT_EQ(result.stop_reason, "noise");
  EXPECT_EQ(result.samples_s.size(), 10u);
}

TEST(Sample, StopsByTimeWhenItIsNot) {
  Scripted backend;
  int turn = 0;
  const Target noisy = doing([&] { backend.cost_s += ++turn % 2 ? 5e-3 : 9e-3; });
  const Sampled result = sample(backend, noisy, quick(), nullptr);
  EXPECT_EQ(result.stop_reason, "time");
  EXPECT_GE(result.samples_s.size(), 3u);
}

TEST(Sample, RotatesOverTheSets) {
  Scripted backend;
  backend.launch_s = 10e-3;  // one launch a batch
  Target made;
  std::vector<int> seen(3);
  for (int set = 0; set < 3; ++set) made.sets.push_back({[&, set](Queue&) { backend.cost_s += backend.launch_s, ++seen[set]; }});
  sample(backend, made, quick(), nullptr);
  EXPECT_LE(std::abs(seen[0] - seen[2]), 1);
  EXPECT_GT(seen[0], 2);
}

// Nothing but the work, which has a clock of its own, comes between warm-up, clock and batches.
TEST(Sample, AClockOfItsOwnIsReadAmongTheBatches) {
  Scripted backend;
  Sampled result = sample(backend, target(backend), quick(), nullptr);
  EXPECT_EQ(backend.log, "bCb(b)C");
  EXPECT_EQ(result.clock_before_hz, 3e9);
  backend.log.clear();
  Target made = target(backend);
  double clock_hz = 2e9;
  made.clock = [&] { return backend.log += "c", clock_hz += 1e9; };
  result = sample(backend, made, quick(), nullptr);
  EXPECT_EQ(backend.log, "b(bcbc)");
  EXPECT_EQ(result.clock_before_hz, 3e9);
  EXPECT_EQ(result.clock_after_hz, 4e9);
}

TEST(Sample, NothingToRunIsAnError) {
  Scripted backend;
  EXPECT_THROW(sample(backend, Target{}, quick(), nullptr), Error);
}

TEST(Sample, PollCancelsBetweenBatches) {
  Scripted backend;
  int polls = 0;
  EXPECT_THROW(sample(backend, target(backend), quick(), [&] {
    if (++polls == 4) throw Cancelled();
  }), Cancelled);
  EXPECT_EQ(polls, 4);
}

TEST(Contention, ThresholdsByWhoseThreadsTheyAre) {
  const Load idle{.wall_s = 0.5};
  Load load = idle;
  EXPECT_FALSE(is_contended(load, false));
  load.run_delay_share = 0.03;
  EXPECT_TRUE(is_contended(load, false));
  EXPECT_FALSE(is_contended(load, true));  // a user's callable has threads of its own
  load.wall_s = 0.05;  // 1.5 ms: one other process, once
  EXPECT_FALSE(is_contended(load, false));
  load.run_delay_share = 0.2;  // 10 ms
  EXPECT_TRUE(is_contended(load, false));
  load = idle;
  load.cpu_share = 0.97;
  EXPECT_TRUE(is_contended(load, false));
  load.wall_s = 0.05;
  EXPECT_FALSE(is_contended(load, false));
  load = idle;
  load.process_run_delay_share = 0.5;
  EXPECT_FALSE(is_contended(load, false));
  EXPECT_TRUE(is_contended(load, true));
  load = idle;
  load.foreign_cores = 0.04;
  EXPECT_TRUE(is_contended(load, false));
  EXPECT_TRUE(is_contended(load, true));
}

TEST(Bracketed, FreezesThePredictionBeforeTheTargetRuns) {
  Scripted backend;
  int target_launches = 0;
  const Target made = doing([&] { backend.cost_s += 1e-3, ++target_launches; });
  int at_freeze = -1;
  const Bracketed result = sample_bracketed(backend, made, {target(backend), target(backend)}, quick(), [&](const auto& before) {
    EXPECT_EQ(before.size(), 2u);
    EXPECT_GE(before[0].size(), 3u);
    at_freeze = target_launches;
    return std::size_t{1};
  }, nullptr);
  EXPECT_EQ(at_freeze, 0);
  EXPECT_EQ(result.limiting, 1u);
  EXPECT_EQ(result.repeats, 0);
  EXPECT_FALSE(result.roof_moved);
  EXPECT_EQ(result.after_s.size(), 2u);
}

// Cores leave the clock of their widest instructions within a millisecond of others: that roof stands next to the work.
TEST(Bracketed, ARoofWithAClockOfItsOwnIsNextToTheTarget) {
  Scripted backend;
  std::string order;
  const auto named = [&](char name) {
    return doing([&backend, &order, name] {
      backend.cost_s += 1e-3;
      if (order.empty() || order.back() != name) order += name;
    });
  };
  Target compute = named('c');
  compute.clock = [] { return 3e9; };
  const Bracketed result = sample_bracketed(
      backend, named('w'), {named('m'), compute, named('l')}, quick(), [&](const auto&) { return std::size_t{1}; }, nullptr);
  EXPECT_EQ(order, "mlcwclm");
  EXPECT_EQ(result.before_s.size(), 3u);
  for (const auto& samples : result.after_s) EXPECT_GE(samples.size(), 3u);
}

// A roof whose first launches after a pause are slow, as those of a GPU whose clocks have fallen.
TEST(Bracketed, AGpuIsAwakeBeforeItsFirstBracket) {
  for (const bool on_host : {true, false}) {
    Scripted backend;
    backend.on_host = on_host;
    int launches = 0;
    const Target roof = doing([&] { backend.cost_s += ++launches < 4 ? 2e-3 : 1e-3; });  // a bracket begins with its second launch
    int freezes = 0;
    const Bracketed result = sample_bracketed(
        backend, target(backend), {roof}, quick(), [&](const auto&) { return ++freezes, std::size_t{0}; }, nullptr);
    EXPECT_EQ(result.before_s[0][0], on_host ? 2e-3 : 1e-3);
    EXPECT_EQ(freezes, 1 + result.repeats);
  }
}

TEST(Bracketed, ARoofThatMovesIsTriedThreeTimesAndSaid) {
  Scripted backend;
  double roof_s = 1e-3;
  const Target roof = doing([&] { backend.cost_s += roof_s; });
  const Target made = doing([&] { backend.cost_s += 1e-3, roof_s *= 1.001; });  // every run of the target slows the roof down
  int freezes = 0;
  const Bracketed result =
      sample_bracketed(backend, made, {roof}, quick(), [&](const auto&) { return ++freezes, std::size_t{0}; }, nullptr);
  EXPECT_TRUE(result.roof_moved);
  EXPECT_EQ(result.repeats, 2);
  EXPECT_EQ(freezes, 3);
}

TEST(Bracketed, AnotherRoofMayMove) {
  Scripted backend;
  double other_s = 1e-3;
  const Target other = doing([&] { backend.cost_s += other_s; });
  const Target made = doing([&] { backend.cost_s += 1e-3, other_s *= 1.01; });
  EXPECT_FALSE(bracketed(backend, made, {target(backend), other}).roof_moved);
}

TEST(Bracketed, EveryRoofIsFlushedOrNot) {
  Scripted backend;
  const int cold = 0, warm = 0, own = 0;
  Target roofs[2] = {target(backend), target(backend)}, made = target(backend);
  roofs[0].flush_each = made.flush_each = true;
  roofs[0].memory = {{{&cold, 4}}}, roofs[1].memory = {{{&warm, 4}}}, made.memory = {{{&own, 4}}};
  bracketed(backend, made, {roofs[0], roofs[1]});
  std::set<std::pair<const void*, bool>> seen(backend.flushed.begin(), backend.flushed.end());
  EXPECT_EQ(seen, (std::set<std::pair<const void*, bool>>{{&cold, true}, {&warm, false}, {&own, true}}));
}

TEST(Bracketed, ContentionIsTriedAgainAndSaid) {
  Scripted backend;
  backend.load.run_delay_share = 0.5;
  backend.load.wall_s = 0.5;
  const Bracketed result = bracketed(backend, target(backend), {target(backend)});
  EXPECT_TRUE(result.contended);
  EXPECT_EQ(result.repeats, 2);
  EXPECT_EQ(backend.loads, 3);
}

}  // namespace
}  // namespace roofline
