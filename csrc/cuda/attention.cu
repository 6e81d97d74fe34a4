// attention on a GPU.
//
// naive: three kernels, with the scores of every query and key in memory between them.
//   q·kᵀ     one block per 128 x 64 tile of scores; reads q and k once per tile, writes fp32 scores
//   softmax  one block per row of scores; reads it twice, writes it once, in place
//   p·v      one block per 128 x 64 tile of the output; reads p and v once per tile, writes out in its own dtype
// Causal: tiles above the diagonal are skipped, and no score past a row's last visible key is ever read.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "core/random.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "ops/attention.h"

namespace roofline::cuda {
namespace {

using ops::Attention;

// Sizes and pointers as the kernels need them; Attention itself holds nothing else.
struct Shape4 {
  std::int64_t heads, kv_heads, seq_q, seq_kv, head_dim;  // heads: batch * heads; kv_heads: batch * kv_heads
  std::int64_t group;
  bool causal;
  __device__ std::int64_t visible(std::int64_t query) const { return causal ? query + seq_kv - seq_q + 1 : seq_kv; }
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void from_float(float* out, float x) { *out = x; }
__device__ inline void from_float(__half* out, float x) { *out = __float2half_rn(x); }
__device__ inline void from_float(__nv_bfloat16* out, float x) { *out = __float2bfloat16_rn(x); }

constexpr int kSide = 16;               // threads along a tile's rows and along its columns
constexpr int kThreads = kSide * kSide;
constexpr int kDepth = 16;              // of the reduction, per step through shared memory

// A tile of a b, 16*Rows x 16*Columns, by 256 threads: each keeps Rows x Columns sums in registers. Steps of kDepth go through
// shared memory as fp32. a(row, depth) and b(depth, column) load one element, or 0 outside. Threads run along b's depth or its
// columns, whichever is contiguous in memory; a's depth is. The padding of 4 keeps 16-byte reads aligned and
// spreads the writes over banks.
template <int Rows, int Columns, bool BAlongDepth, class A, class B>
__device__ void tile_product(float (&sums)[Rows][Columns], std::int64_t depth, A a, B b) {
  constexpr int kRows = kSide * Rows;
  constexpr int kColumns = kSide * Columns;
  __shared__ __align__(16) float a_tile[kDepth][kRows + 4];
  __shared__ __align__(16) float b_tile[kDepth][kColumns + 4];
  const int row = static_cast<int>(threadIdx.x) / kSide;
  const int column = static_cast<int>(threadIdx.x) % kSide;
  for (std::int64_t first = 0; first < depth; first += kDepth) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kRows; i += kThreads)
      a_tile[i % kDepth][i / kDepth] = a(i / kDepth, first + i % kDepth);
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kColumns; i += kThreads) {
      if constexpr (BAlongDepth)
        b_tile[i % kDepth][i / kDepth] = b(first + i % kDepth, i / kDepth);
      else
        b_tile[i / kColumns][i % kColumns] = b(first + i / kColumns, i % kColumns);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float left[Rows], right[Columns];
      // Groups of four neighbours, 64 apart: 16-byte reads without bank conflicts.
#pragma unroll
      for (int r = 0; r < Rows; r += 4)
        *reinterpret_cast<float4*>(left + r) = *reinterpret_cast<const float4*>(&a_tile[d][r * kSide + row * 4]);
#pragma unroll
      for (int c = 0; c < Columns; c += 4)
        *reinterpret_cast<float4*>(right + c) = *reinterpret_cast<const float4*>(&b_tile[d][c * kSide + column * 4]);
#pragma unroll
      for (int r = 0; r < Rows; ++r)
#pragma unroll
        for (int c = 0; c < Columns; ++c) sums[r][c] = fmaf(left[r], right[c], sums[r][c]);
    }
    __syncthreads();
  }
}

// Where sum i of a thread at position `at` lies along its side of the tile: groups of four, 64 apart.
__device__ inline int place(int i, int at) { return i / 4 * 4 * kSide + at * 4 + i % 4; }

// 128 columns would take 64 sums a thread, and the operands beside them spill at two blocks per SM.
constexpr int kQueries = 128;  // rows of a tile
constexpr int kKeys = 64;      // columns of a tile of scores
constexpr int kValues = 64;    // columns of a tile of the output

// scores = scale q kᵀ where a query sees a key; nothing is written elsewhere.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) scores_kernel(const T* q,     // [heads, seq_q, head_dim]
                                                          const T* k,     // [kv_heads, seq_kv, head_dim]
                                                          float* scores,  // [heads, seq_q, seq_kv]
                                                          Shape4 shape, TileGrid tiles, float scale) {
  for (std::int64_t tile = blockIdx.x; tile < tiles.rows * tiles.columns * tiles.matrices; tile += gridDim.x) {
    const std::int64_t head = tile / (tiles.rows * tiles.columns);
    const std::int64_t query = tile / tiles.columns % tiles.rows * kQueries;
    const std::int64_t key = tile % tiles.columns * kKeys;
    const std::int64_t last_query = query + kQueries < shape.seq_q ? query + kQueries - 1 : shape.seq_q - 1;
    if (key >= shape.visible(last_query)) continue;
    const T* q_head = q + head * shape.seq_q * shape.head_dim;
    const T* k_head = k + head / shape.group * shape.seq_kv * shape.head_dim;
    float sums[kQueries / kSide][kKeys / kSide] = {};
    tile_product<kQueries / kSide, kKeys / kSide, true>(
        sums, shape.head_dim,
        [&](int row, std::int64_t d) {
          return query + row < shape.seq_q && d < shape.head_dim ? to_float(q_head[(query + row) * shape.head_dim + d]) : 0.f;
        },
        [&](std::int64_t d, int column) {
          return key + column < shape.seq_kv && d < shape.head_dim ? to_float(k_head[(key + column) * shape.head_dim + d]) : 0.f;
        });
#pragma unroll
    for (int r = 0; r < kQueries / kSide; ++r) {
      const std::int64_t i = query + place(r, static_cast<int>(threadIdx.x) / kSide);
      if (i >= shape.seq_q) continue;
      const std::int64_t keys = shape.visible(i);
      float* out = scores + (head * shape.seq_q + i) * shape.seq_kv;
#pragma unroll
      for (int c = 0; c < kKeys / kSide; ++c) {
        const std::int64_t j = key + place(c, static_cast<int>(threadIdx.x) % kSide);
        if (j < keys) out[j] = scale * sums[r][c];
      }
    }
  }
}

struct MaxSum {
  float max;
  float sum;  // of exp(x - max)
};

__device__ inline MaxSum merge(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  // An empty half has max -inf, and -inf - -inf is not a number.
  const float left = a.sum == 0.f ? 0.f : a.sum * expf(a.max - max);
  const float right = b.sum == 0.f ? 0.f : b.sum * expf(b.max - max);
  return {max, left + right};
}

// One block per row: the first read finds maximum and sum, the second writes p over the scores.
__global__ void __launch_bounds__(kThreads) softmax_kernel(float* scores,  // [heads, seq_q, seq_kv]
                                                           Shape4 shape) {
  __shared__ MaxSum warps[kThreads / 32];
  const std::int64_t rows = shape.heads * shape.seq_q;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float* x = scores + row * shape.seq_kv;
    const std::int64_t keys = shape.visible(row % shape.seq_q);
    MaxSum mine = {-INFINITY, 0.f};
    for (std::int64_t j = threadIdx.x; j < keys; j += kThreads) mine = merge(mine, {x[j], 1.f});
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
      mine = merge(mine, {__shfl_xor_sync(0xFFFFFFFFu, mine.max, half), __shfl_xor_sync(0xFFFFFFFFu, mine.sum, half)});
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    MaxSum all = warps[0];
#pragma unroll
    for (int w = 1; w < kThreads / 32; ++w) all = merge(all, warps[w]);
    const float inverse = 1.f / all.sum;
    for (std::int64_t j = threadIdx.x; j < keys; j += kThreads) x[j] = expf(x[j] - all.max) * inverse;
    __syncthreads();  // before the next row overwrites warps
  }
}

// out = p v, over the keys that a query sees.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) values_kernel(const float* p,  // [heads, seq_q, seq_kv]
                                                          const T* v,      // [kv_heads, seq_kv, head_dim]
                                                          T* out,          // [heads, seq_q, head_dim]
                                                          Shape4 shape, TileGrid tiles) {
  for (std::int64_t tile = blockIdx.x; tile < tiles.rows * tiles.columns * tiles.matrices; tile += gridDim.x) {
    const std::int64_t head = tile / (tiles.rows * tiles.columns);
    const std::int64_t query = tile / tiles.columns % tiles.rows * kQueries;
    const std::int64_t dim = tile % tiles.columns * kValues;
    const std::int64_t last_query = query + kQueries < shape.seq_q ? query + kQueries - 1 : shape.seq_q - 1;
    const float* p_head = p + head * shape.seq_q * shape.seq_kv;
    const T* v_head = v + head / shape.group * shape.seq_kv * shape.head_dim;
    float sums[kQueries / kSide][kValues / kSide] = {};
    tile_product<kQueries / kSide, kValues / kSide, false>(
        sums, shape.visible(last_query),
        [&](int row, std::int64_t key) {
          const std::int64_t i = query + row;
          return i < shape.seq_q && key < shape.visible(i) ? p_head[i * shape.seq_kv + key] : 0.f;
        },
        [&](std::int64_t key, int column) {
          return key < shape.seq_kv && dim + column < shape.head_dim ? to_float(v_head[key * shape.head_dim + dim + column]) : 0.f;
        });
#pragma unroll
    for (int r = 0; r < kQueries / kSide; ++r) {
      const std::int64_t i = query + place(r, static_cast<int>(threadIdx.x) / kSide);
      if (i >= shape.seq_q) continue;
      T* row = out + (head * shape.seq_q + i) * shape.head_dim;
#pragma unroll
      for (int c = 0; c < kValues / kSide; ++c) {
        const std::int64_t d = dim + place(c, static_cast<int>(threadIdx.x) % kSide);
        if (d < shape.head_dim) from_float(row + d, sums[r][c]);
      }
    }
  }
}

template <class T>
Bound naive(const Attention& problem, Device& device) {
  const Shape4 shape = {problem.batch * problem.heads, problem.batch * problem.kv_heads, problem.seq_q, problem.seq_kv,
                        problem.head_dim, problem.group(), problem.causal};
  const TileGrid score_tiles = tile_grid(shape.heads, shape.seq_q, shape.seq_kv, kQueries, kKeys);
  const TileGrid value_tiles = tile_grid(shape.heads, shape.seq_q, shape.head_dim, kQueries, kValues);
  const std::int64_t rows = shape.heads * shape.seq_q;
  // Not persistent: causal tiles differ in length, and the hardware hands out blocks as others end.
  const std::int64_t score_grid = std::min(score_tiles.tiles(), kMaxGridX);
  const std::int64_t softmax_grid = std::min(rows, kMaxGridX);
  const std::int64_t value_grid = std::min(value_tiles.tiles(), kMaxGridX);
  const std::int64_t workspace_bytes = rows * shape.seq_kv * 4;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  float* scores = static_cast<float*>(memory.get());
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_dim)));

  Bound bound;
  bound.plan.set("implementation", "naive/" + device.properties().architecture());
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.plan.set("block_q", kQueries);
  bound.plan.set("block_kv", kKeys);
  record(bound.plan, "scores_", kernel_facts(device, scores_kernel<T>, kThreads), score_grid, kThreads);
  record(bound.plan, "softmax_", kernel_facts(device, softmax_kernel, kThreads), softmax_grid, kThreads);
  record(bound.plan, "values_", kernel_facts(device, values_kernel<T>, kThreads), value_grid, kThreads);
  bound.steps.push_back({"q·kᵀ", [=](Queue& queue) {
    scores_kernel<T><<<static_cast<unsigned>(score_grid), kThreads, 0, stream(queue)>>>(
        static_cast<const T*>(problem.q), static_cast<const T*>(problem.k), scores, shape, score_tiles, scale);
    ROOFLINE_CUDA_LAUNCHED("scores_kernel");
  }});
  bound.steps.push_back({"softmax", [=](Queue& queue) {
    softmax_kernel<<<static_cast<unsigned>(softmax_grid), kThreads, 0, stream(queue)>>>(scores, shape);
    ROOFLINE_CUDA_LAUNCHED("softmax_kernel");
  }});
  bound.steps.push_back({"p·v", [=, keep = memory](Queue& queue) {
    values_kernel<T><<<static_cast<unsigned>(value_grid), kThreads, 0, stream(queue)>>>(
        scores, static_cast<const T*>(problem.v), static_cast<T*>(problem.out), shape, value_tiles);
    ROOFLINE_CUDA_LAUNCHED("values_kernel");
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  using K = Kernel<Attention, Device>;
  const char* summary = "three kernels on the CUDA cores; fp32 scores of every query and key go to memory and come back twice";
  std::vector<KernelEntry> all = {entry(K{"naive", DType::fp32, "", summary, naive<float>}),
                                  entry(K{"naive", DType::fp16, "", summary, naive<__half>}),
                                  entry(K{"naive", DType::bf16, "", summary, naive<__nv_bfloat16>})};
  for (const auto& list : {attention_library_kernels(), attention_tiled_kernels(), attention_split_kernels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace roofline::cuda
