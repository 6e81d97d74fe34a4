// gelu for results of bf16: max(x, 0) - g(|x|), g(a) = a Φ(-a), by a cubic polynomial in each of 32 parts of [0, 8], for
// instruction sets that look numbers up in registers. The part is round(a kPerUnit). Results are the nearest bf16 down to x = -4,
// then within a step; from -7.9 on, where g is less than 1e-13, they are 0.
#pragma once

namespace roofline::cpu {

struct GeluTable {
  static constexpr int kParts = 32, kTerms = 4;
  static constexpr float kMost = 8, kPerUnit = (kParts - 1) / kMost;

  float coefficients[kTerms][kParts];  // of a^0, a^1, ...
};

extern const GeluTable gelu_erf_table, gelu_tanh_table;

}  // namespace roofline::cpu
