// The tile registers of AMX, as the kernels use them: 16 rows of 16 words, a word two numbers of bf16 or four of int8; 32 x 32 sums
// of products in four of them. Everything is internal to the file that includes it.
#pragma once

#include "cpu/simd/simd.h"

#if !defined(ROOFLINE_AMX_EMULATED)  // else the build has included an emulation already
#include <immintrin.h>
#endif

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

constexpr Index kTile = 16;              // rows of a tile, and words of each
constexpr Index kTileBytes = 4 * kTile;  // of a row of a tile
constexpr Index kTileWords = kTile * kTile;

// Into L2: tile loads alone keep too few lines in flight while memory is busy.
ROOFLINE_INLINE void fetch(const char* from, Index bytes) {
  for (Index line = 0; line < bytes; line += 64) __builtin_prefetch(from + line, 0, 2);
}

// A quarter of so many lines, which are `apart` bytes apart: many at once hold up the loads behind them.
ROOFLINE_INLINE void fetch_quarter(const char* from, Index lines, Index quarter, Index apart = 64) {
  for (Index line = lines * quarter / 4; line < lines * (quarter + 1) / 4; ++line) __builtin_prefetch(from + line * apart, 0, 2);
}

// Tile c += a b. A macro, since GCC's instructions write the numbers of tiles into assembly as they stand.
#define ROOFLINE_ADD_PRODUCT(Integers, c, a, b) \
  if constexpr (Integers)                       \
    _tile_dpbssd(c, a, b);                      \
  else                                          \
    _tile_dpbf16ps(c, a, b)

// GCC's tile instructions neither say that they read memory nor that they write it.
ROOFLINE_INLINE void barrier() { asm volatile("" : : : "memory"); }

// Rows of each tile; 0: it is not used.
[[maybe_unused]] void configure(const int (&rows)[8]) {
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } given;
  for (int i = 0; i < 8; ++i)
    if (rows[i] > 0) given.row_bytes[i] = kTileBytes, given.rows[i] = static_cast<std::uint8_t>(rows[i]);
  barrier();
  _tile_loadconfig(&given);
}
// Tiles 0 to 3: c, as [row tile][column tile]; 4, 5: rows of a; 6, 7: columns of b. first, second: rows of both row tiles.
[[maybe_unused]] void configure(int first, int second) {
  configure({first, first, second, second, first, second, kTile, kTile});
}

// Tiles of an operand, `step` words apart along the product, and the ones beside them at `other`; their rows are `row` bytes apart.
struct TileOperand {
  const float *at, *other;
  Index row, step;
};

// Tiles 0 to 3 are 16 or 32 rows x 16 or 32 columns of c, whose rows are `row` bytes apart. Integers: products of int8, else of
// bf16.
template <bool Rows, bool Columns, bool Integers = false>
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
  // Adds the product of `steps` tiles. between(step, quarter) runs after every product or, where there are fewer, in its place.
  template <class F>
  ROOFLINE_INLINE void add(const TileOperand& a, const TileOperand& b, Index steps, const F& between) {
    for (Index step = 0; step < steps; ++step) {
      _tile_loadd(4, a.at + step * a.step, a.row);
      _tile_loadd(6, b.at + step * b.step, b.row);
      ROOFLINE_ADD_PRODUCT(Integers, 0, 4, 6);
      between(step, 0);
      if constexpr (Columns) {
        _tile_loadd(7, b.other + step * b.step, b.row);
        ROOFLINE_ADD_PRODUCT(Integers, 1, 4, 7);
      }
      between(step, 1);
      if constexpr (Rows) {
        _tile_loadd(5, a.other + step * a.step, a.row);
        ROOFLINE_ADD_PRODUCT(Integers, 2, 5, 6);
      }
      between(step, 2);
      if constexpr (Rows && Columns) {
        ROOFLINE_ADD_PRODUCT(Integers, 3, 5, 7);
      }
      between(step, 3);
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

}  // namespace
}  // namespace roofline::cpu
