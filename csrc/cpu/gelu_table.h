// gelu for instruction sets that look numbers up in registers: max(x, 0) - g(|x|), g(a) = a Φ(-a), by a polynomial in each of 32
// parts of [0, most]. The part is round(a per_unit).
#pragma once

namespace roofline::cpu {

template <int Terms>
struct GeluTable {
  static constexpr int kParts = 32, kTerms = Terms;

  float most, per_unit;
  alignas(64) float coefficients[kTerms][kParts];  // of a^0, a^1, ...
};

// For results of 16 bits the polynomial is g; in the last part, where g is less than 1e-13 or half of the least fp16, it is 0. For
// fp32 it is log2 Φ(-a) to 3e-8, so that small results keep their digits; in the last part, where Φ is below 2^-126, it is minus
// infinity.
struct GeluTables {
  GeluTable<4> of_bf16, of_fp16;
  GeluTable<5> of_fp32;
};

extern const GeluTables gelu_erf_tables, gelu_tanh_tables;

}  // namespace roofline::cpu
