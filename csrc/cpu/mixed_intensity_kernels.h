// The mixed_intensity kernels of one instruction set.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

struct MixedRange {
  const void* a;  // [n], on a line of 64 bytes
  double alpha, gamma;
  std::int64_t n;  // elements
  std::int64_t passes;
  std::int64_t multiply_adds;
  int every;    // 1, 2, 4 or 8
  int streams;  // 1 or 2 parts of the range walked side by side
};

struct MixedIntensityKernels {
  using Run = double (*)(const MixedRange&);  // the sum over all passes
  Run run[2];                                 // fp32, fp64
};

ROOFLINE_DECLARE_TABLES(MixedIntensityKernels, mixed_intensity);

}  // namespace roofline::cpu
