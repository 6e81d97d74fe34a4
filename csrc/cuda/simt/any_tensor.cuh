// Tensors whose dtype is known at run time: one kernel serves every combination of them.
#pragma once

#include "core/dtype.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

constexpr int kElementThreads = 256;

constexpr int kGroup = 8;  // elements: one vector of a 16-bit dtype, two of fp32

// A tensor whose dtype is known at run time. The choice is the same in all threads, and costs next to nothing beside an access.
struct AnyTensor {
  void* data;
  DType dtype;  // fp32, fp16 or bf16
};

template <class T>
__device__ inline void read_group(const void* data, std::int64_t first, float (&out)[kGroup]) {
#pragma unroll
  for (int part = 0; part < kGroup / Pack<T>::kLanes; ++part) {
    const Pack<T> pack = load_plain(static_cast<const T*>(data) + first + part * Pack<T>::kLanes);
#pragma unroll
    for (int j = 0; j < Pack<T>::kLanes; ++j) out[part * Pack<T>::kLanes + j] = to_float(pack.lane[j]);
  }
}

template <class T>
__device__ inline void write_group(void* data, std::int64_t first, const float (&in)[kGroup]) {
#pragma unroll
  for (int part = 0; part < kGroup / Pack<T>::kLanes; ++part) {
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < Pack<T>::kLanes; ++j) pack.lane[j] = from_float<T>(in[part * Pack<T>::kLanes + j]);
    store_plain(static_cast<T*>(data) + first + part * Pack<T>::kLanes, pack);
  }
}

__device__ inline void read_group(const AnyTensor& tensor, std::int64_t first, float (&out)[kGroup]) {
  if (tensor.dtype == DType::fp32) return read_group<float>(tensor.data, first, out);
  if (tensor.dtype == DType::fp16) return read_group<__half>(tensor.data, first, out);
  read_group<__nv_bfloat16>(tensor.data, first, out);
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
