// Products of bf16 by the tiles of AMX, 32 x 32 results in four of them, and rows of words turned into tiles. Everything is
// internal to the file that includes it.
#pragma once

#include "cpu/amx_tiles.h"
#include "cpu/attention_tile.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

constexpr Index kTileWords = kTile * kTile;
constexpr Index kPairedRows = 2 * kTile;  // that a tile of pairs holds, and that two tiles of c do

// Tiles of an operand, `step` words apart along the product, and the ones beside them at `other`; their rows are `row` bytes apart.
struct TileOperand {
  const float *at, *other;
  Index row, step;
};

// Tiles 0 to 3 are 16 or 32 rows x 16 or 32 columns of c, whose rows are `row` bytes apart.
template <bool Rows, bool Columns>
struct Square {
  ROOFLINE_INLINE void clear() {
    _tile_zero(0);
    if constexpr (Columns) _tile_zero(1);
    if constexpr (Rows) _tile_zero(2);
    if constexpr (Rows && Columns) _tile_zero(3);
  }
  ROOFLINE_INLINE void load(const float* c, Index row) {
    const float* const below = c + kTile * row / 4;
    _tile_loadd(0, c, row);
    if constexpr (Columns) _tile_loadd(1, c + kTile, row);
    if constexpr (Rows) _tile_loadd(2, below, row);
    if constexpr (Rows && Columns) _tile_loadd(3, below + kTile, row);
  }
  // Adds the product of `steps` tiles; between(step) runs beside them.
  template <class F>
  ROOFLINE_INLINE void add(const TileOperand& a, const TileOperand& b, Index steps, const F& between) {
    for (Index step = 0; step < steps; ++step) {
      _tile_loadd(4, a.at + step * a.step, a.row);
      _tile_loadd(6, b.at + step * b.step, b.row);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (Columns) {
        _tile_loadd(7, b.other + step * b.step, b.row);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (Rows) {
        _tile_loadd(5, a.other + step * a.step, a.row);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (Columns) _tile_dpbf16ps(3, 5, 7);
      }
      between(step);
    }
  }
  ROOFLINE_INLINE void store(float* c, Index row) {
    float* const below = c + kTile * row / 4;
    _tile_stored(0, c, row);
    if constexpr (Columns) _tile_stored(1, c + kTile, row);
    if constexpr (Rows) _tile_stored(2, below, row);
    if constexpr (Rows && Columns) _tile_stored(3, below + kTile, row);
  }
};
constexpr auto kNothing = [](Index) __attribute__((always_inline)) {};

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
