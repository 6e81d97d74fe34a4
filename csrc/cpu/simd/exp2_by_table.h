// 2^x in bf16 by a table, 32 at a time. For AVX-512 with VBMI. Everything is internal to the file that includes it.
//
// n = 256 (x + 127), rounded to 16 bits, has the biased exponent of 2^x in its upper 8 bits and f, the fraction of x, in its lower 8.
// n / 2 has the layout of bf16, with f for the mantissa 2^f - 1, which is up to 11 of 128 smaller. A table of f's upper 6 bits corrects
// that. So that it holds no negative numbers, kExp2Less is subtracted from n beforehand; one average adds, halves and rounds. The
// relative error is at most 0.0056, 0.72 of a unit in bf16's last place, and 0.00009 on average.
#pragma once

#include "cpu/simd/simd.h"

namespace {

constexpr float kExp2Less = 23.25f;  // by trial: then it errs least

// 256 (x + 127) - kExp2Less of two vectors, rounded and in pairs, clamped to [0, 2^16 - 1]: 0 for -infinity.
ROOFLINE_INLINE __m512i exponents_in_pairs(Vec low, Vec high) {
  const __m512i in_turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  return _mm512_shuffle_epi8(_mm512_packus_epi32(_mm512_cvtps_epi32(low), _mm512_cvtps_epi32(high)), in_turn);
}

// 2^x of such n; it is 2 or more where n has its uppermost bit. ToZero: 0 where it may be denormal; else about 2^-130 for n = 0.
template <bool ToZero>
ROOFLINE_INLINE __m512i exp2_by_table(__m512i n) {
  alignas(64) static constexpr std::uint8_t kFractions[64] = {
      16, 15, 14, 13, 12, 11, 10, 9, 9, 8, 7, 6, 6, 5, 5, 4,  3,  3,  3,  2,  2,  2,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,
      1,  1,  2,  2,  2,  3,  3,  4, 4, 5, 5, 6, 7, 8, 8, 10, 10, 12, 12, 14, 15, 16, 17, 18, 20, 22, 22, 21, 20, 19, 18, 17};
  const __m512i correction = _mm512_maskz_permutexvar_epi8(0x5555555555555555u, _mm512_srli_epi16(n, 2), _mm512_load_si512(kFractions));
  if constexpr (ToZero) return _mm512_maskz_avg_epu16(_mm512_test_epi16_mask(n, _mm512_set1_epi16(-0x100)), n, correction);
  return _mm512_avg_epu16(n, correction);
}

}  // namespace
