// Kernels over tokens: rope, embedding and the sum over a token's experts.
#pragma once

#include "cuda/simt/any_tensor.cuh"

namespace roofline::cuda {

// -- rope ---------------------------------------------------------------------------------------------------------------------

struct RopeWork {
  AnyTensor cos, sin;  // [tokens, half]
  std::int64_t tokens;
  int heads, kv_heads, half;  // half: head_dim / 2
  Divisor parts, per_token;   // items of a head and of all heads of a token
  std::int64_t step_tokens;   // what a round goes on by: whole tokens, and items more
  int step_items;
};

// An item is Width neighbouring pairs of one head of one token: 16 bytes, or 1 pair. Items of all heads of q, then of k, of one
// token lie side by side, so that a token's rows of cos and sin come from memory once and then from L1. Each element is read and
// written once. One item per thread and round, so that many threads are at it.
template <class T, int Width>
__global__ void __launch_bounds__(kElementThreads, 4) rope_kernel(T* __restrict__ q,  // [tokens, heads, 2 half], in place
                                                                  T* __restrict__ k,  // [tokens, kv_heads, 2 half], in place
                                                                  RopeWork work) {
  static_assert(Width == 1 || Width == Pack<T>::kLanes);
  constexpr int kGroups = Width / kGroup;
  const int per_token = work.per_token.divisor;
  const std::int64_t tile = std::int64_t{blockIdx.x} * kElementThreads;
  std::int64_t tile_token = tile < (std::int64_t{1} << 31) ? quotient(static_cast<int>(tile), work.per_token) : tile / per_token;
  int tile_item = static_cast<int>(tile - tile_token * per_token);
  for (; tile_token < work.tokens; tile_token += work.step_tokens, tile_item += work.step_items) {
    if (tile_item >= per_token) tile_item -= per_token, ++tile_token;
    const int from_tile = tile_item + static_cast<int>(threadIdx.x);
    const int tokens_on = quotient(from_tile, work.per_token);
    const std::int64_t token = tile_token + tokens_on;
    if (token >= work.tokens) continue;
    const int item = from_tile - tokens_on * per_token;
    const int head = quotient(item, work.parts), pair = (item - head * work.parts.divisor) * Width;
    T* const start = head < work.heads ? q + (token * work.heads + head) * 2 * work.half + pair
                                       : k + (token * work.kv_heads + head - work.heads) * 2 * work.half + pair;
    const std::int64_t at = token * work.half + pair;
    const auto turn = [](T& x, T& y, float cos, float sin) {
      const float left = to_float(x), right = to_float(y);
      x = from_float<T>(left * cos - right * sin);
      y = from_float<T>(right * cos + left * sin);
    };
    if constexpr (Width == 1) {
      turn(start[0], start[work.half], read_one(work.cos, at), read_one(work.sin, at));
    } else {
      Pack<T> x = load_pack(start), y = load_pack(start + work.half);
      RawGroup cos[kGroups], sin[kGroups];
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        cos[i] = load_group(work.cos, at + i * kGroup);
        sin[i] = load_group(work.sin, at + i * kGroup);
      }
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        float c[kGroup], s[kGroup];
        widen(cos[i], work.cos.dtype, c);
        widen(sin[i], work.sin.dtype, s);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) turn(x.lane[i * kGroup + j], y.lane[i * kGroup + j], c[j], s[j]);
      }
      store_pack(start, x);
      store_pack(start + work.half, y);
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
