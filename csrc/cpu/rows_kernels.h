// The row-wise kernels of one instruction set: each call does a contiguous range of rows, or of elements, on one thread.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

// Of the pairs: [0] plain stores, [1] non-temporal ones. Any alignment of y will do: what is not a whole cache line of a row
// is stored plainly. y may equal x wherever x is read, and gate or up in silu_mul; otherwise they do not overlap.
struct RowsKernels {
  // scratch: [columns], keeps e^(x - max) of one row between the passes; y itself serves where it is null.
  void (*softmax[2])(const float* x, float* y, float* scratch, std::int64_t rows, std::int64_t columns);
  void (*rms_norm[2])(const float* x, const float* weight, float* y, std::int64_t rows, std::int64_t columns, double eps);
  using LayerNorm = void (*)(const float* x, const float* weight, const float* bias, float* y, std::int64_t rows,
                             std::int64_t columns, double eps);
  LayerNorm layer_norm_two_pass[2];
  LayerNorm layer_norm_one_pass[2];
  void (*relu[2])(const float* x, float* y, std::int64_t n);  // NaN stays NaN
  void (*bias_relu[2])(const float* x, const float* bias, float* y, std::int64_t rows, std::int64_t columns);

  void (*exp)(const float* x, float* y, std::int64_t n);
  void (*gelu)(const float* x, float* y, std::int64_t n);                          // x (1 + erf(x / sqrt(2))) / 2
  void (*silu_mul)(const float* gate, const float* up, float* y, std::int64_t n);  // up gate / (1 + e^-gate)
};

ROOFLINE_DECLARE_TABLES(RowsKernels, rows);

}  // namespace roofline::cpu
