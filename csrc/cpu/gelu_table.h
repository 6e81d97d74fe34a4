// gelu for instruction sets that look numbers up in registers: max(x, 0) - g(|x|), g(a) = a Φ(-a), by a polynomial in each part of
// [0, most]. The part is round(a per_unit).
#pragma once

namespace roofline::cpu {

template <int Terms, int Parts>
struct GeluTable {
  static constexpr int kParts = Parts, kTerms = Terms;

  float most, per_unit;
  alignas(64) float coefficients[kTerms][kParts];  // of a^0, a^1, ...
};

// For results of 16 bits the polynomial is g; in the last part, where g is less than 1e-13 or half of the least fp16, it is 0. For
// fp32 it is log2 Φ(-a), so that small results keep their digits, in 16 parts, which are looked up in one register: a look-up in
// two and a multiply-add wait for each other on Zen 4. In the last part, where Φ is below 2^-126, it is minus infinity.
//
// Registers of 8 numbers hold log2 Φ(-a) for 16 bits too, and -127 in the last part, of which exp2_within makes 0.
struct GeluTables {
  GeluTable<4, 32> of_bf16, of_fp16;
  GeluTable<6, 16> of_fp32;
  GeluTable<4, 8> eight_of_bf16, eight_of_fp16;
};

extern const GeluTables gelu_erf_tables, gelu_tanh_tables;

}  // namespace roofline::cpu
