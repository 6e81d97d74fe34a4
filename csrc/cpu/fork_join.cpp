// fork_join on a CPU: nothing, on the calling thread alone or on every thread of the pool.
#include "ops/fork_join.h"

#include "cpu/device.h"
#include "cpu/kernels.h"

namespace roofline::cpu {
namespace {

Bound call(const ops::ForkJoin& problem, Device&) {
  Bound bound;
  bound.plan.set("implementation", "call");
  bound.plan.set("threads", 1);
  const Launch empty = [](Queue&) {};
  bound.steps.push_back({"fork_join", problem.calls == 1 ? empty : [calls = problem.calls, empty](Queue& queue) {
    for (std::int64_t i = 0; i < calls; ++i) empty(queue);
  }});
  return bound;
}

Bound pool_run(const ops::ForkJoin& problem, Device& device) {
  Bound bound = planned("pool", device);
  bound.steps.push_back({"fork_join", [calls = problem.calls](Queue& queue) {
    for (std::int64_t i = 0; i < calls; ++i) pool(queue).run([](int) {});
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> fork_join_kernels() {
  return {entry("call", DType::fp32, "", call), entry("pool", DType::fp32, "", pool_run)};
}

}  // namespace roofline::cpu
