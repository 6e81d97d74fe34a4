// fma on a GPU: chains of multiply-adds in registers, on the CUDA cores.
//
// A chain's next step waits 4 cycles (fp64 on some GPUs longer) for the one before, and an SM partition issues one warp a cycle:
// eight chains per thread and four warps per partition leave no cycle empty. Every thread has as many chains as any other.
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/probes/fma_kernels.cuh"
#include "ops/fma.h"

namespace roofline::cuda {
namespace {

using ops::Fma;

constexpr const char* kPairs = "f32x2";  // the one instruction set to choose: fp32 two by two

template <class V>
Bound bind_lanes(const Fma& problem, Device& device) {
  using T = typename V::Element;
  if (problem.pattern != Fma::Pattern::fma)
    throw Unsupported("fma: the pattern fma_add is for CPUs with separate pipes for additions; use fma on a GPU");
  const KernelFacts facts = kernel_facts(device, fma_kernel<V>, kFmaThreads);
  constexpr int kChains = kFmaRegisters * V::kLanes;
  const std::int64_t grid =
      even_grid(ceil_div(problem.chains, kFmaThreads * kChains), device.properties().sms, facts.blocks_per_sm);

  Bound bound = planned("registers", device);
  bound.plan.set("isa", Value(problem.isa));
  add_step(bound, {"fma", "fma_kernel"}, fma_kernel<V>, facts, {grid, kFmaThreads}, static_cast<const T*>(problem.start),
           static_cast<T*>(problem.result), problem.chains, problem.steps, T(3.f), T(5.f), T(-5.f));
  bound.plan.set("chains_per_thread", kChains);
  bound.plan.set("chains_resident", Value(grid * kFmaThreads * kChains));
  return bound;
}

template <class V>
Bound bind(const Fma& problem, Device& device) {
  if (!problem.isa.empty())
    throw Unsupported("fma: " + name(problem.dtype) + " on a GPU has no instruction set '" + problem.isa + "'; leave it empty");
  return bind_lanes<V>(problem, device);
}

Bound bind_fp32(const Fma& problem, Device& device) {
  if (problem.isa != kPairs) {
    if (problem.isa.empty()) return bind_lanes<Lane<float>>(problem, device);
    throw Unsupported("fma: fp32 on a GPU has no instruction set '" + problem.isa + "'; use f32x2, or leave it empty");
  }
  if (device.properties().capability / 10 != 10)  // elsewhere ptxas makes two ordinary ones of it
    throw Unsupported("fma: f32x2 is an instruction of sm_100 and sm_103, and this GPU is " + device.properties().architecture());
  return bind_lanes<FloatLanes>(problem, device);
}

}  // namespace

std::vector<KernelEntry> fma_kernels() {
  return {entry("registers", DType::fp32, "", bind_fp32), entry("registers", DType::fp64, "", bind<Lane<double>>),
          entry("registers", DType::fp16, "", bind<HalfLanes>)};
}

}  // namespace roofline::cuda
