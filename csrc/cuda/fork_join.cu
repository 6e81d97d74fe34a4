// fork_join on a GPU: one empty launch, the floor below which no operator can be.
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "ops/fork_join.h"

namespace roofline::cuda {
namespace {

// Nothing is computed and no memory is touched.
__global__ void empty_kernel() {}

Bound bind(const ops::ForkJoin&, Device& device) {
  Bound bound;
  bound.plan.set("implementation", "pool/" + device.properties().architecture());
  record(bound.plan, "", kernel_facts(device, empty_kernel, 1), 1, 1);
  bound.steps.push_back({"fork_join", [](Queue& queue) {
    empty_kernel<<<1, 1, 0, stream(queue)>>>();
    ROOFLINE_CUDA_LAUNCHED("empty_kernel");
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> fork_join_kernels() {
  using K = Kernel<ops::ForkJoin, Device>;
  return {entry(K{"pool", DType::fp32, "", "one block of one thread returns at once; no memory is touched", bind})};
}

}  // namespace roofline::cuda
