// 16-byte accesses, conversions and reductions that the row-wise and element-wise kernels share.
//
// Kernels that use only this header's words are compiled twice: by nvcc for the GPU, and by the host's compiler for tests, which
// run them thread by thread (tests/cpp/emulated_gpu.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/plan.h"

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

__device__ inline float added(float a, float b) { return a + b; }
// A NaN stays one, unlike with fmaxf.
__device__ inline float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a >= b || a != a ? a : b;
#endif
}

// 1 / sqrt(x) to 2 units in the last place.
__device__ inline float fast_inverse_root(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.f / sqrtf(x);
#endif
}

// n: 0 ... 2^31 - 1.
__device__ inline int quotient(int n, const Divisor& by) {
  return static_cast<int>(std::uint64_t{static_cast<std::uint32_t>(n)} * by.factor >> by.shift);
}

// What one thread moves in one access.
template <class T>
struct alignas(16) Pack {
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  T lane[kLanes];
};

// A pack as bits: where it is kept for long, the compiler would give each element of 16 bits a register.
template <class T>
__device__ inline uint4 bits_of(const Pack<T>& pack) {
  return __builtin_bit_cast(uint4, pack);
}
template <class T>
__device__ inline Pack<T> pack_of(uint4 bits) {
  return __builtin_bit_cast(Pack<T>, bits);
}

template <class T>
__device__ inline void to_floats(uint4 bits, float (&out)[Pack<T>::kLanes]) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // each by one instruction
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
    }
  } else
#endif
  {
    const Pack<T> pack = pack_of<T>(bits);
#pragma unroll
    for (int j = 0; j < pack.kLanes; ++j) out[j] = to_float(pack.lane[j]);
  }
}
template <class T>
__device__ inline void to_floats(const Pack<T>& pack, float (&out)[Pack<T>::kLanes]) {
  to_floats<T>(bits_of(pack), out);
}

template <class T>
__device__ inline uint4 rounded_bits(const float (&values)[Pack<T>::kLanes]) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {  // two by one instruction
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    union {
      Two two;
      unsigned bits;
    } u[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, __half>)
        u[i].two = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      else
        u[i].two = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    }
    return make_uint4(u[0].bits, u[1].bits, u[2].bits, u[3].bits);
  } else
#endif
  {
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < pack.kLanes; ++j) pack.lane[j] = from_float<T>(values[j]);
    return bits_of(pack);
  }
}
template <class T>
__device__ inline Pack<T> rounded(const float (&values)[Pack<T>::kLanes]) {
  return pack_of<T>(rounded_bits<T>(values));
}

// The compiler takes the bits for new ones: conversions of an earlier pass over them are done again, and not kept in registers.
__device__ inline void forget([[maybe_unused]] uint4& bits) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
#endif
}

// By ordinary instructions: that what streams past be kept by no cache, or leave it first (no_allocate, st.cs), costs an H200's
// DRAM up to 6 %, and most where another kernel has left its results in L2.
template <class T>
__device__ inline Pack<T> load_pack(const T* from) {
  return pack_of<T>(*reinterpret_cast<const uint4*>(from));
}
template <class T>
__device__ inline void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(to) = bits_of(pack);
}

// A run of elements cut at the 16-byte boundaries of memory, so that runs which begin anywhere are still moved in whole vectors:
// chunk c holds elements c * kLanes - before ... of the run, less those outside it. Chunks low ... high - 1 are whole.
template <class T>
struct Run {
  static constexpr int kLanes = Pack<T>::kLanes;
  std::int64_t elements, chunks, low, high;
  int before;  // elements of the first chunk that belong to whatever lies before the run

  // vectors: false where the tensors of a kernel are not cut at the same places; no chunk counts as whole then.
  __host__ __device__ Run(const T* start, std::int64_t count, bool vectors) : elements(count) {
    before = static_cast<int>(reinterpret_cast<std::uintptr_t>(start) / sizeof(T) % kLanes);
    chunks = (elements + before + kLanes - 1) / kLanes;
    low = before > 0 ? 1 : 0;
    high = (elements + before) / kLanes;
    if (!vectors || high < low) low = high = 0;
  }
  __device__ std::int64_t first(std::int64_t chunk) const { return chunk * kLanes - before; }
  __device__ bool has(std::int64_t element) const { return element >= 0 && element < elements; }
  // Chunks that are not whole, by number.
  __host__ __device__ std::int64_t others() const { return chunks - (high - low); }
  __device__ std::int64_t other(std::int64_t i) const { return i < low ? i : high + i - low; }
};

template <bool Whole>
struct IsWhole {
  static constexpr bool value = Whole;
};

// One chunk; what lies outside the run reads as `outside`.
template <bool Whole, class T>
__device__ inline Pack<T> load_chunk(const Run<T>& run, const T* start, std::int64_t chunk, float outside) {
  const std::int64_t first = run.first(chunk);
  if constexpr (Whole) {
    return load_pack(start + first);
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
    store_pack(start + first, pack);
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
    to_floats(load_pack(vector + first), out);
    return;
  }
#pragma unroll
  for (int j = 0; j < run.kLanes; ++j) out[j] = Whole || run.has(first + j) ? to_float(vector[first + j]) : 0.f;
}

// The threads that share a row: 2^n lanes of a warp, or a whole block.
struct Team {
  int size;        // threads
  int rank;        // of this one
  float4* shared;  // [2][32] of the block; used where the team is the whole block
  int turn = 0;

  // The same in every lane of the team that this one's warp has.
  template <class Merge>
  __device__ float in_warp(float mine, Merge merge) const {
    if (size >= 32) {
#pragma unroll
      for (int half = 16; half > 0; half /= 2) mine = merge(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, half));
    } else {
      for (int half = size / 2; half > 0; half /= 2) mine = merge(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, half));
    }
    return mine;
  }

  // Each lane gets another warp's `mine`, which all its lanes agree on, for over_warps() to reduce. Lanes that are left get `none`.
  template <class Of>
  __device__ Of of_warps(Of mine, Of none) {
    static_assert(sizeof(Of) <= sizeof(float4));
    if (size <= 32) return mine;
    // Two buffers in turn: whoever writes one again has passed the barrier behind the last reading of it.
    float4* buffer = shared + 32 * turn;
    turn ^= 1;
    if (threadIdx.x % 32 == 0) *reinterpret_cast<Of*>(buffer + threadIdx.x / 32) = mine;
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) & last_warp();
    return warp < size / 32 ? *reinterpret_cast<const Of*>(buffer + warp) : none;
  }
  template <class Merge>
  __device__ float over_warps(float mine, Merge merge) const {
    for (int half = (last_warp() + 1) / 2; half > 0; half /= 2) mine = merge(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, half));
    return mine;
  }
  // The number of warps, rounded up to a power of two, less one.
  __device__ int last_warp() const {
    int last = (size - 1) / 32;
    last |= last >> 1;
    last |= last >> 2;
    return last | last >> 4;
  }

  // The same value in every thread of the team, in an order that does not depend on timing.
  template <class Merge>
  __device__ float all(float mine, float none, Merge merge) {
    return over_warps(of_warps(in_warp(mine, merge), none), merge);
  }
  __device__ float sum(float mine) { return all(mine, 0.f, added); }
  __device__ float max(float mine) { return all(mine, -INFINITY, larger); }
};

}  // namespace roofline::cuda
