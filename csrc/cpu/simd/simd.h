// Vectors of the instruction set a kernel file is compiled for. Everything is internal to the file that includes it. They are of
// fp32, and elements in memory float, Bf16 or Fp16; stores round to nearest even. With ROOFLINE_DOUBLES both are fp64.
//
// The same names in every instruction set's header: Vec, kLanes, zero, set1, load, widen_pairs, store, stream, add, sub, mul, div,
// max, min, max_number, fma, abs, sqrt, exp2, exp2_bounded, select_less, any_greater, bits_at_least, bits_less, interleave,
// transpose, reduce_add, reduce_max, load_partial, store_partial, fence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/elements.h"

namespace {

using roofline::cpu::Bf16;
using roofline::cpu::Fp16;

}  // namespace

namespace {

// What bf16 is rounded from. any: any numbers. of_bf16: what came of bf16, whose NaNs end in 16 zeros, so that rounding leaves them
// NaNs. inexact: the same, and of two bf16 that are equally near either is right.
enum class Rounded { any, of_bf16, inexact };

// Added to a number of at most 2^22, leaves it rounded to a whole one in the last bits.
constexpr float kToWhole = 0x1.8p23f;

}  // namespace

// This header's functions are always inlined, so that no copy compiled for a wider set can be shared with a narrower one.
#define ROOFLINE_INLINE [[gnu::always_inline]] static inline

// ROOFLINE_SIMDE: the AVX-512 code over an emulation, so that tests run it on any CPU.
#if defined(ROOFLINE_DOUBLES)
#include "cpu/simd/doubles.h"
#elif defined(ROOFLINE_SIMDE) || (defined(__AVX512F__) && defined(__AVX512DQ__))
#include "cpu/simd/avx512.h"
#elif defined(__AVX2__)
#include "cpu/simd/avx2.h"
#elif defined(__ARM_NEON) && !defined(ROOFLINE_SCALAR)
#include "cpu/simd/neon.h"
#else
#include "cpu/simd/scalar.h"
#endif

namespace {

#if !defined(ROOFLINE_DOUBLES)
using Number = float;

// As for fp32; through a vector in memory, for elements that a set has no masks of.
template <class Element>
ROOFLINE_INLINE Vec load_partial(const Element* p, int n, Vec other) {
  Element narrow[kLanes] = {};
  float wide[kLanes];
  __builtin_memcpy(narrow, p, static_cast<std::size_t>(n) * sizeof(Element));
  store(wide, load(narrow));
  return load_partial(wide, n, other);
}
template <class Element>
ROOFLINE_INLINE void store_partial(Element* p, int n, Vec x) {
  if (n > kLanes) __builtin_unreachable();  // else compilers warn of a vector of one lane
  Element narrow[kLanes];
  store(narrow, x);
  __builtin_memcpy(p, narrow, static_cast<std::size_t>(n) * sizeof(Element));
}
#if !defined(ROOFLINE_HALVES_IN_PARTS)
// As widen_pairs and narrow_pairs, of the first n numbers, 0 < n < 2 kLanes; the others come from `other`.
ROOFLINE_INLINE void widen_pairs_partial(const Bf16* p, int n, Vec other, Vec& low, Vec& high) {
  std::uint32_t words[kLanes] = {};
  __builtin_memcpy(words, p, static_cast<std::size_t>(n) * sizeof(Bf16));
  float even[kLanes], odd[kLanes];
  Vec x, y;
  widen_pairs(words, x, y);
  store(even, x), store(odd, y);
  low = load_partial(even, (n + 1) / 2, other), high = load_partial(odd, n / 2, other);
}
ROOFLINE_INLINE void narrow_pairs_partial(Bf16* p, int n, Vec low, Vec high) {
  Bf16 few[2 * kLanes];
  narrow_pairs<false>(few, low, high);
  __builtin_memcpy(p, few, static_cast<std::size_t>(n) * sizeof(Bf16));
}
#endif

// e^x for x <= ~88: 2^(x log2 e). Multiply-adds take the whole number off the product before it is rounded, so that a large |x|
// costs no accuracy; the scalar set, which rounds it, has ln 2 in two parts, the first of few bits. ToZero: 0 where that is no normal
// number, else at least e^-87. In this order a NaN stays one.
template <bool ToZero = true>
ROOFLINE_INLINE Vec exp(Vec x) {
  const Vec log2e = set1(1.44269502f);
  x = max(set1(ToZero ? -104.0f : -87.0f), x);
  const Vec whole = round(mul(x, log2e));
  const Vec power = exp2_polynomial(kLanes == 1 ? mul(fma(whole, set1(2.12194440e-4f), fma(whole, set1(-0.693359375f), x)), log2e)
                                                : fma(x, set1(1.92596299e-8f), fma(x, log2e, sub(zero(), whole))));
#if defined(ROOFLINE_SCALE2_NORMAL)
  if constexpr (!ToZero) return scale2_normal(power, whole);
#endif
  return scale2(power, whole);
}

// 2^x, flushed to 0 below -126 and saturating above 127.
ROOFLINE_INLINE Vec exp2(Vec x) {
  const Vec whole = round(x);
  return scale2(exp2_polynomial(sub(x, whole)), whole);
}

#if !defined(ROOFLINE_EXP2_OR_ZERO)
// 2^x for x <= 126, at least 2^-125. As near as a result in elements T needs.
template <class T = float>
ROOFLINE_INLINE Vec exp2_bounded(Vec x) {
  const Vec clamped = max(set1(-125.0f), x);  // in this order a NaN stays one
  const Vec shifted = add(clamped, set1(kToWhole));
  return plus_exponent(exp2_polynomial<T>(sub(clamped, sub(shifted, set1(kToWhole)))), shifted);
}

// 2^x for x <= 126, 0 from -125 on down; NaN stays NaN.
template <class T>
ROOFLINE_INLINE Vec exp2_or_zero(Vec x) {
  return select_less(x, set1(-125.0f), zero(), exp2_bounded<T>(x));
}
#endif

// The minimum of positive numbers, of their bits, which have the same order: Zen 4 does two in a cycle, or one beside a maximum,
// and else one minimum or maximum. For a negative and a positive number it gives the negative one.
#if defined(ROOFLINE_MIN_POSITIVE)
constexpr bool kMinPositive = true;
#else
constexpr bool kMinPositive = false;
ROOFLINE_INLINE Vec min_positive(Vec a, Vec b) { return min(a, b); }
#endif

// Lane i: p[lane i of `which`, a whole number].
#if !defined(ROOFLINE_GATHER)
ROOFLINE_INLINE Vec gather(const float* p, Vec which) {
  std::int32_t at[kLanes];
  float found[kLanes];
  __builtin_memcpy(at, &which, sizeof at);
  for (int i = 0; i < kLanes; ++i) found[i] = p[at[i]];
  return load(found);
}
#endif

// Lane i is row i reduced by f, two lanes at a time.
template <int Level = 0, int Rows, class F>
ROOFLINE_INLINE Vec reduce(const Vec (&rows)[Rows], F f) {
  if constexpr (Rows == 1) {
    return rows[0];
  } else {
    Vec half[Rows / 2], low, high;
#pragma GCC unroll 8
    for (int i = 0; i < Rows / 2; ++i) interleave<Level>(rows[2 * i], rows[2 * i + 1], low, high), half[i] = f(low, high);
    return reduce<Level + 1>(half, f);
  }
}
#if !defined(ROOFLINE_REDUCE_ADD)
ROOFLINE_INLINE Vec reduce_add(const Vec (&rows)[kLanes]) {
  return reduce(rows, [](Vec a, Vec b) __attribute__((always_inline)) { return add(a, b); });
}
#endif
ROOFLINE_INLINE Vec reduce_max(const Vec (&rows)[kLanes]) {
  return reduce(rows, [](Vec a, Vec b) __attribute__((always_inline)) { return max(a, b); });
}

// tanh(x), within 4e-7 of itself: an odd polynomial over an even one, up to where it is 1 in fp32.
ROOFLINE_INLINE Vec tanh(Vec x) {
  constexpr float kOdd[] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                            1.48572235717979e-05f,  6.37261928875436e-04f, 4.89352455891786e-03f};
  constexpr float kEven[] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f};
  x = max(set1(-7.90531f), min(set1(7.90531f), x));  // in this order a NaN stays one
  const Vec square = mul(x, x);
  Vec over = set1(kOdd[0]), under = set1(kEven[0]);
#pragma GCC unroll 8
  for (int i = 1; i < 7; ++i) over = fma(over, square, set1(kOdd[i]));
#pragma GCC unroll 8
  for (int i = 1; i < 4; ++i) under = fma(under, square, set1(kEven[i]));
  return div(mul(x, over), under);
}

#endif  // !defined(ROOFLINE_DOUBLES)

constexpr float kInfinity = __builtin_inff();
constexpr bool kManyRegisters = sizeof(Vec) == 64 || sizeof(Vec) == 16;  // 32 instead of 16

ROOFLINE_INLINE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
ROOFLINE_INLINE std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// The first n lanes, 1 <= n <= kLanes, the others from `other`. Masked loads are slow, so a whole vector takes a plain one.
template <class Element>
ROOFLINE_INLINE Vec get(const Element* p, int n, Vec other) {
  return n == kLanes ? load(p) : load_partial(p, n, other);
}
template <class Element>
ROOFLINE_INLINE void put(Element* p, int n, Vec x) {
  n == kLanes ? store(p, x) : store_partial(p, n, x);
}

}  // namespace
