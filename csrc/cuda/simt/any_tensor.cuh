// Tensors whose dtype is known at run time: one kernel serves every combination of them.
#pragma once

#include <type_traits>

#include "core/dtype.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

constexpr int kElementThreads = 256;

// Elements: 16 bytes of fp32, 8 of a 16-bit dtype, so that a warp's accesses fill whole sectors of either.
constexpr int kGroup = 4;

// A tensor whose dtype is known at run time. The choice is the same in all threads, and costs next to nothing beside an access.
struct AnyTensor {
  void* data;
  DType dtype;  // fp32, fp16 or bf16
};

// A group as it lies in memory, of 16 bits in the first two words. Loads of several tensors can all be under way before the first
// of them is widened.
using RawGroup = uint4;

__device__ inline RawGroup load_group(const AnyTensor& tensor, std::int64_t first) {
  if (tensor.dtype == DType::fp32) return *reinterpret_cast<const uint4*>(static_cast<const float*>(tensor.data) + first);
  const uint2 half = *reinterpret_cast<const uint2*>(static_cast<const __half*>(tensor.data) + first);
  return {half.x, half.y, 0, 0};
}

template <class T>
struct alignas(kGroup * sizeof(T)) Group {
  T lane[kGroup];
};

template <class T>
__device__ inline void widen(const RawGroup& raw, float (&out)[kGroup]) {
  union {
    RawGroup raw;
    Group<T> group;
  } u;
  u.raw = raw;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) out[i] = to_float(u.group.lane[i]);
}

__device__ inline void widen(const RawGroup& raw, DType dtype, float (&out)[kGroup]) {
  if (dtype == DType::fp32) return widen<float>(raw, out);
  if (dtype == DType::fp16) return widen<__half>(raw, out);
  widen<__nv_bfloat16>(raw, out);
}

template <class T>
__device__ inline void write_group(void* data, std::int64_t first, const float (&in)[kGroup]) {
  using Word = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
  Group<T> group;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) group.lane[i] = from_float<T>(in[i]);
  *reinterpret_cast<Word*>(static_cast<T*>(data) + first) = __builtin_bit_cast(Word, group);
}

__device__ inline void write_group(const AnyTensor& tensor, std::int64_t first, const float (&in)[kGroup]) {
  if (tensor.dtype == DType::fp32) return write_group<float>(tensor.data, first, in);
  if (tensor.dtype == DType::fp16) return write_group<__half>(tensor.data, first, in);
  write_group<__nv_bfloat16>(tensor.data, first, in);
}

__device__ inline float read_one(const AnyTensor& tensor, std::int64_t i) {
  if (tensor.dtype == DType::fp32) return static_cast<const float*>(tensor.data)[i];
  if (tensor.dtype == DType::fp16) return to_float(static_cast<const __half*>(tensor.data)[i]);
  return to_float(static_cast<const __nv_bfloat16*>(tensor.data)[i]);
}

__device__ inline void write_one(const AnyTensor& tensor, std::int64_t i, float x) {
  if (tensor.dtype == DType::fp32) static_cast<float*>(tensor.data)[i] = x;
  if (tensor.dtype == DType::fp16) static_cast<__half*>(tensor.data)[i] = from_float<__half>(x);
  if (tensor.dtype == DType::bf16) static_cast<__nv_bfloat16*>(tensor.data)[i] = from_float<__nv_bfloat16>(x);
}

}  // namespace roofline::cuda
