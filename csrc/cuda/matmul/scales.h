// Scales of a product's operands, made ready for cuBLASLt.
#pragma once

#include <vector>

#include "cuda/matmul/gemm.h"
#include "ops/scales.h"

namespace roofline::cuda {

// Fills in what `gemm` needs to know of them. Returns the steps that lay out again those that the library reads in another order,
// to be done before the product; they own the memory. Adds to laid_out_bytes what that takes. Throws Unsupported for others than
// the library takes.
std::vector<Step> lay_out(const ops::Scales& scales, GemmProblem& gemm, Device& device, std::int64_t& laid_out_bytes);

}  // namespace roofline::cuda
