// The vector wrappers of cpu/simd, checked lane by lane; compiled once per instruction set, with that set's flags.
#include "cpu/simd/simd.h"
#if defined(ROOFLINE_SIMDE) || defined(__AVX512VBMI__)
#include "cpu/simd/exp2_by_table.h"
#endif

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "guarded.h"

namespace {

using Lanes = std::array<float, kLanes>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Lanes lanes(Vec x) {
  Lanes out;
  store(out.data(), x);
  return out;
}

Vec vec(const Lanes& x) { return load(x.data()); }

Lanes ramp(float first, float step) {
  Lanes out;
  for (int i = 0; i < kLanes; ++i) out[i] = first + step * i;
  return out;
}

const Lanes kA = ramp(-2.5f, 1.25f);
const Lanes kB = ramp(3.0f, -0.75f);
const Lanes kC = ramp(0.1f, 0.3f);

template <class Of>
void expect_lanes(Vec got, Of expected) {
  const Lanes out = lanes(got);
  for (int i = 0; i < kLanes; ++i) EXPECT_FLOAT_EQ(out[i], expected(i)) << "lane " << i;
}

// Two pages, of which the second may not be touched.
class PageEnd {
 public:
  PageEnd() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<char*>(mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED || mprotect(memory_ + page_, page_, PROT_NONE) != 0) std::abort();
  }
  ~PageEnd() { munmap(memory_, 2 * page_); }
  PageEnd(const PageEnd&) = delete;
  PageEnd& operator=(const PageEnd&) = delete;
  float* last(int n) const { return reinterpret_cast<float*>(memory_ + page_) - n; }  // the page's last n floats

 private:
  std::size_t page_;
  char* memory_;
};

TEST(Simd, Constants) {
  expect_lanes(zero(), [](int) { return 0.0f; });
  expect_lanes(set1(1.5f), [](int) { return 1.5f; });
}

TEST(Simd, LoadAndStoreNeedNoAlignment) {
  std::vector<float> in(2 * kLanes + 1), out(2 * kLanes + 1, -1.0f);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  store(out.data() + 1, load(in.data() + 1));
  EXPECT_EQ(out[0], -1.0f);
  EXPECT_EQ(out[kLanes + 1], -1.0f);
  for (int i = 1; i <= kLanes; ++i) EXPECT_EQ(out[i], in[i]);
}

TEST(Simd, StreamStores) {
  alignas(64) float out[2 * kLanes] = {};
  stream(out + kLanes, vec(kA));
  fence();
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(out[i], 0.0f);
    EXPECT_EQ(out[kLanes + i], kA[i]);
  }
}

TEST(Simd, Arithmetic) {
  const Vec a = vec(kA), b = vec(kB), c = vec(kC);
  expect_lanes(add(a, b), [](int i) { return kA[i] + kB[i]; });
  expect_lanes(sub(a, b), [](int i) { return kA[i] - kB[i]; });
  expect_lanes(mul(a, b), [](int i) { return kA[i] * kB[i]; });
  expect_lanes(div(a, c), [](int i) { return kA[i] / kC[i]; });
  expect_lanes(max(a, b), [](int i) { return std::max(kA[i], kB[i]); });
  expect_lanes(min(a, b), [](int i) { return std::min(kA[i], kB[i]); });
  expect_lanes(fma(a, b, c), [](int i) { return std::fma(kA[i], kB[i], kC[i]); });
  expect_lanes(sqrt(c), [](int i) { return std::sqrt(kC[i]); });
}

TEST(Simd, RoundsToNearestEven) {
  expect_lanes(round(vec(kA)), [](int i) { return std::nearbyint(kA[i]); });
  for (const float x : {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49999997f, 8388609.0f, -1e30f})
    expect_lanes(round(set1(x)), [x](int) { return std::nearbyint(x); });
}

TEST(Simd, Scale2) {
  expect_lanes(scale2(vec(kA), set1(5.0f)), [](int i) { return kA[i] * 32.0f; });
  expect_lanes(scale2(set1(1.25f), set1(-126.0f)), [](int) { return 1.25f * 0x1p-126f; });
  expect_lanes(scale2(set1(1.25f), set1(127.0f)), [](int) { return 1.25f * 0x1p127f; });
  expect_lanes(scale2(set1(1.0f), set1(-kInfinity)), [](int) { return 0.0f; });
}

TEST(Simd, Select) {
  expect_lanes(select_less(vec(kA), vec(kB), vec(kC), zero()), [](int i) { return kA[i] < kB[i] ? kC[i] : 0.0f; });
  expect_lanes(select_less(set1(1.0f), set1(1.0f), set1(2.0f), set1(3.0f)), [](int) { return 3.0f; });
  expect_lanes(select_less(set1(kNaN), set1(1.0f), set1(2.0f), set1(3.0f)), [](int) { return 3.0f; });
}

TEST(Simd, AnyGreater) {
  EXPECT_FALSE(any_greater(vec(kA), vec(kA)));
  for (int i = 0; i < kLanes; ++i) {
    Lanes more = kA;
    more[i] += 1.0f;
    EXPECT_TRUE(any_greater(vec(more), vec(kA))) << "lane " << i;
    EXPECT_FALSE(any_greater(vec(kA), vec(more))) << "lane " << i;
    more[i] = kNaN;
    EXPECT_FALSE(any_greater(vec(more), vec(kA))) << "lane " << i;
  }
}

TEST(Simd, Transpose) {
  Vec rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = vec(ramp(100.0f * i, 1.0f));
  transpose(rows);
  for (int i = 0; i < kLanes; ++i)
    expect_lanes(rows[i], [i](int j) { return 100.0f * j + i; });
}

TEST(Simd, Reductions) {
  for (int i = 0; i < kLanes; ++i) {  // each lane counts
    Lanes one{};
    one[i] = 2.5f;
    EXPECT_EQ(reduce_add(vec(one)), 2.5f);
    EXPECT_EQ(reduce_max(vec(one)), 2.5f);
  }
  float sum = 0;
  for (const float x : kB) sum += x;
  EXPECT_FLOAT_EQ(reduce_add(vec(kB)), sum);
  EXPECT_EQ(reduce_max(set1(-kInfinity)), -kInfinity);
  EXPECT_EQ(reduce_max(set1(-3.0f)), -3.0f);
}

TEST(Simd, PartialLoadTouchesNothingElse) {
  const PageEnd page;
  for (int n = 0; n <= kLanes; ++n) {
    float* p = page.last(n);
    for (int i = 0; i < n; ++i) p[i] = kA[i];
    expect_lanes(load_partial(p, n, vec(kB)), [n](int i) { return i < n ? kA[i] : kB[i]; });
  }
}

TEST(Simd, PartialStoreTouchesNothingElse) {
  const PageEnd page;
  for (int n = 0; n <= kLanes; ++n) {
    float* p = page.last(n);
    p[-1] = 99.0f;
    store_partial(p, n, vec(kA));
    EXPECT_EQ(p[-1], 99.0f);
    for (int i = 0; i < n; ++i) EXPECT_EQ(p[i], kA[i]);
    float after[2 * kLanes];
    for (float& x : after) x = 7.0f;
    store_partial(after, n, vec(kA));
    for (int i = n; i < 2 * kLanes; ++i) EXPECT_EQ(after[i], 7.0f) << "n " << n;
  }
}

template <class Half>
class SimdHalves : public testing::Test {};
using Halves = testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(SimdHalves, Halves);

TYPED_TEST(SimdHalves, EveryNumberLoadsAndStoresAsItself) {
  for (std::uint32_t first = 0; first < 0x10000; first += kLanes) {
    TypeParam in[kLanes], out[kLanes];
    for (int i = 0; i < kLanes; ++i) in[i].bits = static_cast<std::uint16_t>(first + i);
    const Lanes wide = lanes(load(in));
    store(out, load(in));
    for (int i = 0; i < kLanes; ++i) {
      const double value = value_of(in[i]);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(value_of(out[i]))) << in[i].bits;
      } else {
        EXPECT_EQ(wide[i], value) << in[i].bits;
        EXPECT_EQ(out[i].bits, in[i].bits);
      }
    }
  }
}

// Between neighbours: a quarter goes down, three quarters up, the middle to the even one.
TYPED_TEST(SimdHalves, StoresRoundToNearestEven) {
  for (const std::uint16_t bits : {0x0001, 0x0400, 0x3C00, 0x3C01, 0x3F80, 0x3F81, 0x5555, 0x7BFE, 0xBC00, 0xBF81}) {
    TypeParam low{bits}, high{static_cast<std::uint16_t>(bits + 1)}, out[kLanes];
    const double a = value_of(low), b = value_of(high);
    for (const double part : {0.25, 0.5, 0.75}) {
      store(out, set1(static_cast<float>(a + (b - a) * part)));
      const std::uint16_t nearest = part < 0.5 ? low.bits : part > 0.5 ? high.bits : bits % 2 ? high.bits : low.bits;
      for (const TypeParam x : out) EXPECT_EQ(x.bits, nearest) << bits << " " << part;
    }
  }
}

// Every number of bf16 and what is beside it, by its bits; a NaN stays one.
TEST(Simd, StoresOfBf16RoundAllNumbers) {
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t rest : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const std::uint32_t bits = upper << 16 | rest;
      const float x = std::bit_cast<float>(bits);
      Bf16 out[kLanes];
      store(out, set1(x));
      if (std::isnan(x))
        ASSERT_TRUE(std::isnan(value_of(out[kLanes - 1]))) << bits;
      else if (std::fpclassify(x) != FP_SUBNORMAL)  // 0 by AVX512_BF16's conversion
        ASSERT_EQ(out[kLanes - 1].bits, (bits + 0x7FFF + (upper & 1)) >> 16) << bits;
    }
}

TYPED_TEST(SimdHalves, StreamStores) {
  alignas(64) TypeParam out[2 * kLanes] = {};
  stream(out + kLanes, vec(kA));
  fence();
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(out[i].bits, 0);
    EXPECT_EQ(value_of(out[kLanes + i]), kA[i]);  // few enough bits to be exact
  }
}

TYPED_TEST(SimdHalves, PartialsTouchNothingElse) {
  const PageEnd page;
  for (int n = 0; n <= kLanes; ++n) {
    auto* const p = reinterpret_cast<TypeParam*>(page.last(kLanes)) + 2 * kLanes - n;  // the page's last n elements
    p[-1].bits = 99;
    store_partial(p, n, vec(kA));
    EXPECT_EQ(p[-1].bits, 99);
    expect_lanes(load_partial(p, n, vec(kB)), [n](int i) { return i < n ? kA[i] : kB[i]; });
  }
}

// Largest relative error of a vector function against double precision, over [first, last].
double worst_error(Vec (*of)(Vec), double (*exact)(double), double first, double last, int steps) {
  double worst = 0;
  for (int s = 0; s < steps; s += kLanes) {
    Lanes x;
    for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(first + (last - first) * (s + i) / (steps + kLanes));
    const Lanes y = lanes(of(vec(x)));
    for (int i = 0; i < kLanes; ++i) {
      const double expected = exact(x[i]);
      const double error = std::abs(y[i] - expected) / expected;
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

Vec exp2_of(Vec x) { return exp2(x); }
Vec exp2_bounded_of(Vec x) { return exp2_bounded(x); }
Vec exp_of(Vec x) { return exp(x); }
double exact_exp2(double x) { return std::exp2(x); }
double exact_exp(double x) { return std::exp(x); }

TEST(Simd, Exp2) {
  EXPECT_LT(worst_error(exp2_of, exact_exp2, -126, 127, 2'000'003), 3e-7);
  EXPECT_LT(worst_error(exp2_of, exact_exp2, -1, 1, 1'000'003), 3e-7);
  for (int whole = -126; whole <= 127; ++whole)  // the polynomial is 1 at 0
    EXPECT_NEAR(lanes(exp2(set1(static_cast<float>(whole))))[0] / std::ldexp(1.0, whole), 1.0, 2e-7);
}

TEST(Simd, Exp2Bounded) {
  EXPECT_LT(worst_error(exp2_bounded_of, exact_exp2, -125, 126, 2'000'003), 3e-7);
  EXPECT_LT(worst_error(exp2_bounded_of, exact_exp2, -1, 1, 1'000'003), 3e-7);
}

TEST(Simd, Exp2OrZero) {
  EXPECT_LT(worst_error(exp2_or_zero<float>, exact_exp2, -124.9, 126, 2'000'003), 3e-7);
  EXPECT_LT(worst_error(exp2_or_zero<float>, exact_exp2, -1, 1, 1'000'003), 3e-7);
  EXPECT_LT(worst_error(exp2_or_zero<Fp16>, exact_exp2, -124.9, 126, 2'000'003), 4e-6);
  if (kLanes == 16) expect_lanes(exp2_or_zero<float>(set1(0)), [](int) { return 1.0f; });
  for (const float x : {-126.51f, -127.0f, -149.5f, -1e4f, -1e30f, -kInfinity})
    expect_lanes(exp2_or_zero<float>(set1(x)), [](int) { return 0.0f; });
  for (int i = 0; i < kLanes; ++i) EXPECT_TRUE(std::isnan(lanes(exp2_or_zero<float>(set1(kNaN)))[i]));
}

#if defined(ROOFLINE_SIMDE) || defined(__AVX512VBMI__)
TEST(Simd, Exp2ByTable) {
  double worst = 0, sum = 0;
  int count = 0;
  for (int first = 0; first < 1 << 16; first += 2 * kLanes) {
    const auto all = exponents_in_pairs(vec(ramp(static_cast<float>(first), 2)), vec(ramp(static_cast<float>(first + 1), 2)));
    std::array<std::uint16_t, 2 * kLanes> powers, or_zeros;
    _mm512_storeu_si512(powers.data(), exp2_by_table<false>(all));
    _mm512_storeu_si512(or_zeros.data(), exp2_by_table<true>(all));
    for (int i = 0; i < 2 * kLanes; ++i) {
      const int n = first + i;
      EXPECT_EQ(or_zeros[i], n < 256 ? 0 : powers[i]) << n;
      EXPECT_TRUE(n >= 256 || powers[i] <= 0x89) << n;  // some 2^-126
      if (n < 256 || n >= 254 << 8) continue;
      const double power = std::ldexp(128 + powers[i] % 128, powers[i] / 128 - 134);
      for (int part = -8; part <= 8; ++part, ++count) {  // of the numbers that are rounded to n
        const double error = power / std::exp2((n + kExp2Less + part / 16.0) / 256 - 127) - 1;
        worst = std::max(worst, std::abs(error)), sum += error;
      }
    }
  }
  EXPECT_LT(worst, 0.0056);
  EXPECT_LT(std::abs(sum / count), 0.0001);
}

TEST(Simd, ExponentsInPairsAreSaturated) {
  std::array<std::uint16_t, 2 * kLanes> pairs;
  for (const float below : {-1.0f, -1e9f, -1e30f, -kInfinity}) {
    _mm512_storeu_si512(pairs.data(), exponents_in_pairs(set1(below), set1(1e9f)));
    for (int i = 0; i < 2 * kLanes; ++i) EXPECT_EQ(pairs[i], i % 2 ? 0xFFFF : 0) << below;
  }
}
#endif

TEST(Simd, Exp) {
  EXPECT_LT(worst_error(exp_of, exact_exp, -87, 88, 2'000'003), 4e-7);
  EXPECT_LT(worst_error(exp_of, exact_exp, -1, 1, 1'000'003), 4e-7);
}

// Denormal numbers are slow. Only the half octave below the smallest normal number, where the exponent rounds up to it, has some.
TEST(Simd, ExponentialsGiveNoDenormalNumbers) {
  for (int i = 0; i <= 400; ++i) {
    const float x = -126.51f - 0.1f * static_cast<float>(i);
    for (const float y : lanes(exp2(set1(x)))) EXPECT_EQ(y, 0.0f) << x;
    for (const float y : lanes(exp(set1(x * 0.69314718f)))) EXPECT_EQ(y, 0.0f) << x;
    for (const float y : lanes(exp2_bounded(set1(x)))) EXPECT_FALSE(std::fpclassify(y) == FP_SUBNORMAL) << x;
  }
}

TEST(Simd, ExponentialsUnderflow) {
  for (const float x : {-127.0f, -130.0f, -149.5f, -200.0f, -1e4f, -1e30f, -std::numeric_limits<float>::max(), -kInfinity}) {
    for (const float y : lanes(exp2(set1(x)))) {
      EXPECT_GE(y, 0.0f) << x;
      EXPECT_LE(y, 0x1p-126f) << x;
    }
    for (const float y : lanes(exp2_bounded(set1(x)))) {
      EXPECT_GE(y, 0.0f) << x;
      EXPECT_LE(y, 0x1.00001p-125f) << x;
    }
    for (const float y : lanes(exp(set1(x)))) {
      EXPECT_GE(y, 0.0f) << x;
      EXPECT_LE(y, 0x1p-126f) << x;
    }
  }
  for (const float x : {-1e30f, -kInfinity}) {
    expect_lanes(exp2(set1(x)), [](int) { return 0.0f; });
    expect_lanes(exp(set1(x)), [](int) { return 0.0f; });
  }
}

TEST(Simd, ExponentialsOverflow) {  // saturated or infinite, never small, negative or NaN
  for (const float x : {127.5f, 128.0f, 130.0f, 1e4f, 1e30f})
    for (const float y : lanes(exp2(set1(x)))) EXPECT_GE(y, 0x1.6p126f) << x;
  for (const float x : {89.0f, 100.0f, 1e4f})
    for (const float y : lanes(exp(set1(x)))) EXPECT_GE(y, 0x1.6p126f) << x;
}

TEST(Simd, ExponentialsKeepNaN) {
  for (int i = 0; i < kLanes; ++i) EXPECT_TRUE(std::isnan(lanes(exp2(set1(kNaN)))[i]));
  for (int i = 0; i < kLanes; ++i) EXPECT_TRUE(std::isnan(lanes(exp2_bounded(set1(kNaN)))[i]));
  for (int i = 0; i < kLanes; ++i) EXPECT_TRUE(std::isnan(lanes(exp(set1(kNaN)))[i]));
}

}  // namespace
