// mma on a GPU: the rate of the tensor units, by mma.sync on every architecture, and by wgmma in code of its own (sm90a/mma.cu).
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/probes/mma_kernels.cuh"
#include "cuda/sm90a/bind.h"

namespace roofline::cuda {
namespace {

using ops::Mma;

template <class In, class Sum>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks) mma_kernel(MmaWork work) {
  mma_words<In, Sum>(work);
}

template <bool Large>
__global__ void __launch_bounds__(kMmaThreads, kMmaDoubleBlocks) mma_double_kernel(MmaWork work) {
  mma_doubles<Large>(work);
}

struct Choice {
  void (*kernel)(MmaWork);
  const char* instruction;
};

Choice choose(const Mma& problem, int capability) {
  const bool half = problem.accumulator == DType::fp16;
  switch (problem.dtype) {
    case DType::fp64:
      if (capability >= 90) return {mma_double_kernel<true>, "m16n8k16"};
      return {mma_double_kernel<false>, "m8n8k4"};
    case DType::tf32: return {mma_kernel<Tf32, float>, "m16n8k8"};
    case DType::bf16: return {mma_kernel<Bf16, float>, "m16n8k16"};
    case DType::fp16: return {half ? mma_kernel<Fp16, Half> : mma_kernel<Fp16, float>, "m16n8k16"};
    case DType::int8: return {mma_kernel<Int8, std::int32_t>, "m16n8k32"};
    case DType::int4: return {mma_kernel<Int4, std::int32_t>, "m16n8k64"};
    default: return {half ? mma_kernel<Fp8E4m3, Half> : mma_kernel<Fp8E4m3, float>, "m16n8k32"};
  }
}

Bound bind_mma_sync(const Mma& problem, Device& device) {
  const int capability = device.properties().capability;
  check_mma(problem, "mma_sync", problem.dtype == DType::fp64 ? kWarpDoubleTile : kWarpTile, true);
  const std::string made =
      "mma mma_sync: on " + device.properties().architecture() + " mma.sync of " + name(problem.dtype) + " is made of ";
  if (problem.dtype == DType::fp8_e4m3 && capability != 89 && capability < 120)
    throw Unsupported(made + "fp16 products; its tensor units take fp8 by other instructions only");
  if (problem.dtype == DType::int4 && capability >= 90) throw Unsupported(made + "int8 products; its tensor units have no int4");
  const auto [kernel, instruction] = choose(problem, capability);
  const KernelFacts facts = kernel_facts(device, kernel, kMmaThreads);
  const std::int64_t grid = persistent_grid(ceil_div(problem.tiles, kMmaWarps), device.properties().sms, facts.blocks_per_sm);
  const MmaWork work = {problem.a, problem.b, problem.c, problem.tiles, problem.steps, grid};
  Bound bound = planned("mma_sync", device);
  bound.plan.set("instruction", instruction);
  add_step(bound, {"mma", "mma_kernel"}, kernel, facts, {grid, kMmaThreads}, work);
  return bound;
}

}  // namespace

std::vector<KernelEntry> mma_kernels() {
  return joined({kernels_of({DType::fp64, DType::tf32, DType::fp16, DType::bf16, DType::int8, DType::int4}, "mma_sync", "sm_80",
                            bind_mma_sync),
                 kernels_of({DType::fp8_e4m3}, "mma_sync", "sm_89", bind_mma_sync),
                 kernels_of({DType::tf32, DType::fp16, DType::bf16, DType::int8, DType::fp8_e4m3}, "wgmma", "sm_90a",
                            bind_mma_wgmma)});
}

}  // namespace roofline::cuda
