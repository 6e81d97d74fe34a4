// Elements of 8 bits in memory, loaded as fp32. A kernel file includes it where its elements have 8 bits.
#pragma once

#include "cpu/simd/simd.h"

namespace {

struct Int8 {
  std::int8_t bits;
};
// OCP 8-bit floating point; no infinities, and a NaN where all but the sign is set. Finite: that is loaded as 480, in less time.
template <bool Finite>
struct E4m3 {
  std::uint8_t bits;
};
using Fp8E4m3 = E4m3<false>;
using FiniteE4m3 = E4m3<true>;
struct Fp8E5m2 {  // OCP 8-bit floating point: the upper half of an fp16
  std::uint8_t bits;
};

// An E4m3 is loaded as 2^-8 of itself: its exponent and fraction at their places in fp16, whose bias is 8 more, denormal
// numbers too.
#if defined(ROOFLINE_SIMDE) || (defined(__AVX512F__) && defined(__AVX512DQ__))
ROOFLINE_INLINE Vec load(const Int8* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
template <bool Finite>
ROOFLINE_INLINE Vec load(const E4m3<Finite>* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i sign = _mm256_set1_epi16(static_cast<short>(0x8000)), all = _mm256_set1_epi16(static_cast<short>(0xBF80));
  __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), all);
  if constexpr (!Finite) half = _mm256_or_si256(half, _mm256_cmpeq_epi16(_mm256_or_si256(half, sign), all));
  return _mm512_cvtph_ps(half);
}
ROOFLINE_INLINE Vec load(const Fp8E5m2* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
}
#if defined(__AVX512BW__) || defined(ROOFLINE_SIMDE)
// Two vectors, whose integer operations are one each.
template <bool Finite>
ROOFLINE_INLINE void load_two(const E4m3<Finite>* p, Vec& low, Vec& high) {
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  __m512i half = _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(static_cast<short>(0xBF80)));
  if constexpr (!Finite) {
    const __mmask32 none = _mm512_cmpge_epu16_mask(_mm512_add_epi16(half, half), _mm512_set1_epi16(0x7F00));
    half = _mm512_mask_mov_epi16(half, none, _mm512_set1_epi16(-1));
  }
  low = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
  high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
}
#endif
#elif defined(__AVX2__)
ROOFLINE_INLINE Vec load(const Int8* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
template <bool Finite>
ROOFLINE_INLINE Vec load(const E4m3<Finite>* p) {
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i sign = _mm_set1_epi16(static_cast<short>(0x8000)), all = _mm_set1_epi16(static_cast<short>(0xBF80));
  __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), all);
  if constexpr (!Finite) half = _mm_or_si128(half, _mm_cmpeq_epi16(_mm_or_si128(half, sign), all));
  return _mm256_cvtph_ps(half);
}
ROOFLINE_INLINE Vec load(const Fp8E5m2* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
}
// Two vectors, whose integer operations are one each.
template <bool Finite>
ROOFLINE_INLINE void load_two(const E4m3<Finite>* p, Vec& low, Vec& high) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i sign = _mm256_set1_epi16(static_cast<short>(0x8000)), all = _mm256_set1_epi16(static_cast<short>(0xBF80));
  __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), all);
  if constexpr (!Finite) half = _mm256_or_si256(half, _mm256_cmpeq_epi16(_mm256_or_si256(half, sign), all));
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
}
#elif defined(__ARM_NEON) && !defined(ROOFLINE_SCALAR)
ROOFLINE_INLINE int16x4_t widened(const void* p) {
  std::uint32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))));
}
ROOFLINE_INLINE Vec load(const Int8* p) { return vcvtq_f32_s32(vmovl_s16(widened(p))); }
template <bool Finite>
ROOFLINE_INLINE Vec load(const E4m3<Finite>* p) {
  const uint16x4_t all = vdup_n_u16(0xBF80);
  uint16x4_t half = vand_u16(vshl_n_u16(vreinterpret_u16_s16(widened(p)), 7), all);
  if constexpr (!Finite) half = vorr_u16(half, vceq_u16(vorr_u16(half, vdup_n_u16(0x8000)), all));
  return vcvt_f32_f16(vreinterpret_f16_u16(half));
}
ROOFLINE_INLINE Vec load(const Fp8E5m2* p) { return vcvt_f32_f16(vreinterpret_f16_s16(vshl_n_s16(widened(p), 8))); }
#else
ROOFLINE_INLINE Vec load(const Int8* p) { return static_cast<float>(p->bits); }
template <bool Finite>
ROOFLINE_INLINE Vec load(const E4m3<Finite>* p) {
  const int magnitude = p->bits & 0x7F;
  const Fp16 half = {static_cast<std::uint16_t>((p->bits & 0x80) << 8 | (!Finite && magnitude == 0x7F ? 0x7E00 : magnitude << 7))};
  return load(&half);
}
ROOFLINE_INLINE Vec load(const Fp8E5m2* p) {
  const Fp16 half = {static_cast<std::uint16_t>(p->bits << 8)};
  return load(&half);
}
#endif

// Two vectors, as two loads where a set knows nothing better.
template <class Element>
ROOFLINE_INLINE void load_two(const Element* p, Vec& low, Vec& high) {
  low = load(p);
  high = load(p + kLanes);
}

}  // namespace
