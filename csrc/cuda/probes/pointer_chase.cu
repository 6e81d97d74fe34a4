// pointer_chase on a GPU: one thread, one load in flight, through L1 where the set fits one and past it elsewhere.
#include <vector>

#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/probes/pointer_chase_kernels.cuh"

namespace roofline::cuda {
namespace {

using ops::PointerChase;

// L1 and shared memory are one array, and a set as large as shared memory can be stays in it beside what the kernel needs.
bool fits_l1(const PointerChase& problem, const Device& device) {
  return problem.size_bytes() <= device.properties().shared_bytes_per_sm;
}

struct Laid {
  std::shared_ptr<void> lines, chase;
};

Laid lay_out(const PointerChase& problem, Device& device) {
  Laid laid{workspace(device, problem.size_bytes()), workspace(device, sizeof(Chase))};
  device.use();
  Chase chase{nullptr, 0, -1};
  device.copy_in(laid.chase.get(), &chase, sizeof chase);
  ROOFLINE_CUDA(cudaMemsetAsync(laid.lines.get(), 0xFF, static_cast<std::size_t>(problem.size_bytes()), device.stream()));
  const std::int64_t grid = persistent_grid(ceil_div(problem.lines, kLayOutThreads), device.properties().sms, 8);
  lay_out_kernel<<<static_cast<unsigned>(grid), kLayOutThreads, 0, device.stream()>>>(
      static_cast<Line*>(laid.lines.get()), problem.order, problem.lines, static_cast<Chase*>(laid.chase.get()));
  ROOFLINE_CUDA_LAUNCHED("lay_out_kernel");
  device.copy_out(&chase, laid.chase.get(), sizeof chase);
  if (chase.wrong >= 0)
    throw Error("pointer_chase: tensor 'order' is no permutation of 0 to " + std::to_string(problem.lines - 1) +
                ": see its place " + std::to_string(chase.wrong));
  return laid;
}

Bound bind(const PointerChase& problem, Device& device) {
  if (!problem.huge_pages)
    throw Unsupported("pointer_chase: a GPU's memory is in pages of 2 MiB, and no others can be asked for; use pages huge");
  const bool near = fits_l1(problem, device);
  const auto kernel = near ? chase_kernel<Through::l1> : chase_kernel<Through::l2>;
  const KernelFacts facts = kernel_facts(device, kernel, kChaseThreads);
  if (near) ROOFLINE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1));
  const int threads = near ? kChaseThreads : 1;
  const Laid laid = lay_out(problem, device);
  const Launch launch = [=](Queue& queue) {
    kernel<<<1, threads, 0, stream(queue)>>>(static_cast<const Line*>(laid.lines.get()), problem.order, problem.lines, problem.hops,
                                             static_cast<Chase*>(laid.chase.get()), problem.reached);
    ROOFLINE_CUDA_LAUNCHED("chase_kernel");
  };
  // The second of two launches, warm and by the SM's own clock: cycles need no clock rate then.
  Chase seen{};
  for (int i = 0; i < 2; ++i) {
    launch(device);
    device.copy_out(&seen, laid.chase.get(), sizeof seen);
  }
  Bound bound = planned("one load a hop", device);
  record(bound.plan, "", facts, 1, threads);
  bound.plan.set("cache_operator", near ? "ca" : "cg");
  bound.plan.set("cycles_per_hop", static_cast<double>(seen.cycles) / static_cast<double>(problem.hops));
  bound.steps.push_back({"pointer_chase", launch});
  return bound;
}

}  // namespace

std::vector<KernelEntry> pointer_chase_kernels() { return {entry("dependent", DType::int32, "", bind)}; }

}  // namespace roofline::cuda
