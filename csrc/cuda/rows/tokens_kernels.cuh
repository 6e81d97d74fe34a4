// Kernels over tokens: rope, embedding and the sum over a token's experts.
#pragma once

#include "cuda/simt/any_tensor.cuh"

namespace roofline::cuda {

// -- rope ---------------------------------------------------------------------------------------------------------------------

struct RopeWork {
  AnyTensor cos, sin;  // [tokens, half]
  std::int64_t tokens;
  int heads, kv_heads, half;  // half: head_dim / 2
};

constexpr int kRopeUnroll = 2;  // items per thread and round

// An item is Width neighbouring pairs of one head of one token. Items of all heads of q, then of k, of one token lie side by
// side, so that a token's rows of cos and sin come from memory once and then from L1. Each element is read and written once.
template <class T, int Width>
__global__ void __launch_bounds__(kElementThreads, 2) rope_kernel(T* __restrict__ q,  // [tokens, heads, 2 half], in place
                                                                  T* __restrict__ k,  // [tokens, kv_heads, 2 half], in place
                                                                  RopeWork work) {
  struct alignas(Width == 1 ? sizeof(T) : 16) Part {
    T lane[Width];
  };
  const int parts = work.half / Width;
  const int per_token = (work.heads + work.kv_heads) * parts;
  const std::int64_t items = work.tokens * per_token;
  constexpr int kTile = kElementThreads * kRopeUnroll;
  for (std::int64_t tile = std::int64_t{blockIdx.x} * kTile; tile < items; tile += std::int64_t{gridDim.x} * kTile) {
    // One long division per round; the rest are of ints.
    const std::int64_t tile_token = tile / per_token;
    const int tile_item = static_cast<int>(tile - tile_token * per_token);
    Part x[kRopeUnroll], y[kRopeUnroll];
    T* start[kRopeUnroll];
    std::int64_t at[kRopeUnroll];
#pragma unroll
    for (int u = 0; u < kRopeUnroll; ++u) {
      start[u] = nullptr;
      const int offset = static_cast<int>(threadIdx.x) + u * kElementThreads;
      if (tile + offset >= items) continue;
      const std::int64_t token = tile_token + (tile_item + offset) / per_token;
      const int item = (tile_item + offset) % per_token;
      const int head = item / parts, pair = item % parts * Width;
      start[u] = head < work.heads ? q + (token * work.heads + head) * 2 * work.half + pair
                                   : k + (token * work.kv_heads + head - work.heads) * 2 * work.half + pair;
      at[u] = token * work.half + pair;
      x[u] = *reinterpret_cast<const Part*>(start[u]);
      y[u] = *reinterpret_cast<const Part*>(start[u] + work.half);
    }
#pragma unroll
    for (int u = 0; u < kRopeUnroll; ++u) {
      if (!start[u]) continue;
      float cos[kGroup], sin[kGroup];
      if constexpr (Width == kGroup) {
        read_group(work.cos, at[u], cos);
        read_group(work.sin, at[u], sin);
      } else {
#pragma unroll
        for (int j = 0; j < Width; ++j) {
          cos[j] = read_one(work.cos, at[u] + j);
          sin[j] = read_one(work.sin, at[u] + j);
        }
      }
#pragma unroll
      for (int j = 0; j < Width; ++j) {
        const float left = to_float(x[u].lane[j]), right = to_float(y[u].lane[j]);
        x[u].lane[j] = from_float<T>(left * cos[j] - right * sin[j]);
        y[u].lane[j] = from_float<T>(right * cos[j] + left * sin[j]);
      }
      *reinterpret_cast<Part*>(start[u]) = x[u];
      *reinterpret_cast<Part*>(start[u] + work.half) = y[u];
    }
  }
}

// -- embedding ----------------------------------------------------------------------------------------------------------------

constexpr int kCopyUnroll = 4;

// A row of the table is a number of words (16 bytes, or an element where rows are not aligned); it is read and written once.
template <class Word>
__global__ void __launch_bounds__(kElementThreads) embedding_kernel(const std::int32_t* __restrict__ ids,  // [tokens]
                                                                    const Word* __restrict__ table,        // [vocabulary, words]
                                                                    Word* __restrict__ out,                // [tokens, words]
                                                                    std::int64_t tokens, std::int64_t words) {
  const std::int64_t all = tokens * words;
  const std::int64_t tile = std::int64_t{kElementThreads} * kCopyUnroll;
  for (std::int64_t first = blockIdx.x * tile + threadIdx.x; first < all; first += gridDim.x * tile) {
    Word word[kCopyUnroll];
#pragma unroll
    for (int u = 0; u < kCopyUnroll; ++u)
      if (const std::int64_t at = first + u * kElementThreads; at < all) {
        const std::int64_t token =
            all < (std::int64_t{1} << 32) ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(words) : at / words;
        word[u] = table[ids[token] * words + (at - token * words)];
      }
#pragma unroll
    for (int u = 0; u < kCopyUnroll; ++u)
      if (const std::int64_t at = first + u * kElementThreads; at < all) out[at] = word[u];
  }
}

// -- combine ------------------------------------------------------------------------------------------------------------------

struct CombineWork {
  const std::int32_t* places;  // [tokens, per_token]
  const float* gates;          // [tokens, routed]
  std::int64_t tokens, parts;  // parts: of a row, Width elements each
  int per_token, routed;
};

// A thread adds up Width neighbouring elements of one token over its rows, in fp32 and in the order of its experts.
template <class T, int Width>
__global__ void __launch_bounds__(kElementThreads, 2) combine_kernel(const T* __restrict__ rows,  // [any, parts * Width]
                                                                     T* __restrict__ out,         // [tokens, parts * Width]
                                                                     CombineWork work) {
  struct alignas(Width == 1 ? sizeof(T) : 16) Part {
    T lane[Width];
  };
  const std::int64_t all = work.tokens * work.parts, threads = std::int64_t{gridDim.x} * kElementThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x; i < all; i += threads) {
    const std::int64_t token = i / work.parts, part = i % work.parts;
    float sum[Width] = {};
#pragma unroll 4
    for (int j = 0; j < work.per_token; ++j) {
      const std::int64_t row = work.places[token * work.per_token + j];
      const float gate = j < work.routed ? work.gates[token * work.routed + j] : 1.f;
      const Part mine = *reinterpret_cast<const Part*>(rows + (row * work.parts + part) * Width);
#pragma unroll
      for (int lane = 0; lane < Width; ++lane) sum[lane] = fmaf(gate, to_float(mine.lane[lane]), sum[lane]);
    }
    Part result;
#pragma unroll
    for (int lane = 0; lane < Width; ++lane) result.lane[lane] = from_float<T>(sum[lane]);
    *reinterpret_cast<Part*>(out + i * Width) = result;
  }
}

}  // namespace roofline::cuda
