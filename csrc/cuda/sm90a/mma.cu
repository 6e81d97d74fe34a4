// mma by wgmma, for sm_90a alone.
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/sm90a/bind.h"
#include "cuda/sm90a/mma_kernels.cuh"

namespace roofline::cuda {
namespace {

template <class In, class Sum>
__global__ void __launch_bounds__(kWgmmaThreads, 1) mma_wgmma_kernel(MmaWork work) {
  mma_warpgroups<In, Sum>(work);
}

auto choose(DType dtype) -> void (*)(MmaWork) {
  switch (dtype) {
    case DType::tf32: return mma_wgmma_kernel<Tf32, float>;
    case DType::fp16: return mma_wgmma_kernel<Fp16, float>;
    case DType::bf16: return mma_wgmma_kernel<Bf16, float>;
    case DType::int8: return mma_wgmma_kernel<Int8, std::int32_t>;
    default: return mma_wgmma_kernel<Fp8E4m3, float>;
  }
}

}  // namespace

Bound bind_mma_wgmma(const ops::Mma& problem, Device& device) {
  check_mma(problem, "wgmma", kWarpgroupTile, false);
  const auto kernel = choose(problem.dtype);
  const KernelFacts facts = kernel_facts(device, kernel, kWgmmaThreads, kWgmmaSharedBytes);
  const std::int64_t grid = persistent_grid(ceil_div(problem.tiles, kWarpgroups), device.properties().sms, facts.blocks_per_sm);
  const MmaWork work = {problem.a, problem.b, problem.c, problem.tiles, problem.steps, grid};
  Bound bound;
  bound.plan.set("implementation", "wgmma/sm_90a");
  bound.plan.set("instruction", Value("m64n256k" + std::to_string(32 / size_bytes(problem.dtype))));
  add_step(bound, {"mma", "mma_wgmma_kernel"}, kernel, facts, {grid, kWgmmaThreads, kWgmmaSharedBytes}, work);
  return bound;
}

}  // namespace roofline::cuda
