// attention on a GPU: binding naive (cuda/attention/naive.cuh), and the list of all variants.
#include <algorithm>
#include <cmath>

#include "cuda/attention/naive.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/sm90a/bind.h"
#include "ops/attention.h"

namespace roofline::cuda {
namespace {

using ops::Attention;

template <class T>
Bound naive(const Attention& problem, Device& device) {
  problem.refuse_logsumexp("naive");
  const NaiveShape shape = {problem.batch * problem.heads, problem.batch * problem.kv_heads, problem.seq_q, problem.seq_kv,
                            problem.head_dim, problem.group(), problem.causal};
  const TileGrid score_tiles = tile_grid(shape.heads, shape.seq_q, shape.seq_kv, kNaiveQueries, kNaiveKeys);
  const TileGrid value_tiles = tile_grid(shape.heads, shape.seq_q, shape.head_dim, kNaiveQueries, kNaiveValues);
  const std::int64_t rows = shape.heads * shape.seq_q;
  const std::int64_t workspace_bytes = rows * shape.seq_kv * 4;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  float* scores = static_cast<float*>(memory.get());
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_dim)));

  Bound bound = planned("naive", device);
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.plan.set("block_q", kNaiveQueries);
  bound.plan.set("block_kv", kNaiveKeys);
  // Not persistent: causal tiles differ in length, and the hardware hands out blocks as others end.
  const auto add = [&](const StepNames& names, auto* kernel, std::int64_t tiles, auto... given) {
    const Grid grid = {passing_grid(tiles), kNaiveThreads, 0, memory};
    add_step(bound, names, kernel, kernel_facts(device, kernel, kNaiveThreads), grid, given...);
  };
  add({"q·kᵀ", "scores_kernel", "scores_"}, scores_kernel<T>, score_tiles.tiles(), static_cast<const T*>(problem.q),
      static_cast<const T*>(problem.k), scores, shape, score_tiles, scale);
  add({"softmax", "softmax_kernel", "softmax_"}, softmax_kernel, rows, scores, shape);
  add({"p·v", "values_kernel", "values_"}, values_kernel<T>, value_tiles.tiles(), scores, static_cast<const T*>(problem.v),
      static_cast<T*>(problem.out), shape, value_tiles);
  return bound;
}

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  return joined({floating_kernels<Attention>("naive", naive<float>, naive<__half>, naive<__nv_bfloat16>),
                 attention_library_kernels(), attention_tiled_kernels(),
                 kernels_of({DType::fp16, DType::bf16}, "warp_specialized", "sm_90a", bind_attention_warp_specialized),
                 attention_split_kernels()});
}

}  // namespace roofline::cuda
