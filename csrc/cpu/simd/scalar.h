// One lane, no vectors: the fallback, and the reference for the vector code. Compiled without auto-vectorisation.
#pragma once

#include <cmath>

namespace {

using Vec = float;
constexpr int kLanes = 1;

ROOFLINE_INLINE Vec zero() { return 0.0f; }
ROOFLINE_INLINE Vec set1(float x) { return x; }
ROOFLINE_INLINE Vec load(const float* p) { return *p; }
// kLanes words of two bf16 numbers each, as fp32.
ROOFLINE_INLINE void widen_pairs(const std::uint32_t* p, Vec& low, Vec& high) {
  const std::uint32_t below = *p << 16, above = *p & 0xFFFF0000u;
  __builtin_memcpy(&low, &below, sizeof low);
  __builtin_memcpy(&high, &above, sizeof high);
}
ROOFLINE_INLINE void store(float* p, Vec x) { *p = x; }
ROOFLINE_INLINE void stream(float* p, Vec x) { *p = x; }  // no non-temporal store of one float: a plain one
ROOFLINE_INLINE void fence() {}

#if defined(__aarch64__)
using HardwareHalf = __fp16;  // GCC 12 has no _Float16 in C++ there
#else
using HardwareHalf = _Float16;
#endif
ROOFLINE_INLINE Vec load(const Bf16* p) {
  const std::uint32_t bits = static_cast<std::uint32_t>(p->bits) << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
ROOFLINE_INLINE Vec load(const Fp16* p) {
  HardwareHalf half;
  __builtin_memcpy(&half, p, sizeof half);
  return static_cast<float>(half);
}
ROOFLINE_INLINE void store(Bf16* p, Vec x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  p->bits = static_cast<std::uint16_t>(x != x ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
template <bool NonTemporal, Rounded = Rounded::any>
ROOFLINE_INLINE void narrow_pairs(Bf16* p, Vec low, Vec high) {
  store(p, low), store(p + 1, high);
}
ROOFLINE_INLINE void store(Fp16* p, Vec x) {
  const auto half = static_cast<HardwareHalf>(x);
  __builtin_memcpy(p, &half, sizeof half);
}
template <class Half>
ROOFLINE_INLINE void stream(Half* p, Vec x) {
  store(p, x);
}

ROOFLINE_INLINE Vec add(Vec a, Vec b) { return a + b; }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return a - b; }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return a * b; }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return a / b; }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }  // two roundings where there is no FMA
ROOFLINE_INLINE Vec abs(Vec a) { return __builtin_fabsf(a); }
ROOFLINE_INLINE Vec sqrt(Vec a) { return __builtin_sqrtf(a); }
ROOFLINE_INLINE Vec round(Vec a) { return __builtin_rintf(a); }

// a 2^n for whole n: 0 below -126, saturated above 127.
ROOFLINE_INLINE Vec scale2(Vec a, Vec n) {
  if (n < -126.0f) return 0.0f;
  const std::int32_t bits = (static_cast<std::int32_t>(min(n, 127.0f)) + 127) << 23;
  float power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return a * power;
}

#include "cpu/simd/exp2_polynomial.h"

// a 2^(the whole number in the last bits of n), where that is a normal number.
ROOFLINE_INLINE Vec plus_exponent(Vec a, Vec n) {
  std::uint32_t bits, whole;
  __builtin_memcpy(&bits, &a, sizeof bits);
  __builtin_memcpy(&whole, &n, sizeof whole);
  bits += whole << 23;
  __builtin_memcpy(&a, &bits, sizeof bits);
  return a;
}

// x where a < b, else y.
ROOFLINE_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) { return a < b ? x : y; }
ROOFLINE_INLINE bool any_greater(Vec a, Vec b) { return a > b; }
// Bit i: whether lane i of a is at least that of b.
ROOFLINE_INLINE std::uint32_t bits_at_least(Vec a, Vec b) { return a >= b; }
ROOFLINE_INLINE std::uint32_t bits_less(Vec a, Vec b) { return a < b; }
ROOFLINE_INLINE Vec max_number(Vec a, Vec b) { return max(a, b); }  // b where a is NaN
template <int>
ROOFLINE_INLINE void interleave(Vec, Vec, Vec&, Vec&) {}
// Rows become columns.
ROOFLINE_INLINE void transpose(Vec (&)[kLanes]) {}

ROOFLINE_INLINE float reduce_add(Vec a) { return a; }
ROOFLINE_INLINE float reduce_max(Vec a) { return a; }
// The first n lanes, 0 <= n <= kLanes; the others come from `other`, and their memory is not touched.
ROOFLINE_INLINE Vec load_partial(const float* p, int n, Vec other) { return n ? *p : other; }
ROOFLINE_INLINE void store_partial(float* p, int n, Vec x) {
  if (n) *p = x;
}

}  // namespace
