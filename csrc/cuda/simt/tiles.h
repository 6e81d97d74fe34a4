// Where things lie: swizzled tiles in shared memory and the fragments of mma.sync, as functions that kernels and host tests share.
//
// A chunk is 16 bytes, what one lane copies and one row of an 8 x 8 matrix of ldmatrix holds. Fragments are those of the PTX ISA
// for mma.m16n8k16 with 16-bit elements: lane = 4 * group + pair.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace roofline::cuda {

constexpr int kChunkBytes = 16;

struct Place {
  int row;
  int column;  // of a tile: a chunk; of a fragment: an element
};

// Byte offset of a chunk in a tile of rows of `RowChunks` chunks. The eight rows of one matrix of ldmatrix then lie in eight
// different groups of four banks, and so do eight neighbouring chunks of one row.
template <int RowChunks>
ROOFLINE_HOST_DEVICE constexpr int swizzled(int row, int chunk) {
  static_assert(RowChunks == 4 || RowChunks % 8 == 0, "rows of 64 bytes, or of whole 128");
  return (row * RowChunks + (RowChunks == 4 ? chunk ^ (row / 2 % 4) : chunk ^ (row % 8))) * kChunkBytes;
}

// The place of row + 8 * rows8 and chunk + 2 * steps, by one exclusive or from what swizzled gave for row and chunk, 0 or 1: a lane
// computes it as it walks through a tile of 8 and more chunks to a row.
template <int RowChunks>
ROOFLINE_HOST_DEVICE constexpr int swizzled_from(int start, int rows8, int steps) {
  static_assert(RowChunks % 8 == 0, "rows of whole 128 bytes");
  return rows8 * 8 * RowChunks * kChunkBytes + (start ^ steps * 2 * kChunkBytes);
}

// The row and chunk that a lane points ldmatrix.x4 at. The four matrices come in the order that makes the registers
// - of rows x depth a whole A operand, or with .trans of depth x columns two B operands: down, then right;
// - of columns x depth two B operands: right, then down.
ROOFLINE_HOST_DEVICE constexpr Place down_then_right(int lane) { return {lane % 16, lane / 16}; }
ROOFLINE_HOST_DEVICE constexpr Place right_then_down(int lane) { return {lane / 16 * 8 + lane % 8, lane / 8 % 2}; }

// Where element i, of four, of a lane's fragment of C and D lies.
ROOFLINE_HOST_DEVICE constexpr Place c_place(int lane, int i) { return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2}; }

// ldmatrix moves elements of one byte in pairs. Returns the row of a transposed operand that then lies in row `row`.
ROOFLINE_HOST_DEVICE constexpr int byte_row(int row) { return row % 8 * 2 + row / 8; }

}  // namespace roofline::cuda
