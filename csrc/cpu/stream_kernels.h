// The stream kernels of one instruction set.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "ops/stream.h"

namespace roofline::cpu {

using Prefetch = ops::Stream::Prefetch;

struct StreamRange {
  const void* a;  // [n]
  const void* b;  // [n]
  void* c;        // [n], 64-byte aligned for non-temporal stores
  double factor;
  std::int64_t n;       // elements
  std::int64_t passes;
  int streams;          // 1, 2, 4 or 8 parts of the range walked side by side
  Prefetch prefetch;    // read
  std::int64_t stride;  // of `strided`, in elements
};

struct StreamKernels {
  using Run = double (*)(const StreamRange&);  // read returns the sum of all passes, the others 0
  // [fp32, fp64][read, write, copy, scale, add, triad][plain, non-temporal, these at a pace (`choose_pace`); null for writes]
  Run run[2][6][3];
  Run strided[2];    // [fp32, fp64]: read in strided order; the scalar set alone has them
  Run loads[2];      // [fp32, fp64]: the loads of a read and no sum; returns 0
};

ROOFLINE_DECLARE_TABLES(StreamKernels, stream);

}  // namespace roofline::cpu
