// AVX-512 F + DQ: 16 lanes.
#pragma once

#if !defined(ROOFLINE_SIMDE)  // else the build has included an emulation already
// The headers of GCC before 13 warn of their own undefined registers (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace {

using Vec = __m512;
constexpr int kLanes = 16;

ROOFLINE_INLINE Vec zero() { return _mm512_setzero_ps(); }
ROOFLINE_INLINE Vec set1(float x) { return _mm512_set1_ps(x); }
ROOFLINE_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
// kLanes words of two bf16 numbers each, as fp32.
ROOFLINE_INLINE void widen_pairs(const std::uint32_t* p, Vec& low, Vec& high) {
  const __m512i words = _mm512_loadu_si512(p);
  low = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  high = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
ROOFLINE_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
ROOFLINE_INLINE void stream(float* p, Vec x) { _mm512_stream_ps(p, x); }  // p aligned to the vector
ROOFLINE_INLINE void fence() { _mm_sfence(); }

ROOFLINE_INLINE Vec widen(const Bf16*, __m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
ROOFLINE_INLINE Vec widen(const Fp16*, __m256i x) { return _mm512_cvtph_ps(x); }
ROOFLINE_INLINE Vec load(const Bf16* p) { return widen(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
ROOFLINE_INLINE Vec load(const Fp16* p) { return widen(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
// Words whose upper halves are bf16.
template <Rounded From>
ROOFLINE_INLINE __m512i rounded(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  if constexpr (From == Rounded::inexact) return _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
  const __m512i up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i nearest = _mm512_mask_add_epi32(up, odd, up, _mm512_set1_epi32(1));
  if constexpr (From == Rounded::of_bf16) return nearest;
  constexpr int kQuietNaN = 0x22;  // where x is a NaN of either kind it comes back, quiet
  return _mm512_castps_si512(_mm512_fixupimm_ps(_mm512_castsi512_ps(nearest), x, _mm512_set1_epi32(kQuietNaN), 0));
}
// The inverse of widen_pairs.
#if defined(__AVX512BF16__) && !defined(ROOFLINE_SIMDE)  // denormals count as 0
template <Rounded>
ROOFLINE_INLINE __m512i paired(Vec low, Vec high) {
  alignas(64) static constexpr std::uint16_t kInTurn[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kInTurn), reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}
ROOFLINE_INLINE __m256i narrow(const Bf16*, Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }
// sum and the products of 2 kLanes numbers each, by pairs.
ROOFLINE_INLINE Vec plus_pairs(Vec sum, const Bf16* a, const Bf16* b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_loadu_si512(a)), reinterpret_cast<__m512bh>(_mm512_loadu_si512(b)));
}
#else
template <Rounded From>
ROOFLINE_INLINE __m512i paired(Vec low, Vec high) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(rounded<From>(low), 16), rounded<From>(high));
}
ROOFLINE_INLINE __m256i narrow(const Bf16*, Vec x) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded<Rounded::any>(x), 16));
}
#endif
template <bool NonTemporal, Rounded From = Rounded::any>
ROOFLINE_INLINE void narrow_pairs(Bf16* p, Vec low, Vec high) {
  const __m512i words = paired<From>(low, high);
  NonTemporal ? stream(reinterpret_cast<float*>(p), _mm512_castsi512_ps(words)) : _mm512_storeu_si512(p, words);
}
ROOFLINE_INLINE __m256i narrow(const Fp16*, Vec x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
template <class Half>
ROOFLINE_INLINE void store(Half* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(p, x));
}
template <class Half>
ROOFLINE_INLINE void stream(Half* p, Vec x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow(p, x));
}

ROOFLINE_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
#define ROOFLINE_MIN_POSITIVE
ROOFLINE_INLINE Vec min_positive(Vec a, Vec b) {
  return _mm512_castsi512_ps(_mm512_min_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
ROOFLINE_INLINE Vec abs(Vec a) { return _mm512_abs_ps(a); }
// The upper half of a vector as the lower half of another. Operations on that half take half the time where a vector passes in two.
#define ROOFLINE_UPPER_HALF
ROOFLINE_INLINE Vec load_upper(const float* p) { return _mm512_castps256_ps512(_mm256_loadu_ps(p + kLanes / 2)); }
ROOFLINE_INLINE Vec with_upper(Vec lower, Vec upper) { return _mm512_shuffle_f32x4(lower, upper, 0x44); }
ROOFLINE_INLINE Vec fma_lower(Vec a, Vec b, Vec c) {
  return _mm512_castps256_ps512(_mm256_fmadd_ps(_mm512_castps512_ps256(a), _mm512_castps512_ps256(b), _mm512_castps512_ps256(c)));
}
ROOFLINE_INLINE Vec sqrt(Vec a) { return _mm512_sqrt_ps(a); }
ROOFLINE_INLINE Vec round(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// a 2^n for whole n: 0 below -126, where the hardware's scale would give denormal numbers (a hundred cycles each on Intel's cores).
ROOFLINE_INLINE Vec scale2(Vec a, Vec n) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, set1(-126.0f), _CMP_NLT_UQ), a, n);  // a NaN stays one
}

#define ROOFLINE_SCALE2_NORMAL
ROOFLINE_INLINE Vec scale2_normal(Vec a, Vec n) { return _mm512_scalef_ps(a, n); }  // where that is a normal number

#include "cpu/simd/exp2_polynomial.h"

// 2^x, as near as a result in elements T needs. One instruction gives the fraction of x, and the scale takes the whole number below
// x by itself. A rounding and a difference would take three of an Intel core's operations.
ROOFLINE_INLINE Vec above_whole(Vec x) {
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // 0 of an infinity
}
#define ROOFLINE_SCALE2_FLOOR
// a 2^(the whole number below x). ToZero: 0 from x = -126 on down, where that might be denormal.
template <bool ToZero>
ROOFLINE_INLINE Vec scale2_floor(Vec a, Vec x) {
  return ToZero ? _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, set1(-126.0f), _CMP_NLE_UQ), a, x) : _mm512_scalef_ps(a, x);
}
template <class T, bool ToZero = false>
ROOFLINE_INLINE Vec exp2_scaled(Vec x) {
  return scale2_floor<ToZero>(exp2_polynomial(kExp2Above<T>, above_whole(x)), x);
}

// 2^x for x <= 126, at least 2^-125.
ROOFLINE_INLINE Vec exp2_bounded(Vec x) { return exp2_scaled<float>(max(set1(-125.0f), x)); }  // in this order a NaN stays one

// 2^x for x <= 126, 0 from -126 on down, where the hardware's scale would give denormal numbers; NaN stays NaN.
#define ROOFLINE_EXP2_OR_ZERO
template <class T>
ROOFLINE_INLINE Vec exp2_or_zero(Vec x) {
  return exp2_scaled<T, true>(x);
}

// x where a < b, else y.
ROOFLINE_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
ROOFLINE_INLINE bool any_greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
// Bit i: whether lane i of a is at least that of b.
ROOFLINE_INLINE std::uint32_t bits_at_least(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
ROOFLINE_INLINE std::uint32_t bits_less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
#define ROOFLINE_GATHER
ROOFLINE_INLINE Vec gather(const float* p, Vec which) { return _mm512_i32gather_ps(_mm512_castps_si512(which), p, sizeof(float)); }
// p[0], p[1], p[2] .. = low[0], high[0], low[1] ..
ROOFLINE_INLINE void store_pairs(void* p, Vec low, Vec high) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(low, first, high));
  _mm512_storeu_ps(static_cast<Vec*>(p) + 1, _mm512_permutex2var_ps(low, _mm512_add_epi32(first, _mm512_set1_epi32(8)), high));
}
// Lane i: that of 16 or 32 numbers which the last four or five bits of lane i of `which` say.
#define ROOFLINE_LOOK_UP
ROOFLINE_INLINE Vec look_up(const Vec (&numbers)[1], Vec which) {
  return _mm512_permutexvar_ps(_mm512_castps_si512(which), numbers[0]);
}
#define ROOFLINE_LOOK_UP_IN_TWO
ROOFLINE_INLINE Vec look_up(const Vec (&numbers)[2], Vec which) {
  return _mm512_permutex2var_ps(numbers[0], _mm512_castps_si512(which), numbers[1]);
}
// |a|, at most that of b, which is a number: b where a is NaN.
ROOFLINE_INLINE Vec least_size(Vec a, Vec b) { return _mm512_range_ps(a, b, 0b1010); }
ROOFLINE_INLINE Vec max_number(Vec a, Vec b) { return max(a, b); }  // b where a is NaN
// Pieces of 2^Level lanes of a and b in turn, as transpose has them in each of its rounds.
template <int Level>
ROOFLINE_INLINE void interleave(Vec a, Vec b, Vec& low, Vec& high) {
  if constexpr (Level == 0)
    low = _mm512_unpacklo_ps(a, b), high = _mm512_unpackhi_ps(a, b);
  else if constexpr (Level == 1)
    low = _mm512_shuffle_ps(a, b, 0x44), high = _mm512_shuffle_ps(a, b, 0xEE);
  else
    low = _mm512_shuffle_f32x4(a, b, 0x88), high = _mm512_shuffle_f32x4(a, b, 0xDD);
}
// Rows become columns: 2 x 2 blocks of floats, then of pairs, then of 128-bit quarters (twice).
ROOFLINE_INLINE void transpose(Vec (&rows)[kLanes]) {
  Vec pairs[16], quads[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    quads[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {  // quads[4 r + i] holds columns i, i + 4, i + 8, i + 12 of rows 4 r to 4 r + 3
    const Vec low_even = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0x88);
    const Vec low_odd = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0xDD);
    const Vec high_even = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0x88);
    const Vec high_odd = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0xDD);
    rows[i] = _mm512_shuffle_f32x4(low_even, high_even, 0x88);
    rows[i + 4] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(low_even, high_even, 0xDD);
    rows[i + 12] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xDD);
  }
}

ROOFLINE_INLINE float reduce_add(Vec a) { return _mm512_reduce_add_ps(a); }
ROOFLINE_INLINE float reduce_max(Vec a) { return _mm512_reduce_max_ps(a); }

ROOFLINE_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
// The first n lanes, 0 <= n <= kLanes; the others come from `other`, and their memory is not touched.
ROOFLINE_INLINE Vec load_partial(const float* p, int n, Vec other) { return _mm512_mask_loadu_ps(other, first(n), p); }
ROOFLINE_INLINE void store_partial(float* p, int n, Vec x) { _mm512_mask_storeu_ps(p, first(n), x); }

#define ROOFLINE_HALVES_IN_PARTS
// The first n 16-bit elements, 0 <= n < 32, and zeros.
ROOFLINE_INLINE __mmask32 first_halves(int n) { return (__mmask32{1} << n) - 1; }
ROOFLINE_INLINE __m512i load_halves(const void* p, int n) { return _mm512_maskz_loadu_epi16(first_halves(n), p); }
ROOFLINE_INLINE Vec first_lanes(Vec x, int n, Vec other) { return _mm512_mask_blend_ps(first(n), other, x); }
ROOFLINE_INLINE Vec load_partial(const Bf16* p, int n, Vec other) {
  return first_lanes(widen(p, _mm512_castsi512_si256(load_halves(p, n))), n, other);
}
ROOFLINE_INLINE Vec load_partial(const Fp16* p, int n, Vec other) {
  return first_lanes(widen(p, _mm512_castsi512_si256(load_halves(p, n))), n, other);
}
ROOFLINE_INLINE void store_halves(void* p, int n, __m256i x) {
  _mm512_mask_storeu_epi16(p, first_halves(n), _mm512_castsi256_si512(x));
}
ROOFLINE_INLINE void store_partial(Bf16* p, int n, Vec x) { store_halves(p, n, narrow(p, x)); }
ROOFLINE_INLINE void store_partial(Fp16* p, int n, Vec x) { store_halves(p, n, narrow(p, x)); }
// As widen_pairs and narrow_pairs, of the first n numbers, 0 < n < 2 kLanes; the others come from `other`.
ROOFLINE_INLINE void widen_pairs_partial(const Bf16* p, int n, Vec other, Vec& low, Vec& high) {
  const __m512i words = load_halves(p, n);
  low = first_lanes(_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)), (n + 1) / 2, other);
  high = first_lanes(_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)))), n / 2, other);
}
ROOFLINE_INLINE void narrow_pairs_partial(Bf16* p, int n, Vec low, Vec high) {
  _mm512_mask_storeu_epi16(p, first_halves(n), paired<Rounded::any>(low, high));
}

}  // namespace
