// The kernels of mixed_intensity: loads with a chosen number of multiply-adds each.
#pragma once

#include <cstdint>

#include "cuda/plan.h"
#include "cuda/probes/loads.cuh"
#include "cuda/probes/sum.cuh"
#include "ops/mixed_intensity.h"

namespace roofline::cuda {

// Four 16-byte vectors a thread: 16 chains of fp32 or 8 of fp64, enough for the latency of a multiply-add with the four warps of a
// partition; and four more vectors under way meanwhile, 64 KB an SM for 1024 threads.
constexpr int kMixedThreads = 256, kMixedVectors = 4;

struct MixedWork {
  const void* a;
  std::int64_t passes, steps;  // steps: y <- y + y alpha, multiply_adds - 1
  int every;                   // a power of two, at most 8
  double alpha, gamma;         // at run time: known ones would let the compiler fold steps
  StreamPlan plan;
  GridSum sum;
};

// `steps` times y <- y + y alpha. Known > 0: that many multiply-adds, this one unrolled; 0: rounds of eight, then one by one.
template <int Known, class T>
__device__ inline void advance(T (&y)[kMixedVectors][16 / sizeof(T)], T alpha, std::int64_t steps) {
  const auto step = [&] {
#pragma unroll
    for (int v = 0; v < kMixedVectors; ++v)
#pragma unroll
      for (int lane = 0; lane < static_cast<int>(16 / sizeof(T)); ++lane) y[v][lane] = fma(y[v][lane], alpha, y[v][lane]);
  };
  if constexpr (Known > 0) {
#pragma unroll
    for (int i = 1; i < Known; ++i) step();
  } else {
#pragma unroll 1
    for (; steps >= 8; steps -= 8) {
#pragma unroll
      for (int i = 0; i < 8; ++i) step();
    }
#pragma unroll 1
    for (; steps > 0; --steps) step();
  }
}

// A thread takes four vectors of a tile, issues the loads of its next tile, and computes on the first meanwhile. Its vectors lie
// multiples of 256 apart, so that all of them are in lines that are computed on, or none: these enter the sum with the factor 0.
// Their instructions are executed all the same, far below what arithmetic can do where lines are skipped at all; and nothing looks
// at a loaded vector before its turn, or the loads of two tiles would not overlap.
template <class T, int Known>
__global__ void __launch_bounds__(kMixedThreads, 4) mixed_intensity_kernel(const MixedWork work) {
  constexpr int kLanes = 16 / sizeof(T), kPerLine = 64 / sizeof(T);
  static_assert(kMixedThreads % (4 * 8) == 0, "vectors of a thread lie whole periods of lines apart");
  const Vector<T>* a = static_cast<const Vector<T>*>(work.a);
  const T alpha = static_cast<T>(work.alpha);
  const bool computed = (static_cast<int>(threadIdx.x) & (4 * work.every - 1)) < 4;  // of vectors: four to a line
  const T gamma = computed ? static_cast<T>(work.gamma) : T{0};
  const std::int64_t vectors = work.plan.part;
  const std::int64_t all_threads = std::int64_t{gridDim.x} * kMixedThreads;
  T sums[kLanes] = {};
  double total = 0;

  const auto load = [&](T (&x)[kMixedVectors][kLanes], std::int64_t first, std::int64_t step, bool guarded) {
#pragma unroll
    for (int u = 0; u < kMixedVectors; ++u) {
      Vector<T> v = {};
      if (!guarded || first + u * step < vectors) v = cuda::load(a + first + u * step);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) x[u][lane] = v.lane[lane];
    }
  };
  const auto compute = [&](T (&x)[kMixedVectors][kLanes]) {
    advance<Known>(x, alpha, work.steps);
#pragma unroll
    for (int u = 0; u < kMixedVectors; ++u)
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] = fma(x[u][lane], gamma, sums[lane]);
  };

  unsigned block = blockIdx.x;
#pragma unroll 1
  for (std::int64_t pass = 0; pass < work.passes; ++pass) {
    constexpr std::int64_t kTile = std::int64_t{kMixedThreads} * kMixedVectors;
    if (work.plan.waves > 0) {
      T now[kMixedVectors][kLanes], next[kMixedVectors][kLanes];
      std::int64_t first = block * kTile + threadIdx.x;
      load(now, first, kMixedThreads, false);
#pragma unroll 1
      for (std::int64_t wave = 1; wave < work.plan.waves; ++wave) {
        first += gridDim.x * kTile;
        load(next, first, kMixedThreads, false);
        compute(now);
#pragma unroll
        for (int u = 0; u < kMixedVectors; ++u)
#pragma unroll
          for (int lane = 0; lane < kLanes; ++lane) now[u][lane] = next[u][lane];
      }
      compute(now);
    }
    const std::int64_t thread = std::int64_t{block} * kMixedThreads + threadIdx.x;
    const std::int64_t rest = work.plan.waves * gridDim.x * kTile + thread;
    if (rest < vectors) {
      T x[kMixedVectors][kLanes];
      load(x, rest, all_threads, true);
      compute(x);
    }
#pragma unroll 1
    for (std::int64_t i = thread; i < work.plan.tail_elements; i += all_threads) {
      const std::int64_t at = vectors * kLanes + i;
      T y = __ldcg(static_cast<const T*>(work.a) + at);
      if (at / kPerLine % work.every != 0) continue;
#pragma unroll 1
      for (std::int64_t step = 0; step < work.steps; ++step) y = fma(y, alpha, y);
      total += static_cast<double>(y) * work.gamma;
    }
    block = block + 1 == gridDim.x ? 0 : block + 1;
    asm volatile("" ::: "memory");
  }
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) total += static_cast<double>(sums[lane]);
  add_up<kMixedThreads>(total, work.sum);
}

}  // namespace roofline::cuda
