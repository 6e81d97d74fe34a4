// 16-byte accesses, conversions and reductions that the row-wise and element-wise kernels share.
//
// Kernels that use only this header's words are compiled twice: by nvcc for the GPU, and by the host's compiler for tests, which
// run them thread by thread (tests/cpp/emulated_gpu.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#if defined(ROOFLINE_EMULATED_GPU)
#include "emulated_gpu.h"
#endif

namespace roofline::cuda {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T from_float(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Single instructions where the library's functions take several: subnormals are 0 to them.
constexpr float kLog2E = 1.4426950408889634f;
// 2^x to 2 units in the last place.
__device__ inline float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
// 1 / x to 1 unit in the last place.
__device__ inline float fast_inverse(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.f / x;
#endif
}

// What one thread moves in one access.
template <class T>
struct alignas(16) Pack {
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  T lane[kLanes];
};

// The compiler takes the bits for new ones: conversions of an earlier pass over them are done again, and not kept in registers.
template <class T>
__device__ inline void forget(Pack<T>& pack) {
#if defined(__CUDA_ARCH__)
  union {
    Pack<T> pack;
    uint4 bits;
  } u;
  u.pack = pack;
  asm volatile("" : "+r"(u.bits.x), "+r"(u.bits.y), "+r"(u.bits.z), "+r"(u.bits.w));
  pack = u.pack;
#else
  (void)pack;
#endif
}

// Read once and written by nobody meanwhile: past L1, which weights keep for themselves.
template <class T>
__device__ inline Pack<T> load_streamed(const T* from) {
#if defined(__CUDA_ARCH__)
  union {
    uint4 bits;
    Pack<T> pack;
  } u;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(u.bits.x), "=r"(u.bits.y), "=r"(u.bits.z), "=r"(u.bits.w)
      : "l"(from));
  return u.pack;
#else
  return *reinterpret_cast<const Pack<T>*>(from);
#endif
}

// May have been written by this launch.
template <class T>
__device__ inline Pack<T> load_plain(const T* from) {
#if defined(__CUDA_ARCH__)
  union {
    uint4 bits;
    Pack<T> pack;
  } u;
  u.bits = *reinterpret_cast<const uint4*>(from);
  return u.pack;
#else
  return *reinterpret_cast<const Pack<T>*>(from);
#endif
}

template <class T>
__device__ inline void store_plain(T* to, const Pack<T>& pack) {
#if defined(__CUDA_ARCH__)
  union {
    Pack<T> pack;
    uint4 bits;
  } u;
  u.pack = pack;
  *reinterpret_cast<uint4*>(to) = u.bits;
#else
  *reinterpret_cast<Pack<T>*>(to) = pack;
#endif
}

// First to leave L2.
template <class T>
__device__ inline void store_streamed(T* to, const Pack<T>& pack) {
#if defined(__CUDA_ARCH__)
  union {
    Pack<T> pack;
    uint4 bits;
  } u;
  u.pack = pack;
  __stcs(reinterpret_cast<uint4*>(to), u.bits);
#else
  *reinterpret_cast<Pack<T>*>(to) = pack;
#endif
}

// A run of elements cut at the 16-byte boundaries of memory, so that runs which begin anywhere are still moved in whole vectors:
// chunk c holds elements c * kLanes - before ... of the run, less those outside it. Chunks low ... high - 1 are whole.
template <class T>
struct Run {
  static constexpr int kLanes = Pack<T>::kLanes;
  std::int64_t elements, chunks, low, high;
  int before;  // elements of the first chunk that belong to whatever lies before the run

  // vectors: false where the tensors of a kernel are not cut at the same places; no chunk counts as whole then.
  __device__ Run(const T* start, std::int64_t count, bool vectors) : elements(count) {
    before = static_cast<int>(reinterpret_cast<std::uintptr_t>(start) / sizeof(T) % kLanes);
    chunks = (elements + before + kLanes - 1) / kLanes;
    low = before > 0 ? 1 : 0;
    high = (elements + before) / kLanes;
    if (!vectors || high < low) low = high = 0;
  }
  __device__ std::int64_t first(std::int64_t chunk) const { return chunk * kLanes - before; }
  __device__ bool has(std::int64_t element) const { return element >= 0 && element < elements; }
  // Chunks that are not whole, by number.
  __device__ std::int64_t others() const { return chunks - (high - low); }
  __device__ std::int64_t other(std::int64_t i) const { return i < low ? i : high + i - low; }
};

template <bool Whole>
struct IsWhole {
  static constexpr bool value = Whole;
};

// One chunk; what lies outside the run reads as `outside`. Fresh: nobody writes the run meanwhile.
template <bool Fresh, bool Whole, class T>
__device__ inline Pack<T> load_chunk(const Run<T>& run, const T* start, std::int64_t chunk, float outside) {
  const std::int64_t first = run.first(chunk);
  if constexpr (Whole) {
    return Fresh ? load_streamed(start + first) : load_plain(start + first);
  } else {
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) pack.lane[j] = run.has(first + j) ? start[first + j] : from_float<T>(outside);
    return pack;
  }
}

template <bool Whole, class T>
__device__ inline void store_chunk(const Run<T>& run, T* start, std::int64_t chunk, const Pack<T>& pack) {
  const std::int64_t first = run.first(chunk);
  if constexpr (Whole) {
    store_streamed(start + first, pack);
  } else {
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j)
      if (run.has(first + j)) start[first + j] = pack.lane[j];
  }
}

// The values of a vector over columns (weight, bias) that meet a chunk; the same for all rows, so from L1.
template <bool Whole, class T>
__device__ inline void load_columns(const Run<T>& run, const T* vector, std::int64_t chunk, float (&out)[Run<T>::kLanes]) {
  const std::int64_t first = run.first(chunk);
  if (Whole && reinterpret_cast<std::uintptr_t>(vector + first) % 16 == 0) {
    const Pack<T> pack = load_plain(vector + first);
#pragma unroll
    for (int j = 0; j < run.kLanes; ++j) out[j] = to_float(pack.lane[j]);
    return;
  }
#pragma unroll
  for (int j = 0; j < run.kLanes; ++j) out[j] = Whole || run.has(first + j) ? to_float(vector[first + j]) : 0.f;
}

// The threads that share a row: 2^n lanes of a warp, or a whole block.
struct Team {
  int size;       // threads
  int rank;       // of this one
  float* shared;  // [2][32] of the block; used where the team is the whole block
  int turn = 0;

  // The same value in every thread of the team, in an order that does not depend on timing.
  template <class Merge>
  __device__ float all(float mine, float identity, Merge merge) {
    for (int half = (size < 32 ? size : 32) / 2; half > 0; half /= 2) mine = merge(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, half));
    if (size <= 32) return mine;
    // Two buffers in turn: whoever writes one again has passed the barrier behind the last reading of it.
    float* buffer = shared + 32 * turn;
    turn ^= 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) buffer[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = lane < size / 32 ? buffer[lane] : identity;
    for (int half = 16; half > 0; half /= 2) mine = merge(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, half));
    return mine;
  }
  __device__ float sum(float mine) {
    return all(mine, 0.f, [](float a, float b) { return a + b; });
  }
  // A NaN stays one, unlike with fmaxf.
  __device__ float max(float mine) {
    return all(mine, -INFINITY, [](float a, float b) { return a >= b || a != a ? a : b; });
  }
};

}  // namespace roofline::cuda
