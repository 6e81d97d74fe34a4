// AArch64 NEON: 4 lanes.
#pragma once

#include <arm_neon.h>

namespace {

using Vec = float32x4_t;
constexpr int kLanes = 4;

ROOFLINE_INLINE Vec zero() { return vdupq_n_f32(0); }
ROOFLINE_INLINE Vec set1(float x) { return vdupq_n_f32(x); }
ROOFLINE_INLINE Vec load(const float* p) { return vld1q_f32(p); }
// kLanes words of two bf16 numbers each, as fp32.
ROOFLINE_INLINE void widen_pairs(const std::uint32_t* p, Vec& low, Vec& high) {
  const uint32x4_t words = vld1q_u32(p);
  low = vreinterpretq_f32_u32(vshlq_n_u32(words, 16));
  high = vreinterpretq_f32_u32(vandq_u32(words, vdupq_n_u32(0xFFFF0000u)));
}
ROOFLINE_INLINE void store(float* p, Vec x) { vst1q_f32(p, x); }
// Non-temporal pair store of one vector in two halves: STNP is the only non-temporal store there is.
ROOFLINE_INLINE void stream(float* p, Vec x) {
  asm volatile("stnp %d1, %d2, %0" : "=Q"(*reinterpret_cast<char(*)[16]>(p)) : "w"(vget_low_f32(x)), "w"(vget_high_f32(x)));
}
ROOFLINE_INLINE void fence() { asm volatile("dmb ishst" ::: "memory"); }

ROOFLINE_INLINE Vec load(const Bf16* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&p->bits), 16)); }
ROOFLINE_INLINE Vec load(const Fp16* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits))); }
// Words whose upper halves are bf16.
template <Rounded From>
ROOFLINE_INLINE uint32x4_t rounded(Vec x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  if constexpr (From == Rounded::inexact) return vaddq_u32(bits, vdupq_n_u32(0x8000));
  const uint32x4_t even = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t nearest = vaddq_u32(bits, vaddq_u32(even, vdupq_n_u32(0x7FFF)));
  if constexpr (From == Rounded::of_bf16) return nearest;
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));  // what a NaN becomes
  return vbslq_u32(vceqq_f32(x, x), nearest, quiet);
}
// The inverse of widen_pairs.
template <bool NonTemporal, Rounded From = Rounded::any>
ROOFLINE_INLINE void narrow_pairs(Bf16* p, Vec low, Vec high) {
  const Vec words = vreinterpretq_f32_u32(vsriq_n_u32(rounded<From>(high), rounded<From>(low), 16));
  NonTemporal ? stream(reinterpret_cast<float*>(p), words) : store(reinterpret_cast<float*>(p), words);
}
ROOFLINE_INLINE uint16x4_t narrow(const Bf16*, Vec x) { return vshrn_n_u32(rounded<Rounded::any>(x), 16); }
ROOFLINE_INLINE uint16x4_t narrow(const Fp16*, Vec x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
template <class Half>
ROOFLINE_INLINE void store(Half* p, Vec x) {
  vst1_u16(&p->bits, narrow(p, x));
}
// A plain one: half a vector is below what STNP writes.
template <class Half>
ROOFLINE_INLINE void stream(Half* p, Vec x) {
  store(p, x);
}

ROOFLINE_INLINE Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return vsubq_f32(a, b); }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return vmulq_f32(a, b); }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return vdivq_f32(a, b); }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return vmaxq_f32(a, b); }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return vminq_f32(a, b); }
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }  // a b + c
ROOFLINE_INLINE Vec abs(Vec a) { return vabsq_f32(a); }
ROOFLINE_INLINE Vec sqrt(Vec a) { return vsqrtq_f32(a); }
ROOFLINE_INLINE Vec round(Vec a) { return vrndnq_f32(a); }

// a 2^n for whole n: 0 below -126, saturated above 127.
ROOFLINE_INLINE Vec scale2(Vec a, Vec n) {
  const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(min(n, set1(127.0f))), vdupq_n_s32(127));
  const Vec scaled = mul(a, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(scaled), vcltq_f32(n, set1(-126.0f))));
}

#include "cpu/simd/exp2_polynomial.h"

// a 2^(the whole number in the last bits of n), where that is a normal number.
ROOFLINE_INLINE Vec plus_exponent(Vec a, Vec n) {
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), vshlq_n_s32(vreinterpretq_s32_f32(n), 23)));
}

// x where a < b, else y.
ROOFLINE_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
ROOFLINE_INLINE bool any_greater(Vec a, Vec b) { return vmaxvq_u32(vcgtq_f32(a, b)) != 0; }
// Bit i: whether lane i of a is at least that of b.
ROOFLINE_INLINE std::uint32_t bits_at_least(Vec a, Vec b) {
  const uint32x4_t lanes = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(vcgeq_f32(a, b), lanes));
}
ROOFLINE_INLINE std::uint32_t bits_less(Vec a, Vec b) {
  const uint32x4_t lanes = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(vcltq_f32(a, b), lanes));
}
ROOFLINE_INLINE Vec max_number(Vec a, Vec b) { return vmaxnmq_f32(a, b); }  // b where a is NaN
// Pieces of 2^Level lanes of a and b in turn, as transpose has them in each of its rounds.
template <int Level>
ROOFLINE_INLINE void interleave(Vec a, Vec b, Vec& low, Vec& high) {
  if constexpr (Level == 0)
    low = vzip1q_f32(a, b), high = vzip2q_f32(a, b);
  else
    low = vcombine_f32(vget_low_f32(a), vget_low_f32(b)), high = vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}
// Rows become columns.
ROOFLINE_INLINE void transpose(Vec (&rows)[kLanes]) {
  const float32x4x2_t low = vtrnq_f32(rows[0], rows[1]);
  const float32x4x2_t high = vtrnq_f32(rows[2], rows[3]);
  rows[0] = vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0]));
  rows[1] = vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1]));
  rows[2] = vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0]));
  rows[3] = vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1]));
}

ROOFLINE_INLINE float reduce_add(Vec a) { return vaddvq_f32(a); }
// Lane i is the sum of row i.
#define ROOFLINE_REDUCE_ADD
ROOFLINE_INLINE Vec reduce_add(const Vec (&rows)[kLanes]) {
  return vpaddq_f32(vpaddq_f32(rows[0], rows[1]), vpaddq_f32(rows[2], rows[3]));
}
ROOFLINE_INLINE float reduce_max(Vec a) { return vmaxvq_f32(a); }

// The first n lanes, 0 <= n <= kLanes; the others come from `other`, and their memory is not touched.
ROOFLINE_INLINE Vec load_partial(const float* p, int n, Vec other) {
  float lane[4];
  store(lane, other);
  for (int i = 0; i < n; ++i) lane[i] = p[i];
  return load(lane);
}
ROOFLINE_INLINE void store_partial(float* p, int n, Vec x) {
  float lane[4];
  store(lane, x);
  for (int i = 0; i < n; ++i) p[i] = lane[i];
}

}  // namespace
