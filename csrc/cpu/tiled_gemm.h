// A matrix product by our own kernels, planned once and launched often: shared by the operators matmul and ffn.
#pragma once

#include <functional>
#include <memory>

#include "cpu/device.h"
#include "cpu/isa.h"

namespace roofline::cpu {

struct TiledProblem {
  DType dtype;  // of a and b, fp32 or bf16; c is fp32
  std::int64_t rows, columns, inner;
  const void* a;  // [rows, inner]
  const void* b;  // [inner, columns], constant: packed in bind
  float* c;       // [rows, columns]
  // What becomes of n finished numbers of c from `at` on, while they are in a cache; nothing where it is empty.
  std::function<void(std::int64_t at, std::int64_t n)> finish = {};
};

struct TiledGemm {
  Launch launch;
  Isa isa;
  std::string tile;             // "6x16": of c, in registers
  std::int64_t row_block;       // rows of c that one part takes: all of them where they are few
  std::int64_t column_block;    // and its columns
  std::int64_t inner_block;     // of a packed block of a; 0 where rows are few
  std::int64_t packed_bytes;    // of b
  double pack_s;
  std::int64_t workspace_bytes;
};

// Throws Unsupported for other dtypes, OutOfMemory where b cannot be packed.
TiledGemm plan_tiled(const TiledProblem& problem, Device& device);

}  // namespace roofline::cpu
