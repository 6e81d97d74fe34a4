// Enough of CUDA to run a kernel's source on the host, block by block (emulated_block.h). Slow, exact, and without a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "emulated_block.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#undef __host__
#define __host__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(...)

namespace emulated {

using Block = roofline::cuda::EmulatedBlock;
inline dim3 block_size, grid_size;

template <class Kernel, class... Given>
void launch(std::int64_t grid, int threads, Kernel kernel, Given... given) {
  block_size = dim3(threads);
  grid_size = dim3(static_cast<unsigned>(grid));
  roofline::cuda::emulate(grid, threads, 0, {}, [&] { kernel(given...); });
}

}  // namespace emulated

#define threadIdx dim3(::emulated::Block::current->thread())
#define blockIdx dim3(static_cast<unsigned>(::emulated::Block::current->block()))
#define blockDim ::emulated::block_size
#define gridDim ::emulated::grid_size

inline void __syncthreads() { emulated::Block::current->synchronize(); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  emulated::Block::expect(mask == 0xFFFFFFFFu, "a shuffle of a whole warp");
  return emulated::Block::current->from_lane_xor(value, lanes);
}

inline bool __any_sync(unsigned mask, bool mine) {
  emulated::Block::expect(mask == 0xFFFFFFFFu, "a vote of a whole warp");
  return emulated::Block::current->any_lane(mine);
}

// Blocks run one after the other, threads of a block in turn: what is written is seen, and nothing intervenes.
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* at, unsigned more) { return *at += more, *at - more; }
inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long expected, unsigned long long value) {
  const unsigned long long before = *at;
  if (before == expected) *at = value;
  return before;
}
inline long long clock64() {
  static long long ticks = 0;
  return ++ticks;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldca(const T* p) {
  return *p;
}

inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.f) : 0.f; }  // of NaN 0
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
template <class T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T max(T a, T b) {
  return a > b ? a : b;
}
