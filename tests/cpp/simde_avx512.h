// The AVX-512 intrinsics of cpu/simd/avx512.h by emulation, so that the AVX-512 kernels can be tested on any CPU with AVX2.
//
// For GCC's -include, with -DROOFLINE_SIMDE. SIMDe has most of them; what its releases up to 0.7.4 lack or simplify stands here.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop

#include <math.h>
#include <stdint.h>

// Lane by lane. Union, because a vector may alias nothing but itself.
union RooflineLanes {
  simde__m512 vector;
  float lane[16];
};

[[gnu::always_inline]] static inline simde__m512 roofline_mask_loadu_ps(simde__m512 other, unsigned mask, const float* p) {
  RooflineLanes x = {other};
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) x.lane[i] = p[i];
  return x.vector;
}

[[gnu::always_inline]] static inline void roofline_mask_storeu_ps(float* p, unsigned mask, simde__m512 a) {
  const RooflineLanes x = {a};
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) p[i] = x.lane[i];
}

[[gnu::always_inline]] static inline simde__m512 roofline_i32gather_ps(simde__m512i which, const float* p) {
  union { simde__m512i vector; int32_t lane[16]; } at = {which};
  RooflineLanes x;
  for (int i = 0; i < 16; ++i) x.lane[i] = p[at.lane[i]];
  return x.vector;
}

// Numbers of type T where the mask has a bit, else 0.
template <class T>
[[gnu::always_inline]] static inline simde__m512i roofline_maskz_loadu(uint64_t mask, const void* p) {
  union { T lane[64 / sizeof(T)]; simde__m512i vector; } x = {};
  for (size_t i = 0; i < 64 / sizeof(T); ++i)
    if (mask >> i & 1) x.lane[i] = static_cast<const T*>(p)[i];
  return x.vector;
}

[[gnu::always_inline]] static inline void roofline_mask_storeu_epi16(void* p, uint32_t mask, simde__m512i a) {
  union { simde__m512i vector; uint16_t lane[32]; } x = {a};
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) static_cast<uint16_t*>(p)[i] = x.lane[i];
}

[[gnu::always_inline]] static inline float roofline_reduce_add_ps(simde__m512 a) {
  RooflineLanes x = {a};
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  return x.lane[0];
}

[[gnu::always_inline]] static inline float roofline_reduce_max_ps(simde__m512 a) {
  RooflineLanes x = {a};
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x.lane[i] = x.lane[i] > x.lane[i + width] ? x.lane[i] : x.lane[i + width];
  return x.lane[0];
}

// Two rounded products and two rounded sums; the instruction rounds once, and takes denormals for 0.
[[gnu::always_inline]] static inline simde__m512 roofline_dpbf16_ps(simde__m512 c, simde__m512 a, simde__m512 b) {
  RooflineLanes sum = {c};
  union { simde__m512 vector; uint32_t word[16]; } x = {a}, y = {b};
  for (int i = 0; i < 16; ++i)
    for (int half = 0; half < 2; ++half) {
      const uint32_t of_x = half ? x.word[i] & 0xFFFF0000u : x.word[i] << 16,
                     of_y = half ? y.word[i] & 0xFFFF0000u : y.word[i] << 16;
      float p, q;
      __builtin_memcpy(&p, &of_x, 4), __builtin_memcpy(&q, &of_y, 4);
      sum.lane[i] += p * q;
    }
  return sum.vector;
}

// With the special cases of the instruction: a NaN times 2^-inf is 0, a NaN times 2^inf is inf.
[[gnu::always_inline]] static inline simde__m512 roofline_scalef_ps(simde__m512 a, simde__m512 b) {
  RooflineLanes x = {a};
  const RooflineLanes n = {b};
  for (int i = 0; i < 16; ++i) {
    const float power = n.lane[i];
    if (__builtin_isnan(x.lane[i]) && __builtin_isinf(power))
      x.lane[i] = power > 0 ? power : 0.0f;
    else
      x.lane[i] = static_cast<float>(x.lane[i] * ::exp2(static_cast<double>(::floorf(power))));
  }
  return x.vector;
}

// To whole numbers, nearest even; infinities stay.
[[gnu::always_inline]] static inline simde__m512 roofline_round_ps(simde__m512 a) {
  RooflineLanes x = {a};
  for (int i = 0; i < 16; ++i) x.lane[i] = ::rintf(x.lane[i]);
  return x.vector;
}

// Less the whole number below.
[[gnu::always_inline]] static inline simde__m512 roofline_reduce_ps(simde__m512 a) {
  RooflineLanes x = {a};
  for (int i = 0; i < 16; ++i) x.lane[i] = __builtin_isinf(x.lane[i]) ? 0.0f : x.lane[i] - ::floorf(x.lane[i]);
  return x.vector;
}

union RooflineWords {
  simde__m512i vector;
  uint32_t lane[16];
};
union RooflineHalves {
  simde__m256i vector;
  simde__m128i part[2];
  uint16_t lane[16];
};
union RooflineParts {
  simde__m512 vector;
  simde__m256 part[2];
};

[[gnu::always_inline]] static inline simde__m512 roofline_zextps256_ps512(simde__m256 a) {
  RooflineParts x = {};
  x.part[0] = a;
  return x.vector;
}

[[gnu::always_inline]] static inline simde__m256 roofline_extractf32x8_ps(simde__m512 a, int part) {
  const RooflineParts x = {a};
  return x.part[part];
}

[[gnu::always_inline]] static inline simde__m512i roofline_cvtepu16_epi32(simde__m256i a) {
  const RooflineHalves x = {a};
  RooflineWords y;
  for (int i = 0; i < 16; ++i) y.lane[i] = x.lane[i];
  return y.vector;
}

[[gnu::always_inline]] static inline simde__m512i roofline_cvtepi8_epi32(simde__m128i a) {
  int8_t x[16];
  __builtin_memcpy(x, &a, sizeof x);
  RooflineWords y;
  for (int i = 0; i < 16; ++i) y.lane[i] = static_cast<uint32_t>(static_cast<int32_t>(x[i]));
  return y.vector;
}

[[gnu::always_inline]] static inline simde__m512 roofline_cvtepi32_ps(simde__m512i a) {
  const RooflineWords x = {a};
  RooflineLanes y;
  for (int i = 0; i < 16; ++i) y.lane[i] = static_cast<float>(static_cast<int32_t>(x.lane[i]));
  return y.vector;
}

[[gnu::always_inline]] static inline simde__m512i roofline_cvtps_epi32(simde__m512 a) {
  const RooflineLanes x = {a};
  RooflineWords y;
  for (int i = 0; i < 16; ++i)  // the least number of NaN, and of what has no place in 32 bits
    y.lane[i] = ::fabsf(x.lane[i]) < 0x1p31f ? static_cast<uint32_t>(static_cast<int32_t>(::rintf(x.lane[i]))) : 0x80000000u;
  return y.vector;
}

[[gnu::always_inline]] static inline simde__m256i roofline_cvtepi32_epi16(simde__m512i a) {
  const RooflineWords x = {a};
  RooflineHalves y;
  for (int i = 0; i < 16; ++i) y.lane[i] = static_cast<uint16_t>(x.lane[i]);
  return y.vector;
}

[[gnu::always_inline]] static inline simde__m512 roofline_cvtph_ps(simde__m256i a) {
  const RooflineHalves x = {a};
  RooflineParts y;
  for (int i = 0; i < 2; ++i) y.part[i] = simde_mm256_cvtph_ps(x.part[i]);
  return y.vector;
}

[[gnu::always_inline]] static inline simde__m256i roofline_cvtps_ph(simde__m512 a) {
  const RooflineParts x = {a};
  RooflineHalves y;
  for (int i = 0; i < 2; ++i) y.part[i] = simde_mm256_cvtps_ph(x.part[i], 8);
  return y.vector;
}

#undef _mm512_madd_epi16  // an alias with the arguments of a masked one
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#define __m512bh simde__m512
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(c, a, b) roofline_dpbf16_ps(c, a, b)
#define _mm512_cvtepi8_epi32(a) roofline_cvtepi8_epi32(a)
#define _mm512_cvtepi32_ps(a) roofline_cvtepi32_ps(a)
#define _mm512_cvtps_epi32(a) roofline_cvtps_epi32(a)
#define _mm512_cvtepu16_epi32(a) roofline_cvtepu16_epi32(a)
#define _mm512_cvtepi32_epi16(a) roofline_cvtepi32_epi16(a)
#define _mm512_cvtph_ps(a) roofline_cvtph_ps(a)
#define _mm512_cvtps_ph(a, how) roofline_cvtps_ph(a)
#define _mm256_stream_si256(p, a) simde_mm256_storeu_si256(p, a)
#define _mm512_mask_loadu_ps(other, mask, p) roofline_mask_loadu_ps(other, mask, p)
#define _mm512_mask_storeu_ps(p, mask, a) roofline_mask_storeu_ps(p, mask, a)
#undef _mm512_maskz_loadu_epi16
#define _mm512_maskz_loadu_epi16(mask, p) roofline_maskz_loadu<uint16_t>(mask, p)
#define _mm512_maskz_loadu_epi8(mask, p) roofline_maskz_loadu<uint8_t>(mask, p)
#define _mm512_maskz_loadu_epi32(mask, p) roofline_maskz_loadu<uint32_t>(mask, p)
#define _mm512_zextps256_ps512(a) roofline_zextps256_ps512(a)
#define _mm512_extractf32x8_ps(a, part) roofline_extractf32x8_ps(a, part)
#undef _mm512_mask_storeu_epi16
#define _mm512_mask_storeu_epi16(p, mask, a) roofline_mask_storeu_epi16(p, mask, a)
#define _mm512_reduce_add_ps(a) roofline_reduce_add_ps(a)
#define _mm512_reduce_max_ps(a) roofline_reduce_max_ps(a)
#define _mm512_stream_ps(p, a) simde_mm512_store_ps(p, a)
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(a, how) roofline_round_ps(a)
#define _mm512_reduce_ps(a, how) roofline_reduce_ps(a)
#undef _mm512_scalef_ps
#define _mm512_scalef_ps(a, b) roofline_scalef_ps(a, b)
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, order) simde_mm512_shuffle_f32x4(a, b, order)
#define _mm512_i32gather_ps(which, p, scale) roofline_i32gather_ps(which, p)
