// fork_join on a CPU: the pool runs nothing on every thread.
#include "ops/fork_join.h"

#include "cpu/device.h"
#include "cpu/kernels.h"

namespace roofline::cpu {
namespace {

Bound bind(const ops::ForkJoin&, Device& device) {
  Bound bound;
  bound.plan.set("implementation", "pool");
  bound.plan.set("threads", device.threads());
  bound.steps.push_back({"fork_join", [](Queue& queue) { pool(queue).run([](int) {}); }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> fork_join_kernels() {
  return {entry(Kernel<ops::ForkJoin, Device>{"pool", DType::fp32, "", "every thread is called and returns; no memory is touched", bind})};
}

}  // namespace roofline::cpu
