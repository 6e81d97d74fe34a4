// Numbers of 8 bits as words of bf16 for products of pairs, 64 at a time, by tables of their bytes: for AVX512_VBMI. Everything is
// internal to the file that includes it.
#pragma once

#include <type_traits>

#include "cpu/simd/bytes.h"
#include "cpu/simd/integers.h"

namespace {

// The two bytes of bf16 numbers, by the lower 7 bits of a byte.
struct BytesOfBf16 {
  alignas(64) std::uint8_t low[128], high[128];
};
// n 2^exponent in bf16, 0 < n <= 128.
constexpr int bf16_of(int n, int exponent) {
  int place = 7;
  for (; n < 128; n *= 2) --place;
  return (127 + exponent + place) * 128 + n - 128;
}
// The magnitude that 7 bits stand for. int8: 0 stands for -128. fp8_e4m3: 2^-8 times its value.
constexpr int magnitude(const Int8*, int bits) { return bf16_of(bits ? bits : 128, 0); }
constexpr int magnitude(const Fp8E4m3*, int bits) {
  const int exponent = bits >> 3, fraction = bits & 7;
  if (bits == 0 || bits == 127) return bits ? 0x7FC0 : 0;
  return exponent ? bf16_of(8 + fraction, exponent - 18) : bf16_of(fraction, -17);
}
constexpr int magnitude(const Fp8E5m2*, int bits) {
  const int exponent = bits >> 2, fraction = bits & 3;
  if (bits == 0 || exponent == 31) return bits == 0 ? 0 : fraction ? 0x7FC0 : 0x7F80;
  return exponent ? bf16_of(4 + fraction, exponent - 17) : bf16_of(fraction, -16);
}
template <class Element>
constexpr BytesOfBf16 bytes_of_bf16() {
  BytesOfBf16 all = {};
  for (int bits = 0; bits < 128; ++bits) {
    const int number = magnitude(static_cast<const Element*>(nullptr), bits);
    all.low[bits] = static_cast<std::uint8_t>(number & 255), all.high[bits] = static_cast<std::uint8_t>(number >> 8);
  }
  return all;
}
template <class Element>
constexpr BytesOfBf16 kBytesOfBf16 = bytes_of_bf16<Element>();
constexpr std::uint32_t kSigns = 0x80808080;
// Words of the numbers of 64 bytes by their tables: of the first eight of every 16, and of the others. Crowded: no register is left
// for the mask of signs, which is read from memory each time.
template <class Pair, bool Crowded = false>
ROOFLINE_INLINE void widen_64(__m512i x, const BytesOfBf16& tables, Vec& first, Vec& second) {
  constexpr bool kInt8 = std::is_same_v<Pair, Int8Pair>;
  const __m512i size = kInt8 ? _mm512_abs_epi8(x) : x;
  const __mmask64 some = kInt8 ? _mm512_test_epi8_mask(x, x) : ~__mmask64{0};
  const auto look_up = [&](const std::uint8_t* table) __attribute__((always_inline)) {
    return _mm512_maskz_permutex2var_epi8(some, _mm512_load_si512(table), size, _mm512_load_si512(table + 64));
  };
  const __m512i low = look_up(tables.low);
  __m512i high = look_up(tables.high);
#if !defined(ROOFLINE_SIMDE)  // the emulation has no such instruction
  if constexpr (Crowded)
    asm("vpternlogd $0xF8, %2%{1to16%}, %1, %0" : "+v"(high) : "v"(x), "m"(kSigns));  // high | (x & signs)
  else
#endif
    high = _mm512_ternarylogic_epi32(high, x, _mm512_set1_epi32(kSigns), 0xF8);
  first = _mm512_castsi512_ps(_mm512_unpacklo_epi8(low, high));
  second = _mm512_castsi512_ps(_mm512_unpackhi_epi8(low, high));
}

}  // namespace
