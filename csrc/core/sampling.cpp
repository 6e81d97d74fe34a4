#include "core/sampling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "core/stopwatch.h"

namespace roofline {
namespace {

constexpr double kContendedShare = 0.02;  // run delay, or CPU time missing from wall time
// Time slices of another process are of 3 to 4 ms: two lengthen a sample or two of a short window, which its median does not show.
constexpr double kTwoSlices_s = 8e-3;
constexpr double kForeignCores = 0.03;    // kept busy by other processes, over a second or more
constexpr double kRoofMoved = 0.05;
constexpr double kSteady = 0.005;         // warm-up ends when samples differ by less than this
constexpr int kSteadyBatches = 5;
// Where every launch is timed alone, emptying the caches can take far longer than the timed launch: a batch need only be long against
// the clock's resolution (tens of ns).
constexpr double kFlushedBatch_s = 20e-6;

// Batches of one target, in turn over its sets.
class Batches {
 public:
  Batches(Backend& backend, const Target& target, double batch_s, const Poll& poll)
      : backend_(backend), target_(target), poll_(poll) {
    if (target.sets.empty()) throw Error("sampling: nothing to run");
    if (target.callable && target.flush_each) throw Error("sampling: the caches are not emptied before a callable");
    if (target.flush_each) batch_s = std::min(batch_s, kFlushedBatch_s);
    // A first call may compile, load and allocate: how long it takes says nothing of a batch's length.
    if (target.callable) run();
    // Grow the batch until it is long enough; every set has then been touched or the launches are long anyway.
    for (;;) {
      const double seconds = run();
      if (seconds >= batch_s) break;
      const double wanted = static_cast<double>(launches_) * std::min(10.0, 1.2 * batch_s / std::max(seconds, 1e-9));
      launches_ = std::max(launches_ + 1, static_cast<std::int64_t>(std::ceil(wanted)));
    }
  }

  double next() { return run() / static_cast<double>(launches_); }
  std::int64_t launches() const { return launches_; }

 private:
  double run() {
    if (poll_) poll_();
    const Range range(backend_, target_.name);
    const Pin pin = target_.callable ? Pin::never : Pin::always;
    Batch batch{&target_.sets, first_, launches_, target_.flush_each, pin, target_.host_timed, target_.stream.get()};
    batch.entries = target_.entries;
    batch.memory = &target_.memory;
    // A callable may run kernels of ours, on threads of its own too.
    std::optional<Turn::Held> turn;
    if (!target_.callable) turn.emplace(backend_.turn(), poll_);
    const double seconds = backend_.run_batch(batch);
    first_ = (first_ + launches_) % static_cast<std::int64_t>(target_.sets.size());
    return seconds;
  }

  Backend& backend_;
  const Target& target_;
  const Poll& poll_;
  std::int64_t first_ = 0;
  std::int64_t launches_ = 1;
};

// Between begin_load and end_load, also where a batch throws.
class Window {
 public:
  explicit Window(Backend& backend) : backend_(backend) { backend_.begin_load(); }
  ~Window() {
    if (!open_) return;
    try {
      backend_.end_load();
    } catch (const std::exception&) {  // another one is on its way
    }
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  Load end() {
    open_ = false;
    return backend_.end_load();
  }

 private:
  Backend& backend_;
  bool open_ = true;
};

double warm_up(Batches& batches, const Policy& policy) {
  const Stopwatch watch;
  double reference = 0;
  int steady = 0;
  for (;;) {
    const double value = batches.next();
    steady = std::abs(value - reference) <= kSteady * value ? steady + 1 : 0;
    reference = value;
    const double elapsed = watch.seconds();
    // A steady state that does not come in time (a noisy machine) is left to the statistics.
    if ((steady >= kSteadyBatches && elapsed >= policy.warmup_min_s) || elapsed >= policy.warmup_max_s) return elapsed;
  }
}

double clock_hz(Backend& backend, const Target& target, const Poll& poll) {
  if (!target.clock) return backend.clock_hz();
  const Turn::Held turn(backend.turn(), poll);
  return target.clock();
}

std::vector<double> bracket(Backend& backend, const Target& roof, const Policy& policy, const Poll& poll) {
  const Stopwatch watch;
  Batches batches(backend, roof, policy.bracket_s / 5, poll);
  std::vector<double> samples;
  while (samples.size() < 3 || watch.seconds() < policy.bracket_s) samples.push_back(batches.next());
  return samples;
}

constexpr double kCorrelated = 0.3;  // above it samples that follow each other are not independent
constexpr double kMostCorrelated = 0.99;

// Correlation of each sample with the next; 0 for fewer than ten samples, or equal ones.
double autocorrelation(const std::vector<double>& samples) {
  if (samples.size() < 10) return 0;
  double mean = 0, total = 0, next = 0;
  for (const double sample : samples) mean += sample / static_cast<double>(samples.size());
  for (const double sample : samples) total += (sample - mean) * (sample - mean);
  for (std::size_t i = 1; i < samples.size(); ++i) next += (samples[i - 1] - mean) * (samples[i] - mean);
  return total > 0 ? next / total : 0;
}

}  // namespace

void Policy::check() const {
  const std::pair<const char*, double> all[] = {{"warmup_min_s", warmup_min_s}, {"warmup_max_s", warmup_max_s},
                                                {"batch_s", batch_s}, {"min_s", min_s}, {"max_s", max_s}, {"noise", noise},
                                                {"bracket_s", bracket_s}};
  for (const auto& [name, value] : all)
    if (!(value >= 0) || std::isinf(value))
      throw Error(std::string("sampling policy: ") + name + " must be a number of at least 0");
  if (min_samples < 3 || tries < 1) throw Error("sampling policy: min_samples must be at least 3 and tries at least 1");
  if (warmup_max_s < warmup_min_s) throw Error("sampling policy: warmup_max_s must be at least warmup_min_s");
}

Interval median_interval(std::vector<double> samples) {
  const double r = std::min(autocorrelation(samples), kMostCorrelated);
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<std::int64_t>(samples.size());
  if (n == 0) return {NAN, NAN, NAN};
  const double middle = n % 2 ? samples[n / 2] : 0.5 * (samples[n / 2 - 1] + samples[n / 2]);
  const double spread = 1.96 * std::sqrt(static_cast<double>(n)) * (r > kCorrelated ? std::sqrt((1 + r) / (1 - r)) : 1);
  const auto low = static_cast<std::int64_t>(std::floor((static_cast<double>(n) - spread) / 2));
  const auto high = static_cast<std::int64_t>(std::ceil(1 + (static_cast<double>(n) + spread) / 2));
  const auto at = [&](std::int64_t rank) { return samples[std::clamp<std::int64_t>(rank, 1, n) - 1]; };
  return {middle, at(low), at(high)};
}

bool is_contended(const Load& load, bool callable) {
  if (load.throttled) return true;
  if (load.foreign_cores > kForeignCores) return true;
  const auto matters = [&](double lost) { return lost > kContendedShare && lost * load.wall_s > kTwoSlices_s; };
  if (callable) return matters(load.process_run_delay_share);
  return matters(load.run_delay_share) || matters(1 - load.cpu_share);
}

Sampled sample(Backend& backend, const Target& target, const Policy& policy, const Poll& poll) {
  policy.check();
  Batches batches(backend, target, policy.batch_s, poll);
  Sampled result;
  result.launches_per_sample = batches.launches();
  // To look at the load takes up to a millisecond, in which cores with wide vectors change their clock: where the clock is that of
  // the work itself, all of it is looked at, warm-up included.
  std::optional<Window> window;
  if (target.clock) window.emplace(backend);
  result.warmup_s = warm_up(batches, policy);
  result.clock_before_hz = clock_hz(backend, target, poll);
  batches.next();  // the clock probe left the pool asleep and the caches as they were
  if (!window) window.emplace(backend);
  const Stopwatch watch;
  for (;;) {
    result.samples_s.push_back(batches.next());
    const double elapsed = watch.seconds();
    const auto n = static_cast<int>(result.samples_s.size());
    if (n >= policy.min_samples && elapsed >= policy.min_s) {
      const Interval interval = median_interval(result.samples_s);
      if (interval.high - interval.low <= 2 * policy.noise * interval.median) {
        result.stop_reason = "noise";
        break;
      }
    }
    if (elapsed >= policy.max_s && (n >= 3 || elapsed >= 3 * policy.max_s)) {
      result.stop_reason = "time";
      break;
    }
  }
  if (target.clock) result.clock_after_hz = clock_hz(backend, target, poll);
  result.load = window->end();
  if (!target.clock) result.clock_after_hz = clock_hz(backend, target, poll);
  return result;
}

Bracketed sample_bracketed(Backend& backend, const Target& target, const std::vector<Target>& roofs, const Policy& policy,
                           const Freeze& freeze, const Poll& poll) {
  policy.check();
  Bracketed result;
  // A GPU has waited while the host checked results: its clocks fall meanwhile, and take milliseconds to rise again.
  if (!roofs.empty() && !backend.host_memory()) {
    Policy rise = policy;
    rise.warmup_min_s = policy.bracket_s;
    rise.warmup_max_s = 4 * policy.bracket_s;
    Batches batches(backend, roofs.front(), policy.bracket_s / 5, poll);
    warm_up(batches, rise);
  }
  // Next to the work those roofs that have a clock of their own: cores change theirs within a millisecond of other instructions.
  std::vector<std::size_t> order;
  for (const bool clocked : {false, true})
    for (std::size_t roof = 0; roof < roofs.size(); ++roof)
      if (static_cast<bool>(roofs[roof].clock) == clocked) order.push_back(roof);
  for (int attempt = 0;; ++attempt) {
    result.repeats = attempt;
    result.before_s.assign(roofs.size(), {});
    result.after_s.assign(roofs.size(), {});
    for (const std::size_t roof : order) result.before_s[roof] = bracket(backend, roofs[roof], policy, poll);
    result.limiting = freeze(result.before_s);
    result.sampled = sample(backend, target, policy, poll);
    for (auto roof = order.rbegin(); roof != order.rend(); ++roof)
      result.after_s[*roof] = bracket(backend, roofs[*roof], policy, poll);
    result.contended = is_contended(result.sampled.load, target.callable);
    result.roof_moved = false;
    if (result.limiting < roofs.size()) {
      const double before = median_interval(result.before_s[result.limiting]).median;
      const double after = median_interval(result.after_s[result.limiting]).median;
      result.roof_moved = std::max(before, after) / std::min(before, after) - 1 > kRoofMoved;
    }
    if ((!result.contended && !result.roof_moved) || attempt + 1 >= policy.tries) return result;
    if (result.contended) std::this_thread::sleep_for(std::chrono::milliseconds(50 << std::min(attempt, 5)));
  }
}

}  // namespace roofline
