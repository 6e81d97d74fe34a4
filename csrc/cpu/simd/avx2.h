// AVX2 + FMA: 8 lanes.
#pragma once

#include <immintrin.h>

namespace {

using Vec = __m256;
constexpr int kLanes = 8;

ROOFLINE_INLINE Vec zero() { return _mm256_setzero_ps(); }
ROOFLINE_INLINE Vec set1(float x) { return _mm256_set1_ps(x); }
ROOFLINE_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
// kLanes words of two bf16 numbers each, as fp32.
ROOFLINE_INLINE void widen_pairs(const std::uint32_t* p, Vec& low, Vec& high) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  low = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  high = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
ROOFLINE_INLINE void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
ROOFLINE_INLINE void stream(float* p, Vec x) { _mm256_stream_ps(p, x); }  // p aligned to the vector
ROOFLINE_INLINE void fence() { _mm_sfence(); }

ROOFLINE_INLINE Vec widen(const Bf16*, __m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
ROOFLINE_INLINE Vec widen(const Fp16*, __m128i x) { return _mm256_cvtph_ps(x); }
ROOFLINE_INLINE Vec load(const Bf16* p) { return widen(p, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
ROOFLINE_INLINE Vec load(const Fp16* p) { return widen(p, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
// Words whose upper halves are bf16.
template <Rounded From>
ROOFLINE_INLINE __m256i rounded(Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  if constexpr (From == Rounded::inexact) return _mm256_add_epi32(bits, _mm256_set1_epi32(0x8000));
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i nearest = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7FFF)));
  if constexpr (From == Rounded::of_bf16) return nearest;
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));  // all ones is one: cheaper than what x was
  return _mm256_or_si256(nearest, nan);
}
// The inverse of widen_pairs.
template <Rounded From>
ROOFLINE_INLINE __m256i paired(Vec low, Vec high) {
  return _mm256_blend_epi16(_mm256_srli_epi32(rounded<From>(low), 16), rounded<From>(high), 0xAA);
}
template <bool NonTemporal, Rounded From = Rounded::any>
ROOFLINE_INLINE void narrow_pairs(Bf16* p, Vec low, Vec high) {
  const __m256i words = paired<From>(low, high);
  NonTemporal ? _mm256_stream_si256(reinterpret_cast<__m256i*>(p), words)
              : _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
ROOFLINE_INLINE __m128i narrow(const Bf16*, Vec x) {
  const __m256i words = _mm256_srli_epi32(rounded<Rounded::any>(x), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
ROOFLINE_INLINE __m128i narrow(const Fp16*, Vec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
template <class Half>
ROOFLINE_INLINE void store(Half* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(p, x));
}
template <class Half>
ROOFLINE_INLINE void stream(Half* p, Vec x) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow(p, x));
}

ROOFLINE_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
#define ROOFLINE_MIN_POSITIVE
ROOFLINE_INLINE Vec min_positive(Vec a, Vec b) {
  return _mm256_castsi256_ps(_mm256_min_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }  // a b + c
ROOFLINE_INLINE Vec abs(Vec a) { return _mm256_andnot_ps(set1(-0.0f), a); }
ROOFLINE_INLINE Vec sqrt(Vec a) { return _mm256_sqrt_ps(a); }
ROOFLINE_INLINE Vec round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// a 2^n for whole n: 0 below -126, saturated above 127.
ROOFLINE_INLINE Vec scale2(Vec a, Vec n) {
  const Vec clamped = min(n, set1(127.0f));
  const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(clamped), _mm256_set1_epi32(127)), 23);
  const Vec scaled = mul(a, _mm256_castsi256_ps(bits));
  return _mm256_andnot_ps(_mm256_cmp_ps(n, set1(-126.0f), _CMP_LT_OQ), scaled);
}

#include "cpu/simd/exp2_polynomial.h"

// a 2^(the whole number in the last bits of n), where that is a normal number.
ROOFLINE_INLINE Vec plus_exponent(Vec a, Vec n) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(n), 23)));
}

// x where a < b, else y.
ROOFLINE_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
ROOFLINE_INLINE bool any_greater(Vec a, Vec b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0; }
// Bit i: whether lane i of a is at least that of b.
ROOFLINE_INLINE std::uint32_t bits_at_least(Vec a, Vec b) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}
ROOFLINE_INLINE std::uint32_t bits_less(Vec a, Vec b) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
}
ROOFLINE_INLINE Vec max_number(Vec a, Vec b) { return max(a, b); }  // b where a is NaN
// Lane i: that of 8 numbers which the last three bits of lane i of `which` say.
#define ROOFLINE_LOOK_UP
ROOFLINE_INLINE Vec look_up(const Vec (&numbers)[1], Vec which) {
  return _mm256_permutevar8x32_ps(numbers[0], _mm256_castps_si256(which));
}
// |a|, at most that of b, which is a number: b where a is NaN.
ROOFLINE_INLINE Vec least_size(Vec a, Vec b) { return min(abs(a), b); }
// Pieces of 2^Level lanes of a and b in turn, as transpose has them in each of its rounds.
template <int Level>
ROOFLINE_INLINE void interleave(Vec a, Vec b, Vec& low, Vec& high) {
  if constexpr (Level == 0)
    low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  else if constexpr (Level == 1)
    low = _mm256_shuffle_ps(a, b, 0x44), high = _mm256_shuffle_ps(a, b, 0xEE);
  else
    low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
}
// Rows become columns: 2 x 2 blocks of floats, then of pairs, then of halves.
ROOFLINE_INLINE void transpose(Vec (&rows)[kLanes]) {
  Vec pairs[8], quads[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

ROOFLINE_INLINE float reduce_add(Vec a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
ROOFLINE_INLINE float reduce_max(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

alignas(32) constexpr std::int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
ROOFLINE_INLINE __m256i first(int n) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + 8 - n)); }
// The first n lanes, 0 <= n <= kLanes; the others come from `other`, and their memory is not touched.
ROOFLINE_INLINE Vec load_partial(const float* p, int n, Vec other) {
  const __m256i mask = first(n);
  return _mm256_blendv_ps(other, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
ROOFLINE_INLINE void store_partial(float* p, int n, Vec x) { _mm256_maskstore_ps(p, first(n), x); }

// There are no masks of 16-bit elements: they go in parts of 8, 4 and 2 bytes, from the last one on into the lowest lanes.
#define ROOFLINE_HALVES_IN_PARTS
ROOFLINE_INLINE __m128i load_halves(const void* from, int n) {
  const auto* const p = static_cast<const std::uint16_t*>(from);
  if (n >= 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  __m128i x = n & 1 ? _mm_cvtsi32_si128(p[n - 1]) : _mm_setzero_si128();
  if (n & 2) x = _mm_unpacklo_epi32(_mm_loadu_si32(p + (n & 4)), x);
  return n & 4 ? _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), x) : x;
}
ROOFLINE_INLINE void store_halves(void* to, int n, __m128i x) {
  auto* p = static_cast<std::uint16_t*>(to);
  if (n >= 8) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x);
  if (n & 4) _mm_storel_epi64(reinterpret_cast<__m128i*>(p), x), x = _mm_srli_si128(x, 8), p += 4;
  if (n & 2) _mm_storeu_si32(p, x), x = _mm_srli_si128(x, 4), p += 2;
  if (n & 1) *p = static_cast<std::uint16_t>(_mm_cvtsi128_si32(x));
}
ROOFLINE_INLINE Vec first_lanes(Vec x, int n, Vec other) { return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(first(n))); }
ROOFLINE_INLINE Vec load_partial(const Bf16* p, int n, Vec other) { return first_lanes(widen(p, load_halves(p, n)), n, other); }
ROOFLINE_INLINE Vec load_partial(const Fp16* p, int n, Vec other) { return first_lanes(widen(p, load_halves(p, n)), n, other); }
ROOFLINE_INLINE void store_partial(Bf16* p, int n, Vec x) { store_halves(p, n, narrow(p, x)); }
ROOFLINE_INLINE void store_partial(Fp16* p, int n, Vec x) { store_halves(p, n, narrow(p, x)); }
// As widen_pairs and narrow_pairs, of the first n numbers, 0 < n < 2 kLanes; the others come from `other`.
ROOFLINE_INLINE void widen_pairs_partial(const Bf16* p, int n, Vec other, Vec& low, Vec& high) {
  const __m128i lower = load_halves(p, n), upper = n > 8 ? load_halves(p + 8, n - 8) : _mm_setzero_si128();
  const __m256i words = _mm256_set_m128i(upper, lower);
  low = first_lanes(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), (n + 1) / 2, other);
  high = first_lanes(_mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)))), n / 2, other);
}
ROOFLINE_INLINE void narrow_pairs_partial(Bf16* p, int n, Vec low, Vec high) {
  const __m256i words = paired<Rounded::any>(low, high);
  store_halves(p, n, _mm256_castsi256_si128(words));
  if (n > 8) store_halves(p + 8, n - 8, _mm256_extracti128_si256(words, 1));
}

}  // namespace
