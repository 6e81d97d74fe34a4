// Kernels over elements: relu, gelu, silu_mul, convert and adam. Persistent blocks, 128-bit accesses, all arithmetic in fp32;
// nothing stays on chip.
#pragma once

#include <cmath>

#include "cuda/simt/any_tensor.cuh"

namespace roofline::cuda {

constexpr int kElementUnroll = 4;  // vectors of one tensor in flight per thread

// -- y = f(x), y = f(x, z) ----------------------------------------------------------------------------------------------------

struct Relu {
  template <class T>
  static __device__ float value(float x) {
    return x < 0.f ? 0.f : x;  // a NaN stays one
  }
};

// 1 - erf(x) for x >= 0 to 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
__device__ inline float erfc_near(float x) {
  const float t = 1.f / fmaf(0.3275911f, x, 1.f);
  const float p = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
  return p * t * __expf(-x * x);
}

struct GeluErf {
  template <class T>
  static __device__ float value(float x) {
    constexpr float kRootHalf = 0.70710678118654752f;
    if constexpr (sizeof(T) == 4) return 0.5f * x * (1.f + erff(x * kRootHalf));
    // erff takes over 20 operations, more than a 16-bit element leaves time for between its load and its store.
    const float tail = 0.5f * x * erfc_near(fabsf(x) * kRootHalf);
    return x >= 0.f ? x - tail : tail;
  }
};

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u)
struct GeluTanh {
  template <class T>
  static __device__ float value(float x) {
    constexpr float kTwoRoots = 1.5957691216057308f;  // 2 sqrt(2 / pi)
    const float twice = kTwoRoots * fmaf(0.044715f * x * x, x, x);
    if constexpr (sizeof(T) == 4) return x / (1.f + expf(-twice));
    return x / (1.f + __expf(-twice));
  }
};

struct SiluMul {
  template <class T>
  static __device__ float value(float gate, float up) {
    if constexpr (sizeof(T) == 4) return gate / (1.f + expf(-gate)) * up;
    return gate / (1.f + __expf(-gate)) * up;
  }
};

// vectors: false where x and y are not cut at the same places.
template <class F, class T>
__global__ void __launch_bounds__(kElementThreads) map_kernel(const T* __restrict__ x,  // [elements]
                                                              T* __restrict__ y,        // [elements]
                                                              std::int64_t elements, bool vectors) {
  const Run<T> run(x, elements, vectors);
  const auto result = [&](const Pack<T>& pack) {
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) out.lane[j] = from_float<T>(F::template value<T>(to_float(pack.lane[j])));
    return out;
  };
  const std::int64_t tile = std::int64_t{kElementThreads} * kElementUnroll;
  for (std::int64_t first = run.low + blockIdx.x * tile + threadIdx.x; first < run.high; first += gridDim.x * tile) {
    Pack<T> pack[kElementUnroll];
#pragma unroll
    for (int u = 0; u < kElementUnroll; ++u)
      if (const std::int64_t chunk = first + u * kElementThreads; chunk < run.high)
        pack[u] = load_chunk<true, true>(run, x, chunk, 0.f);
#pragma unroll
    for (int u = 0; u < kElementUnroll; ++u)
      if (const std::int64_t chunk = first + u * kElementThreads; chunk < run.high)
        store_chunk<true>(run, y, chunk, result(pack[u]));
  }
  const std::int64_t thread = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  for (std::int64_t i = thread; i < run.others(); i += std::int64_t{gridDim.x} * kElementThreads)
    store_chunk<false>(run, y, run.other(i), result(load_chunk<true, false>(run, x, run.other(i), 0.f)));
}

// rows of a and b begin every `pitch` elements, those of y follow each other. Blocks take a segment of a row after the other:
// segments per row.
template <class F, class T>
__global__ void __launch_bounds__(kElementThreads, 2) map2_kernel(const T* __restrict__ a,  // [rows, columns]
                                                                  const T* __restrict__ b,  // [rows, columns]
                                                                  T* __restrict__ y,        // [rows, columns]
                                                                  std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                                                                  std::int64_t segments, bool vectors) {
  constexpr int kUnroll = kElementUnroll / 2;  // of both tensors
  const std::int64_t tile = std::int64_t{kElementThreads} * kUnroll;
  for (std::int64_t part = blockIdx.x; part < rows * segments; part += gridDim.x) {
    const std::int64_t row = part / segments, segment = part % segments;
    const T *const left_row = a + row * pitch, *const right_row = b + row * pitch;
    T* const out_row = y + row * columns;
    const Run<T> run(left_row, columns, vectors);
    const auto result = [&](const Pack<T>& left, const Pack<T>& right) {
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < run.kLanes; ++j)
        out.lane[j] = from_float<T>(F::template value<T>(to_float(left.lane[j]), to_float(right.lane[j])));
      return out;
    };
    for (std::int64_t first = run.low + segment * tile + threadIdx.x; first < run.high; first += segments * tile) {
      Pack<T> left[kUnroll], right[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (const std::int64_t chunk = first + u * kElementThreads; chunk < run.high) {
          left[u] = load_chunk<true, true>(run, left_row, chunk, 0.f);
          right[u] = load_chunk<true, true>(run, right_row, chunk, 0.f);
        }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (const std::int64_t chunk = first + u * kElementThreads; chunk < run.high)
          store_chunk<true>(run, out_row, chunk, result(left[u], right[u]));
    }
    for (std::int64_t i = segment * kElementThreads + threadIdx.x; i < run.others(); i += segments * kElementThreads) {
      const std::int64_t chunk = run.other(i);
      const Pack<T> left = load_chunk<true, false>(run, left_row, chunk, 0.f);
      store_chunk<false>(run, out_row, chunk, result(left, load_chunk<true, false>(run, right_row, chunk, 0.f)));
    }
  }
}

// -- several dtypes in one kernel ---------------------------------------------------------------------------------------------

// groups: of kGroup elements that can be moved in vectors; 0 where a tensor is not aligned.
__global__ void __launch_bounds__(kElementThreads) convert_kernel(AnyTensor x,  // [elements]
                                                                  AnyTensor y,  // [elements]
                                                                  std::int64_t elements, std::int64_t groups) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kElementThreads;
  constexpr int kAtOnce = 2;
  for (std::int64_t first = thread; first < groups; first += kAtOnce * threads) {
    float values[kAtOnce][kGroup];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (first + u * threads < groups) read_group(x, (first + u * threads) * kGroup, values[u]);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (first + u * threads < groups) write_group(y, (first + u * threads) * kGroup, values[u]);
  }
  for (std::int64_t i = groups * kGroup + thread; i < elements; i += threads) write_one(y, i, read_one(x, i));
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

// Eight parameters per thread and round; each byte of the state is read once and written once.
__global__ void __launch_bounds__(kElementThreads) adam_kernel(AdamWork work) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kElementThreads;
  const AnyTensor kept = work.master.data ? work.master : work.p;
  for (std::int64_t group = thread; group < work.groups; group += threads) {
    float g[kGroup], p[kGroup], m[kGroup], v[kGroup];
    const std::int64_t first = group * kGroup;
    read_group(work.g, first, g);
    read_group(work.m, first, m);
    read_group(work.v, first, v);
    read_group(kept, first, p);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) adam_step(work, g[j], p[j], m[j], v[j]);
    write_group(work.m, first, m);
    write_group(work.v, first, v);
    write_group(work.p, first, p);
    if (work.master.data) write_group(work.master, first, p);
  }
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
