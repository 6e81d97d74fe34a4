// One matrix product by a library, planned once and launched often: shared by the operators matmul and ffn.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cpu/device.h"

namespace roofline::cpu {

// What becomes of n finished numbers of c from `at` on, of one row; nothing where it is empty.
using Finish = std::function<void(std::int64_t at, std::int64_t n)>;

struct GemmProblem {
  DType dtype;  // of a and b
  std::int64_t rows, columns, inner;
  const void* a;  // [rows, inner]
  const void* b;  // [inner, columns], constant
  void* c;        // [rows, columns]
  Finish finish = {};  // after each block
  DType c_dtype = DType::fp32;  // or that of a and b in 16 bits; fp64 for fp64 and int32 for int8
};

struct Gemm {
  Launch launch;
  std::string implementation;          // "library/oneDNN 3.2.0"
  std::string library_implementation;  // what the library says it runs: "brg:avx512_core"
  std::string instead_of;              // why the preferred library does not run; empty where it does
  std::string split;                   // "2x1": parts of the rows x parts of the columns
  std::int64_t packed_bytes = 0;       // of b in the library's layout
  double pack_s = 0;
  std::int64_t workspace_bytes = 0;
};

// fp32, bf16, fp16 and int8 by oneDNN; fp64, and fp32 where there is no oneDNN, by OpenBLAS. Throws Unsupported with the reasons.
Gemm plan_gemm(const GemmProblem& problem, Device& device);

struct Block {
  std::int64_t row, rows;
  std::int64_t column, columns;
  int column_part;  // blocks of one part read the same columns of b
};

struct Split {
  int row_parts, column_parts;
  std::vector<Block> blocks;  // each is one library call on one thread
};

Split split_gemm(std::int64_t rows, std::int64_t columns, std::int64_t inner, int threads);

}  // namespace roofline::cpu
