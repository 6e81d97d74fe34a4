// Elements of tensors on the host, by the types of CUDA's headers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace fake {

// f(a pointer of the element's type).
template <class F>
auto as_type(roofline::DType dtype, void* data, F f) {
  using roofline::DType;
  switch (dtype) {
    case DType::fp64: return f(static_cast<double*>(data));
    case DType::fp32:
    case DType::tf32: return f(static_cast<float*>(data));
    case DType::fp16: return f(static_cast<__half*>(data));
    case DType::bf16: return f(static_cast<__nv_bfloat16*>(data));
    case DType::int32: return f(static_cast<std::int32_t*>(data));
    case DType::int8: return f(static_cast<std::int8_t*>(data));
    case DType::fp8_e8m0: return f(static_cast<__nv_fp8_e8m0*>(data));
    default: break;
  }
  return f(static_cast<__nv_fp8_e4m3*>(data));
}

template <class T>
constexpr bool is_narrow = std::is_class_v<T>;

// Element i of a tensor, and small whole numbers as elements: exact in every dtype, as are sums of products; fp8_e8m0: 1, 2, 4.
inline double element(roofline::DType dtype, const void* data, std::int64_t i) {
  if (bits(dtype) == 4) {
    const int code = static_cast<const std::uint8_t*>(data)[i / 2] >> i % 2 * 4 & 15;
    if (dtype == roofline::DType::int4) return code < 8 ? code : code - 16;
    __nv_fp4_e2m1 x;
    x.__x = static_cast<__nv_fp4_storage_t>(code);
    return static_cast<double>(static_cast<float>(x));
  }
  return as_type(dtype, const_cast<void*>(data), [&](auto* p) {
    if constexpr (is_narrow<std::decay_t<decltype(*p)>>)
      return static_cast<double>(static_cast<float>(p[i]));
    else
      return static_cast<double>(p[i]);
  });
}

inline void set(roofline::DType dtype, void* data, std::int64_t i, double x) {
  if (bits(dtype) == 4) {
    const int code = dtype == roofline::DType::int4 ? static_cast<int>(x) & 15 : __nv_fp4_e2m1(static_cast<float>(x)).__x & 15;
    std::uint8_t& both = static_cast<std::uint8_t*>(data)[i / 2];
    both = static_cast<std::uint8_t>(i % 2 ? (both & 15) | code << 4 : (both & 240) | code);
    return;
  }
  as_type(dtype, data, [&](auto* p) {
    using T = std::decay_t<decltype(*p)>;
    if constexpr (is_narrow<T>)
      p[i] = T(static_cast<float>(x));
    else
      p[i] = static_cast<T>(x);
  });
}

}  // namespace fake
