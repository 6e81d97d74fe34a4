// Elements of 8 bits stored from fp32, rounded to nearest even; too large ones become the largest there is, infinity too. NaN
// stays NaN, and becomes 0 in int8. By vectors that the compiler maps to any instruction set: integers are few beside the memory.
#pragma once

#include "cpu/simd/bytes.h"

namespace {

typedef std::int32_t Words __attribute__((vector_size(4 * kLanes)));  // signed, as AVX2 compares no others
typedef float Numbers __attribute__((vector_size(4 * kLanes)));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

// The low byte of each word. With AVX2 and NEON a compiler's own conversion takes one word after the other.
ROOFLINE_INLINE void low_bytes(const Words& words, Bytes& bytes) {
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(ROOFLINE_SIMDE) && !defined(ROOFLINE_SCALAR)
  const __m256i fours = _mm256_shuffle_epi8(__builtin_bit_cast(__m256i, words), _mm256_set1_epi32(0x0C080400));
  const __m128i all = _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  __builtin_memcpy(&bytes, &all, sizeof bytes);
#elif defined(__ARM_NEON) && !defined(ROOFLINE_SCALAR)
  const uint16x4_t halves = vmovn_u32(__builtin_bit_cast(uint32x4_t, words));
  const uint8x8_t twice = vmovn_u16(vcombine_u16(halves, halves));
  __builtin_memcpy(&bytes, &twice, sizeof bytes);
#else
  bytes = __builtin_convertvector(words, Bytes);
#endif
}

// Sign, exponent and `Fraction` bits of each number, the exponent of 1 being `Bias`, the bits of the largest number `Largest`.
template <int Fraction, int Bias, std::int32_t Largest, std::int32_t Nan>
ROOFLINE_INLINE void narrow_floats(const Numbers& x, Bytes& y) {
  constexpr int kDropped = 23 - Fraction;
  constexpr std::int32_t kMost = (127 - Bias + (Largest >> Fraction)) << 23 | (Largest & ((1 << Fraction) - 1)) << kDropped;
  const Words bits = __builtin_bit_cast(Words, x), all = bits & 0x7FFFFFFF, size = all < kMost ? all : Words{} + kMost;
  const Words normal = ((size + (size >> kDropped & 1) + ((1 << (kDropped - 1)) - 1)) >> kDropped) - ((127 - Bias) << Fraction);
  // Below the normal numbers steps are equal: those of fp32 just above this number, whose addition rounds to them.
  constexpr std::int32_t kMagic = (127 + 23 + 1 - Bias - Fraction) << 23;
  const Numbers sum = __builtin_bit_cast(Numbers, size) + __builtin_bit_cast(Numbers, Words{} + kMagic);
  const Words found = size < (128 - Bias) << 23 ? __builtin_bit_cast(Words, sum) - kMagic : normal;
  low_bytes((all > 0x7F800000 ? Words{} + Nan : found) | (bits >> 24 & 0x80), y);
}

ROOFLINE_INLINE void narrow(const Fp8E4m3*, const Numbers& x, Bytes& y) { narrow_floats<3, 7, 0x7E, 0x7F>(x, y); }
ROOFLINE_INLINE void narrow(const Fp8E5m2*, const Numbers& x, Bytes& y) { narrow_floats<2, 15, 0x7B, 0x7F>(x, y); }
ROOFLINE_INLINE void narrow(const Int8*, const Numbers& x, Bytes& y) {
  const Numbers number = x == x ? x : Numbers{};
  const Numbers low = number > -128.0f ? number : Numbers{} - 128.0f, kept = low < 127.0f ? low : Numbers{} + 127.0f;
  const Numbers shifted = kept + kToWhole;
  low_bytes(__builtin_bit_cast(Words, shifted), y);
}

template <class Element>
ROOFLINE_INLINE void store_bytes(Element* p, Vec x) {
  Numbers numbers;
  Bytes bytes;
  __builtin_memcpy(&numbers, &x, sizeof numbers);
  narrow(p, numbers, bytes);
  __builtin_memcpy(p, &bytes, sizeof bytes);
}
#if defined(__AVX512F__) && !defined(ROOFLINE_SIMDE)
ROOFLINE_INLINE void store(Int8* p, Vec x) {
  const __m512i whole = _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), _mm512_min_ps(x, _mm512_set1_ps(127)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(whole));
}
#else
ROOFLINE_INLINE void store(Int8* p, Vec x) { store_bytes(p, x); }
#endif
ROOFLINE_INLINE void store(Fp8E4m3* p, Vec x) { store_bytes(p, x); }
ROOFLINE_INLINE void store(Fp8E5m2* p, Vec x) { store_bytes(p, x); }

// p aligned to the bytes of a vector's elements.
template <class Element>
ROOFLINE_INLINE void stream_bytes(Element* p, Vec x) {
  Element bytes[kLanes];
  store(bytes, x);
#if defined(__x86_64__) && !defined(ROOFLINE_SCALAR)
  if constexpr (kLanes == 8) {
    long long all;
    __builtin_memcpy(&all, bytes, sizeof all);
    return _mm_stream_si64(reinterpret_cast<long long*>(p), all);
  } else if constexpr (kLanes == 16) {
    __m128i all;
    __builtin_memcpy(&all, bytes, sizeof all);
    return _mm_stream_si128(reinterpret_cast<__m128i*>(p), all);
  }
#endif
  __builtin_memcpy(p, bytes, sizeof bytes);
}
ROOFLINE_INLINE void stream(Int8* p, Vec x) { stream_bytes(p, x); }
ROOFLINE_INLINE void stream(Fp8E4m3* p, Vec x) { stream_bytes(p, x); }
ROOFLINE_INLINE void stream(Fp8E5m2* p, Vec x) { stream_bytes(p, x); }

}  // namespace
