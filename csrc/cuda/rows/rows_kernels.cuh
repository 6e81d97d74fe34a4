// Kernels over rows: softmax, rms_norm (also of a residual), layer_norm and bias_relu. A team of threads takes one row at a time.
//
// kept:   a row is read once, 128 bits at a time, all of it in flight at once, and stays in its team's registers until its result
//         is written. Rows are aligned, and at most kMostTeam * kKeptChunks vectors long.
// looped: rows of any length and alignment. A team walks its row again for every pass; parts not in L1 or L2 by then come from
//         memory once more.
// All arithmetic is in fp32.
#pragma once

#include <cmath>

#include "cuda/rows/teams.cuh"

namespace roofline::cuda {

// Blocks of kMostTeam threads that an SM must have room for, so that some load while others reduce or store. Below sm_90 the
// compiler needs more registers for the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int Chunks>
constexpr int kKeptBlocks = Chunks <= kFewChunks ? 2 : 1;
#else
template <int Chunks>
constexpr int kKeptBlocks = 2;
#endif

// -- softmax ------------------------------------------------------------------------------------------------------------------

// The largest element of a row, and the inverse of the sum of e^(x - largest).
struct Exponentials {
  float largest, inverse;
};

// largest, sum: the same of the elements of a warp alone, and of their sum itself. Arithmetic: the dtype whose accuracy the
// exponentials need.
template <class Arithmetic>
__device__ inline Exponentials together(Team& team, float largest, float sum) {
  const float2 of = team.of_warps(float2{largest, sum}, float2{-INFINITY, 0.f});
  const float whole = team.over_warps(of.x, larger);
  return {whole, fast_inverse(team.over_warps(of.y * exponential<Arithmetic>(of.x - whole), added))};
}

template <class T, int Chunks>
__global__ void __launch_bounds__(kMostTeam, kKeptBlocks<Chunks>) softmax_kept(const T* __restrict__ x,  // [rows, columns]
                                                                       T* __restrict__ y,        // [rows, columns]
                                                                       RowsWork work) {
  __shared__ float4 shared[64];
  constexpr int kLanes = Pack<T>::kLanes;
  constexpr bool kKept = Chunks <= kFewChunks;  // else there is no room for the exponentials, which are taken again
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    Kept<T, Chunks> kept(work, row);
    kept.load(x + row * work.columns, team, -INFINITY);
    float e[kKept ? Chunks : 1][kLanes], largest = -INFINITY, sum = 0.f;
    const auto take = [&](int v, float above) {
      float (&of)[kLanes] = e[kKept ? v : 0];
      forget(kept.bits[v]);
      to_floats<T>(kept.bits[v], of);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) of[j] = exponential<T>(of[j] - above);
    };
#pragma unroll
    for (int v = 0; v < Chunks; ++v) largest = larger(largest, largest_of<T>(kept.bits[v]));
    largest = team.in_warp(largest, larger);
    const float base = largest == -INFINITY ? 0.f : largest;  // -inf - -inf is not a number
#pragma unroll
    for (int v = 0; v < Chunks; ++v) {
      take(v, base);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) sum += e[kKept ? v : 0][j];
    }
    // A row of -inf alone becomes NaN, as in the formula.
    const Exponentials of = together<T>(team, largest, team.in_warp(sum, added));
    const float factor = kKept ? exponential<T>(largest - of.largest) * of.inverse : of.inverse;
    T* const to = y + row * work.columns;
    kept.each_own(team, [&](int v, int chunk) {
      if (!kKept) take(v, of.largest);
      float (&out)[kLanes] = e[kKept ? v : 0];
#pragma unroll
      for (int j = 0; j < kLanes; ++j) out[j] *= factor;
      reinterpret_cast<uint4*>(to)[chunk] = rounded_bits<T>(out);
    });
  });
}

template <class Arithmetic, class T>
__device__ inline Exponentials exponentials_of(const Run<T>& run, const T* from, Team& team) {
  float largest = -INFINITY, sum = 0.f;
  each_chunk(run, from, team, -INFINITY, [&](std::int64_t, const Pack<T>& pack, auto) {
    float above = largest;
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) above = larger(above, to_float(pack.lane[j]));
    if (above == -INFINITY) return;  // nothing seen yet, and -inf - -inf is not a number
    sum *= exponential<Arithmetic>(largest - above);
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) sum += exponential<Arithmetic>(to_float(pack.lane[j]) - above);
    largest = above;
  });
  // A thread that saw nothing has the sum 0; a row of -inf alone becomes NaN, as in the formula.
  const float in_warp = team.in_warp(largest, larger);
  sum = team.in_warp(sum == 0.f ? 0.f : sum * exponential<Arithmetic>(largest - in_warp), added);
  return together<Arithmetic>(team, in_warp, sum);
}

template <class T>
__global__ void __launch_bounds__(kLoopedTeam, kLoopedBlocks) softmax_looped(const T* __restrict__ x,  // [rows, columns]
                                                                             T* __restrict__ y,        // [rows, columns]
                                                                             RowsWork work) {
  __shared__ float4 shared[64];
  each_looped_row(work, shared, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    const Exponentials of = exponentials_of<T>(run, from, team);
    each_chunk(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
      float out[Run<T>::kLanes];
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j) out[j] = exponential<T>(to_float(pack.lane[j]) - of.largest) * of.inverse;
      store_chunk<decltype(is_whole)::value>(run, y + at, chunk, rounded<T>(out));
    });
  });
}

// -- normalisations -----------------------------------------------------------------------------------------------------------

// How many elements there are, their sum, and the sum of their squared deviations from their mean.
struct Moments {
  float elements, sum, deviations;
};

__device__ inline float square(float x) { return x * x; }

// (value - mean) scale weight + bias
template <class T>
__device__ inline void normalise(float (&values)[Pack<T>::kLanes], const float (&weight)[Pack<T>::kLanes],
                                 const float (&bias)[Pack<T>::kLanes], float mean, float scale) {
#pragma unroll
  for (int j = 0; j < Pack<T>::kLanes; ++j) {
    const float deviation = sizeof(T) == 2 ? fmaf(values[j], scale, -mean * scale) : (values[j] - mean) * scale;
    values[j] = fmaf(deviation, weight[j], bias[j]);
  }
}

// The result of a kept chunk. bias: null for none; the vectors are aligned where rows are kept.
template <class T>
__device__ inline void store_kept(uint4 bits, const T* weight, const T* bias, T* y, int chunk, float mean, float scale) {
  constexpr int kLanes = Pack<T>::kLanes;
  float values[kLanes], w[kLanes], b[kLanes] = {};
  to_floats<T>(bits, values);
  to_floats<T>(reinterpret_cast<const uint4*>(weight)[chunk], w);
  if (bias) to_floats<T>(reinterpret_cast<const uint4*>(bias)[chunk], b);
  normalise<T>(values, w, b, mean, scale);
  reinterpret_cast<uint4*>(y)[chunk] = rounded_bits<T>(values);
}

// The result of a looped row: `from` is walked once more.
template <class T>
__device__ inline void store_looped(const Run<T>& run, const T* from, const T* weight, const T* bias, T* y, const Team& team,
                                    float mean, float scale) {
  each_chunk(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
    constexpr bool kWhole = decltype(is_whole)::value;
    float w[Run<T>::kLanes], b[Run<T>::kLanes] = {};
    load_columns<kWhole>(run, weight, chunk, w);
    if (bias) load_columns<kWhole>(run, bias, chunk, b);
    float values[Run<T>::kLanes];
    to_floats(pack, values);
    normalise<T>(values, w, b, mean, scale);
    store_chunk<kWhole>(run, y, chunk, rounded<T>(values));
  });
}

__device__ inline float root_scale(float sum, const RowsWork& work) {
  return fast_inverse_root(fmaf(sum, work.inverse, work.eps));
}

// residual + x, rounded to what the residual stores: the normalisation takes what a later reader will see.
template <class T>
__device__ inline uint4 add(uint4 a, uint4 b) {
  float sum[Pack<T>::kLanes], other[Pack<T>::kLanes];
  to_floats<T>(a, sum);
  to_floats<T>(b, other);
#pragma unroll
  for (int j = 0; j < Pack<T>::kLanes; ++j) sum[j] += other[j];
  return rounded_bits<T>(sum);
}

// rms_norm, and with Residual residual_rms_norm.
template <class T, bool Residual, int Chunks>
__global__ void __launch_bounds__(kMostTeam, Residual ? 1 : kKeptBlocks<Chunks>)
    rms_norm_kept(const T* __restrict__ x,       // [rows, columns]
                  const T* __restrict__ weight,  // [columns]
                  T* __restrict__ residual,      // [rows, columns], read and written
                  T* __restrict__ y,             // [rows, columns]
                  RowsWork work) {
  __shared__ float4 shared[64];
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    T* const sums = Residual ? residual + row * work.columns : nullptr;
    Kept<T, Chunks> kept(work, row);
    kept.load(x + row * work.columns, team, 0.f);
    if constexpr (Residual) {
      Kept<T, Chunks> before(work, row);
      before.load(sums, team, 0.f);
#pragma unroll
      for (int v = 0; v < Chunks; ++v) kept.bits[v] = add<T>(before.bits[v], kept.bits[v]);
    }
    float sum = 0.f;
#pragma unroll
    for (int v = 0; v < Chunks; ++v) sum += sum_of<T>(kept.bits[v], square);
    const float scale = root_scale(team.sum(sum), work);
    kept.each_own(team, [&](int v, int chunk) {
      if constexpr (Residual) reinterpret_cast<uint4*>(sums)[chunk] = kept.bits[v];
      store_kept<T>(kept.bits[v], weight, nullptr, y + row * work.columns, chunk, 0.f, scale);
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
  __shared__ float4 shared[64];
  each_looped_row(work, shared, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    T* const sums = Residual ? residual + at : nullptr;
    float sum = 0.f;
    each_chunk(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
      if constexpr (Residual) {
        constexpr bool kWhole = decltype(is_whole)::value;
        const Pack<T> total = pack_of<T>(add<T>(bits_of(load_chunk<kWhole>(run, sums, chunk, 0.f)), bits_of(pack)));
        sum += sum_of(total, square);
        store_chunk<kWhole>(run, sums, chunk, total);
      } else {
        sum += sum_of(pack, square);
      }
    });
    // Each thread reads of the residual what it wrote itself.
    store_looped<T>(run, Residual ? sums : from, weight, nullptr, y + at, team, 0.f, root_scale(team.sum(sum), work));
  });
}

template <class T, int Chunks>
__global__ void __launch_bounds__(kMostTeam, kKeptBlocks<Chunks>)
    layer_norm_kept(const T* __restrict__ x,       // [rows, columns]
                    const T* __restrict__ weight,  // [columns]
                    const T* __restrict__ bias,    // [columns]
                    T* __restrict__ y,             // [rows, columns]
                    RowsWork work) {
  __shared__ float4 shared[64];
  each_row(work, shared, [&](std::int64_t row, Team& team) {
    Kept<T, Chunks> kept(work, row);
    kept.load(x + row * work.columns, team, 0.f);
    // Each warp's deviations are from its own mean first.
    Moments own{kept.elements_of_warp(team), 0.f, 0.f};
#pragma unroll
    for (int v = 0; v < Chunks; ++v) own.sum += sum_of<T>(kept.bits[v], [](float value) { return value; });
    own.sum = team.in_warp(own.sum, added);
    const float of_own = own.sum * fast_inverse(fmaxf(own.elements, 1.f));
    kept.each_own(team, [&](int v, int) {
      own.deviations += sum_of<T>(kept.bits[v], [&](float value) { return square(value - of_own); });
    });
    own.deviations = team.in_warp(own.deviations, added);
    const Moments of = team.of_warps(own, Moments{});
    const float mean = team.over_warps(of.sum, added) * work.inverse;
    const float apart = fmaf(of.sum, fast_inverse(fmaxf(of.elements, 1.f)), -mean);
    const float scale = root_scale(team.over_warps(fmaf(of.elements * apart, apart, of.deviations), added), work);
    kept.each_own(team, [&](int v, int chunk) {
      store_kept(kept.bits[v], weight, bias, y + row * work.columns, chunk, mean, scale);
    });
  });
}

template <class T>
__global__ void __launch_bounds__(kLoopedTeam, 1) layer_norm_looped(const T* __restrict__ x,       // [rows, columns]
                                                                    const T* __restrict__ weight,  // [columns]
                                                                    const T* __restrict__ bias,    // [columns]
                                                                    T* __restrict__ y,             // [rows, columns]
                                                                    RowsWork work) {
  __shared__ float4 shared[64];
  each_looped_row(work, shared, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    float sum = 0.f, deviations = 0.f;
    each_chunk(run, from, team, 0.f,
               [&](std::int64_t, const Pack<T>& pack, auto) { sum += sum_of(pack, [](float value) { return value; }); });
    const float mean = team.sum(sum) * work.inverse;
    each_chunk(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j)
        if (decltype(is_whole)::value || run.has(run.first(chunk) + j)) deviations += square(to_float(pack.lane[j]) - mean);
    });
    const float scale = root_scale(team.sum(deviations), work);
    store_looped<T>(run, from, weight, bias, y + at, team, mean, scale);
  });
}

// -- without a reduction ------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kLoopedTeam, kLoopedBlocks) bias_relu_rows(const T* __restrict__ x,     // [rows, columns]
                                                                             const T* __restrict__ bias,  // [columns]
                                                                             T* __restrict__ y,           // [rows, columns]
                                                                             RowsWork work) {
  each_looped_row(work, nullptr, x, [&](std::int64_t at, const Run<T>& run, const T* from, Team& team) {
    each_chunk(run, from, team, 0.f, [&](std::int64_t chunk, const Pack<T>& pack, auto is_whole) {
      constexpr bool kWhole = decltype(is_whole)::value;
      float out[Run<T>::kLanes];
      load_columns<kWhole>(run, bias, chunk, out);
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j) out[j] = larger(0.f, to_float(pack.lane[j]) + out[j]);
      store_chunk<kWhole>(run, y + at, chunk, rounded<T>(out));
    });
  });
}

// -- which of them ------------------------------------------------------------------------------------------------------------

// The kernel that a plan asks for, of those that keep few vectors of a row, that keep more, and that loop.
template <class Rows>
Rows* planned(const RowPlan& plan, Rows* few, Rows* more, Rows* looped) {
  return !plan.kept ? looped : plan.chunks <= kFewChunks ? few : more;
}
template <class T>
auto softmax_of(const RowPlan& plan) {
  return planned(plan, softmax_kept<T, kFewChunks>, softmax_kept<T, kKeptChunks>, softmax_looped<T>);
}
template <class T>
auto rms_norm_of(const RowPlan& plan) {
  return planned(plan, rms_norm_kept<T, false, kFewChunks>, rms_norm_kept<T, false, kKeptChunks>, rms_norm_looped<T, false>);
}
template <class T>
auto layer_norm_of(const RowPlan& plan) {
  return planned(plan, layer_norm_kept<T, kFewChunks>, layer_norm_kept<T, kKeptChunks>, layer_norm_looped<T>);
}

}  // namespace roofline::cuda
