#include "cpu/gelu_table.h"

#include <cmath>

namespace roofline::cpu {
namespace {

// Interpolates g at Chebyshev nodes of each part. The first one's polynomial is 0 at 0, so that small results keep their digits.
GeluTable interpolated(double (*g)(double)) {
  constexpr int kTerms = GeluTable::kTerms;
  GeluTable table = {};
  for (int part = 0; part < GeluTable::kParts - 1; ++part) {  // the last one is 0
    const double last = (part + 0.5) / GeluTable::kPerUnit, first = part ? last - 1 / GeluTable::kPerUnit : 0;
    const int nodes = part ? kTerms : kTerms - 1;
    double at[kTerms] = {}, slope[kTerms] = {}, sum[kTerms] = {};
    for (int k = 0; k < nodes; ++k)
      at[k] = (first + last) / 2 + (last - first) / 2 * std::cos((2 * k + 1) * std::acos(-1) / (2 * nodes)), slope[k] = g(at[k]);
    for (int order = 1; order < kTerms; ++order)  // divided differences
      for (int k = kTerms - 1; k >= order; --k) slope[k] = (slope[k] - slope[k - 1]) / (at[k] - at[k - order]);
    for (int k = kTerms - 1; k >= 0; --k) {  // Newton's form, multiplied out
      for (int power = kTerms - 1; power > 0; --power) sum[power] = sum[power - 1] - at[k] * sum[power];
      sum[0] = slope[k] - at[k] * sum[0];
    }
    for (int power = part ? 0 : 1; power < kTerms; ++power) table.coefficients[power][part] = static_cast<float>(sum[power]);
  }
  return table;
}

}  // namespace

const GeluTable gelu_erf_table = interpolated([](double a) { return a * std::erfc(a / std::sqrt(2.0)) / 2; });
const GeluTable gelu_tanh_table = interpolated([](double a) {
  return a / (1 + std::exp(std::sqrt(8 / std::acos(-1)) * (a + 0.044715 * a * a * a)));
});

}  // namespace roofline::cpu
