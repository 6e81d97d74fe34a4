// A matrix product with packed b, of one instruction set: what a thread does with its part of c. a and c are fp32.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

// Rows of c and the columns of some strips of b, over all of inner.
struct GemmPart {
  const float* a;    // [rows, inner]
  const void* b;     // packed: strips [(columns + width - 1) / width] of [inner, width], the last one filled up with zeros
  float* c;          // [rows, columns]
  float* workspace;  // [workspace_floats], of the thread
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
  std::int64_t first, last;  // strips
  std::int64_t inner_block;  // of `block`
};

// By the dtype of b: fp32, bf16 (two numbers of a strip in a word: column j in the low half, column j + width / 2 in the high one).
struct GemmKernels {
  static constexpr int kMostFewRows = 18;
  static constexpr int kStreams = 8;  // address streams in which `few` reads b

  int width;      // columns of a strip
  int tile_rows;  // of a tile of c in registers
  void (*pack[2])(const void* b, void* packed, std::int64_t columns, std::int64_t inner, std::int64_t first, std::int64_t last);
  void (*few[2])(const GemmPart&);    // up to kMostFewRows rows: limited by the reading of b
  void (*block[2])(const GemmPart&);  // a block of a is packed, and meets every strip
  void (*widen)(const std::uint16_t* x, float* y, std::int64_t n);  // bf16 to fp32

  std::int64_t few_floats(std::int64_t rows) const { return kStreams * rows * width; }
  // A packed block of a and a strip of b in fp32; a packed block is written a vector too far.
  std::int64_t block_floats(std::int64_t rows, std::int64_t inner_block) const { return (rows + width) * inner_block + 16; }
};

ROOFLINE_DECLARE_TABLES(GemmKernels, gemm);

}  // namespace roofline::cpu
