// Enough of CUDA to run a kernel's source on the host, block by block (emulated_block.h). Slow, exact, and without a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdint>

#include "emulated_block.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
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
  struct In {
    T value;
    int lanes;
  };
  emulated::Block::expect(mask == 0xFFFFFFFFu, "a shuffle of a whole warp");
  return emulated::Block::current->together<In, T>("shfl.xor", {value, lanes}, [](const In* const* in, T* const* out) {
    for (int lane = 0; lane < 32; ++lane) *out[lane] = in[lane ^ in[lane]->lanes]->value;
  });
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
template <class T>
void __stcs(T* p, T x) {
  *p = x;
}

inline float __expf(float x) { return std::exp(x); }
