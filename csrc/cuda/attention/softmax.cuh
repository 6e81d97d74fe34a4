// Softmax of attention scores that are in memory: fp32 in, the operands' dtype out, 0 where a query sees no key.
#pragma once

#include "cuda/rows/rows_kernels.cuh"

namespace roofline::cuda {

// Four neighbours; in one access where they lie at a multiple of their size.
template <class T>
__device__ inline void store_four(T* to, const float (&values)[4]) {
  struct alignas(4 * sizeof(T)) Four {
    T lane[4];
  } four;
#pragma unroll
  for (int j = 0; j < 4; ++j) four.lane[j] = from_float<T>(values[j]);
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof four == 0) {
    *reinterpret_cast<Four*>(to) = four;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = four.lane[j];
  }
}

// A team of threads per row walks the keys that the row's query sees twice, and writes the whole row once.
template <class T>
__global__ void __launch_bounds__(kLoopedTeam, kLoopedBlocks)
    probabilities_kernel(const float* __restrict__ scores,  // [rows, columns]
                         T* __restrict__ p,                 // [rows, columns]
                         std::int64_t seq_q, bool causal, RowsWork work) {
  __shared__ float4 shared[64];
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    const float* const from = scores + row * work.columns;
    T* const to = p + row * work.columns;
    const std::int64_t columns = row < work.rows ? work.columns : 0;
    const std::int64_t visible = causal && columns > 0 ? row % seq_q + columns - seq_q + 1 : columns;
    const Run<float> run(from, visible, true);
    const Exponentials of = exponentials_of<T>(run, from, team);
    each_chunk(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<float>& pack, auto is_whole) {
      float values[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] = exponential<T>(pack.lane[j] - of.largest) * of.inverse;
      const std::int64_t first = run.first(chunk);
      if constexpr (decltype(is_whole)::value) {
        store_four(to + first, values);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (run.has(first + j)) to[first + j] = from_float<T>(values[j]);
      }
    });
    const Run<T> masked(to + visible, columns - visible, true);
    Pack<T> zeros;
#pragma unroll
    for (int j = 0; j < masked.kLanes; ++j) zeros.lane[j] = from_float<T>(0.f);
    for (std::int64_t chunk = masked.low + team.rank; chunk < masked.high; chunk += team.size)
      store_chunk<true>(masked, to + visible, chunk, zeros);
    for (std::int64_t i = team.rank; i < masked.others(); i += team.size)
      store_chunk<false>(masked, to + visible, masked.other(i), zeros);
  });
}

}  // namespace roofline::cuda
