// Rows of words of bf16 turned into tiles of AMX, and back. Everything is internal to the file that includes it.
#pragma once

#include "cpu/amx_tiles.h"
#include "cpu/attention_tile.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

constexpr Index kPairedRows = 2 * kTile;  // that a tile of pairs holds, and that two tiles of c do

constexpr auto kNothing = [](Index, Index) __attribute__((always_inline)) {};

// to[rows][pitch] = (from[2 kLanes][width] scale)ᵀ.
template <class Whole>
ROOFLINE_INLINE void transpose_to_pairs(Whole whole, const float* from, Index width, Vec scale, Bf16* to, Index rows, Index pitch) {
  Vec square[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    alignas(Vec) Bf16 words[2 * kLanes];
    narrow_pairs<false>(words, mul(load(from + 2 * i * width), scale), mul(load(from + (2 * i + 1) * width), scale));
    square[i] = load(reinterpret_cast<const float*>(words));
  }
  transpose(square);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if (whole || i < rows) store(reinterpret_cast<float*>(to + i * pitch), square[i]);
}

// to[rows][columns] = (from[columns][width] scale)ᵀ, of at most kLanes rows.
template <class T>
void transpose_scaled_back(const Number* from, Index columns, Index width, Vec scale, T* to, Index rows) {
  for_rows(rows, [&](auto whole) __attribute__((always_inline)) {
    Index d = 0;
    if constexpr (kInPairs<T>)
      for (; d + 2 * kLanes <= columns; d += 2 * kLanes)
        transpose_to_pairs(whole, from + d * width, width, scale, to + d, rows, columns);
    const auto square_of = [&](int some) __attribute__((always_inline)) {
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = i < some ? mul(load(from + (d + i) * width), scale) : zero();
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (whole || i < rows) put(to + i * columns + d, some, square[i]);
    };
    for (; d + kLanes <= columns; d += kLanes) square_of(kLanes);
    if (d < columns) square_of(static_cast<int>(columns - d));
  });
}

// A tile, its rows `pitch` words apart.
ROOFLINE_INLINE void put_transposed(Vec (&words)[kTile], float* tile, Index pitch) {
  transpose(words);
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i) store(tile + i * pitch, words[i]);
}
// Tiles of the columns [d, d + 16) of rows, and of the 16 that follow: [column][pairs of rows].
template <class T>
ROOFLINE_INLINE void put_transposed(const T* const (&rows)[kPairedRows], Index d, float* first, float* second) {
  Vec words[2][kTile];
#pragma GCC unroll 16
  for (int pair = 0; pair < kTile; ++pair)
    pair_32(words_at(rows[2 * pair] + d), words_at(rows[2 * pair + 1] + d), words[0][pair], words[1][pair]);
  put_transposed(words[0], first, kTile);
  put_transposed(words[1], second, kTile);
}

}  // namespace
}  // namespace roofline::cpu
