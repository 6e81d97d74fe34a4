// A matrix product by our own kernels, planned once and launched often: shared by the operators matmul and ffn; and what other
// operators with products by our own kernels plan alike.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cpu/device.h"
#include "cpu/gemm.h"
#include "cpu/gemm_kernels.h"
#include "cpu/isa.h"
#include "cpu/share.h"

namespace roofline::cpu {

// Takes n finished sums of one row, which belong at `at` of c, out of a cache. It may work in their place.
using Take = std::function<void(float* sums, std::int64_t at, std::int64_t n)>;

struct TiledProblem {
  DType dtype;  // of a and b: fp32, bf16, fp16, int8, fp8_e4m3, fp8_e5m2 or fp64
  std::int64_t rows, columns, inner;
  const void* a;  // [rows, inner]
  const void* b;  // [inner, columns], constant: packed in bind
  void* c;        // [rows, columns]: fp32, of int8 int32, of fp64 fp64, or in 16 bits; nothing where there is `take`
  Finish finish = {};  // while a cache holds them
  bool a_is_fp32 = false;          // whatever b is
  DType c_dtype = DType::fp32;  // or bf16 or fp16: then parts of the sums are rounded in a cache
  Take take = {};               // instead of all that becomes of c
  // Where b is not packed in bind: strips [first, last) of packed b, made whenever a thread begins with their columns.
  std::function<void(std::int64_t first, std::int64_t last, void* strips)> unpack = {};
};

struct TiledGemm {
  Launch launch;
  Isa isa;
  std::string tile;             // "6x16": of c, in registers
  std::int64_t row_block;       // rows of c that one part takes: all of them where they are few
  std::int64_t column_block;    // and its columns
  std::int64_t inner_block;     // of a packed block of a; 0 where rows are few
  Streams streams;              // in which few rows read b
  std::int64_t packed_bytes;    // of b
  double pack_s;
  std::int64_t workspace_bytes;
};

// Throws Unsupported for other dtypes, OutOfMemory where b cannot be packed.
TiledGemm plan_tiled(const TiledProblem& problem, Device& device);

// The fastest kernels for this type of b.
Choice<GemmKernels> choose_gemm(Stored type);
Choice<GemmKernelsOf<double>> choose_doubles();  // of fp64

// How this CPU multiplies few rows by b of a type fastest: measured once for a device, with one row, some and most of them, and with
// b from memory or, where b_bytes may stay there, from the last cache.
template <class Number>
Streams read_streams(Device& device, Choice<GemmKernelsOf<Number>> choice, Stored type, std::int64_t rows, std::int64_t b_bytes);
// The same of other kernels: `few` reads strips whose rows have row_bytes. `levels`: 2 where it can prefetch into L1, too.
template <class Number>
Streams read_streams(Device& device, const std::string& what, std::int64_t rows, std::int64_t b_bytes, int width,
                     std::int64_t row_bytes, int levels, const std::function<void(const GemmPartOf<Number>&)>& few);

// Whether many rows are quicker where every tile of them converts what it reads of b, whose words have 2 bytes, than where each strip
// is widened once: measured once for a device and type. A CPU that converts beside its multiply-adds has no use for a widened strip.
bool reads_as_stored(Device& device, const GemmKernels& table, Stored type);

// As a plan states them: "L2", "L2, a line in four" or "none".
inline std::string prefetch_of(const Streams& streams) {
  if (!streams.prefetch) return "none";
  return std::string(streams.to_l1 ? "L1" : "L2") + (streams.sparse ? ", a line in four" : "");
}

// Words of a strip of b, and of a row of a, with so many numbers along inner.
template <class Number>
std::int64_t words_of(const GemmKernelsOf<Number>& table, Stored type, std::int64_t inner) {
  const std::int64_t numbers = table.numbers[static_cast<int>(type)] * table.multiple;
  return (inner + numbers - 1) / numbers * table.multiple;
}

// `rows` of a, in fp32 or as b, in what the kernels of b's type read: numbers, or words filled up with 0.
template <class Number>
void widen_rows(const GemmKernelsOf<Number>& table, Stored type, bool fp32, const void* a, std::int64_t rows, std::int64_t inner,
                Number* to);

// Words [k, k + n) of one row.
template <class Number>
void widen_words(const GemmKernelsOf<Number>& table, Stored type, bool fp32, const void* row, std::int64_t inner, std::int64_t k,
                 std::int64_t n, Number* to);

// How the kernels know a dtype. Throws Unsupported for one that they do not.
Stored stored(DType dtype, const char* op);
inline int index(Stored stored) { return static_cast<int>(stored); }

// A block of a strip of b is an eighth of the second cache: a tile of 14 x 32 reads 13 bytes in a cycle, which that one gives, and
// the fewer blocks, the fewer times sums go there and back. Tiles of AMX (words in multiples) read 64, and theirs is half of the first.
// A packed block of a is three quarters of the second.
struct Blocks {
  std::int64_t inner, rows;
};
Blocks blocks_of(int width, int tile_rows, int multiple, const Caches& caches, int number_bytes = 4);
// Blocks of one size, at most `most`, which is a multiple of `multiple`.
std::int64_t inner_block_of(std::int64_t inner, std::int64_t most, std::int64_t multiple);

}  // namespace roofline::cpu
