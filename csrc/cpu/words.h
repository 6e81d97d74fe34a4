// Rows of bf16 as words of two numbers, which instructions multiply in pairs: two numbers of a row, or one of each of two rows. For
// AVX-512. Everything is internal to the file that includes it.
#pragma once

#include "cpu/simd/bytes.h"
#include "cpu/simd/integers.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

// 32 numbers of a row, or the first n and zeros, as words of bf16; those of 8 bits are exact in it.
ROOFLINE_INLINE __m512i words_at(const Bf16* row) { return _mm512_loadu_si512(row); }
ROOFLINE_INLINE __m512i words_at(const Int8* row) { return _mm512_castps_si512(load(reinterpret_cast<const Int8Pair*>(row))); }
ROOFLINE_INLINE __m512i words_at(const Fp8E5m2* row) {
  return upper_halves(_mm512_castps_si512(load(row)), _mm512_castps_si512(load(row + kLanes)));
}
// As 2^-8 of themselves: what bytes.h makes of them.
ROOFLINE_INLINE __m512i words_at(const Fp8E4m3* row) {
  // The denormal numbers, and at the end NaN: all bits but the sign.
  alignas(64) static constexpr std::uint16_t kOthers[32] = {0, 0x3700, 0x3780, 0x37C0, 0x3800, 0x3820, 0x3840, 0x3860,
                                                            0, 0,      0,      0,      0,      0,      0,      0,
                                                            0, 0,      0,      0,      0,      0,      0,      0,
                                                            0, 0,      0,      0,      0,      0,      0,      0x7FC0};
  const auto all = [](int bits) __attribute__((always_inline)) { return _mm512_set1_epi16(static_cast<short>(bits)); };
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
  const __m512i size = _mm512_and_si512(_mm512_slli_epi16(wide, 4), all(0x07F0));
  const __mmask32 others = _mm512_cmple_epu16_mask(_mm512_and_si512(_mm512_add_epi16(size, all(0x10)), all(0x07F0)), all(0x80));
  const __m512i usual = _mm512_add_epi16(size, all(0x3800));
  const __m512i found = _mm512_mask_permutexvar_epi16(usual, others, wide, _mm512_load_si512(kOthers));
  return _mm512_ternarylogic_epi32(found, wide, all(0x8000), 0xF8);  // a | (b & c)
}
template <class T>
ROOFLINE_INLINE __m512i words_at(const T* row, Index n) {
  if (n == 2 * kLanes) return words_at(row);
  alignas(64) T numbers[2 * kLanes] = {};
  __builtin_memcpy(numbers, row, static_cast<std::size_t>(n) * sizeof(T));
  return words_at(numbers);
}
ROOFLINE_INLINE __m512i words_at(const Bf16* row, Index n) {
  return n == 2 * kLanes ? words_at(row) : load_halves(row, static_cast<int>(n));
}

// to[words][width] = (from[rows][columns] as words)ᵀ, zero in the lanes past the last row and in words past the last number.
[[maybe_unused]] void transpose_words(const Bf16* from, Index rows, Index columns, float* to, Index width, Index words) {
  for (Index lane = 0; lane < width; lane += kLanes)
    for (Index word = 0; word < words; word += kLanes) {
      Vec square[kLanes];
      const Index numbers = most(0, least(2 * kLanes, columns - 2 * word));
      const auto row = [&](int i) { return _mm512_castsi512_ps(words_at(from + (lane + i) * columns + 2 * word, numbers)); };
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = lane + i < rows ? row(i) : zero();
      transpose(square);
      for (int i = 0; i < least(kLanes, words - word); ++i) store(to + (word + i) * width + lane, square[i]);
    }
}

// 32 numbers in order, rounded to the nearest bf16, ties away from zero.
ROOFLINE_INLINE __m512i narrow_32(Vec low, Vec high) {
  const __m512i half = _mm512_set1_epi32(0x8000), one = _mm512_add_epi32(_mm512_castps_si512(low), half);
  return upper_halves(one, _mm512_add_epi32(_mm512_castps_si512(high), half));
}

// Words of the columns [first, first + 16) of a row, and of the one that follows it; null: zeros.
ROOFLINE_INLINE Vec row_pair(const Bf16* one, const Bf16* next, Index first, Index columns) {
  const int n = static_cast<int>(most(0, least(kLanes, columns - first)));
  const auto widened = [&](const Bf16* row) {
    return row ? _mm512_cvtepu16_epi32(_mm512_castsi512_si256(load_halves(row + first, n))) : _mm512_setzero_si512();
  };
  return _mm512_castsi512_ps(_mm512_or_si512(widened(one), _mm512_slli_epi32(widened(next), 16)));
}

// The same of 32 columns.
ROOFLINE_INLINE void pair_32(__m512i one, __m512i next, Vec& first, Vec& second) {
  alignas(64) static constexpr std::uint16_t kInTurn[] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                          8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kInTurn), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  first = _mm512_castsi512_ps(_mm512_permutex2var_epi16(one, low, next));
  second = _mm512_castsi512_ps(_mm512_permutex2var_epi16(one, high, next));
}
// The same, the first four of every eight columns in the first vector: that takes no port of the multipliers on Zen 4.
ROOFLINE_INLINE void pair_fours(__m512i one, __m512i next, Vec& first, Vec& second) {
  first = _mm512_castsi512_ps(_mm512_unpacklo_epi16(one, next));
  second = _mm512_castsi512_ps(_mm512_unpackhi_epi16(one, next));
}
ROOFLINE_INLINE void pair_32(__m512i one, __m512i next, float* to) {
  Vec first, second;
  pair_32(one, next, first, second);
  store(to, first), store(to + kLanes, second);
}

// to[columns] = words of a row and the one that follows it; null: zeros.
[[maybe_unused]] void pair_rows(const Bf16* one, const Bf16* next, Index columns, float* to) {
  Index d = 0;
  for (; next && d + 2 * kLanes <= columns; d += 2 * kLanes)
    pair_32(words_at(one + d), words_at(next + d), to + d);
  for (; d < columns; d += kLanes) put(to + d, static_cast<int>(least(kLanes, columns - d)), row_pair(one, next, d, columns));
}

// All strips of 32 columns of words, as GemmKernels::pack_wide; zeros up to a multiple of `Multiple` words, and past the last
// column. So many columns at a time that memory gives them fast and few strips are written in turn.
template <Index Multiple>
void pack_strips(const void* from, Index stride, float* packed, Index columns, Index inner) {
  constexpr Index kStrip = 2 * kLanes, kTogether = 8 * kStrip;
  const Index words = ((inner + 1) / 2 + Multiple - 1) / Multiple * Multiple;
  for (Index first = 0; first < columns; first += kTogether)
    for (Index word = 0; word < words; ++word)
      for (Index column = first; column < least(first + kTogether, columns); column += kStrip) {
        const auto row = [&](Index k) { return k < inner ? static_cast<const Bf16*>(from) + k * stride + column : nullptr; };
        const Bf16 *const one = row(2 * word), *const next = row(2 * word + 1);
        float* const to = packed + column * words + word * kStrip;
        if (next && column + kStrip <= columns)
          pair_32(words_at(one), words_at(next), to);
        else
          for (Index half = 0; half < kStrip; half += kLanes) store(to + half, row_pair(one, next, half, columns - column));
      }
}

}  // namespace
}  // namespace roofline::cpu
