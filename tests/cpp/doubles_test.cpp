// The vectors of fp64 of cpu/simd, lane by lane against long double; compiled once per instruction set, with that set's flags.
#define ROOFLINE_DOUBLES
#include "cpu/simd/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace {

using Lanes = std::array<double, kLanes>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Lanes lanes(Vec x) {
  Lanes out;
  store(out.data(), x);
  return out;
}

// The greatest distance of f from `wanted`, relative to it, over numbers of [first, last].
template <class F, class Wanted>
double error_of(F f, Wanted wanted, double first, double last) {
  constexpr int kSteps = 20000;
  double most = 0;
  for (int i = 0; i < kSteps; ++i) {
    Lanes x;
    for (int lane = 0; lane < kLanes; ++lane) x[lane] = first + (last - first) * (i * kLanes + lane) / (kSteps * kLanes);
    const Lanes got = lanes(f(load(x.data())));
    for (int lane = 0; lane < kLanes; ++lane) {
      const long double right = wanted(static_cast<long double>(x[lane]));
      most = std::max(most, static_cast<double>(std::fabs((got[lane] - right) / right)));
    }
  }
  return most;
}

TEST(Doubles, PowersOfTwo) {
  const auto wanted = [](long double x) { return std::exp2(x); };
  for (const auto& [first, last] : {std::pair{-1021.0, 1022.0}, {-2.0, 2.0}, {-60.0, 0.0}}) {
    EXPECT_LT(error_of([](Vec x) { return exp2(x); }, wanted, first, last), 5e-16);
    EXPECT_LT(error_of([](Vec x) { return exp2_bounded(x); }, wanted, first, last), 5e-16);
  }
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const double low : {-1022.0, -5000.0, -1e300, -kInfinite}) {
    EXPECT_EQ(lanes(exp2(set1(low)))[0], 0);
    EXPECT_EQ(lanes(exp2_bounded(set1(low)))[0], 0x1p-1021);
  }
  for (const double high : {1023.0, 1e300, kInfinite}) EXPECT_EQ(lanes(exp2(set1(high)))[0], 0x1p1022);
  EXPECT_TRUE(std::isnan(lanes(exp2_bounded(set1(kNaN)))[kLanes - 1]));
  for (const double whole : {-1021.0, -1.0, 0.0, 7.0}) EXPECT_EQ(lanes(exp2_bounded(set1(whole)))[0], std::exp2(whole));
}

TEST(Doubles, Tanh) {
  const auto wanted = [](long double x) { return std::tanh(x); };
  for (const double size : {0.01, 0.2, 1.0, 20.0, 1e6})
    EXPECT_LT(error_of([](Vec x) { return tanh(x); }, wanted, size / 1e4, size), 5e-15);
  EXPECT_EQ(lanes(tanh(set1(-0.3)))[0], -lanes(tanh(set1(0.3)))[0]);
  EXPECT_EQ(lanes(tanh(set1(-0.03)))[0], -lanes(tanh(set1(0.03)))[0]);
  EXPECT_TRUE(std::isnan(lanes(tanh(set1(kNaN)))[0]));
}

TEST(Doubles, ArithmeticAndComparisons) {
  Lanes a, b, c;
  for (int i = 0; i < kLanes; ++i) a[i] = 1.25 * i - 2.5, b[i] = 3.1 - 0.7 * i, c[i] = 0.1 + i;
  const Vec x = load(a.data()), y = load(b.data()), z = load(c.data());
  const Lanes fused = lanes(fma(x, y, z)), top = lanes(max(x, y)), low = lanes(min(x, y)), picked = lanes(select_less(x, y, z, x));
  double sum = 0, high = a[0];
  bool any = false;
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_NEAR(fused[i], a[i] * b[i] + c[i], 1e-14);
    EXPECT_EQ(top[i], std::max(a[i], b[i]));
    EXPECT_EQ(low[i], std::min(a[i], b[i]));
    EXPECT_EQ(picked[i], a[i] < b[i] ? c[i] : a[i]);
    sum += a[i];
    high = std::max(high, a[i]);
    any = any || a[i] > b[i];
  }
  EXPECT_NEAR(reduce_add(x), sum, 1e-14);
  EXPECT_EQ(reduce_max(x), high);
  EXPECT_EQ(any_greater(x, y), any);
  EXPECT_TRUE(std::signbit(lanes(set1(-0.0))[0]));
  EXPECT_TRUE(std::isnan(lanes(max(set1(1), set1(kNaN)))[0]));
}

TEST(Doubles, RowsBecomeColumns) {
  Vec rows[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    Lanes row;
    for (int j = 0; j < kLanes; ++j) row[j] = 10 * i + j;
    rows[i] = load(row.data());
  }
  const Lanes sums = lanes(reduce_add(rows));
  transpose(rows);
  for (int i = 0; i < kLanes; ++i) {
    double sum = 0;
    for (int j = 0; j < kLanes; ++j) {
      EXPECT_EQ(lanes(rows[i])[j], 10 * j + i);
      sum += 10 * i + j;
    }
    EXPECT_EQ(sums[i], sum);
  }
}

TEST(Doubles, SomeLanes) {
  const double in[kLanes + 1] = {3, 5};
  for (int n = 0; n <= kLanes; ++n) {
    const Lanes got = lanes(load_partial(in, n, set1(-1)));
    double out[kLanes + 1];
    std::fill_n(out, kLanes + 1, -2.0);
    store_partial(out, n, load(got.data()));
    for (int i = 0; i < kLanes; ++i) {
      EXPECT_EQ(got[i], i < n ? in[i] : -1);
      EXPECT_EQ(out[i], i < n ? in[i] : -2);
    }
  }
}

}  // namespace
