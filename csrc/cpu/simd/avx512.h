// AVX-512 F + DQ: 16 lanes.
#pragma once

#include <immintrin.h>

namespace {

using Vec = __m512;
constexpr int kLanes = 16;

ROOFLINE_INLINE Vec zero() { return _mm512_setzero_ps(); }
ROOFLINE_INLINE Vec set1(float x) { return _mm512_set1_ps(x); }
ROOFLINE_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
ROOFLINE_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
ROOFLINE_INLINE void stream(float* p, Vec x) { _mm512_stream_ps(p, x); }  // p aligned to the vector
ROOFLINE_INLINE void fence() { _mm_sfence(); }
ROOFLINE_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
ROOFLINE_INLINE Vec sqrt(Vec a) { return _mm512_sqrt_ps(a); }
ROOFLINE_INLINE Vec round(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// a 2^n for whole n: denormals and overflow as the hardware has them.
ROOFLINE_INLINE Vec scale2(Vec a, Vec n) { return _mm512_scalef_ps(a, n); }

#include "cpu/simd/exp2_polynomial.h"

ROOFLINE_INLINE float reduce_add(Vec a) { return _mm512_reduce_add_ps(a); }
ROOFLINE_INLINE float reduce_max(Vec a) { return _mm512_reduce_max_ps(a); }

ROOFLINE_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
// The first n lanes, 0 <= n <= kLanes; the others come from `other`, and their memory is not touched.
ROOFLINE_INLINE Vec load_partial(const float* p, int n, Vec other) { return _mm512_mask_loadu_ps(other, first(n), p); }
ROOFLINE_INLINE void store_partial(float* p, int n, Vec x) { _mm512_mask_storeu_ps(p, first(n), x); }

}  // namespace
