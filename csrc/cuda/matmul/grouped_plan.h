// How the rows of experts are cut into tiles: what the kernel that routes tokens and the one that multiplies share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roofline::cuda {

// Rows first … first + rows of an expert, tile number `index` of `of` of this expert, the first of which is first_tile.
struct alignas(32) RowTile {
  std::int32_t expert, first, rows, index, of, first_tile;
};

// Few rows of an expert are read with little waste in tiles of 16; weights then bound the time. Many take tiles of 64.
constexpr int tile_rows_of(std::int64_t rows, std::int64_t experts_with_rows) { return rows <= 16 * experts_with_rows ? 16 : 64; }

// Tiles there can be at most: each expert that has a row may have one that is not full.
constexpr std::int64_t most_tiles(std::int64_t rows, std::int64_t experts, int tile_rows) {
  return rows / tile_rows + std::min(rows, experts);
}

}  // namespace roofline::cuda
