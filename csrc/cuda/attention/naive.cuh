// The kernels of naive attention, with the scores of every query and key in memory between them.
//
//   q·kᵀ     one block per 128 x 64 tile of scores; reads q and k once per tile, writes fp32 scores
//   softmax  one block per row of scores; reads it twice, writes it once, in place
//   p·v      one block per 128 x 64 tile of the output; reads p and v once per tile, writes out in its own dtype
// Causal: tiles above the diagonal are skipped, and no score past a row's last visible key is ever read.
#pragma once

#include <cmath>

#include "cuda/plan.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

// Sizes and pointers as the kernels need them; Attention itself holds nothing else.
struct NaiveShape {
  std::int64_t heads, kv_heads, seq_q, seq_kv, head_dim;  // heads: batch * heads; kv_heads: batch * kv_heads
  std::int64_t group;
  bool causal;
  __device__ std::int64_t visible(std::int64_t query) const { return causal ? query + seq_kv - seq_q + 1 : seq_kv; }
};

constexpr int kNaiveSide = 16;   // threads along a tile's rows and along its columns
constexpr int kNaiveThreads = kNaiveSide * kNaiveSide;
constexpr int kNaiveDepth = 16;  // of the reduction, per step through shared memory

// A tile of a b, 16*Rows x 16*Columns, by 256 threads: each keeps Rows x Columns sums in registers. kNaiveDepth at a time go
// through shared memory as fp32. a(row, depth) and b(depth, column) load one element, or 0 outside. Threads run along b's depth or
// its columns, whichever is contiguous in memory; a's depth is. The padding of 4 keeps 16-byte reads aligned and spreads the
// writes over banks.
template <int Rows, int Columns, bool BAlongDepth, class A, class B>
__device__ void tile_product(float (&sums)[Rows][Columns], std::int64_t depth, A a, B b) {
  constexpr int kRows = kNaiveSide * Rows;
  constexpr int kColumns = kNaiveSide * Columns;
  __shared__ __align__(16) float a_tile[kNaiveDepth][kRows + 4];
  __shared__ __align__(16) float b_tile[kNaiveDepth][kColumns + 4];
  const int row = static_cast<int>(threadIdx.x) / kNaiveSide;
  const int column = static_cast<int>(threadIdx.x) % kNaiveSide;
  for (std::int64_t first = 0; first < depth; first += kNaiveDepth) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kNaiveDepth * kRows; i += kNaiveThreads)
      a_tile[i % kNaiveDepth][i / kNaiveDepth] = a(i / kNaiveDepth, first + i % kNaiveDepth);
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kNaiveDepth * kColumns; i += kNaiveThreads) {
      if constexpr (BAlongDepth)
        b_tile[i % kNaiveDepth][i / kNaiveDepth] = b(first + i % kNaiveDepth, i / kNaiveDepth);
      else
        b_tile[i / kColumns][i % kColumns] = b(first + i / kColumns, i % kColumns);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kNaiveDepth; ++d) {
      alignas(16) float left[Rows], right[Columns];
      // Groups of four neighbours, 64 apart: 16-byte reads without bank conflicts.
#pragma unroll
      for (int r = 0; r < Rows; r += 4)
        *reinterpret_cast<float4*>(left + r) = *reinterpret_cast<const float4*>(&a_tile[d][r * kNaiveSide + row * 4]);
#pragma unroll
      for (int c = 0; c < Columns; c += 4)
        *reinterpret_cast<float4*>(right + c) = *reinterpret_cast<const float4*>(&b_tile[d][c * kNaiveSide + column * 4]);
#pragma unroll
      for (int r = 0; r < Rows; ++r)
#pragma unroll
        for (int c = 0; c < Columns; ++c) sums[r][c] = fmaf(left[r], right[c], sums[r][c]);
    }
    __syncthreads();
  }
}

// Where sum i of a thread at position `at` lies along its side of the tile: groups of four, 64 apart.
__device__ inline int naive_place(int i, int at) { return i / 4 * 4 * kNaiveSide + at * 4 + i % 4; }

// 128 columns would take 64 sums a thread, and the operands beside them spill at two blocks per SM.
constexpr int kNaiveQueries = 128;  // rows of a tile
constexpr int kNaiveKeys = 64;      // columns of a tile of scores
constexpr int kNaiveValues = 64;    // columns of a tile of the output

// scores = scale q kᵀ where a query sees a key; nothing is written elsewhere.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads, 2) scores_kernel(const T* q,     // [heads, seq_q, head_dim]
                                                                  const T* k,     // [kv_heads, seq_kv, head_dim]
                                                                  float* scores,  // [heads, seq_q, seq_kv]
                                                                  NaiveShape shape, TileGrid tiles, float scale) {
  for (std::int64_t tile = blockIdx.x; tile < tiles.rows * tiles.columns * tiles.matrices; tile += gridDim.x) {
    const std::int64_t head = tile / (tiles.rows * tiles.columns);
    const std::int64_t query = tile / tiles.columns % tiles.rows * kNaiveQueries;
    const std::int64_t key = tile % tiles.columns * kNaiveKeys;
    const std::int64_t last_query = query + kNaiveQueries < shape.seq_q ? query + kNaiveQueries - 1 : shape.seq_q - 1;
    if (key >= shape.visible(last_query)) continue;
    const T* q_head = q + head * shape.seq_q * shape.head_dim;
    const T* k_head = k + head / shape.group * shape.seq_kv * shape.head_dim;
    float sums[kNaiveQueries / kNaiveSide][kNaiveKeys / kNaiveSide] = {};
    tile_product<kNaiveQueries / kNaiveSide, kNaiveKeys / kNaiveSide, true>(
        sums, shape.head_dim,
        [&](int row, std::int64_t d) {
          return query + row < shape.seq_q && d < shape.head_dim ? to_float(q_head[(query + row) * shape.head_dim + d]) : 0.f;
        },
        [&](std::int64_t d, int column) {
          return key + column < shape.seq_kv && d < shape.head_dim ? to_float(k_head[(key + column) * shape.head_dim + d]) : 0.f;
        });
#pragma unroll
    for (int r = 0; r < kNaiveQueries / kNaiveSide; ++r) {
      const std::int64_t i = query + naive_place(r, static_cast<int>(threadIdx.x) / kNaiveSide);
      if (i >= shape.seq_q) continue;
      const std::int64_t keys = shape.visible(i);
      float* out = scores + (head * shape.seq_q + i) * shape.seq_kv;
#pragma unroll
      for (int c = 0; c < kNaiveKeys / kNaiveSide; ++c) {
        const std::int64_t j = key + naive_place(c, static_cast<int>(threadIdx.x) % kNaiveSide);
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
__global__ void __launch_bounds__(kNaiveThreads) softmax_kernel(float* scores,  // [heads, seq_q, seq_kv]
                                                                NaiveShape shape) {
  __shared__ MaxSum warps[kNaiveThreads / 32];
  const std::int64_t rows = shape.heads * shape.seq_q;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float* x = scores + row * shape.seq_kv;
    const std::int64_t keys = shape.visible(row % shape.seq_q);
    MaxSum mine = {-INFINITY, 0.f};
    for (std::int64_t j = threadIdx.x; j < keys; j += kNaiveThreads) mine = merge(mine, {x[j], 1.f});
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
      mine = merge(mine, {__shfl_xor_sync(0xFFFFFFFFu, mine.max, half), __shfl_xor_sync(0xFFFFFFFFu, mine.sum, half)});
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    MaxSum all = warps[0];
#pragma unroll
    for (int w = 1; w < kNaiveThreads / 32; ++w) all = merge(all, warps[w]);
    const float inverse = 1.f / all.sum;
    for (std::int64_t j = threadIdx.x; j < keys; j += kNaiveThreads) x[j] = expf(x[j] - all.max) * inverse;
    __syncthreads();  // before the next row overwrites warps
  }
}

// out = p v, over the keys that a query sees.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads, 2) values_kernel(const float* p,  // [heads, seq_q, seq_kv]
                                                                  const T* v,      // [kv_heads, seq_kv, head_dim]
                                                                  T* out,          // [heads, seq_q, head_dim]
                                                                  NaiveShape shape, TileGrid tiles) {
  for (std::int64_t tile = blockIdx.x; tile < tiles.rows * tiles.columns * tiles.matrices; tile += gridDim.x) {
    const std::int64_t head = tile / (tiles.rows * tiles.columns);
    const std::int64_t query = tile / tiles.columns % tiles.rows * kNaiveQueries;
    const std::int64_t dim = tile % tiles.columns * kNaiveValues;
    const std::int64_t last_query = query + kNaiveQueries < shape.seq_q ? query + kNaiveQueries - 1 : shape.seq_q - 1;
    const float* p_head = p + head * shape.seq_q * shape.seq_kv;
    const T* v_head = v + head / shape.group * shape.seq_kv * shape.head_dim;
    float sums[kNaiveQueries / kNaiveSide][kNaiveValues / kNaiveSide] = {};
    tile_product<kNaiveQueries / kNaiveSide, kNaiveValues / kNaiveSide, false>(
        sums, shape.visible(last_query),
        [&](int row, std::int64_t key) {
          const std::int64_t i = query + row;
          return i < shape.seq_q && key < shape.visible(i) ? p_head[i * shape.seq_kv + key] : 0.f;
        },
        [&](std::int64_t key, int column) {
          return key < shape.seq_kv && dim + column < shape.head_dim ? to_float(v_head[key * shape.head_dim + dim + column]) : 0.f;
        });
#pragma unroll
    for (int r = 0; r < kNaiveQueries / kNaiveSide; ++r) {
      const std::int64_t i = query + naive_place(r, static_cast<int>(threadIdx.x) / kNaiveSide);
      if (i >= shape.seq_q) continue;
      T* row = out + (head * shape.seq_q + i) * shape.head_dim;
#pragma unroll
      for (int c = 0; c < kNaiveValues / kNaiveSide; ++c) {
        const std::int64_t d = dim + naive_place(c, static_cast<int>(threadIdx.x) % kNaiveSide);
        if (d < shape.head_dim) row[d] = from_float<T>(sums[r][c]);
      }
    }
  }
}

}  // namespace roofline::cuda
