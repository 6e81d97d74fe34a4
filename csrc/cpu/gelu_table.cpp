#include "cpu/gelu_table.h"

#include <cmath>
#include <limits>

namespace roofline::cpu {
namespace {

// Interpolates f at Chebyshev nodes of each part, and of the first at 0, so that results near 0 keep their digits. What rounding
// takes from a coefficient goes to the one below, for the middle of the part. The last part is `beyond`.
template <int Terms, int Parts, class Function>
GeluTable<Terms, Parts> interpolated(double most, Function f, float beyond) {
  using Table = GeluTable<Terms, Parts>;
  Table table = {};
  table.most = static_cast<float>(most), table.per_unit = static_cast<float>((Table::kParts - 1) / most);
  table.coefficients[0][Table::kParts - 1] = beyond;
  for (int part = 0; part < Table::kParts - 1; ++part) {
    const double last = (part + 0.5) / table.per_unit, first = part ? last - 1 / table.per_unit : 0, middle = (first + last) / 2;
    const int nodes = part ? Terms : Terms - 1;
    double at[Terms] = {}, slope[Terms], sum[Terms] = {};
    for (int k = 0; k < nodes; ++k) at[k] = middle + (last - first) / 2 * std::cos((2 * k + 1) * std::acos(-1) / (2 * nodes));
    for (int k = 0; k < Terms; ++k) slope[k] = f(at[k]);
    for (int order = 1; order < Terms; ++order)  // divided differences
      for (int k = Terms - 1; k >= order; --k) slope[k] = (slope[k] - slope[k - 1]) / (at[k] - at[k - order]);
    for (int k = Terms - 1; k >= 0; --k) {  // Newton's form, multiplied out
      for (int power = Terms - 1; power > 0; --power) sum[power] = sum[power - 1] - at[k] * sum[power];
      sum[0] = slope[k] - at[k] * sum[0];
    }
    for (int power = Terms - 1; power > 0; --power) {
      table.coefficients[power][part] = static_cast<float>(sum[power]);
      sum[power - 1] += (sum[power] - table.coefficients[power][part]) * middle;
    }
    table.coefficients[0][part] = static_cast<float>(part ? sum[0] : f(0));
  }
  return table;
}

// most: of log2 Φ(-a), where all parts but the last are above -126.
GeluTables tables(double (*tail)(double), double most) {
  const auto g = [=](double a) { return a * tail(a); };
  const auto log = [=](double a) { return std::log2(tail(a)); };
  return {interpolated<4, 32>(8, g, 0), interpolated<4, 32>(5.85, g, 0),
          interpolated<6, 16>(most, log, -std::numeric_limits<float>::infinity()),
          interpolated<4, 8>(8.5, log, -127), interpolated<4, 8>(6.2, log, -127)};
}

}  // namespace

const GeluTables gelu_erf_tables = tables([](double a) { return std::erfc(a / std::sqrt(2.0)) / 2; }, 13.37);
const GeluTables gelu_tanh_tables = tables([](double a) {
  return 1 / (1 + std::exp(std::sqrt(8 / std::acos(-1)) * (a + 0.044715 * a * a * a)));
}, 10.34);

}  // namespace roofline::cpu
