// The register tile of the attention kernels: some rows of broadcast scalars against some vectors, the accumulators in registers
// throughout. Everything is internal to the file that includes it.
#pragma once

#include <type_traits>

#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

// Register tiles, so that accumulators, one row of vectors and a broadcast fit: 4 x 4 of 32 registers with AVX-512 and NEON (larger
// ones are slower, or spill), 6 x 2 of 16 with AVX2, 4 x 2 of 16 without vectors.
constexpr int kVectors = kManyRegisters ? 4 : 2;
constexpr int kRows = sizeof(Vec) == 32 ? 6 : 4;
constexpr int kWidth = kVectors * kLanes;
constexpr int kNarrowRows = 8;  // of tiles with fewer vectors: as many accumulators as it takes to hide the latency of an FMA

template <int Vectors>
constexpr int kTileRows = Vectors == kVectors ? kRows : kNarrowRows;

// Words of two numbers in 16 bits lie wherever these do.
ROOFLINE_INLINE Number word_at(const Number* p) {
  Number word;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

#if !defined(ROOFLINE_UPPER_HALF)  // sets whose kernels make no use of them
ROOFLINE_INLINE Vec load_upper(const Number* p) { return load(p); }
ROOFLINE_INLINE Vec with_upper(Vec, Vec upper) { return upper; }
ROOFLINE_INLINE Vec fma_lower(Vec a, Vec b, Vec c) { return fma(a, b, c); }
#endif

struct Fma {
  static constexpr bool kSlow = false;  // few sums would wait for one another: every other step has sums of its own
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return fma(a, b, c); }
  ROOFLINE_INLINE Vec multiply_add_lower(Vec a, Vec b, Vec c) { return fma_lower(a, b, c); }
};

// acc[i][z] += sum over t < n of a[i a_row + t a_step] * b[t b_step + z kLanes ...], each by Products::multiply_add; for the vectors z
// from First on. Upper: of the first of these the upper half alone, whose sums are in the lower half of acc.
template <class Products = Fma, int First = 0, bool Upper = false, int Rows, int Vectors, class T>
ROOFLINE_INLINE void multiply(Vec (&acc)[Rows][Vectors], const Number* a, Index a_row, Index a_step, const T* b, Index b_step,
                              Index n) {
  const auto step = [&](Vec (&sums)[Rows][Vectors]) __attribute__((always_inline)) {
    Vec right[Vectors];
    if constexpr (Upper) right[First] = load_upper(b + First * kLanes);
#pragma GCC unroll 8
    for (int z = First + Upper; z < Vectors; ++z) right[z] = load(b + z * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vec left = set1(word_at(a + i * a_row));
      if constexpr (Upper) sums[i][First] = Products::multiply_add_lower(left, right[First], sums[i][First]);
#pragma GCC unroll 8
      for (int z = First + Upper; z < Vectors; ++z) sums[i][z] = Products::multiply_add(left, right[z], sums[i][z]);
    }
    a += a_step;
    b += b_step;
  };
  Index t = 0;
  if constexpr (Products::kSlow && Rows * (Vectors - First) <= 8) {
    Vec others[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = First; z < Vectors; ++z) others[i][z] = zero();
    for (; t + 2 <= n; t += 2) step(acc), step(others);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = First; z < Vectors; ++z) acc[i][z] = add(acc[i][z], others[i][z]);
  }
#pragma GCC unroll 2
  for (; t < n; ++t) step(acc);
}

// Rows of the next tile when `left` remain: the last two tiles share their rows, because a tile of one or two rows is slow.
template <int Max>
ROOFLINE_INLINE int next_rows(Index left) {
  if (left >= 2 * Max) return Max;
  return static_cast<int>(left <= Max ? left : (left + 1) / 2);
}

template <int Rows, class F>
ROOFLINE_INLINE void call_tile(int rows, Index first, const F& f) {
  if (Rows == 1 || rows == Rows) return f.template tile<Rows>(first);
  if constexpr (Rows > 1) call_tile<Rows - 1>(rows, first, f);
}

// Calls f.tile<Rows>(first) for the tiles of [0, n).
template <int Max, class F>
ROOFLINE_INLINE void for_tiles(Index n, const F& f) {
  for (Index first = 0; first < n;) {
    const int rows = next_rows<Max>(n - first);
    call_tile<Max>(rows, first, f);
    first += rows;
  }
}

ROOFLINE_INLINE Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

// Memory that is prefetched during products, whose order (rows side by side, columns in turn) is none that the hardware sees ahead:
// so many numbers, `each` with a row of a tile.
constexpr Index kLine = 64 / sizeof(Number);
struct Ahead {
  const Number* from;
  Index n, each = 0;
};
// Shared out among so many rows.
template <int N>
ROOFLINE_INLINE void share_out(Ahead (&all)[N], Index rows) {
  for (Ahead& ahead : all) ahead.each = round_up((ahead.n + rows - 1) / rows, kLine);
}
// The share of the rows [first, last).
template <int N>
ROOFLINE_INLINE void fetch(const Ahead (&all)[N], Index first, Index last) {
  for (const Ahead& ahead : all)
    for (Index i = first * ahead.each; i < least(last * ahead.each, ahead.n); i += kLine) __builtin_prefetch(ahead.from + i, 0, 2);
}

#if defined(ROOFLINE_DOUBLES)
template <class T>
constexpr bool kInPairs = false;
#else
// Pairs of bf16 are transposed as words, so that shuffles move two numbers each.
template <class T>
constexpr bool kInPairs = std::is_same_v<T, Bf16> && kLanes > 1;

// to[2 kLanes][width] = (from[rows][pitch] scale)ᵀ, zero in the lanes past the last row.
template <class Whole>
ROOFLINE_INLINE void transpose_pairs(Whole whole, const Bf16* from, Index rows, Index pitch, Vec scale, float* to, Index width) {
  Vec square[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) square[i] = whole || i < rows ? load(reinterpret_cast<const float*>(from + i * pitch)) : zero();
  transpose(square);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    alignas(Vec) std::uint32_t words[kLanes];
    store(reinterpret_cast<float*>(words), square[i]);
    Vec low, high;
    widen_pairs(words, low, high);
    store(to + 2 * i * width, mul(low, scale));
    store(to + (2 * i + 1) * width, mul(high, scale));
  }
}
#endif

// f(Whole) of kLanes rows, or fewer.
template <class F>
ROOFLINE_INLINE void for_rows(Index rows, const F& f) {
  rows >= kLanes ? f(std::true_type{}) : f(std::false_type{});
}

// to[head_dim][width] = (from[rows][head_dim] scale)ᵀ, zero in the lanes past the last row.
template <class T>
void transpose_scaled(const T* from, Index rows, Index head_dim, Vec scale, Number* to, Index width) {
  for (Index lane = 0; lane < width; lane += kLanes, from += kLanes * head_dim)
    for_rows(rows - lane, [&](auto whole) __attribute__((always_inline)) {
      Index d = 0;
      if constexpr (kInPairs<T>)
        for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes)
          transpose_pairs(whole, from + d, rows - lane, head_dim, scale, to + d * width + lane, width);
      const auto square_of = [&](int columns) __attribute__((always_inline)) {
        Vec square[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
          square[i] = whole || lane + i < rows ? mul(get(from + i * head_dim + d, columns, zero()), scale) : zero();
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i)
          if (i < columns) store(to + (d + i) * width + lane, square[i]);
      };
      for (; d + kLanes <= head_dim; d += kLanes) square_of(kLanes);
      if (d < head_dim) square_of(static_cast<int>(head_dim - d));
    });
}

// to[n] = from[n] as vectors hold them.
template <class T>
void widen(const T* from, Index n, Number* to) {
  Index at = 0;
  for (; at + kLanes <= n; at += kLanes) store(to + at, load(from + at));
  if (at < n) {
    const int rest = static_cast<int>(n - at);
    put(to + at, rest, get(from + at, rest, zero()));
  }
}

}  // namespace
}  // namespace roofline::cpu
