// Kernels over elements: relu, gelu, silu_mul, convert and adam. A block for each tile, 128-bit accesses, all arithmetic in
// fp32; nothing stays on chip.
#pragma once

#include <cmath>

#include "cuda/simt/any_tensor.cuh"

namespace roofline::cuda {

// -- y = f(x), y = f(x, z) ----------------------------------------------------------------------------------------------------

struct Relu {
  template <class T>
  static __device__ float value(float x) {
    return x < 0.f ? 0.f : x;  // a NaN stays one
  }
};

// 0.5 |x| (1 - erf(|x| / sqrt(2))) / |x| to 7.5e-8 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
__device__ inline float gelu_tail(float x) {
  constexpr float kRootHalf = 0.70710678118654752f;
  const float t = fast_inverse(fmaf(0.3275911f * kRootHalf, x, 1.f));
  const float p = fmaf(fmaf(fmaf(fmaf(0.5307027145f, t, -0.7265760135f), t, 0.7107068705f), t, -0.142248368f), t, 0.127414796f);
  return p * t * fast_exp2(x * (x * (-0.5f * kLog2E)));
}

// fp32 takes the library's functions; a 16-bit element leaves no time for them between its load and its store.
struct GeluErf {
  template <class T>
  static __device__ float value(float x) {
    if constexpr (sizeof(T) == 4) return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
    return fmaf(-fabsf(x), gelu_tail(fabsf(x)), fmaxf(x, 0.f));
  }
};

// x / (1 + e^-t)
template <class T>
__device__ inline float gated(float x, float t) {
  if constexpr (sizeof(T) == 4) return x / (1.f + expf(-t));
  return x * fast_inverse(1.f + fast_exp2(-kLog2E * t));
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u)
struct GeluTanh {
  template <class T>
  static __device__ float value(float x) {
    constexpr float kTwoRoots = 1.5957691216057308f;  // 2 sqrt(2 / pi)
    return gated<T>(x, kTwoRoots * fmaf(0.044715f * x * x, x, x));
  }
};

struct SiluMul {
  template <class T>
  static __device__ float value(float gate, float up) {
    return gated<T>(gate, gate) * up;
  }
};

// A thread takes one vector: tiles of 4 KB, handed out in order as others end, go fastest past the caches, and the few registers
// let all the threads of an SM be there. y may be x.
template <class F, class T>
__global__ void __launch_bounds__(kElementThreads) map_kernel(const T* x, T* y, Run<T> run) {
  const auto move = [&](std::int64_t chunk, auto is_whole) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const Pack<T> pack = load_chunk<kWhole>(run, x, chunk, 0.f);
    float out[Run<T>::kLanes];
    to_floats(pack, out);
#pragma unroll
    for (int j = 0; j < Run<T>::kLanes; ++j) out[j] = F::template value<T>(out[j]);
    store_chunk<kWhole>(run, y, chunk, rounded<T>(out));
  };
  const std::int64_t thread = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (run.low + thread < run.high) move(run.low + thread, IsWhole<true>{});
  if (thread < run.others()) move(run.other(thread), IsWhole<false>{});
}

// Rows of a and b begin every `pitch` elements, those of y follow each other. All are cut as the first, each into segments of a
// vector per thread.
template <class F, class T>
__global__ void __launch_bounds__(kElementThreads) map2_kernel(const T* __restrict__ a,  // [rows, columns]
                                                               const T* __restrict__ b,  // [rows, columns]
                                                               T* __restrict__ y,        // [rows, columns]
                                                               Run<T> run, std::int64_t pitch, Divisor segments) {
  const int block = static_cast<int>(blockIdx.x), row = quotient(block, segments);
  const auto move = [&](std::int64_t chunk, auto is_whole) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const Pack<T> left = load_chunk<kWhole>(run, a + row * pitch, chunk, 0.f);
    const Pack<T> right = load_chunk<kWhole>(run, b + row * pitch, chunk, 0.f);
    float out[Run<T>::kLanes], other[Run<T>::kLanes];
    to_floats(left, out);
    to_floats(right, other);
#pragma unroll
    for (int j = 0; j < Run<T>::kLanes; ++j) out[j] = F::template value<T>(out[j], other[j]);
    store_chunk<kWhole>(run, y + row * run.elements, chunk, rounded<T>(out));
  };
  const std::int64_t thread = std::int64_t{block - row * segments.divisor} * kElementThreads + threadIdx.x;
  if (run.low + thread < run.high) move(run.low + thread, IsWhole<true>{});
  if (thread < run.others()) move(run.other(thread), IsWhole<false>{});
}

// -- several dtypes in one kernel ---------------------------------------------------------------------------------------------

constexpr int kConvertUnroll = 4;  // groups per thread and round

// groups: of kGroup elements that can be moved in vectors; 0 where a tensor is not aligned.
__global__ void __launch_bounds__(kElementThreads) convert_kernel(AnyTensor x,  // [elements]
                                                                  AnyTensor y,  // [elements]
                                                                  std::int64_t elements, std::int64_t groups) {
  constexpr int kTile = kElementThreads * kConvertUnroll;
  const std::int64_t tile = std::int64_t{gridDim.x} * kTile;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kTile + threadIdx.x; first < groups; first += tile) {
    RawGroup raw[kConvertUnroll];
#pragma unroll
    for (int u = 0; u < kConvertUnroll; ++u)
      if (const std::int64_t group = first + u * kElementThreads; group < groups) raw[u] = load_group(x, group * kGroup);
#pragma unroll
    for (int u = 0; u < kConvertUnroll; ++u)
      if (const std::int64_t group = first + u * kElementThreads; group < groups) {
        float values[kGroup];
        widen(raw[u], x.dtype, values);
        write_group(y, group * kGroup, values);
      }
  }
  const std::int64_t thread = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  for (std::int64_t i = groups * kGroup + thread; i < elements; i += std::int64_t{gridDim.x} * kElementThreads)
    write_one(y, i, read_one(x, i));
}

// What a step of Adam is told; ops/adam.h says which numbers.
struct AdamWork {
  AnyTensor p;       // [elements]; written, and read where there is no master
  AnyTensor master;  // [elements], fp32, read and written; data is null for none
  AnyTensor g;       // [elements]; read
  AnyTensor m, v;    // [elements]; read and written
  std::int64_t elements, groups;
  float beta1, beta2, keep;  // keep: 1 - rate * decay, or 1
  float step, root, eps;     // p -= step m / (sqrt(v) / root + eps)
};

__device__ inline void adam_step(const AdamWork& work, float g, float& p, float& m, float& v) {
  m = work.beta1 * m + (1.f - work.beta1) * g;
  v = work.beta2 * fabsf(v) + (1.f - work.beta2) * g * g;
  p = p * work.keep - work.step * (m / (sqrtf(v) / work.root + work.eps));
}

constexpr int kAdamUnroll = 2;  // groups per thread and round

// Each byte of the state is read once and written once.
__global__ void __launch_bounds__(kElementThreads) adam_kernel(AdamWork work) {
  constexpr int kTile = kElementThreads * kAdamUnroll;
  const AnyTensor kept = work.master.data ? work.master : work.p;
  const std::int64_t tile = std::int64_t{gridDim.x} * kTile;
  for (std::int64_t begin = std::int64_t{blockIdx.x} * kTile + threadIdx.x; begin < work.groups; begin += tile) {
    RawGroup raw_g[kAdamUnroll], raw_m[kAdamUnroll], raw_v[kAdamUnroll], raw_p[kAdamUnroll];
#pragma unroll
    for (int u = 0; u < kAdamUnroll; ++u)
      if (const std::int64_t group = begin + u * kElementThreads; group < work.groups) {
        raw_g[u] = load_group(work.g, group * kGroup);
        raw_m[u] = load_group(work.m, group * kGroup);
        raw_v[u] = load_group(work.v, group * kGroup);
        raw_p[u] = load_group(kept, group * kGroup);
      }
#pragma unroll
    for (int u = 0; u < kAdamUnroll; ++u) {
      const std::int64_t group = begin + u * kElementThreads, first = group * kGroup;
      if (group >= work.groups) continue;
      float g[kGroup], p[kGroup], m[kGroup], v[kGroup];
      widen(raw_g[u], work.g.dtype, g);
      widen(raw_m[u], work.m.dtype, m);
      widen(raw_v[u], work.v.dtype, v);
      widen(raw_p[u], kept.dtype, p);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) adam_step(work, g[j], p[j], m[j], v[j]);
      write_group(work.m, first, m);
      write_group(work.v, first, v);
      write_group(work.p, first, p);
      if (work.master.data) write_group(work.master, first, p);
    }
  }
  const std::int64_t thread = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kElementThreads;
  for (std::int64_t i = work.groups * kGroup + thread; i < work.elements; i += threads) {
    float p = read_one(kept, i), m = read_one(work.m, i), v = read_one(work.v, i);
    adam_step(work, read_one(work.g, i), p, m, v);
    write_one(work.m, i, m);
    write_one(work.v, i, v);
    write_one(work.p, i, p);
    if (work.master.data) write_one(work.master, i, p);
  }
}

}  // namespace roofline::cuda
