// Passes over rows that other operators have among their steps: each binds one step.
#pragma once

#include "cuda/device.h"
#include "ops/rows.h"

namespace roofline::cuda {

// p = softmax(scores) over the keys that a query sees, 0 for the others. Row i is query i mod seq_q; causal as in ops/attention.h.
struct Probabilities {
  DType dtype;  // of p
  std::int64_t rows, columns, seq_q;
  bool causal;
  const void* scores;  // [rows, columns], fp32
  void* p;             // [rows, columns]
};

Bound bind_probabilities(const Probabilities& problem, Device& device);

}  // namespace roofline::cuda
