// mla_decode with roles for warpgroups, for sm_90a alone.
//
// A tile of 64 rows and 64 keys takes 2176 cycles of an SM's tensor units; its 74 KB have to come from L2 meanwhile. Measured on an
// H200 in bf16, a few launches in a row at 1.97 GHz: 669 TFLOP/s with 128 heads over 64 x 8192 keys and 646 over 128 x 4096 (0.218
// and 0.226 ms), 401 over 8 x 8192, 386 over 1 x 65536; 16 heads over 64 x 8192 keys take 0.151 ms, at 4.0 TB/s. Two blocks of a
// cluster that copy halves of each tile for both were slower by half: each waits for the other at every piece.
#include <cuda_runtime.h>

#include "cuda/attention/split_bind.cuh"
#include "cuda/sm90a/bind.h"
#include "cuda/sm90a/mla.cuh"
#include "cuda/sm90a/tensor_map.h"

namespace roofline::cuda {
namespace {

using ops::MlaDecode;

template <class T>
__global__ void __launch_bounds__(LatentShape::kThreads, 1)
    latent_kernel(const __grid_constant__ LatentWork work, const __grid_constant__ LatentMaps maps) {
  latent_attention<T>(work, maps);
}

template <class T>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ LatentWork work) {
  merge_latents<T>(work);
}

template <class T>
Bound bind(const MlaDecode& problem, Device& device) {
  using Shape = LatentShape;
  const std::int64_t rows = problem.heads * problem.seq_q, rank = problem.kv_lora_rank, rope_dim = problem.qk_rope_head_dim;
  LatentWork work;
  set_sizes(work, problem, Shape::kRows);
  const std::int64_t groups = std::max(device.properties().sms / work.row_chunks, 1);
  work.split = plan_split(problem.batch, ceil_div(problem.seq_kv, Shape::kStepKeys), groups, Shape::kLeastSteps, kBusyComputing);

  const auto map = [&](const void* data, std::int64_t count, std::int64_t columns) {
    return tensor_map("mla_decode", data, problem.dtype, problem.batch, count, columns, Shape::kRows);
  };
  LatentMaps maps;
  maps.q_latent = map(problem.q_latent, rows, rank), maps.q_rope = map(problem.q_rope, rows, rope_dim);
  maps.c = map(problem.c, problem.seq_kv, rank), maps.k_rope = map(problem.k_rope, problem.seq_kv, rope_dim);

  const auto kernel = latent_kernel<T>;
  Bound bound;
  bound.plan.set("implementation", "split_kv/wgmma/sm_90a");
  bound.plan.set("query_block", Shape::kRows);
  bound.plan.set("kv_block", Shape::kStepKeys);
  bound.plan.set("kv_buffers", Shape::kBuffers);
  const std::shared_ptr<void> memory =
      allocate_parts(work, std::int64_t{Shape::kRows} * work.row_chunks, Shape::kRank, device, bound.plan);
  add_step(bound, {"attention", "latent_kernel"}, kernel, kernel_facts(device, kernel, Shape::kThreads, Shape::kSharedBytes),
           {work.split.blocks * work.row_chunks, Shape::kThreads, Shape::kSharedBytes, memory}, work, maps);
  if (split_parts(work.split) == 0) return bound;
  const auto merge = merge_kernel<T>;
  add_step(bound, {"merge", "merge_kernel", "merge_"}, merge, kernel_facts(device, merge, kMergeThreads),
           {merge_blocks(problem.batch, rows), kMergeThreads, 0, memory}, work);
  return bound;
}

}  // namespace

std::optional<Bound> bind_mla_decode_wgmma(const MlaDecode& problem, Device& device) {
  if (!device.lacks("sm_90a").empty()) return {};
  if (problem.batch > kMostSplitSteps / ceil_div(problem.seq_kv, LatentShape::kStepKeys)) return {};
  if (!aligned(problem.q_latent, problem.q_rope, problem.c, problem.k_rope, problem.out)) return {};
  return problem.dtype == DType::bf16 ? bind<Bf16>(problem, device) : bind<Fp16>(problem, device);
}

}  // namespace roofline::cuda
