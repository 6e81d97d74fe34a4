// What strips of b hold, and how they, and rows of a, become words and numbers in registers' format: beside cpu/gemm_tiles.h, for tables
// of whole sets and of those with instructions for pairs.
#pragma once

#include "cpu/gemm_tiles.h"
#if !defined(ROOFLINE_DOUBLES)
#include "cpu/simd/bytes.h"
#endif

namespace roofline::cpu {
namespace {

#if !defined(ROOFLINE_DOUBLES)
struct Int8Strip {
  static constexpr bool kWide = false;
  static constexpr Index kRowBytes = kWidth * 2;  // of words: two rows of b
  using Sum = Integers;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* const p = reinterpret_cast<const std::int8_t*>(b) + (base + u) * kRowBytes;
    low = widen_pairs_of_bytes(p), high = widen_pairs_of_bytes(p + 2 * kLanes);
  }
};

// 256 times n numbers of fp8_e4m3, in fp32.
[[maybe_unused]] void widen_e4m3(const void* x, float* y, Index n) {
  for (Index i = 0; i < n; i += kLanes) {
    const int lanes = static_cast<int>(least(kLanes, n - i));
    put(y + i, lanes, mul(get(static_cast<const Fp8E4m3*>(x) + i, lanes, zero()), set1(0x1p16f)));
  }
}
#endif

// A strip that is its rows. Begun: behind them are the numbers with which its sums begin.
template <class Strip, bool Begun = false>
struct Rows {
  using B = Strip;
  // Rows of c that meet a strip as it lies: 16 bits are widened for a second tile in less time than fp32 is written and read.
  static constexpr Index kMostDirect = B::kWide ? INT64_MAX : kLanes > 1 && B::kRowBytes >= 2 * kWidth ? 2 * kTileRows : 0;
  ROOFLINE_INLINE Index bytes(const PlainPart& part) { return part.inner * B::kRowBytes + (Begun ? kWidth * kNumberBytes : 0); }
  ROOFLINE_INLINE const Number* begun(const PlainPart& part, const char* strip) {
    return Begun ? reinterpret_cast<const Number*>(strip + part.inner * B::kRowBytes) : nullptr;
  }
  ROOFLINE_INLINE Index at(const PlainPart&, Index k) { return k * B::kRowBytes; }
  // A single stream adds up in registers for long; further tiles of rows find it in the second cache.
  ROOFLINE_INLINE Index after(const PlainPart& part, Index k) {
    const bool lasts = part.streams.count == 1 && part.rows <= most(kMostDirect, kTileRows);
    return least(k + (lasts ? 1024 : in_flight(part) / B::kRowBytes), part.inner);
  }

  // n rows of a strip in registers' format, while the bytes after them are fetched.
  ROOFLINE_INLINE void widen(const PlainPart&, const char* strip, Index k, Index n, Number* wide) {
    const char* const b = strip + k * B::kRowBytes;
    for (Index i = 0; i < n; ++i) {
      Vec low, high;
      if (i % most(64 / B::kRowBytes, 1) == 0) __builtin_prefetch(b + (i + n) * B::kRowBytes);
      B::read(b, i, 0, low, high);
      store(wide + i * kWidth, low);
      store(wide + i * kWidth + kLanes, high);
    }
  }

  // While a chunk meets all rows, the one that follows it in the strip arrives: it is due when each stream has had its turn.
  ROOFLINE_INLINE void add(const PlainPart& part, const char* strip, Index k, Index n, Number* sums) {
    const Number* const a = static_cast<const Number*>(part.a) + k;
    const char* const b = strip + k * B::kRowBytes;
    if (part.rows <= most(kMostDirect, kTileRows)) {
      add_rows<B, true>(part, a, b, n, sums);
    } else {
      alignas(64) Number wide[kInFlight / B::kRowBytes * kWidth];
      widen(part, strip, k, n, wide);
      add_rows<WideStrip<typename B::Sum>, false>(part, a, reinterpret_cast<const char*>(wide), n, sums);
    }
  }
};

// Strips [first, last) of the numbers as they are, and room for some rows behind each.
template <class Element, int Behind = 0>
void pack_rows(const void* from, void* to, Index columns, Index inner, Index first, Index last) {
  for (Index s = first; s < last; ++s) {
    auto* const strip = static_cast<Element*>(to) + s * (inner + Behind) * kWidth;
    const Index n = least(kWidth, columns - s * kWidth);
    for (Index k = 0; k < inner; ++k) {
      __builtin_memcpy(strip + k * kWidth, static_cast<const Element*>(from) + k * columns + s * kWidth,
                       static_cast<std::size_t>(n) * sizeof(Element));
      __builtin_memset(strip + k * kWidth + n, 0, static_cast<std::size_t>(kWidth - n) * sizeof(Element));
    }
  }
}

// to[inner][kWidth] of columns from `column` on; columns beyond the last are 0.
template <class From, class To>
ROOFLINE_INLINE void pack_strip(const From* b, Index stride, To* to, Index columns, Index inner, Index column) {
  for (Index k = 0; k < inner; ++k)
    for (Index half = 0; half < 2; ++half) {
      const int lanes = static_cast<int>(most(least(kLanes, columns - column - half * kLanes), 0));
      store(to + k * kWidth + half * kLanes, lanes ? get(b + k * stride + column + half * kLanes, lanes, zero()) : zero());
    }
}

template <class Element>
void pack_wide(const void* b, Index stride, Number* packed, Index columns, Index inner) {
  for (Index column = 0; column < columns; column += kWidth, packed += inner * kWidth)
    pack_strip(static_cast<const Element*>(b), stride, packed, columns, inner, column);
}

// Strips [first, last) of words of `PerWord` numbers along inner, of one column each; what is beyond the last number, up to `multiple`
// words, or the last column is 0. Rows of b are `stride` apart, and read one after the other: memory gives those fastest.
template <class Number, int PerWord, Index Width, Index Multiple>
void pack_words(const void* from, Index stride, void* packed, Index columns, Index inner, Index first, Index last) {
  using Word = std::conditional_t<sizeof(Number) * PerWord == 4, std::uint32_t, std::uint16_t>;
  constexpr int kBits = 8 * sizeof(Number);
  const Index words = (inner + PerWord * Multiple - 1) / (PerWord * Multiple) * Multiple;
  for (Index word = 0; word < words; ++word)
    for (Index s = first; s < last; ++s) {
      auto* const to = static_cast<Word*>(packed) + (s * words + word) * Width;
      const Index some = least(Width, columns - s * Width), first_row = word * PerWord;
      const Number* const b = static_cast<const Number*>(from) + first_row * stride + s * Width;
      const auto bits = [&](Index i, Index j) __attribute__((always_inline)) {
        return static_cast<Word>(static_cast<Word>(static_cast<std::make_unsigned_t<Number>>(b[i * stride + j])) << i * kBits);
      };
      if (some == Width && first_row + PerWord <= inner) {
        for (Index j = 0; j < Width; ++j) {
          Word all = 0;
#pragma GCC unroll 4
          for (int i = 0; i < PerWord; ++i) all = static_cast<Word>(all | bits(i, j));
          to[j] = all;
        }
        continue;
      }
      for (Index j = 0; j < Width; ++j) to[j] = 0;
      for (int i = 0; i < PerWord && first_row + i < inner; ++i)
        for (Index j = 0; j < some; ++j) to[j] = static_cast<Word>(to[j] | bits(i, j));
    }
}

template <class Number, int PerWord, Index Width, Index Multiple>
void pack_rows_of_words(const void* from, void* packed, Index columns, Index inner, Index first, Index last) {
  pack_words<Number, PerWord, Width, Multiple>(from, columns, packed, columns, inner, first, last);
}
template <class Number>
constexpr auto pack_pairs = pack_rows_of_words<Number, 2, kWidth, 1>;

// Words of four numbers of int8, and behind the last row of a strip what 128 more for each number of a add to a column, negative.
[[maybe_unused]] void pack_quads(const void* from, void* packed, Index columns, Index inner, Index first, Index last) {
  const Index words = (inner + 3) / 4;
  for (Index s = first; s < last; ++s) {
    auto* const strip = static_cast<std::uint32_t*>(packed) + s * (words + 1) * kWidth;
    // As if the strip were the first of its matrix.
    const auto* const b = static_cast<const std::int8_t*>(from) + s * kWidth;
    pack_words<std::int8_t, 4, kWidth, 1>(b, columns, strip, least(kWidth, columns - s * kWidth), inner, 0, 1);
    std::int32_t sums[kWidth] = {};
    for (Index i = 0; i < words * kWidth; ++i)
      for (int at = 0; at < 32; at += 8) sums[i % kWidth] += static_cast<std::int8_t>(strip[i] >> at);
    for (Index j = 0; j < kWidth; ++j) strip[words * kWidth + j] = static_cast<std::uint32_t>(-128) * static_cast<std::uint32_t>(sums[j]);
  }
}

template <class From>
void widen(const void* x, Number* y, Index n) {
  for (Index i = 0; i < n; i += kLanes) {
    const int lanes = static_cast<int>(least(kLanes, n - i));
    put(y + i, lanes, get(static_cast<const From*>(x) + i, lanes, zero()));
  }
}

#if !defined(ROOFLINE_DOUBLES)
[[maybe_unused]] void widen_int8(const void* x, float* y, Index n) {
  const auto* const from = static_cast<const std::int8_t*>(x);
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, widen_pairs_of_bytes(from + 2 * i));
  for (; i < n; ++i) {
    const std::int16_t pair[2] = {from[2 * i], from[2 * i + 1]};
    __builtin_memcpy(y + i, pair, sizeof pair);
  }
}

// n words of numbers that are words already.
[[maybe_unused]] void copy_words(const void* x, float* y, Index n) { __builtin_memcpy(y, x, static_cast<std::size_t>(n) * 4); }

// n words of 2 n numbers of fp32, rounded to bf16.
[[maybe_unused]] void pair_words(const void* x, float* y, Index n) { narrow_to<Bf16>(static_cast<const float*>(x), y, 2 * n); }

// The same of 2 n rows of a strip: a word holds two of a column.
template <Index Width>
void pair_rows(const float* x, float* y, Index n) {
  for (Index i = 0; i < n; ++i, x += 2 * Width, y += Width)
    for (Index j = 0; j < Width; j += kLanes) narrow_pairs<false>(reinterpret_cast<Bf16*>(y + j), load(x + j), load(x + Width + j));
}
#endif

}  // namespace
}  // namespace roofline::cpu
