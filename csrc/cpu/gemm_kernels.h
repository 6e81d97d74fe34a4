// A matrix product with packed b, of one instruction set: what a thread does with its part of c. Sums are fp32, of int8 int32.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

enum class Stored : std::uint8_t { fp32, bf16, fp16, int8 };

// Rows of c and the columns of some strips of b, over all of inner. Of int8 `inner` counts words: two numbers along inner, the last
// one filled up with 0, which a has in 16 bits each.
struct GemmPart {
  const void* a;     // [rows, inner]: fp32 or words; in `block` as a_stored says
  const void* b;     // packed: strips [(columns + width - 1) / width] of [inner, width], the last one filled up with zeros
  float* c;          // [rows, columns], rows c_stride apart; of int8 int32
  float* workspace;  // [workspace_floats], of the thread
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t c_stride;
  std::int64_t inner;
  std::int64_t first, last;      // strips
  std::int64_t inner_block = 0;  // of `block`
  Stored a_stored = Stored::fp32;
};

// Weights of 8 or 4 bits in groups along inner, in `QuantizedKernels`; a is fp32 there. A strip is its groups one after the other:
// scales [width], zero points [width] if there are any, numbers [padded, width]. `padded` is a multiple of 4; of 4 bits, four rows are
// words [width / 2]: bits 8 r + 4 h of word j are row r of column j + h width / 2, plus 8.
struct QuantizedPart : GemmPart {
  std::int64_t group;    // rows of b that share a scale
  std::int64_t groups;   // of each strip
  Stored scale;          // of scales and zero points: fp32, bf16, fp16
  bool zeros;
  const float* sums;     // of a [rows, groups, sums of a group]: of `few` up to tile_rows rows, by `add_up`
};

struct GemmKernels {
  static constexpr int kMostFewRows = 18;
  static constexpr int kStreams = 8;  // address streams in which `few` reads b

  int width;      // columns of a strip
  int tile_rows;  // of a tile of c in registers
  // By the type of b. bf16: two numbers of a strip in a word, column j in the low half, column j + width / 2 in the high one.
  void (*pack[4])(const void* b, void* packed, std::int64_t columns, std::int64_t inner, std::int64_t first, std::int64_t last);
  void (*few[4])(const GemmPart&);    // up to kMostFewRows rows: limited by the reading of b
  void (*block[4])(const GemmPart&);  // a block of a is packed, and meets every strip
  // Strips in fp32 of [inner, columns] at b, whose rows are `stride` apart; fp32, bf16, fp16.
  void (*pack_wide[3])(const void* b, std::int64_t stride, float* packed, std::int64_t columns, std::int64_t inner);
  // c [rows, columns], rows c_stride apart, = a [rows, inner] b, as it lies: up to kMostFewRows rows, a in fp32; fp32, bf16, fp16.
  void (*plain[3])(const float* a, const void* b, std::int64_t stride, float* c, std::int64_t c_stride, std::int64_t rows,
                   std::int64_t columns, std::int64_t inner);
  void (*widen[4])(const void* x, float* y, std::int64_t n);  // to fp32; int8: n words
  void (*narrow[3])(const float* x, void* y, std::int64_t n);  // from fp32; [0] copies

  std::int64_t few_floats(std::int64_t rows) const { return kStreams * rows * width; }
  // A packed block of a and a strip of b in fp32; a packed block is written a vector too far.
  std::int64_t block_floats(std::int64_t rows, std::int64_t inner_block) const { return (rows + width) * inner_block + 16; }
};

// [0]: 8 bits, [1]: 4 bits.
struct QuantizedKernels {
  int width, tile_rows;   // as those of GemmKernels
  std::int64_t chunk[2];           // rows of b for which `few` wants one sum of a
  void (*few[2])(const QuantizedPart&);
  void (*block[2])(const QuantizedPart&);
  // sums[rows, groups, (group - 1) / chunk + 1], the last one of a group over what is left of it.
  void (*add_up)(const float* a, float* sums, std::int64_t rows, std::int64_t inner, std::int64_t group, std::int64_t chunk);
};

ROOFLINE_DECLARE_TABLES(GemmKernels, gemm);
ROOFLINE_DECLARE_TABLES(QuantizedKernels, quantized);

}  // namespace roofline::cpu
