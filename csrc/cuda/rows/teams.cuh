// Rows shared out over teams of threads: what a thread keeps of a row, and how a team walks one.
#pragma once

#include <cmath>

#include "cuda/rows/rows_plan.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

template <class T>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return fast_exp2(x * kLog2E);  // its error is far below half a step of a 16-bit result
}

template <class T>
__device__ inline float largest_of(uint4 bits) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {  // two by one instruction
    union {
      uint4 bits;
      std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162> two[4];
    } u;
    u.bits = bits;
    const auto largest = __hmax2_nan(__hmax2_nan(u.two[0], u.two[1]), __hmax2_nan(u.two[2], u.two[3]));
    return larger(__low2float(largest), __high2float(largest));
  } else
#endif
  {
    float values[Pack<T>::kLanes];
    to_floats<T>(bits, values);
#pragma unroll
    for (int j = 1; j < Pack<T>::kLanes; ++j) values[0] = larger(values[0], values[j]);
    return values[0];
  }
}

template <class T, class F>
__device__ inline float sum_of(uint4 bits, F f) {
  float values[Pack<T>::kLanes], sum = 0.f;
  to_floats<T>(bits, values);
#pragma unroll
  for (int j = 0; j < Pack<T>::kLanes; ++j) sum += f(values[j]);
  return sum;
}
template <class T, class F>
__device__ inline float sum_of(const Pack<T>& pack, F f) {
  return sum_of<T>(bits_of(pack), f);
}

// What every kernel here is told of its rows.
struct RowsWork {
  std::int64_t rows, columns;
  int team;      // threads that share a row
  bool vectors;  // all tensors are cut at the same places; see Run
  float eps;
  float inverse = 1.f / static_cast<float>(columns);
};

// The rows of a block, one after the other: each(row, team). All threads come along, also where row is past the last one.
template <class Each>
__device__ inline void each_row(const RowsWork& work, float4* shared, Each each) {
  const int thread = static_cast<int>(threadIdx.x), log = work.team > 32 ? 31 : 31 - __clz(work.team);
  Team team{work.team, work.team > 32 ? thread : thread & (work.team - 1), shared};
  const int at_once = work.team > 32 ? 1 : static_cast<int>(blockDim.x) >> log;
  for (std::int64_t first = std::int64_t{blockIdx.x} * at_once; first < work.rows; first += std::int64_t{gridDim.x} * at_once)
    each(first + (thread >> log), team);
}

// What one thread keeps of a row.
template <class T, int Chunks>
struct Kept {
  static constexpr int kLanes = Pack<T>::kLanes;
  uint4 bits[Chunks];
  int chunks;  // of the row; 0 past the last one

  __device__ Kept(const RowsWork& work, std::int64_t row) : chunks(row < work.rows ? static_cast<int>(work.columns / kLanes) : 0) {}

  __device__ void load(const T* row, const Team& team, float outside) {
    float fill[kLanes];
#pragma unroll
    for (float& each : fill) each = outside;
#pragma unroll
    for (int v = 0; v < Chunks; ++v) {
      const int chunk = team.rank + v * team.size;
      bits[v] = chunk < chunks ? reinterpret_cast<const uint4*>(row)[chunk] : rounded_bits<T>(fill);
    }
  }

  // Elements of the row that this thread's warp holds, or its team where several teams share a warp.
  __device__ float elements_of_warp(const Team& team) const {
    if (team.size <= 32) return static_cast<float>(chunks * kLanes);
    int of_warp = 0;
#pragma unroll
    for (int v = 0; v < Chunks; ++v) of_warp += min(max(chunks - team.rank / 32 * 32 - v * team.size, 0), 32);
    return static_cast<float>(of_warp * kLanes);
  }

  // each(v, chunk) for the chunks that the row really has, whose elements are converted anew.
  template <class Each>
  __device__ void each_own(const Team& team, Each each) {
#pragma unroll
    for (int v = 0; v < Chunks; ++v) {
      forget(bits[v]);
      if (const int chunk = team.rank + v * team.size; chunk < chunks) each(v, chunk);
    }
  }
};

// The same for looped rows of x: each(where the row begins, its Run, the row, team).
template <class T, class Each>
__device__ inline void each_looped_row(const RowsWork& work, float4* shared, const T* x, Each each) {
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    const std::int64_t at = row * work.columns;
    each(at, Run<T>(x + at, row < work.rows ? work.columns : 0, work.vectors), x + at, team);
  });
}

// Chunks of a looped row: each(chunk, pack, IsWhole), with four loads in flight per thread.
template <class T, class Each>
__device__ inline void each_chunk(const Run<T>& run, const T* start, const Team& team, float outside, Each each) {
  constexpr int kAtOnce = kLoopedChunks;
  for (std::int64_t first = run.low + team.rank; first < run.high; first += std::int64_t{kAtOnce} * team.size) {
    Pack<T> pack[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (const std::int64_t chunk = first + std::int64_t{u} * team.size; chunk < run.high)
        pack[u] = load_chunk<true>(run, start, chunk, outside);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (const std::int64_t chunk = first + std::int64_t{u} * team.size; chunk < run.high) each(chunk, pack[u], IsWhole<true>{});
  }
  for (std::int64_t i = team.rank; i < run.others(); i += team.size)
    each(run.other(i), load_chunk<false>(run, start, run.other(i), outside), IsWhole<false>{});
}

}  // namespace roofline::cuda
