// The thread pool: every worker once per run, every item once, through sleeping and forking; and under ThreadSanitizer.
#include "cpu/pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "forked.h"

namespace roofline::cpu {
namespace {

// More threads than CPUs share them: the CPUs repeat.
std::vector<int> cpus(int threads) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> usable;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) usable.push_back(cpu);
  std::vector<int> all;
  for (int i = 0; i < threads; ++i) all.push_back(usable[i % usable.size()]);
  return all;
}

// Plain memory, on lines of its own: what a worker writes is read by the caller after the run, without any atomics.
struct alignas(64) Cell {
  std::int64_t value = 0;
};

bool runs_on_every_worker(Pool& pool, int times) {
  std::vector<Cell> calls(pool.threads());
  for (int i = 0; i < times; ++i) pool.run([&](int worker) { ++calls[worker].value; });
  for (const Cell& cell : calls)
    if (cell.value != times) return false;
  return true;
}

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }  // past the workers' spinning

class PoolTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, PoolTest, testing::Values(1, 2, 3, 4));

TEST_P(PoolTest, RunsEveryWorkerOnce) {
  Pool pool(cpus(GetParam()));
  EXPECT_EQ(pool.threads(), GetParam());
  EXPECT_TRUE(runs_on_every_worker(pool, 50));
}

TEST_P(PoolTest, TheCallerIsWorkerZero) {
  Pool pool(cpus(GetParam()));
  std::vector<std::thread::id> ids(GetParam());
  pool.run([&](int worker) { ids[worker] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  for (int worker = 1; worker < GetParam(); ++worker) EXPECT_NE(ids[worker], ids[0]);
}

TEST_P(PoolTest, HandsOutEveryItemOnce) {
  Pool pool(cpus(GetParam()));
  for (const std::int64_t items : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::int64_t> times(items), workers(items, -1);
    pool.for_each(items, [&](int worker, std::int64_t item) {
      ++times[item];
      workers[item] = worker;
    });
    for (std::int64_t item = 0; item < items; ++item) {
      EXPECT_EQ(times[item], 1) << item;
      EXPECT_GE(workers[item], 0);
      EXPECT_LT(workers[item], GetParam());
    }
  }
}

TEST_P(PoolTest, MoreItemsThanItCountsAreRefused) {
  Pool pool(cpus(GetParam()));
  EXPECT_THROW(pool.for_each(std::int64_t{1} << 32, [](int, std::int64_t) {}), Error);
}

TEST_P(PoolTest, ResultsAreVisibleToTheNextRun) {
  Pool pool(cpus(GetParam()));
  std::vector<Cell> cells(GetParam());
  for (int round = 0; round < 40; ++round)
    pool.run([&](int worker) {
      // Each worker continues from what its neighbour left in the round before.
      if (worker == round % pool.threads()) cells[worker].value = cells[(worker + pool.threads() - 1) % pool.threads()].value + 1;
    });
  EXPECT_EQ(cells[39 % GetParam()].value, 40);
}

TEST_P(PoolTest, WakesAfterSleeping) {
  Pool pool(cpus(GetParam()));
  for (int round = 0; round < 5; ++round) {
    nap();
    EXPECT_TRUE(runs_on_every_worker(pool, 3));
  }
}

TEST_P(PoolTest, EndsInAnyState) {
  { Pool never_run(cpus(GetParam())); }
  {
    Pool asleep(cpus(GetParam()));
    nap();
  }
  Pool busy(cpus(GetParam()));
  EXPECT_TRUE(runs_on_every_worker(busy, 10));
}

TEST_P(PoolTest, PinningIsUndone) {
  cpu_set_t before, pinned, after;
  sched_getaffinity(0, sizeof before, &before);
  {
    Pool pool(cpus(GetParam()));
    const Pool::Pinned outer(pool);
    { const Pool::Pinned inner(pool); }
    sched_getaffinity(0, sizeof pinned, &pinned);
    EXPECT_EQ(CPU_COUNT(&pinned), 1);
    EXPECT_TRUE(CPU_ISSET(cpus(1)[0], &pinned));
    EXPECT_TRUE(runs_on_every_worker(pool, 5));
  }
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST_P(PoolTest, LoadIsSane) {
  Pool pool(cpus(GetParam()));
  pool.begin_load();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(30)) pool.run([](int) {});
  const Load load = pool.end_load();
  EXPECT_GE(load.wall_s, 0.03);
  EXPECT_GE(load.cpu_share, 0);
  EXPECT_LE(load.cpu_share, 1);
  EXPECT_GE(load.run_delay_share, 0);
}

#if !defined(__SANITIZE_THREAD__)  // which has no threads after a fork of a process with threads
TEST_P(PoolTest, WorksInAForkedChild) {
  Pool pool(cpus(GetParam()));
  ASSERT_TRUE(runs_on_every_worker(pool, 3));
  EXPECT_EQ(status_of_child([&] { return runs_on_every_worker(pool, 20); }), 0);
  EXPECT_EQ(status_of_child([&] {
              nap();
              std::int64_t items[64] = {};
              pool.for_each(64, [&](int, std::int64_t item) { items[item] += item; });
              for (std::int64_t i = 0; i < 64; ++i)
                if (items[i] != i) return false;
              return runs_on_every_worker(pool, 20);
            }),
            0);
  EXPECT_EQ(status_of_child([&] {  // the child of a child
              if (!runs_on_every_worker(pool, 2)) return false;
              return status_of_child([&] { return runs_on_every_worker(pool, 2); }) == 0 && runs_on_every_worker(pool, 2);
            }),
            0);
  EXPECT_TRUE(runs_on_every_worker(pool, 20)) << "the parent, afterwards";
}

TEST_P(PoolTest, EndsInAForkedChildThatNeverRan) {
  auto pool = std::make_unique<Pool>(cpus(GetParam()));
  ASSERT_TRUE(runs_on_every_worker(*pool, 3));
  EXPECT_EQ(status_of_child([&] { return pool.reset(), true; }), 0);
}
#endif

TEST(PoolStress, ManyRunsWithNaps) {
  Pool pool(cpus(3));
  std::vector<Cell> cells(3);
  std::int64_t shared = 0;  // written by one worker per run: a missed hand-over is a race
  std::int64_t expected = 0;
  for (int round = 0; round < 400; ++round) {
    pool.run([&](int worker) {
      ++cells[worker].value;
      if (worker == round % 3) ++shared;
    });
    ++expected;
    ASSERT_EQ(shared, expected);
    if (round % 150 == 149) nap();
    if (round % 133 == 0) {
      std::vector<int> seen(50);
      pool.for_each(50, [&](int, std::int64_t item) { ++seen[item]; });
      for (const int times : seen) ASSERT_EQ(times, 1);
    }
  }
  for (const Cell& cell : cells) EXPECT_EQ(cell.value, 400);
}

TEST(PoolStress, ManyPools) {
  for (int round = 0; round < 24; ++round) {
    Pool pool(cpus(1 + round % 4));
    ASSERT_TRUE(runs_on_every_worker(pool, round % 3));
  }
}

TEST(PoolStress, TwoPoolsSideBySide) {
  Pool one(cpus(2)), other(cpus(3));
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(runs_on_every_worker(one, 5));
    ASSERT_TRUE(runs_on_every_worker(other, 5));
  }
}

TEST(Pool, NeedsACpu) { EXPECT_THROW(Pool({}), Error); }

}  // namespace
}  // namespace roofline::cpu
