// Scales of blocks as cuBLASLt reads them ("Scaling factors layouts" of its reference): where they lie, and their size in bytes.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace roofline::cuda {

// 8-bit scales: tiles of 128 rows by 4 blocks along inner, in 512 bytes. Sixteen bytes hold the four blocks of rows r, r + 32, r + 64
// and r + 96. Tiles follow each other along inner first. Scales past the last row or block are zero.
constexpr std::int64_t kScaleTileRows = 128, kScaleTileBlocks = 4, kScaleTileBytes = kScaleTileRows * kScaleTileBlocks;

ROOFLINE_HOST_DEVICE constexpr std::int64_t tiles_across(std::int64_t blocks) { return (blocks - 1) / kScaleTileBlocks + 1; }
ROOFLINE_HOST_DEVICE constexpr std::int64_t tiled_scale_bytes(std::int64_t rows, std::int64_t blocks) {
  return ((rows - 1) / kScaleTileRows + 1) * tiles_across(blocks) * kScaleTileBytes;
}

// Scales of 128 x 128 numbers in fp32: for each 128 columns the scales along inner, padded with zeros to a multiple of four.
ROOFLINE_HOST_DEVICE constexpr std::int64_t square_scale_pitch(std::int64_t blocks) { return (blocks + 3) / 4 * 4; }

}  // namespace roofline::cuda
