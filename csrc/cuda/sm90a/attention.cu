// attention with roles for warpgroups, for sm_90a alone.
//
// A tile of 128 x 128 pairs at head_dim 128 takes 2048 cycles of an SM's tensor units, 1056 of its units for exponentials, and
// about 980 of the 2048 issue slots of each quarter; at head_dim 64 tensor units and exponentials take as long as each other. At
// 256 q kᵀ of 64 keys reads shared memory at its full rate, 128 bytes a cycle.
// Measured on an H200 in bf16, 8192 queries and keys of 2 x 16 heads (at head_dim 64, 2 x 32), in TFLOP/s without masked pairs,
// for 5 ms after 10 ms of rest, at 1.98 GHz: 573 at head_dim 64, causal 521; 718 and 712 at 128; 799 at 192; 814 and 774 at 256.
// Without rest, limited by power: 522 and 488, 639 and 634, 700, 718 and 682.
#include <cuda_runtime.h>

#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/sm90a/attention.cuh"
#include "cuda/sm90a/bind.h"
#include "cuda/sm90a/tensor_map.h"

namespace roofline::cuda {
namespace {

using ops::Attention;

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    warp_specialized_kernel(const __grid_constant__ WarpSpecializedWork work, const __grid_constant__ AttentionMaps maps) {
  warp_specialized_attention<T, Shape>(work, maps);
}

template <class T, class Shape>
Bound bind_with(const Attention& problem, Device& device) {
  const Properties& gpu = device.properties();
  const std::int64_t kv_heads = problem.batch * problem.kv_heads, kv_bytes = 4 * problem.seq_kv * problem.head_dim;
  WarpSpecializedWork work;
  work.out = problem.out, work.logsumexp = problem.logsumexp, work.head_dim = static_cast<int>(problem.head_dim);
  work.tiling = plan_queries(problem.batch * problem.heads, kv_heads, problem.seq_q, kv_bytes, Shape::kBlockQ, gpu.l2_bytes);
  refuse("attention", size_refuses("warp_specialized", problem.seq_kv, work.tiling));
  work.seq_q = static_cast<int>(problem.seq_q), work.seq_kv = static_cast<int>(problem.seq_kv), work.causal = problem.causal;
  work.scale = exponent_scale(problem.head_dim);

  const auto kernel = warp_specialized_kernel<T, Shape>;
  const KernelFacts facts = kernel_facts(device, kernel, Shape::kThreads, Shape::kSharedBytes);
  work.grid = static_cast<int>(persistent_grid(work.tiling.blocks(), gpu.sms, facts.blocks_per_sm));
  const std::shared_ptr<void> memory = workspace(device, sizeof(unsigned));
  device.fill(memory.get(), DType::int8, sizeof(unsigned), Fill::zeros, 0);
  work.drawn = static_cast<unsigned*>(memory.get());

  const auto map = [&](const void* data, std::int64_t matrices, std::int64_t rows, int box_rows) {
    return tensor_map("attention: warp_specialized", data, problem.dtype, matrices, rows, problem.head_dim, box_rows);
  };
  AttentionMaps maps;
  maps.q = map(problem.q, work.tiling.units, work.tiling.unit_rows, Shape::kGroupRows);
  maps.k = map(problem.k, kv_heads, problem.seq_kv, Shape::kBlockKv);
  maps.v = map(problem.v, kv_heads, problem.seq_kv, Shape::kBlockKv);

  Bound bound;
  bound.plan.set("implementation", "warp_specialized/wgmma/sm_90a");
  bound.plan.set("query_block", Shape::kBlockQ);
  bound.plan.set("kv_block", Shape::kBlockKv);
  bound.plan.set("kv_buffers", Shape::kSlots);
  bound.plan.set("heads_together", work.tiling.heads_per_unit);
  bound.plan.set("section", work.tiling.section);
  bound.plan.set("workspace_bytes", Value(static_cast<std::int64_t>(sizeof(unsigned))));
  add_step(bound, {"attention", "warp_specialized_kernel"}, kernel, facts,
           {work.grid, Shape::kThreads, Shape::kSharedBytes, memory}, work, maps);
  return bound;
}

template <class T>
Bound bind(const Attention& problem, Device& device) {
  if (problem.head_dim <= 64) return bind_with<T, WarpSpecializedShape<64, 128, 3, 4, 2>>(problem, device);
  if (problem.head_dim <= 128) return bind_with<T, WarpSpecializedShape<128, 128, 2, 5, 2>>(problem, device);
  if (problem.head_dim <= 192) return bind_with<T, WarpSpecializedShape<192, 128, 2, 3, 1>>(problem, device);
  return bind_with<T, WarpSpecializedShape<256, 64, 2, 5, 1>>(problem, device);
}

}  // namespace

Bound bind_attention_warp_specialized(const Attention& problem, Device& device) {
  refuse("attention", head_refuses("warp_specialized", problem.head_dim, 2));
  if (!aligned(problem.q, problem.k, problem.v, problem.out))
    throw Unsupported("attention: warp_specialized takes tensors that begin at multiples of 16 bytes; copy them, or use naive");
  return problem.dtype == DType::bf16 ? bind<Bf16>(problem, device) : bind<Fp16>(problem, device);
}

}  // namespace roofline::cuda
