// A matrix product with packed b, of one instruction set: what a thread does with its part of c. Sums are fp32, of int8 int32. In
// tables of double all numbers are fp64, in the places of fp32.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

enum class Stored : std::uint8_t { fp32, bf16, fp16, int8, fp8_e4m3, fp8_e5m2 };
constexpr int kStored = static_cast<int>(Stored::fp8_e5m2) + 1;
[[maybe_unused]] static constexpr bool is_fp8(Stored type) { return type >= Stored::fp8_e4m3; }

// The cache that may hold all of an unpacked b from launch to launch.
enum class Held : std::uint8_t { nowhere, in_last, in_second };

// Memory that a later part reads.
struct Later {
  const char* from;
  std::int64_t bytes;
};

// Address streams in which few rows read b, at most GemmKernels::kMostStreams, and how they prefetch it, into L1 or L2: every line, or
// of a single stream a line in four, where hardware fetches the rest, or none.
struct Streams {
  int count = 1;
  bool to_l1 = false;
  bool sparse = false;
  bool prefetch = true;
};

// Rows of c and the columns of some strips of b, over all of inner, which counts words where `GemmKernels::numbers` is not 1: the last
// one is filled up with 0. Two numbers of int8 in a word have 16 bits each, of four those of a are 128 more.
template <class Number>
struct GemmPartOf {
  const void* a;      // [rows, inner]: fp32 or words; in `block` as a_stored says, and not read where there are panels
  const void* b;      // packed: strips [(columns + width - 1) / width] of [inner, width], the last one filled up with zeros
  Number* c;          // [rows, columns], rows c_stride apart; of int8 int32
  Number* workspace;  // [workspace_floats], of the thread
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t c_stride;
  std::int64_t inner;
  std::int64_t behind = 0;       // of `few`: words from the end of a row of a to the next one
  std::int64_t first, last;      // strips
  std::int64_t inner_block = 0;  // of `block`
  const Number* panels = nullptr;  // a of `block` if it is packed already: of one block of inner after the other
  Stored a_stored = Stored::fp32;
  bool lies = false;  // `block` reads words of a as they lie: see GemmKernels::lies
  bool near = false;  // of `block` by tiles: a and b are in the second cache
  bool as_stored = false;  // of `block`: each tile converts strips whose words have 2 bytes; else many rows read them widened once
  Streams streams = {};  // of `few`
  // Where sums of `block` end, [rows, columns] in bf16 or fp16, rows to_stride apart; c then holds those of several blocks of inner,
  // unless GemmKernels::own_sums.
  void* to = nullptr;
  std::int64_t to_stride = 0;
  Stored to_stored = Stored::bf16;
  static constexpr int kLater = 2;
  Later later[kLater] = {};  // of `block`: fetched meanwhile
  // Unpacked b, its rows `stride` apart, which `block` packs to `to`; null: b is packed. Only with `lies`, one full strip, one block of
  // rows and of inner, rows that fill all words, and panel_multiple 1.
  struct {
    const void* from;
    std::int64_t stride;
    Number* to;  // b
  } unpacked = {};

  [[gnu::__always_inline__]] std::int64_t row_words() const { return inner + behind; }  // from one row of a to the next
};
using GemmPart = GemmPartOf<float>;

// Weights of 8 or 4 bits in groups along inner, in `QuantizedKernels`; a is fp32 there. A strip is its groups one after the other:
// scales [width], zero points [width] if there are any, numbers [padded, width]. `padded` is a multiple of 4; of 4 bits, four rows are
// words [width / 2]: the 4 bits from 16 (r mod 2) + 8 (r / 2) + 4 h on of word j are row r of column j + h width / 2, plus 8.
struct QuantizedPart : GemmPart {
  static constexpr std::int64_t kPadding = 16;  // words behind each plane of what `fix` writes
  std::int64_t group;    // rows of b that share a scale
  std::int64_t groups;   // of each strip
  int longer;            // how often QuantizedKernels::chunk is doubled: up to twice
  Stored scale;          // of scales and zero points: fp32, bf16, fp16
  bool zeros;
  const float* sums;         // of a [rows, groups, chunks of a group]: of `few` up to tile_rows rows, by `add_up`
  const float* scales_of_a;  // of FixedPoint::few: as many, by `fix`
};

template <class Number>
struct GemmKernelsOf {
  using Part = GemmPartOf<Number>;

  static constexpr std::int64_t kPageWords = 4096 / sizeof(Number);  // rows so many words apart share sets of the first cache,
  static constexpr std::int64_t kPageRows = 8;      // which has 8 ways at least: so many of them are a tile at most
  static constexpr int kMostFewRows = 18;
  static constexpr int kMostStreams = 8;
  static constexpr int kMostSparseRows = 5;  // in fp32: hardware looks not far enough ahead where rows take as long as memory does

  int width;       // columns of a strip
  int tile_rows;   // of a tile of c in registers
  // Numbers along inner in a word of a and of b: 1, 2 or 4. Indexed by the type of b, as what follows; 0: there are no such products.
  int numbers[kStored];
  int multiple;    // words of a strip, and of a row of a: where there are too few, zeros follow
  // By the type of b. bf16: two numbers of a strip in a word, column j in the low half, column j + width / 2 in the high one.
  void (*pack[kStored])(const void* b, void* packed, std::int64_t columns, std::int64_t inner, std::int64_t first,
                        std::int64_t last);
  void (*few[kStored])(const Part&);    // up to kMostFewRows rows: limited by the reading of b
  void (*block[kStored])(const Part&);  // a block of a is packed, or is so already, and meets every strip
  void (*pack_a)(const Part&, std::int64_t k, std::int64_t n, Number* panels);  // n columns of a from k on: [panel_rows(rows), n]
  int panel_multiple = 1;             // of the rows of packed a
  bool begun[kStored] = {};           // whether a strip ends with a row of numbers of c, with which sums begin
  // Strips in fp32 or, where bf16 has them, words of [inner, columns] at b, whose rows are `stride` apart; fp32, bf16, fp16.
  void (*pack_wide[3])(const void* b, std::int64_t stride, Number* packed, std::int64_t columns, std::int64_t inner) = {};
  // c [rows, columns] in c_stored, rows c_stride apart, = a [rows, inner] b, as it lies: up to kMostFewRows rows, a in fp32 or, where
  // bf16 has them, in words; fp32, bf16, fp16, or null.
  void (*plain[3])(const Number* a, const void* b, std::int64_t stride, void* c, std::int64_t c_stride, std::int64_t rows,
                   std::int64_t columns, std::int64_t inner, Stored c_stored, Held held) = {};
  // Widens n numbers to fp32, or n words where a word holds several numbers. fp8_e4m3 is scaled by 2^8, as strips of it are read
  // scaled by 2^-8.
  void (*widen[kStored])(const void* x, Number* y, std::int64_t n);
  void (*narrow[3])(const Number* x, void* y, std::int64_t n);  // from fp32; [0] copies
  // Numbers of fp32 to words of bf16, rounded to nearest even; null where bf16 has none. pair: 2 n numbers one after the other to n
  // words. pair_rows: [2 n][width] to [n][width].
  void (*pair)(const void* x, Number* y, std::int64_t n) = nullptr;
  void (*pair_rows)(const float* x, float* y, std::int64_t n) = nullptr;
  bool own_sums = false;  // `block` has sums between blocks of inner in its workspace, not in c

  // Whether `block` reads words of a in place: the multiply-adds of few strips take no longer than packing a does. With more strips
  // packing pays, and panels are read as one stream.
  bool lies(std::int64_t strips) const { return strips <= (panel_multiple > 1 ? 8 : 16); }
  std::int64_t few_floats(std::int64_t rows) const { return kMostStreams * rows * width; }
  static std::int64_t up_to(std::int64_t multiple, std::int64_t n) { return (n + multiple - 1) / multiple * multiple; }
  std::int64_t panel_rows(std::int64_t rows) const { return up_to(panel_multiple, rows); }
  std::int64_t sums_floats(std::int64_t rows, std::int64_t columns) const {
    return own_sums ? up_to(tile_rows, rows) * up_to(width, columns) : 0;
  }
  // A packed block of a, a strip of b in fp32, and sums.
  std::int64_t block_floats(std::int64_t rows, std::int64_t columns, std::int64_t inner_block) const {
    return (panel_rows(rows) + width) * inner_block + sums_floats(rows, columns);
  }
};
using GemmKernels = GemmKernelsOf<float>;

// Kernels for a in fixed point. A word holds some numbers along inner, as many as b has rows side by side.
struct FixedPoint {
  int numbers;  // in a word: 2 of 16 bits, or 4 of 8 (weights of 8 bits then plus 128, packed as those of 4); 0: no kernel
  int digits;   // bytes that hold a number of a; 1 where it has 16 bits
  void (*few)(const QuantizedPart&);  // null: only tiles take what `fix` makes
  // a as rows of `digits` planes of words [groups, (group + 3) / 4 * 4 / numbers], filled up with 0, which times their scale in
  // scales[rows, groups, chunks] are a, and sums as those of add_up, without zero points times the offset of stored weights. What is
  // not finite makes its sums NaN.
  void (*fix)(const float* a, std::uint32_t* words, float* scales, float* sums, std::int64_t rows, std::int64_t inner,
              std::int64_t group, std::int64_t chunk, bool zeros);

  std::int64_t words(std::int64_t group, std::int64_t groups) const {  // of a row
    return digits * (groups * ((group + 3) / 4 * 4 / numbers) + QuantizedPart::kPadding);
  }
};

// [0]: 8 bits, [1]: 4 bits.
struct QuantizedKernels {
  int width, tile_rows;   // as those of GemmKernels
  std::int64_t chunk[2];           // rows of b that `few` takes at a time at least
  void (*few[2])(const QuantizedPart&);
  void (*block[2])(const QuantizedPart&);
  // n rows of a strip from k on, in fp32: [n, width].
  void (*widen[2])(const QuantizedPart&, const char* strip, std::int64_t k, std::int64_t n, float* wide);
  // sums[rows, groups, (group - 1) / chunk + 1], the last one of a group over the rest of it.
  void (*add_up)(const float* a, float* sums, std::int64_t rows, std::int64_t inner, std::int64_t group, std::int64_t chunk);
  // [][0] and [][1], each faster for some numbers of rows, take a of 16 bits and err by 2^-16 of the largest number of a chunk.
  // [][2] takes a of fp32 and errs by 2^-23.9.
  FixedPoint fixed[2][3];
};

// FixedPoint::few by tiles, for two and three digits and any number of rows. Memory for words of a goes up to a multiple of kRows.
struct QuantizedTiles {
  static constexpr std::int64_t kRows = 16, kInner = 64;  // that a tile takes: of a, and along inner

  void (*few[2][2])(const QuantizedPart&);
};

ROOFLINE_DECLARE_TABLES(GemmKernels, gemm);
ROOFLINE_DECLARE_TABLES(GemmKernelsOf<double>, gemm_doubles);
extern const GemmKernels gemm_pairs_avx512_bf16;
extern const GemmKernels gemm_quads_avx512_vnni;
extern const QuantizedKernels quantized_avx512_vnni;  // adds four products of bytes in one instruction
extern const GemmKernels gemm_amx;
extern const QuantizedTiles quantized_tiles_amx;
ROOFLINE_DECLARE_TABLES(QuantizedKernels, quantized);

}  // namespace roofline::cpu
