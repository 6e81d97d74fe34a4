// AVX2 + FMA: 8 lanes.
#pragma once

#include <immintrin.h>

namespace {

using Vec = __m256;
constexpr int kLanes = 8;

ROOFLINE_INLINE Vec zero() { return _mm256_setzero_ps(); }
ROOFLINE_INLINE Vec set1(float x) { return _mm256_set1_ps(x); }
ROOFLINE_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
ROOFLINE_INLINE void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
ROOFLINE_INLINE void stream(float* p, Vec x) { _mm256_stream_ps(p, x); }  // p aligned to the vector
ROOFLINE_INLINE void fence() { _mm_sfence(); }
ROOFLINE_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }  // a b + c
ROOFLINE_INLINE Vec sqrt(Vec a) { return _mm256_sqrt_ps(a); }
ROOFLINE_INLINE Vec round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// a 2^n for whole n: 0 below -126, saturated above 127.
ROOFLINE_INLINE Vec scale2(Vec a, Vec n) {
  const Vec clamped = min(n, set1(127.0f));
  const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(clamped), _mm256_set1_epi32(127)), 23);
  const Vec scaled = mul(a, _mm256_castsi256_ps(bits));
  return _mm256_and_ps(scaled, _mm256_cmp_ps(n, set1(-126.0f), _CMP_GE_OQ));
}

#include "cpu/simd/exp2_polynomial.h"

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

}  // namespace
