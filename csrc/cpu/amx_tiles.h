// The tile registers of AMX, as the kernels use them: 16 rows of 16 words, a word two numbers of bf16 or four of int8.
#pragma once

#include "cpu/simd/simd.h"

#if !defined(ROOFLINE_AMX_EMULATED)  // else the build has included an emulation already
#include <immintrin.h>
#endif

namespace roofline::cpu {
namespace {

constexpr std::int64_t kTile = 16;              // rows of a tile, and words of each
constexpr std::int64_t kTileBytes = 4 * kTile;  // of a row of a tile

// GCC's tile instructions neither say that they read memory nor that they write it.
ROOFLINE_INLINE void barrier() { asm volatile("" : : : "memory"); }

// Tiles 0 to 3: c, as [row tile][column tile]; 4, 5: rows of a; 6, 7: columns of b. first, second: rows of both row tiles.
[[maybe_unused]] void configure(int first, int second) {
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } given;
  const int rows[8] = {first, first, second, second, first, second, kTile, kTile};
  for (int i = 0; i < 8; ++i)
    if (rows[i] > 0) given.row_bytes[i] = kTileBytes, given.rows[i] = static_cast<std::uint8_t>(rows[i]);
  barrier();
  _tile_loadconfig(&given);
}

}  // namespace
}  // namespace roofline::cpu
