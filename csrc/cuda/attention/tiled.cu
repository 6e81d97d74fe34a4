// attention on a GPU, tiled: fp16 and bf16 on tensor cores through mma.sync, fp32 on the CUDA cores. Portable from sm_80 on.
//
// On an H200, batch 2, 8k keys, bf16: 357 TFLOP/s at head_dim 128 (16 heads) and 324 at 64 (32 heads) without a mask, 322 and 305
// with one, of 625 that mma.sync reaches there; fp32, 4k keys: 31 at head_dim 128, 46 % of the multiply-add peak.
#include <cuda_runtime.h>

#include "cuda/attention/fp32.cuh"
#include "cuda/attention/tiled.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "ops/attention.h"

namespace roofline::cuda {
namespace {

using ops::Attention;

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2) tiled_kernel(const TiledWork work) {
  tiled_attention<T, Shape>(work);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) tiled_fp32_kernel(const TiledWork work) {
  fp32_attention<Shape>(work);
}

TiledWork tiled_work(const Attention& problem, const Device& device, std::int64_t element_bytes, int block_q) {
  TiledWork work;
  work.q = problem.q, work.k = problem.k, work.v = problem.v, work.out = problem.out;
  const std::int64_t kv_bytes = 2 * problem.seq_kv * problem.head_dim * element_bytes;
  work.tiling = plan_queries(problem.batch * problem.heads, problem.batch * problem.kv_heads, problem.seq_q, kv_bytes, block_q,
                             device.properties().l2_bytes);
  refuse("attention", size_refuses("tiled", problem.seq_kv, work.tiling));
  work.seq_q = static_cast<int>(problem.seq_q), work.seq_kv = static_cast<int>(problem.seq_kv);
  work.head_dim = static_cast<int>(problem.head_dim), work.causal = problem.causal;
  work.scale = exponent_scale(problem.head_dim);
  return work;
}

template <class Shape, class F>
Bound launch_tiled(F* kernel, const TiledWork& work, const Device& device, std::int64_t shared_bytes, int kv_buffers,
                   const char* path) {
  Bound bound = planned(path, device);
  bound.plan.set("query_block", Shape::kBlockQ);
  bound.plan.set("kv_block", Shape::kBlockKv);
  bound.plan.set("heads_together", work.tiling.heads_per_unit);
  bound.plan.set("section", work.tiling.section);
  if (kv_buffers > 0) bound.plan.set("kv_buffers", kv_buffers);
  bound.plan.set("workspace_bytes", 0);
  add_step(bound, {"attention", "tiled_kernel"}, kernel, kernel_facts(device, kernel, Shape::kThreads, shared_bytes),
           {work.tiling.blocks(), Shape::kThreads, shared_bytes}, work);
  return bound;
}

template <class T, class Shape>
Bound tiled_with(const Attention& problem, Device& device) {
  TiledWork work = tiled_work(problem, device, 2, Shape::kBlockQ);
  const Properties& gpu = device.properties();
  const Buffers buffers = need_buffers("attention: tiled", Shape::kQueryBytes, Shape::kSlotBytes, Shape::kMostSlots, 2,
                                       gpu.shared_bytes_per_sm, gpu.shared_bytes_per_block);
  work.slots = buffers.slots;
  return launch_tiled<Shape>(tiled_kernel<T, Shape>, work, device, buffers.shared_bytes, buffers.slots * Shape::kTogether,
                             "tiled/mma");
}

template <class T>
Bound tiled(const Attention& problem, Device& device) {
  problem.refuse_logsumexp("tiled");
  refuse("attention", head_refuses("tiled", problem.head_dim, 2));
  if (problem.head_dim <= 64) return tiled_with<T, TiledFor64>(problem, device);
  if (problem.head_dim <= 128) return tiled_with<T, TiledFor128>(problem, device);
  return tiled_with<T, TiledFor256>(problem, device);
}

template <class Shape>
Bound fp32_with(const Attention& problem, Device& device) {
  const TiledWork work = tiled_work(problem, device, 4, Shape::kBlockQ);
  return launch_tiled<Shape>(tiled_fp32_kernel<Shape>, work, device, Shape::kSharedBytes, 0, "tiled/fma");
}

Bound tiled_fp32(const Attention& problem, Device& device) {
  problem.refuse_logsumexp("tiled");
  refuse("attention", head_refuses("tiled", problem.head_dim, 4));
  if (problem.head_dim <= 64) return fp32_with<Fp32Shape<64, 128>>(problem, device);
  if (problem.head_dim <= 128) return fp32_with<Fp32Shape<128, 128>>(problem, device);
  return fp32_with<Fp32Shape<256, 64>>(problem, device);
}

}  // namespace

std::vector<KernelEntry> attention_tiled_kernels() {
  return {entry("tiled", DType::fp32, "", tiled_fp32), entry("tiled", DType::fp16, "sm_80", tiled<Fp16>),
          entry("tiled", DType::bf16, "sm_80", tiled<Bf16>)};
}

}  // namespace roofline::cuda
