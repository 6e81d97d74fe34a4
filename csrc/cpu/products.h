// One matrix product as the whole of an operator: matmul, lm_head and, for many bf16 rows, quantized_matmul.
#pragma once

#include "cpu/gemm.h"
#include "cpu/tiled_gemm.h"

namespace roofline::cpu {

// What the library's products of this dtype need of a CPU.
Requires library_needs(DType dtype);
template <class Problem>
std::vector<KernelEntry> library_kernels(std::initializer_list<DType> dtypes, Bound (*bind)(const Problem&, Device&)) {
  std::vector<KernelEntry> all;
  for (const DType dtype : dtypes) all.push_back(entry("library", dtype, library_needs(dtype), bind));
  return all;
}
Bound bind_library(const char* step, const GemmProblem& problem, Device& device);
Bound bind_tiled(const char* step, const TiledProblem& problem, Device& device);

}  // namespace roofline::cpu
