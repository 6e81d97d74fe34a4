// mixed_intensity on a GPU: binding the kernels of cuda/mixed_intensity_kernels.cuh.
#include "cuda/probes/mixed_intensity_kernels.cuh"

#include "cuda/kernels.h"
#include "cuda/launch.cuh"

namespace roofline::cuda {
namespace {

using ops::MixedIntensity;
using MixedKernel = void (*)(MixedWork);

// Small numbers of multiply-adds one by one, where a loop would show; larger ones in rounds of eight.
template <class T>
MixedKernel choose(std::int64_t multiply_adds, int& known) {
  known = 0;
  MixedKernel chosen = mixed_intensity_kernel<T, 0>;
  const auto among = [&]<int... Known>(std::integer_sequence<int, Known...>) {
    ((multiply_adds == Known ? (known = Known, chosen = mixed_intensity_kernel<T, Known>) : chosen), ...);
  };
  among(std::integer_sequence<int, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16>());
  return chosen;
}

template <class T>
Bound bind(const MixedIntensity& problem, Device& device) {
  if (!problem.isa.empty())
    throw Unsupported("mixed_intensity: isa '" + problem.isa + "' is an instruction set of CPUs; leave it empty on a GPU");
  if (problem.streams != 1) throw Unsupported("mixed_intensity: address streams are for CPUs' prefetchers; use streams 1 on a GPU");
  int known = 0;
  const MixedKernel kernel = choose<T>(problem.multiply_adds, known);
  const KernelFacts facts = kernel_facts(device, kernel, kMixedThreads);
  const std::int64_t element = sizeof(T);
  const std::int64_t grid = persistent_grid(ceil_div(problem.elements * element, 16 * kMixedThreads), device.properties().sms,
                                            facts.blocks_per_sm);
  std::shared_ptr<void> memory;
  MixedWork work{};
  work.a = problem.a;
  work.passes = problem.passes, work.steps = problem.multiply_adds - 1;
  work.every = static_cast<int>(problem.every);
  work.alpha = MixedIntensity::alpha, work.gamma = MixedIntensity::gamma;
  work.plan = plan_stream(problem.elements, element, aligned(problem.a), 1, kMixedVectors, kMixedThreads, grid);
  work.sum = grid_sum(device, problem.sum, grid, memory);

  Bound bound = planned("read", device);
  add_step(bound, {"mixed_intensity", "mixed_intensity_kernel"}, kernel, facts, {grid, kMixedThreads, 0, memory}, work);
  bound.plan.set("chains_per_thread", static_cast<int>(kMixedVectors * 16 / element));
  bound.plan.set("compiled_multiply_adds", known);
  bound.plan.set("workspace_bytes", Value(sum_workspace(work.sum, grid)));
  return bound;
}

}  // namespace

std::vector<KernelEntry> mixed_intensity_kernels() {
  return {entry("read", DType::fp32, "", bind<float>), entry("read", DType::fp64, "", bind<double>)};
}

}  // namespace roofline::cuda
