// What the kernels of mma can be asked for: tiles as large as their instructions make them, operands in whole words.
#pragma once

#include <cstdint>
#include <string>

#include "core/kernel.h"
#include "cuda/plan.h"
#include "ops/mma.h"

namespace roofline::cuda {

struct MmaTile {
  int rows, columns, inner_bytes;
};

// Throws Unsupported for other tiles, sums or places in memory than a variant's kernels have. half_sums: of fp16 and fp8_e4m3.
inline void check_mma(const ops::Mma& problem, const char* variant, const MmaTile& tile, bool half_sums) {
  const std::string here = std::string("mma ") + variant + ": ";
  const std::int64_t inner = 8 * tile.inner_bytes / bits(problem.dtype);
  if (problem.rows != tile.rows || problem.columns != tile.columns || problem.inner != inner)
    throw Unsupported(here + "tiles of " + name(problem.dtype) + " have rows " + std::to_string(tile.rows) + ", columns " +
                      std::to_string(tile.columns) + " and inner " + std::to_string(inner) + ", got " +
                      std::to_string(problem.rows) + ", " + std::to_string(problem.columns) + " and " +
                      std::to_string(problem.inner));
  const bool halves = half_sums && (problem.dtype == DType::fp16 || problem.dtype == DType::fp8_e4m3);
  const DType usual = ops::Mma::usual_accumulator(problem.dtype);
  if (problem.accumulator != usual && !(halves && problem.accumulator == DType::fp16))
    throw Unsupported(here + name(problem.dtype) + " is accumulated in " + name(usual) + (halves ? " or fp16" : "") + ", not in " +
                      name(problem.accumulator));
  if (!aligned(problem.a, problem.b, problem.c)) throw Unsupported(here + "a, b and c must begin at multiples of 16 bytes");
}

}  // namespace roofline::cuda
