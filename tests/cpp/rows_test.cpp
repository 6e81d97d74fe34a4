// Every row-wise kernel of every instruction set against double, at all lengths and alignments, with guard zones around what
// it writes. AVX-512 also runs by SIMDe's emulation (table rows_simde), where that is installed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "cpu/rows_kernels.h"
#include "guarded.h"
#include "reference.h"
#include "tested.h"

namespace roofline::cpu {

extern const RowsTable rows_simde;

namespace {

const std::vector<Tested<RowsTable>> kTested = {ROOFLINE_TESTED(rows)}, kBf16Tested = {
    ROOFLINE_TESTED(rows), {"avx512_bf16", ROOFLINE_TESTED_IF_BUILT(avx512_bf16, rows_avx512_bf16), "avx512_bf16"}};

std::int64_t scratch_of(std::int64_t columns) { return softmax_together(columns) * kept_columns(columns); }

std::vector<std::int64_t> lengths() {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 1; n <= 70; ++n) all.push_back(n);
  for (const std::int64_t n : {127, 128, 1000, 4096, 4097, 8195, 20011}) all.push_back(n);
  return all;
}

class RowsTest : public TableTest<RowsTable> {
 protected:
  const RowsKernels& table() const { return GetParam().table->of[kFp32]; }

  using Row = std::function<std::vector<double>(const float* x, std::int64_t columns)>;
  static Row each(std::function<double(double x, std::int64_t column)> of) {
    return [of = std::move(of)](const float* x, std::int64_t columns) {
      std::vector<double> y;
      for (std::int64_t i = 0; i < columns; ++i) y.push_back(of(x[i], i));
      return y;
    };
  }
  using Run = std::function<void(const float* x, float* y, std::int64_t rows, std::int64_t columns)>;

  // y = run(x) equals row(x) row by row at every length and alignment, into another matrix and, by sparse fetches, in place.
  void check(const Row& row, const Run& run, double tolerance, double scale = 1, double shift = 0) {
    for (const std::int64_t columns : lengths())
      for (const std::int64_t offset : {0, 1, 7, 13}) {
        if (columns > 1000 && offset == 7) continue;
        const std::int64_t rows = columns < 70 ? 19 : 3;  // more than go through a pass together, and a few
        Floats x(rows * columns, offset / 2), y(rows * columns, offset);
        x.fill(columns, scale, shift);
        run(x.data(), y.data(), rows, columns);
        ASSERT_TRUE(y.guarded()) << columns << " columns, offset " << offset;
        std::vector<double> expected;
        for (std::int64_t r = 0; r < rows; ++r)
          for (const double value : row(x.data() + r * columns, columns)) expected.push_back(value);
        for (std::int64_t i = 0; i < rows * columns; ++i)
          ASSERT_NEAR(y[i], expected[i], tolerance * (1 + std::abs(expected[i])))
              << columns << " columns, offset " << offset << ", element " << i;
        fetches_beside_stores.sparse = true;
        run(x.data(), x.data(), rows, columns);
        fetches_beside_stores.sparse = false;
        ASSERT_TRUE(x.guarded()) << columns << " columns, in place";
        ASSERT_EQ(0, std::memcmp(x.data(), y.data(), rows * columns * sizeof(float))) << columns << " columns, in place";
      }
  }
};

INSTANTIATE_TEST_SUITE_P(All, RowsTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

TEST_P(RowsTest, Softmax) {
  const Row row = [](const float* x, std::int64_t columns) { return reference::softmax({x, x + columns}); };
  for (const int stores : {0, 1})
    for (const double scale : {1.0, 30.0}) {
      check(
          row,
          [&](auto x, auto y, auto rows, auto columns) {
            Floats scratch(scratch_of(columns), 0), without(rows * columns, 0);
            table().softmax[stores](x, without.data(), nullptr, rows, columns);
            table().softmax[stores](x, y, scratch.data(), rows, columns);
            ASSERT_TRUE(scratch.guarded() && without.guarded());
            ASSERT_EQ(0, std::memcmp(y, without.data(), rows * columns * sizeof(float))) << columns << " columns";
          },
          5e-7, scale);
    }
}

TEST_P(RowsTest, SoftmaxIsSafe) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::int64_t columns = 137;
  for (const int stores : {0, 1})
    for (const int begin : {0, 60})  // of the large numbers: among a row's first, or far behind them
      for (const float low : {-kInfinity, -3e38f, -1e30f, -1e10f, -1000.0f, -104.5f}) {
        const auto large = [=](std::int64_t i) { return i >= begin && i % 3 == 0; };
        float count = 0;
        Floats x(columns, 0), y(columns, 3);
        for (std::int64_t i = 0; i < columns; ++i) x[i] = large(i) ? 1e3f : low, count += large(i);
        table().softmax[stores](x.data(), y.data(), nullptr, 1, columns);
        for (std::int64_t i = 0; i < columns; ++i) EXPECT_FLOAT_EQ(y[i], large(i) ? 1 / count : 0.0f) << low;
      }
}

TEST_P(RowsTest, SoftmaxFarFromZero) {
  const std::int64_t columns = 37;
  for (const int stores : {0, 1})
    for (const float top : {-0x1.8p31f, -0x1.fp29f, -1e5f, 1e5f, 0x1.8p23f, 0x1.fp29f}) {
      Floats x(columns, 0), y(columns, 3);
      for (std::int64_t i = 0; i < columns; ++i) x[i] = top - static_cast<float>(i);
      const std::vector<double> expected = reference::softmax(x.values());
      table().softmax[stores](x.data(), y.data(), nullptr, 1, columns);
      for (std::int64_t i = 0; i < columns; ++i) EXPECT_NEAR(y[i] / expected[0], expected[i] / expected[0], 1e-6) << top;
    }
}

TEST_P(RowsTest, SoftmaxSumsToOneOverLongRows) {
  const std::int64_t columns = (1 << 20) + 5;
  Floats x(columns, 0), y(columns, 0);
  x.fill(1, 0);
  table().softmax[0](x.data(), y.data(), nullptr, 1, columns);
  for (const std::int64_t i : {std::int64_t{0}, columns / 2, columns - 1}) EXPECT_NEAR(y[i] * double(columns), 1, 1e-6);
}

TEST_P(RowsTest, RmsNorm) {
  Floats weight(20011, 3);
  weight.fill(99);
  for (const int stores : {0, 1})
    check(
        [&](const float* x, std::int64_t columns) {
          double squares = 0;
          for (std::int64_t i = 0; i < columns; ++i) squares += double{x[i]} * x[i];
          std::vector<double> y;
          for (std::int64_t i = 0; i < columns; ++i) y.push_back(x[i] / std::sqrt(squares / double(columns) + 1e-6) * weight[i]);
          return y;
        },
        [&](auto x, auto y, auto rows, auto columns) { table().rms_norm[stores](x, weight.data(), y, rows, columns, 1e-6); }, 1e-6);
}

TEST_P(RowsTest, LayerNorm) {
  Floats weight(20011, 3), bias(20011, 5);
  weight.fill(99);
  bias.fill(98);
  const Row row = [&](const float* x, std::int64_t columns) {
    double mean = 0, squares = 0;
    for (std::int64_t i = 0; i < columns; ++i) mean += x[i] / double(columns);
    for (std::int64_t i = 0; i < columns; ++i) squares += (x[i] - mean) * (x[i] - mean);
    std::vector<double> y;
    for (std::int64_t i = 0; i < columns; ++i)
      y.push_back((x[i] - mean) / std::sqrt(squares / double(columns) + 1e-5) * weight[i] + bias[i]);
    return y;
  };
  for (const auto& kernels : {table().layer_norm_two_pass, table().layer_norm_one_pass})
    for (const int stores : {0, 1}) {
      const Run run = [&](auto x, auto y, auto rows, auto columns) {
        kernels[stores](x, weight.data(), bias.data(), y, rows, columns, 1e-5);
      };
      check(row, run, 4e-6);
      // A mean of 1000 deviations: x itself has lost three digits, and what is left must not be lost in the variance.
      check(row, run, 1e-3, 1, 1000);
    }
}

TEST_P(RowsTest, ReluAndBiasRelu) {
  Floats bias(20011, 3);
  bias.fill(97);
  for (const int stores : {0, 1}) {
    check(each([](double x, std::int64_t) { return reference::relu(x); }),
          [&](auto x, auto y, auto rows, auto columns) { table().relu[stores](x, y, rows * columns); }, 0);
    check(each([&](float x, std::int64_t i) { return std::max(0.0f, x + bias[i]); }),
          [&](auto x, auto y, auto rows, auto columns) { table().bias_relu[stores](x, bias.data(), y, rows, columns); }, 0);
  }
}

TEST_P(RowsTest, NothingIsWrittenForNoElements) {
  Floats x(4, 0), y(0, 5);
  x.fill(1);
  for (const int stores : {0, 1}) table().relu[stores](x.data(), y.data(), 0);
  table().gelu[0](x.data(), y.data(), 0);
  table().silu_mul[0](x.data(), x.data(), y.data(), 0);
  EXPECT_TRUE(y.guarded());
}

TEST_P(RowsTest, NanStaysNan) {
  for (const std::int64_t columns : {1, 5, 16, 37, 300})
    for (std::int64_t at = 0; at < columns; at += 1 + columns / 7)
      for (const int stores : {0, 1}) {
        Floats x(columns, 0), y(columns, 0), ones(columns, 0);
        for (std::int64_t i = 0; i < columns; ++i) ones[i] = 1;
        x.fill(1);
        x[at] = std::numeric_limits<float>::quiet_NaN();
        const auto all_nan = [&](const char* what) {
          for (std::int64_t i = 0; i < columns; ++i)
            EXPECT_TRUE(std::isnan(y[i])) << what << " " << columns << " " << at << " " << i;
          y.fill(2);
        };
        table().softmax[stores](x.data(), y.data(), nullptr, 1, columns);
        all_nan("softmax");
        table().rms_norm[stores](x.data(), ones.data(), y.data(), 1, columns, 1e-6);
        all_nan("rms_norm");
        table().layer_norm_two_pass[stores](x.data(), ones.data(), ones.data(), y.data(), 1, columns, 1e-5);
        all_nan("layer_norm two_pass");
        table().layer_norm_one_pass[stores](x.data(), ones.data(), ones.data(), y.data(), 1, columns, 1e-5);
        all_nan("layer_norm one_pass");
        const auto one_nan = [&](const char* what) {
          for (std::int64_t i = 0; i < columns; ++i) EXPECT_EQ(std::isnan(y[i]), i == at) << what << " " << columns << " " << i;
        };
        table().relu[stores](x.data(), y.data(), columns);
        one_nan("relu");
        table().bias_relu[stores](x.data(), ones.data(), y.data(), 1, columns);
        one_nan("bias_relu");
        table().gelu[0](x.data(), y.data(), columns);
        one_nan("gelu");
        table().silu_mul[0](x.data(), ones.data(), y.data(), columns);
        one_nan("silu_mul gate");
        table().silu_mul[0](ones.data(), x.data(), y.data(), columns);
        one_nan("silu_mul up");
      }
}

TEST_P(RowsTest, GeluLengths) {
  check(each([](double x, std::int64_t) { return reference::gelu(x); }),
        [&](auto x, auto y, auto rows, auto columns) { table().gelu[0](x, y, rows * columns); }, 5e-7, 3);
}

TEST_P(RowsTest, GeluIsAccurateOverItsRange) {
  const std::int64_t n = 300001;
  Floats x(n, 0), y(n, 0);
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(-15 + 30.0 * double(i) / double(n - 1));
  table().gelu[0](x.data(), y.data(), n);
  double absolute = 0, relative = 0, near_zero = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double expected = reference::gelu(x[i]);
    absolute = std::max(absolute, std::abs(y[i] - expected) / std::max(1.0, std::abs(double{x[i]})));
    if (expected == 0 || x[i] < -5) continue;
    const double error = std::abs(y[i] / expected - 1);
    relative = std::max(relative, error);
    if (x[i] > -1) near_zero = std::max(near_zero, error);
  }
  EXPECT_LT(absolute, 1.5e-7);
  EXPECT_LT(relative, 2e-6);  // the square in the exponent costs digits towards -5
  EXPECT_LT(near_zero, 1e-6);
  Floats edge(4, 0);
  const float infinity = std::numeric_limits<float>::infinity();
  edge[0] = infinity, edge[1] = -infinity, edge[2] = 0, edge[3] = 1e-30f;
  table().gelu[0](edge.data(), edge.data(), 4);
  EXPECT_EQ(edge[0], infinity);
  EXPECT_NEAR(edge[1], 0, 1e-35);
  EXPECT_EQ(edge[2], 0);
  EXPECT_FLOAT_EQ(edge[3], 0.5e-30f);
}

TEST_P(RowsTest, SiluMul) {
  for (const std::int64_t n : lengths()) {
    Floats gate(n, 1), up(n, 2), y(n, 3);
    gate.fill(1, 20);
    up.fill(2);
    table().silu_mul[0](gate.data(), up.data(), y.data(), n);
    ASSERT_TRUE(y.guarded()) << n;
    for (std::int64_t i = 0; i < n; ++i) {
      const double expected = reference::silu(gate[i]) * up[i];
      ASSERT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30) << n << " " << gate[i];
    }
    table().silu_mul[0](gate.data(), up.data(), up.data(), n);
    ASSERT_EQ(0, std::memcmp(up.data(), y.data(), n * sizeof(float)));
  }
  for (const float large : {100.0f, 1e30f, 3e38f, INFINITY}) {
    Floats gate(2, 0), up(2, 0), y(2, 0);
    gate[0] = large, gate[1] = -large;
    up[0] = up[1] = 1;
    table().silu_mul[0](gate.data(), up.data(), y.data(), 2);
    EXPECT_EQ(y[0], large);
    EXPECT_NEAR(y[1], 0, 1e-30);
  }
}

TEST_P(RowsTest, GeluByTanhIsAccurateOverItsRange) {
  const std::int64_t n = 300001;
  Floats x(n, 0), y(n, 0);
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(-15 + 30.0 * double(i) / double(n - 1));
  table().gelu_tanh[0](x.data(), y.data(), n);
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = x[i], expected = reference::gelu_tanh(a);
    ASSERT_NEAR(y[i], expected, 2e-5 * std::abs(expected) * (a < -3) + 1.5e-6 * std::abs(expected) * (a >= -3) + 2e-37) << a;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  Floats edge(4, 0);
  edge[0] = infinity, edge[1] = -infinity, edge[2] = 1e30f, edge[3] = -1e30f;
  table().gelu_tanh[1](edge.data(), edge.data(), 4);
  EXPECT_EQ(edge[0], infinity);
  EXPECT_EQ(edge[1], 0);
  EXPECT_EQ(edge[2], 1e30f);
  EXPECT_EQ(edge[3], 0);
}

// Whatever the element, a kernel computes as in fp32 and rounds once: its results are those of fp32 on the same numbers, to half a
// step of the element and what the order of sums changes.
class RowsOfTest : public RowsTest {
 protected:
  template <class T>
  const RowsKernels& of() const {
    return GetParam().table->of[kElementOf<T>];
  }

  static constexpr std::int64_t kRows = 17;

  // run(table, operands..., y): three matrices of rows x columns and two rows.
  template <class T, class Run>
  void check(const char* what, Run run) const {
    for (const std::int64_t columns : {1, 7, 15, 16, 17, 33, 64, 127, 128, 200, 1000, 4099})
      for (const std::int64_t offset : {0, 1, 13}) {
        const std::int64_t n = kRows * columns;
        Guarded<T> x(n, offset / 2), other(n, 0), y(n, offset), weight(columns, 3), bias(columns, 5);
        Guarded<float> wide_x(n), wide_other(n), wide_y(n), wide_weight(columns), wide_bias(columns);
        x.fill(1), other.fill(2), weight.fill(3), bias.fill(4);
        const auto widen = [](Guarded<T>& narrow, Guarded<float>& wide, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) wide[i] = static_cast<float>(narrow.value(i));
        };
        widen(x, wide_x, n), widen(other, wide_other, n), widen(weight, wide_weight, columns), widen(bias, wide_bias, columns);
        run(of<T>(), x.data(), other.data(), weight.data(), bias.data(), y.data(), columns);
        run(rows_scalar.of[kFp32], wide_x.data(), wide_other.data(), wide_weight.data(), wide_bias.data(), wide_y.data(), columns);
        ASSERT_TRUE(y.guarded() && x.guarded() && other.guarded()) << what << " " << columns << " columns, offset " << offset;
        const auto near = [&](Guarded<T>& narrow, Guarded<float>& wide) {
          for (std::int64_t i = 0; i < n; ++i)
            ASSERT_NEAR(narrow.value(i), wide[i], step_of(kElementOf<T>) * 0.502 * std::abs(wide[i]) + 2e-6)
                << what << " " << columns << " columns, offset " << offset << ", element " << i;
        };
        near(y, wide_y), near(other, wide_other);
      }
  }

  template <class T>
  void check_all() const {
    for (const int stores : {0, 1}) {
      const auto n = [](std::int64_t columns) { return kRows * columns; };
      check<T>("softmax", [=](auto& of, auto* x, auto*, auto*, auto*, auto* y, auto columns) {
        Guarded<float> scratch(scratch_of(columns));
        of.softmax[stores](x, y, scratch.data(), kRows, columns);
        ASSERT_TRUE(scratch.guarded());
      });
      check<T>("rms_norm", [=](auto& of, auto* x, auto*, auto* weight, auto*, auto* y, auto columns) {
        of.rms_norm[stores](x, weight, y, kRows, columns, 1e-6);
      });
      check<T>("residual_rms_norm", [=](auto& of, auto* x, auto* residual, auto* weight, auto*, auto* y, auto columns) {
        // The second pass reads the residual as it is kept: numbers that are exact in 16 bits after the sum are the same in both.
        for (std::int64_t i = 0; i < n(columns); ++i) x[i] = residual[i];
        of.residual_rms_norm[stores](x, weight, residual, y, kRows, columns, 1e-6);
      });
      for (const auto pair : {&RowsKernels::layer_norm_two_pass, &RowsKernels::layer_norm_one_pass})
        check<T>("layer_norm", [=](auto& of, auto* x, auto*, auto* weight, auto* bias, auto* y, auto columns) {
          (of.*pair)[stores](x, weight, bias, y, kRows, columns, 1e-5);
        });
      for (const auto pair : {&RowsKernels::relu, &RowsKernels::gelu, &RowsKernels::gelu_tanh})
        check<T>("of one operand",
                 [=](auto& of, auto* x, auto*, auto*, auto*, auto* y, auto columns) { (of.*pair)[stores](x, y, n(columns)); });
      check<T>("bias_relu", [=](auto& of, auto* x, auto*, auto*, auto* bias, auto* y, auto columns) {
        of.bias_relu[stores](x, bias, y, kRows, columns);
      });
      check<T>("silu_mul", [=](auto& of, auto* x, auto* other, auto*, auto*, auto* y, auto columns) {
        of.silu_mul[stores](x, other, y, n(columns));
      });
    }
  }

  template <class From, class To>
  void check_convert() const {
    for (const int stores : {0, 1})
      for (const std::int64_t n : {1, 7, 8, 16, 31, 64, 127, 1000}) {
        Guarded<From> x(n, 3);
        Guarded<To> y(n, 5);
        x.fill(n);
        of<From>().convert[kElementOf<To>][stores](x.data(), y.data(), n);
        ASSERT_TRUE(y.guarded()) << n;
        for (std::int64_t i = 0; i < n; ++i)
          ASSERT_NEAR(y.value(i), x.value(i), step_of(kElementOf<To>) / 2 * std::abs(x.value(i))) << n;
      }
  }
  template <class From>
  void check_converts() const {
    check_convert<From, float>(), check_convert<From, Bf16>(), check_convert<From, Fp16>();
  }
};

INSTANTIATE_TEST_SUITE_P(All, RowsOfTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

class RowsOfBf16Test : public RowsOfTest {};
INSTANTIATE_TEST_SUITE_P(All, RowsOfBf16Test, testing::ValuesIn(kBf16Tested), testing::PrintToStringParamName());

TEST_P(RowsOfBf16Test, Bf16) { check_all<Bf16>(); }
TEST_P(RowsOfTest, Fp16) { check_all<Fp16>(); }

// Every number there is: the nearest bf16, next to it where two are nearly as near, and a fp16 within 0.65 of a step. Below -4 the
// smallest results are less near. flushed: what is below may become 0.
template <class T, class Kernels>
void check_every_gelu(const Kernels& kernels, double (*gelu)(double), double flushed = 0) {
  constexpr bool kBf16s = std::is_same_v<T, Bf16>;
  constexpr int kAll = 1 << 16, kFraction = kBf16s ? 7 : 10, kLeastExponent = kBf16s ? -126 : -14;
  Guarded<T> x(kAll, 0), y(kAll, 0);
  for (int i = 0; i < kAll; ++i) x[i].bits = static_cast<std::uint16_t>(i);
  kernels[0](x.data(), y.data(), kAll);
  for (int i = 0; i < kAll; ++i) {
    const double a = x.value(i), expected = std::isinf(a) ? std::max(a, 0.0) : gelu(a), size = std::abs(expected);
    if (std::isnan(a) || std::isinf(expected)) {
      ASSERT_EQ(std::isnan(y.value(i)), std::isnan(a)) << i;
      ASSERT_TRUE(std::isnan(a) || y.value(i) == expected) << a;
    } else {
      const double step = std::ldexp(1, std::max(size > 0 ? std::ilogb(size) : kLeastExponent, kLeastExponent) - kFraction);
      const double near = step * (a < -4 ? 1 : kBf16s ? 0.52 : 0.65) + (kBf16s && a < -5) * 1e-8;
      ASSERT_NEAR(y.value(i), expected, size < flushed && y.value(i) == 0 ? size : near) << a;
    }
  }
}
TEST_P(RowsOfBf16Test, GeluOfEveryBf16) {
  const double flushed = std::string(GetParam().name) == "avx512_bf16" ? 0x1.01p-126 : 0;  // its conversions make denormals 0
  check_every_gelu<Bf16>(of<Bf16>().gelu, reference::gelu, flushed);
  check_every_gelu<Bf16>(of<Bf16>().gelu_tanh, reference::gelu_tanh, flushed);
}
TEST_P(RowsOfTest, GeluOfEveryFp16) {
  check_every_gelu<Fp16>(of<Fp16>().gelu, reference::gelu);
  check_every_gelu<Fp16>(of<Fp16>().gelu_tanh, reference::gelu_tanh);
}
// Logits as large as an element has them, next to each other and not: e^x of what is less than the largest by a step is 0 from 2^15 on.
template <class T, class Kernels>
void check_large_logits(const Kernels& kernels, std::initializer_list<std::uint16_t> tops) {
  constexpr int kColumns = 70;
  for (const int stores : {0, 1})
    for (const std::uint16_t top : tops) {
      Guarded<T> x(kColumns), y(kColumns);
      Guarded<float> scratch(scratch_of(kColumns));
      for (int i = 0; i < kColumns; ++i) x[i].bits = static_cast<std::uint16_t>(top - (top >> 15 ? -1 : 1) * (i % 5));
      const std::vector<double> expected = reference::softmax(x.values());
      kernels.softmax[stores](x.data(), y.data(), scratch.data(), 1, kColumns);
      for (int i = 0; i < kColumns; ++i)
        ASSERT_NEAR(y.value(i), expected[i], step_of(kElementOf<T>) * 0.51 * expected[i] + 1e-7) << x.value(0) << " " << i;
    }
}
TEST_P(RowsOfBf16Test, SoftmaxOfLargeBf16) {  // 1, 2^15, -2^15, below and above 2^25, -2^25, -2^26, the largest
  check_large_logits<Bf16>(of<Bf16>(), {0x3F84, 0x4700, 0xC700, 0x4BFF, 0x4C05, 0xCC00, 0xCC80, 0x7F7F});
}
TEST_P(RowsOfTest, SoftmaxOfLargeFp16) { check_large_logits<Fp16>(of<Fp16>(), {0x3C04, 0x6400, 0xE400, 0x7BFF}); }
TEST_P(RowsOfTest, Convert) { check_converts<float>(), check_converts<Bf16>(), check_converts<Fp16>(); }

// Every number of 8 bits, the ties between neighbours and what lies right beside them, both signs, and what has no place.
TEST_P(RowsTest, ConvertsToEightBits) {
  for (const auto& [kind, largest] : {std::pair{RowsKernels::kFp8E4m3, 0x7E}, {RowsKernels::kFp8E5m2, 0x7B}}) {
    const auto number_of = [e4m3 = kind == RowsKernels::kFp8E4m3](int code) {
      const auto bits = static_cast<std::uint8_t>(code);
      return static_cast<float>(e4m3 ? value_of(Fp8<3>{bits}) : value_of(Fp8<2>{bits}));
    };
    std::vector<float> x;
    std::vector<int> expected;
    const auto add = [&](double number, int code) {
      for (const int sign : {0, 0x80}) x.push_back(static_cast<float>(sign ? -number : number)), expected.push_back(code | sign);
    };
    for (int code = 0; code < largest; ++code) {
      const float middle = (number_of(code) + number_of(code + 1)) / 2;
      add(number_of(code), code), add(middle, code + code % 2);
      add(std::nextafter(middle, 0.0f), code), add(std::nextafter(middle, INFINITY), code + 1);
    }
    for (const float large : {number_of(largest), 1e5f, 3e38f, INFINITY}) add(large, largest);
    add(1e-40, 0), add(NAN, 0x7F);
    std::vector<std::uint8_t> y(x.size());
    for (const int stores : {0, 1}) {
      table().convert[kind][stores](x.data(), y.data(), static_cast<std::int64_t>(x.size()));
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(std::isnan(x[i]) ? y[i] & 0x7F : y[i], std::isnan(x[i]) ? 0x7F : expected[i]) << x[i];
    }
  }
  std::vector<float> x = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
  std::vector<int> expected = {0, 127, -128, 127, -128};
  for (int quarter = -4 * 130; quarter <= 4 * 130; ++quarter) {
    x.push_back(static_cast<float>(quarter) / 4);
    expected.push_back(static_cast<int>(std::fmax(-128, std::fmin(127, std::nearbyint(quarter / 4.0)))));
  }
  std::vector<std::int8_t> y(x.size());
  table().convert[RowsKernels::kInt8][0](x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], expected[i]) << x[i];
}

// c = activation(c + bias), in place.
TEST_P(RowsTest, FinishesProducts) {
  const std::function<double(double)> activations[] = {
      [](double x) { return x; }, reference::relu, reference::gelu, reference::gelu_tanh, reference::silu};
  for (int activation = 0; activation < 5; ++activation)
    for (const bool with_bias : {false, true})
      for (const std::int64_t n : {1, 7, 16, 37, 1000}) {
        Guarded<float> c(n, 3), before(n), bias(n, 1);
        c.fill(1), before.fill(1), bias.fill(2);
        GetParam().table->finish[activation](c.data(), with_bias ? bias.data() : nullptr, n);
        ASSERT_TRUE(c.guarded() && bias.guarded());
        for (std::int64_t i = 0; i < n; ++i) {
          const double wanted = activations[activation](before.value(i) + (with_bias ? bias.value(i) : 0));
          ASSERT_NEAR(c.value(i), wanted, 1e-6 * (1 + std::abs(wanted))) << activation << " of " << n;
        }
      }
}

}  // namespace
}  // namespace roofline::cpu
