// Which rows are whose: tokens' choices of experts, counted, added up and put in order by one block.
#pragma once

#include "cuda/matmul/grouped_plan.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

constexpr int kRouteThreads = 1024;
constexpr int kMostExperts = 4096;  // counted in shared memory

struct RouteWork {
  const std::int32_t* chosen;  // [tokens, routed]
  std::int64_t tokens;
  int routed, per_token;  // experts of a token: chosen, and with the shared ones, which stand behind the others
  int experts, all_experts;
  int tile_rows;
  std::int32_t* token;   // [rows]
  std::int32_t* places;  // [tokens, per_token], rows of a token
  RowTile* tiles;
  std::int32_t* tile_count;
};

// Rows of an expert stand in no certain order, and every row is computed alike: results are the same each time.
__global__ void __launch_bounds__(kRouteThreads) route_kernel(RouteWork work) {
  __shared__ unsigned next[kMostExperts];                        // an expert's rows, then the row that is free next
  __shared__ int rows_before[kRouteThreads], tiles_before[kRouteThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t all = work.tokens * work.per_token;
  const auto expert_of = [&](std::int64_t i) {
    const int j = static_cast<int>(i % work.per_token);
    return j < work.routed ? work.chosen[i / work.per_token * work.routed + j] : work.experts + j - work.routed;
  };
  for (int expert = thread; expert < work.all_experts; expert += kRouteThreads) next[expert] = 0;
  __syncthreads();
  for (std::int64_t i = thread; i < all; i += kRouteThreads) atomicAdd(&next[expert_of(i)], 1u);
  __syncthreads();

  // Every thread has some neighbouring experts; sums over threads by doubling.
  const int each = (work.all_experts + kRouteThreads - 1) / kRouteThreads;
  const auto bounded = [&](int expert) { return expert < work.all_experts ? expert : work.all_experts; };
  const int begin = bounded(thread * each), end = bounded(begin + each);
  int rows = 0, tiles = 0;
  for (int expert = begin; expert < end; ++expert) {
    const int count = static_cast<int>(next[expert]);
    rows += count, tiles += (count + work.tile_rows - 1) / work.tile_rows;
  }
  rows_before[thread] = rows, tiles_before[thread] = tiles;
  __syncthreads();
  for (int step = 1; step < kRouteThreads; step *= 2) {
    const int more_rows = thread >= step ? rows_before[thread - step] : 0;
    const int more_tiles = thread >= step ? tiles_before[thread - step] : 0;
    __syncthreads();
    rows_before[thread] += more_rows, tiles_before[thread] += more_tiles;
    __syncthreads();
  }
  int row = rows_before[thread] - rows, tile = tiles_before[thread] - tiles;
  if (thread == kRouteThreads - 1) *work.tile_count = tiles_before[thread];
  for (int expert = begin; expert < end; ++expert) {
    const int count = static_cast<int>(next[expert]), of = (count + work.tile_rows - 1) / work.tile_rows;
    for (int i = 0; i < of; ++i) {
      const int first = i * work.tile_rows, left = count - first;
      work.tiles[tile + i] = {expert, row + first, left < work.tile_rows ? left : work.tile_rows, i, of, tile};
    }
    next[expert] = static_cast<unsigned>(row);
    row += count, tile += of;
  }
  __syncthreads();
  for (std::int64_t i = thread; i < all; i += kRouteThreads) {
    const std::int32_t at = static_cast<std::int32_t>(atomicAdd(&next[expert_of(i)], 1u));
    work.token[at] = static_cast<std::int32_t>(i / work.per_token);
    work.places[i] = at;
  }
}

}  // namespace roofline::cuda
