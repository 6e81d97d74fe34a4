// The kernel of fma on a GPU, in the words that host tests can run too.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

constexpr int kFmaThreads = 256;
constexpr int kFmaRegisters = 8;  // per thread, each with as many chains as it has lanes
// Steps of every chain between two tests of the loop's end, which are not multiply-adds and take an issue slot each: 1.5 % of 512
// instructions. Even, since each round begins with +; the loop is 8 KB long, which an instruction cache holds.
constexpr int kFmaUnroll = 64;

// What one instruction advances: one chain, or two side by side in a register (fp16), or in a pair of them (fp32 on sm_10x).
template <class T>
struct Lane {
  using Element = T;
  static constexpr int kLanes = 1;
  T x;
  __device__ void set(int, T value) { x = value; }
  __device__ T get(int) const { return x; }
};
template <class T>
__device__ inline Lane<T> multiply_add(Lane<T> a, Lane<T> b, Lane<T> c) {
  return {static_cast<T>(fma(a.x, b.x, c.x))};
}

struct HalfLanes {
  using Element = __half;
  static constexpr int kLanes = 2;
  __half2 x;
  __device__ void set(int lane, __half value) { (lane ? x.y : x.x) = value; }
  __device__ __half get(int lane) const { return lane ? x.y : x.x; }
};
__device__ inline HalfLanes multiply_add(HalfLanes a, HalfLanes b, HalfLanes c) {
#if defined(__CUDA_ARCH__)
  return {__hfma2(a.x, b.x, c.x)};
#else
  for (int lane = 0; lane < 2; ++lane)
    c.set(lane, __float2half_rn(fma(__half2float(a.get(lane)), __half2float(b.get(lane)), __half2float(c.get(lane)))));
  return c;
#endif
}

struct FloatLanes {
  using Element = float;
  static constexpr int kLanes = 2;
  std::uint64_t bits;  // two floats, the first in the lower half
  __device__ void set(int lane, float value) {
    const std::uint64_t word = __builtin_bit_cast(std::uint32_t, value);
    bits = (bits & 0xFFFFFFFFull << (lane ? 0 : 32)) | word << (lane ? 32 : 0);
  }
  __device__ float get(int lane) const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits >> (lane ? 32 : 0)));
  }
};
// Two where there is no such instruction, so that code for every architecture builds; the plan refuses it there.
__device__ inline FloatLanes multiply_add(FloatLanes a, FloatLanes b, FloatLanes c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  asm("fma.rn.f32x2 %0, %1, %2, %0;" : "+l"(c.bits) : "l"(a.bits), "l"(b.bits));
#else
  for (int lane = 0; lane < 2; ++lane) c.set(lane, fma(a.get(lane), b.get(lane), c.get(lane)));
#endif
  return c;
}

template <class V>
__device__ V in_all_lanes(typename V::Element value) {
  V all{};
#pragma unroll
  for (int lane = 0; lane < V::kLanes; ++lane) all.set(lane, value);
  return all;
}

// One thread advances kFmaRegisters x kLanes chains, a block's width apart. Accumulators stay in registers from the one load to
// the one store. Operands come at run time: known ones would let the compiler fold two steps into none.
template <class V>
__global__ void __launch_bounds__(kFmaThreads) fma_kernel(const typename V::Element* start,  // [chains]
                                                          typename V::Element* result,       // [chains]
                                                          std::int64_t chains, std::int64_t steps,  //
                                                          typename V::Element factor, typename V::Element plus,
                                                          typename V::Element minus) {
  constexpr std::int64_t kWidth = kFmaThreads * V::kLanes, kBlock = kWidth * kFmaRegisters;
  const V three = in_all_lanes<V>(factor), plus_five = in_all_lanes<V>(plus), minus_five = in_all_lanes<V>(minus);
  const std::int64_t blocks = (chains + kBlock - 1) / kBlock;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * kBlock + threadIdx.x * V::kLanes;
    V acc[kFmaRegisters] = {};
#pragma unroll
    for (int r = 0; r < kFmaRegisters; ++r) {
#pragma unroll
      for (int lane = 0; lane < V::kLanes; ++lane) {
        const std::int64_t chain = first + r * kWidth + lane;
        acc[r].set(lane, start[chain < chains ? chain : chains - 1]);
      }
    }
    std::int64_t step = 0;
#pragma unroll 1
    for (; step + kFmaUnroll <= steps; step += kFmaUnroll) {
#pragma unroll
      for (int u = 0; u < kFmaUnroll; ++u) {
#pragma unroll
        for (int r = 0; r < kFmaRegisters; ++r) acc[r] = multiply_add(three, u % 2 ? minus_five : plus_five, acc[r]);
      }
    }
#pragma unroll 1
    for (; step < steps; ++step) {
      const V five = step % 2 ? minus_five : plus_five;
#pragma unroll
      for (int r = 0; r < kFmaRegisters; ++r) acc[r] = multiply_add(three, five, acc[r]);
    }
#pragma unroll
    for (int r = 0; r < kFmaRegisters; ++r) {
#pragma unroll
      for (int lane = 0; lane < V::kLanes; ++lane) {
        const std::int64_t chain = first + r * kWidth + lane;
        if (chain < chains) result[chain] = acc[r].get(lane);
      }
    }
  }
}

}  // namespace roofline::cuda
