// The row-wise and element-wise kernels of one instruction set: each call does a contiguous range of rows, or of elements, on one
// thread.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// Rows that go through a pass together before the next one begins, so that their totals are worked out side by side: as many as
// keep half of the smallest L1, at most as many as a vector has lanes.
[[maybe_unused]] static constexpr std::int64_t rows_together(std::int64_t row_bytes) {
  constexpr std::int64_t kMost = 16, kKeptBytes = 16384;
  const std::int64_t fit = kKeptBytes / (row_bytes > 0 ? row_bytes : 1);
  return fit < 1 ? 1 : fit < kMost ? fit : kMost;
}

// What softmax keeps of a row between the passes.
[[maybe_unused]] static constexpr std::int64_t kept_columns(std::int64_t columns) { return (columns + 31) / 32 * 32; }
[[maybe_unused]] static constexpr std::int64_t softmax_together(std::int64_t columns) {
  return rows_together(kept_columns(columns) * static_cast<std::int64_t>(sizeof(float)));
}

// Kernels whose operands all have one element type. Each pair has plain stores in [0] and non-temporal ones in [1]. y may have any
// alignment, and may equal x wherever x is read, and gate or up in silu_mul; otherwise they do not overlap.
struct RowsKernels {
  // What numbers are converted to: each Element, and these, rounded to nearest even, at most the largest there is.
  enum Converted : int { kInt8 = kElements, kFp8E4m3, kFp8E5m2, kConverted };

  // scratch: [softmax_together(columns), kept_columns(columns)], keeps the exponentials between the passes. Null: y does, in
  // fp32 only, where it is not x.
  void (*softmax[2])(const void* x, void* y, float* scratch, std::int64_t rows, std::int64_t columns);
  void (*rms_norm[2])(const void* x, const void* weight, void* y, std::int64_t rows, std::int64_t columns, double eps);
  void (*residual_rms_norm[2])(const void* x, const void* weight, void* residual, void* y, std::int64_t rows, std::int64_t columns,
                               double eps);
  using LayerNorm = void (*)(const void* x, const void* weight, const void* bias, void* y, std::int64_t rows, std::int64_t columns,
                             double eps);
  LayerNorm layer_norm_two_pass[2];
  LayerNorm layer_norm_one_pass[2];
  using Map = void (*)(const void* x, void* y, std::int64_t n);
  Map relu[2];  // NaN stays NaN
  void (*bias_relu[2])(const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t columns);
  Map gelu[2];       // x (1 + erf(x / sqrt(2))) / 2
  Map gelu_tanh[2];  // its approximation by tanh
  void (*silu_mul[2])(const void* gate, const void* up, void* y, std::int64_t n);  // up gate / (1 + e^-gate)
  Map convert[kConverted][2];  // to each
};

struct RowsTable {
  RowsKernels of[kElements];
  void (*exp)(const float* x, float* y, std::int64_t n);
  // c = activation(c + bias), without a bias where it is null: none, relu, gelu, gelu_tanh, silu.
  void (*finish[5])(float* c, const float* bias, std::int64_t n);
};

// How many bytes ahead of non-temporal stores their operands are fetched, and whether one line in four is, which leaves the others
// to the hardware's prefetchers; whether Pace holds a core back: as `bypass` found quickest.
struct Fetches {
  std::int64_t ahead;
  bool sparse;
};
extern Fetches fetches_beside_stores;
extern bool paced_stores;

ROOFLINE_DECLARE_TABLES(RowsTable, rows);
extern const RowsTable rows_avx512_bf16;  // of bf16 alone, stored by its conversion, for which denormals are 0: nothing to convert

}  // namespace roofline::cpu
