// Kernels over rows: softmax, rms_norm (also of a residual), layer_norm and bias_relu. A team of threads takes one row at a time.
//
// kept:   a row is read once, 128 bits at a time, all of it in flight at once, and stays in its team's registers until its result
//         is written. Rows are aligned, and at most kMostTeam * kKeptChunks vectors long.
// looped: rows of any length and alignment. A team walks its row again for every pass; what is not in L1 or L2 by then comes from
//         memory once more.
// All arithmetic is in fp32.
#pragma once

#include <cmath>

#include "cuda/rows/rows_plan.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

template <class T>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return __expf(x);  // its error is far below half a step of a 16-bit result
}

__device__ inline float larger(float a, float b) { return a >= b || a != a ? a : b; }  // a NaN stays one

// What every kernel here is told of its rows.
struct RowsWork {
  std::int64_t rows, columns;
  int team;      // threads that share a row
  bool vectors;  // all tensors are cut at the same places; see Run
  float eps;
};

// The rows of a block, one after the other: each(row, team). All threads come along, also where row is past the last one.
template <class Each>
__device__ inline void each_row(const RowsWork& work, float* shared, Each each) {
  Team team{work.team, static_cast<int>(threadIdx.x) % work.team, shared};
  const int at_once = static_cast<int>(blockDim.x) / work.team;
  for (std::int64_t first = std::int64_t{blockIdx.x} * at_once; first < work.rows; first += std::int64_t{gridDim.x} * at_once)
    each(first + static_cast<int>(threadIdx.x) / work.team, team);
}

// What one thread keeps of a row.
template <class T, int Chunks>
struct Kept {
  static constexpr int kLanes = Pack<T>::kLanes;
  Pack<T> pack[Chunks];
  int chunks;  // of the row; 0 past the last one

  __device__ Kept(const RowsWork& work, std::int64_t row) : chunks(row < work.rows ? static_cast<int>(work.columns / kLanes) : 0) {}

  template <bool Fresh>
  __device__ void load(const T* row, const Team& team, float outside) {
#pragma unroll
    for (int v = 0; v < Chunks; ++v) {
      const int chunk = team.rank + v * team.size;
      if (chunk < chunks) {
        pack[v] = Fresh ? load_streamed(row + chunk * kLanes) : load_plain(row + chunk * kLanes);
      } else {
#pragma unroll
        for (int j = 0; j < kLanes; ++j) pack[v].lane[j] = from_float<T>(outside);
      }
    }
  }

  __device__ void forget_all() {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int v = 0; v < Chunks; ++v) forget(pack[v]);
    }
  }

  // each(chunk, pack) for the chunks that the row really has.
  template <class Each>
  __device__ void each_own(const Team& team, Each each) {
#pragma unroll
    for (int v = 0; v < Chunks; ++v)
      if (const int chunk = team.rank + v * team.size; chunk < chunks) each(chunk, pack[v]);
  }
};

// The same for looped rows of x: each(where the row begins, its Run, the row, team).
template <class T, class Each>
__device__ inline void each_looped_row(const RowsWork& work, float* shared, const T* x, Each each) {
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    const std::int64_t at = row * work.columns;
    each(at, Run<T>(x + at, row < work.rows ? work.columns : 0, work.vectors), x + at, team);
  });
}

// Chunks of a looped row: each(chunk, pack, IsWhole), with four loads in flight per thread.
template <bool Fresh, class T, class Each>
__device__ inline void each_chunk(const Run<T>& run, const T* start, const Team& team, float outside, Each each) {
  constexpr int kAtOnce = kLoopedChunks;
  for (std::int64_t first = run.low + team.rank; first < run.high; first += std::int64_t{kAtOnce} * team.size) {
    Pack<T> pack[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (const std::int64_t chunk = first + std::int64_t{u} * team.size; chunk < run.high)
        pack[u] = load_chunk<Fresh, true>(run, start, chunk, outside);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (const std::int64_t chunk = first + std::int64_t{u} * team.size; chunk < run.high) each(chunk, pack[u], IsWhole<true>{});
  }
  for (std::int64_t i = team.rank; i < run.others(); i += team.size)
    each(run.other(i), load_chunk<Fresh, false>(run, start, run.other(i), outside), IsWhole<false>{});
}

// -- softmax ------------------------------------------------------------------------------------------------------------------

template <class T, int Chunks>
__global__ void __launch_bounds__(kMostTeam, kKeptBlocks<Chunks>) softmax_kept(const T* __restrict__ x,  // [rows, columns]
                                                                               T* __restrict__ y,        // [rows, columns]
                                                                               RowsWork work) {
  __shared__ float shared[64];
  constexpr int kLanes = Pack<T>::kLanes;
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    Kept<T, Chunks> kept(work, row);
    kept.template load<true>(x + row * work.columns, team, -INFINITY);
    float e[Chunks][kLanes], largest = -INFINITY, sum = 0.f;
#pragma unroll
    for (int v = 0; v < Chunks; ++v)
#pragma unroll
      for (int j = 0; j < kLanes; ++j) largest = larger(largest, to_float(kept.pack[v].lane[j]));
    largest = team.max(largest);
    kept.forget_all();
#pragma unroll
    for (int v = 0; v < Chunks; ++v)
#pragma unroll
      for (int j = 0; j < kLanes; ++j) sum += e[v][j] = exponential<T>(to_float(kept.pack[v].lane[j]) - largest);
    const float inverse = 1.f / team.sum(sum);
#pragma unroll
    for (int v = 0; v < Chunks; ++v) {
      const int chunk = team.rank + v * team.size;
      if (chunk >= kept.chunks) continue;
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < kLanes; ++j) out.lane[j] = from_float<T>(e[v][j] * inverse);
      store_streamed(y + row * work.columns + chunk * kLanes, out);
    }
  });
}

struct Exponentials {
  float largest, inverse;  // of the row; one over the sum of e^(x - largest)
};

// Arithmetic: the dtype whose accuracy the exponentials need.
template <class Arithmetic, class T>
__device__ inline Exponentials exponentials_of(const Run<T>& run, const T* from, Team& team) {
  float largest = -INFINITY, sum = 0.f;
  each_chunk<true>(run, from, team, -INFINITY, [&](std::int64_t, const Pack<T>& pack, auto) {
    float above = largest;
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) above = larger(above, to_float(pack.lane[j]));
    if (above == -INFINITY) return;  // nothing seen yet, and -inf - -inf is not a number
    sum *= exponential<Arithmetic>(largest - above);
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) sum += exponential<Arithmetic>(to_float(pack.lane[j]) - above);
    largest = above;
  });
  const float whole = team.max(largest);
  // A thread that saw nothing has the sum 0; a row of -inf alone becomes NaN, as in the formula.
  return {whole, 1.f / team.sum(sum == 0.f ? 0.f : sum * exponential<Arithmetic>(largest - whole))};
}

template <class T>
__global__ void __launch_bounds__(kLoopedTeam, kLoopedBlocks) softmax_looped(const T* __restrict__ x,  // [rows, columns]
                                                                             T* __restrict__ y,        // [rows, columns]
                                                                             RowsWork work) {
  __shared__ float shared[64];
  each_looped_row(work, shared, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    const Exponentials of = exponentials_of<T>(run, from, team);
    each_chunk<true>(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j)
        out.lane[j] = from_float<T>(exponential<T>(to_float(pack.lane[j]) - of.largest) * of.inverse);
      store_chunk<decltype(is_whole)::value>(run, y + at, chunk, out);
    });
  });
}

// -- normalisations -----------------------------------------------------------------------------------------------------------

// The sum of f over the elements of a pack.
template <class T, class F>
__device__ inline float sum_of(const Pack<T>& pack, F f) {
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < Pack<T>::kLanes; ++j) sum += f(to_float(pack.lane[j]));
  return sum;
}

__device__ inline float square(float x) { return x * x; }

// (value - mean) scale weight + bias
template <class T>
__device__ inline Pack<T> normalised(const Pack<T>& pack, const float (&weight)[Pack<T>::kLanes],
                                     const float (&bias)[Pack<T>::kLanes], float mean, float scale) {
  Pack<T> out;
#pragma unroll
  for (int j = 0; j < Pack<T>::kLanes; ++j)
    out.lane[j] = from_float<T>(fmaf((to_float(pack.lane[j]) - mean) * scale, weight[j], bias[j]));
  return out;
}

// The result of a kept chunk. bias: null for none; the vectors are aligned where rows are kept.
template <class T>
__device__ inline void store_kept(const Pack<T>& pack, const T* weight, const T* bias, T* y, int chunk, float mean, float scale) {
  constexpr int kLanes = Pack<T>::kLanes;
  float w[kLanes], b[kLanes] = {};
  const Pack<T> weights = load_plain(weight + chunk * kLanes);
#pragma unroll
  for (int j = 0; j < kLanes; ++j) w[j] = to_float(weights.lane[j]);
  if (bias) {
    const Pack<T> biases = load_plain(bias + chunk * kLanes);
#pragma unroll
    for (int j = 0; j < kLanes; ++j) b[j] = to_float(biases.lane[j]);
  }
  store_streamed(y + chunk * kLanes, normalised(pack, w, b, mean, scale));
}

// The result of a looped row: `from` is walked once more.
template <bool Fresh, class T>
__device__ inline void store_looped(const Run<T>& run, const T* from, const T* weight, const T* bias, T* y, const Team& team,
                                    float mean, float scale) {
  each_chunk<Fresh>(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
    constexpr bool kWhole = decltype(is_whole)::value;
    float w[Run<T>::kLanes], b[Run<T>::kLanes] = {};
    load_columns<kWhole>(run, weight, chunk, w);
    if (bias) load_columns<kWhole>(run, bias, chunk, b);
    store_chunk<kWhole>(run, y, chunk, normalised(pack, w, b, mean, scale));
  });
}

__device__ inline float root_scale(float sum, const RowsWork& work) {
  return 1.f / sqrtf(sum / static_cast<float>(work.columns) + work.eps);
}

// residual + x, rounded to what the residual stores: the normalisation takes what a later reader will see.
template <class T>
__device__ inline Pack<T> add(const Pack<T>& a, const Pack<T>& b) {
  Pack<T> sum;
#pragma unroll
  for (int j = 0; j < Pack<T>::kLanes; ++j) sum.lane[j] = from_float<T>(to_float(a.lane[j]) + to_float(b.lane[j]));
  return sum;
}

// rms_norm, and with Residual residual_rms_norm.
template <class T, bool Residual, int Chunks>
__global__ void __launch_bounds__(kMostTeam, Residual ? 1 : kKeptBlocks<Chunks>)
    rms_norm_kept(const T* __restrict__ x,       // [rows, columns]
                  const T* __restrict__ weight,  // [columns]
                  T* __restrict__ residual,      // [rows, columns], read and written
                  T* __restrict__ y,             // [rows, columns]
                  RowsWork work) {
  __shared__ float shared[64];
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    T* const sums = Residual ? residual + row * work.columns : nullptr;
    Kept<T, Chunks> kept(work, row);
    kept.template load<true>(x + row * work.columns, team, 0.f);
    if constexpr (Residual) {
      Kept<T, Chunks> before(work, row);
      before.template load<false>(sums, team, 0.f);
#pragma unroll
      for (int v = 0; v < Chunks; ++v) kept.pack[v] = add(before.pack[v], kept.pack[v]);
    }
    float sum = 0.f;
#pragma unroll
    for (int v = 0; v < Chunks; ++v) sum += sum_of(kept.pack[v], square);
    const float scale = root_scale(team.sum(sum), work);
    kept.forget_all();
    kept.each_own(team, [&](int chunk, const Pack<T>& pack) {
      if constexpr (Residual) store_streamed(sums + chunk * Pack<T>::kLanes, pack);
      store_kept<T>(pack, weight, nullptr, y + row * work.columns, chunk, 0.f, scale);
    });
  });
}

template <class T, bool Residual>
__global__ void __launch_bounds__(kLoopedTeam, kLoopedBlocks)
    rms_norm_looped(const T* __restrict__ x,       // [rows, columns]
                    const T* __restrict__ weight,  // [columns]
                    T* __restrict__ residual,      // [rows, columns], read and written
                    T* __restrict__ y,             // [rows, columns]
                    RowsWork work) {
  __shared__ float shared[64];
  each_looped_row(work, shared, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    T* const sums = Residual ? residual + at : nullptr;
    float sum = 0.f;
    each_chunk<true>(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
      if constexpr (Residual) {
        constexpr bool kWhole = decltype(is_whole)::value;
        const Pack<T> total = add(load_chunk<false, kWhole>(run, sums, chunk, 0.f), pack);
        sum += sum_of(total, square);
        store_chunk<kWhole>(run, sums, chunk, total);
      } else {
        sum += sum_of(pack, square);
      }
    });
    // Each thread reads of the residual what it wrote itself.
    store_looped<!Residual, T>(run, Residual ? sums : from, weight, nullptr, y + at, team, 0.f, root_scale(team.sum(sum), work));
  });
}

template <class T, int Chunks>
__global__ void __launch_bounds__(kMostTeam, kKeptBlocks<Chunks>)
    layer_norm_kept(const T* __restrict__ x,       // [rows, columns]
                    const T* __restrict__ weight,  // [columns]
                    const T* __restrict__ bias,    // [columns]
                    T* __restrict__ y,             // [rows, columns]
                    RowsWork work) {
  __shared__ float shared[64];
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    Kept<T, Chunks> kept(work, row);
    kept.template load<true>(x + row * work.columns, team, 0.f);
    float sum = 0.f, deviations = 0.f;
#pragma unroll
    for (int v = 0; v < Chunks; ++v) sum += sum_of(kept.pack[v], [](float value) { return value; });
    const float mean = team.sum(sum) / static_cast<float>(work.columns);
    kept.forget_all();
    kept.each_own(team,
                  [&](int, const Pack<T>& pack) { deviations += sum_of(pack, [&](float value) { return square(value - mean); }); });
    const float scale = root_scale(team.sum(deviations), work);
    kept.forget_all();
    kept.each_own(
        team, [&](int chunk, const Pack<T>& pack) { store_kept(pack, weight, bias, y + row * work.columns, chunk, mean, scale); });
  });
}

template <class T>
__global__ void __launch_bounds__(kLoopedTeam, 1) layer_norm_looped(const T* __restrict__ x,       // [rows, columns]
                                                                    const T* __restrict__ weight,  // [columns]
                                                                    const T* __restrict__ bias,    // [columns]
                                                                    T* __restrict__ y,             // [rows, columns]
                                                                    RowsWork work) {
  __shared__ float shared[64];
  each_looped_row(work, shared, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    float sum = 0.f, deviations = 0.f;
    each_chunk<true>(run, from, team, 0.f,
                     [&](std::int64_t, const Pack<T>& pack, auto) { sum += sum_of(pack, [](float value) { return value; }); });
    const float mean = team.sum(sum) / static_cast<float>(work.columns);
    each_chunk<true>(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j)
        if (decltype(is_whole)::value || run.has(run.first(chunk) + j)) deviations += square(to_float(pack.lane[j]) - mean);
    });
    const float scale = root_scale(team.sum(deviations), work);
    store_looped<true, T>(run, from, weight, bias, y + at, team, mean, scale);
  });
}

// -- without a reduction ------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kLoopedTeam, kLoopedBlocks) bias_relu_rows(const T* __restrict__ x,     // [rows, columns]
                                                                             const T* __restrict__ bias,  // [columns]
                                                                             T* __restrict__ y,           // [rows, columns]
                                                                             RowsWork work) {
  each_looped_row(work, nullptr, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    each_chunk<true>(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
      constexpr bool kWhole = decltype(is_whole)::value;
      float b[Run<T>::kLanes];
      load_columns<kWhole>(run, bias, chunk, b);
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j) {
        const float sum = to_float(pack.lane[j]) + b[j];
        out.lane[j] = from_float<T>(sum < 0.f ? 0.f : sum);  // a NaN stays one
      }
      store_chunk<kWhole>(run, y + at, chunk, out);
    });
  });
}

}  // namespace roofline::cuda
