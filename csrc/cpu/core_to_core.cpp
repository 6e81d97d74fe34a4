// core_to_core on a CPU: two workers count one number up in turn; its cache line moves with every count.
#include "ops/core_to_core.h"

#include <atomic>
#include <new>

#include <sched.h>

#include "cpu/device.h"
#include "cpu/kernels.h"

namespace roofline::cpu {
namespace {

// The pair of lines that an adjacent-line prefetcher fetches together, to itself.
struct alignas(128) Ball {
  std::atomic<std::int64_t> count{0};
};

// After so many looks the other worker is not running: on a shared core it never would be without a yield.
constexpr int kLooks = 4096;

void wait_for(const std::atomic<std::int64_t>& count, std::int64_t value) {
  for (int looks = 1; count.load(std::memory_order_acquire) != value; ++looks) {
    relax();
    if (looks % kLooks == 0) sched_yield();
  }
}

Bound bind(const ops::CoreToCore& problem, Device& device) {
  const auto threads = static_cast<std::int64_t>(device.threads());
  if (threads < 2)
    throw Unsupported("core_to_core: two threads are needed, this device was opened with one (or has one usable core)");
  if (problem.first >= threads || problem.second >= threads)
    throw Unsupported("core_to_core: thread " + std::to_string(std::max(problem.first, problem.second)) + " is wanted, there are " +
                      std::to_string(threads) + ", numbered from 0");
  const auto ball = std::make_shared<Ball>();
  Bound bound;
  bound.plan.set("implementation", "load, store");
  bound.plan.set("threads", 2);
  bound.steps.push_back({"core_to_core", [problem, ball](Queue& queue) {
    const std::int64_t begin = ball->count.load();
    pool(queue).run([&](int worker) {
      if (worker != problem.first && worker != problem.second) return;
      std::int64_t mine = begin + (worker == problem.first ? 0 : 1);  // the count at which it is this worker's turn
      for (std::int64_t round = 0; round < problem.rounds; ++round, mine += 2) {
        wait_for(ball->count, mine);
        ball->count.store(mine + 1, std::memory_order_release);
      }
    });
    *problem.handovers = static_cast<std::int32_t>(ball->count.load() - begin);
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> core_to_core_kernels() { return {entry("ping_pong", DType::fp32, "", bind)}; }

}  // namespace roofline::cpu
