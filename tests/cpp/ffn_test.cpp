// What becomes of the sums of products in a feed-forward block, on every instruction set against double, at all lengths, with
// guard zones around what is written. AVX-512 also runs by SIMDe's emulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/ffn_kernels.h"
#include "cpu/isa.h"
#include "guarded.h"
#include "reference.h"
#include "tested.h"

namespace roofline::cpu {

extern const FfnKernels ffn_simde;

namespace {

const std::vector<Tested<FfnKernels>> kTested = {ROOFLINE_TESTED(ffn)};

enum Activation { kRelu, kGelu, kGeluTanh, kSwiGlu, kActivations };

double activated(int activation, double x, double gate) {
  switch (activation) {
    case kRelu: return reference::relu(x);
    case kGelu: return reference::gelu(x);
    case kGeluTanh: return reference::gelu_tanh(x);
    default: return x * reference::silu(gate);
  }
}

int rounded(double steps) { return static_cast<int>(std::nearbyint(std::clamp(steps, -128.0, 127.0))); }

class FfnTest : public TableTest<FfnKernels> {
 protected:
  // Whole numbers up to 2^20 in the memory of fp32, and scales of which some are negative.
  static void fill(Floats& sums, Floats& scale, std::int64_t n, std::uint64_t seed, double largest) {
    scale.fill(seed + 1, largest / (1 << 20));
    for (std::int64_t i = 0; i < n; ++i) {
      sums[i] = std::bit_cast<float>(static_cast<std::int32_t>(random_uniform(seed, i) * (1 << 20)));
    }
  }
  static double value(Floats& sums, Floats& scale, std::int64_t i) {
    return static_cast<double>(std::bit_cast<std::int32_t>(sums[i])) * scale[i];
  }

  // n numbers up to about 3 `largest`: each is rounded as the exact activation is, or one that is 2^-16 of x away.
  void check(int activation, std::int64_t n, double largest, float times) const {
    SCOPED_TRACE(testing::Message() << "activation " << activation << ", " << n << " numbers up to " << largest);
    Floats x(n, 1), scale(n, 3), gate(n, 2), gate_scale(n, 5);
    fill(x, scale, n, 1, largest), fill(gate, gate_scale, n, 7, largest);
    std::vector<std::int8_t> y(n + 128, 0x5A);
    table().quantize[activation](x.data(), scale.data(), gate.data(), gate_scale.data(), times, y.data() + 64, n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double of = value(x, scale, i), of_gate = activation == kSwiGlu ? value(gate, gate_scale, i) : 1;
      const double steps = activated(activation, of, of_gate) * times;
      const double error = activation == kRelu ? 0 : 0x1p-16 * std::abs(of) * std::fmax(std::abs(of_gate), 1) * times;
      const double most = error + 4e-7 * std::abs(steps);
      ASSERT_GE(y[64 + i], rounded(steps - most)) << "element " << i << ", x " << of << ", gate " << of_gate;
      ASSERT_LE(y[64 + i], rounded(steps + most)) << "element " << i << ", x " << of << ", gate " << of_gate;
    }
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(y[i] == 0x5A && y[64 + n + i] == 0x5A);
  }
};

INSTANTIATE_TEST_SUITE_P(All, FfnTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

TEST_P(FfnTest, QuantizesEveryLength) {
  for (int activation = 0; activation < kActivations; ++activation)
    for (std::int64_t n = 1; n <= 140; ++n) check(activation, n, 1, 32);
}

TEST_P(FfnTest, ActivationsAreAccurateOverTheirRange) {
  for (int activation = 0; activation < kActivations; ++activation)
    for (const double largest : {1e-3, 0.1, 1.0, 2.0, 30.0})
      for (const float all : {1.0f, 127.0f, 10000.0f}) check(activation, 50000, largest, static_cast<float>(all / largest));
}

// Each is up to the rounding of bf16 and an eighth of it away from the exact activation; small ones of either gelu up to a step.
TEST_P(FfnTest, ActivatesSumsInBf16) {
  for (int activation = 0; activation < kActivations; ++activation)
    for (const double largest : {0.1, 1.0, 4.0, 30.0})
      for (std::int64_t n = 1; n <= 2100; n += n < 140 ? 1 : 1950) {
        Floats x(n, 1), gate(n, 3);
        x.fill(n, largest), gate.fill(n + 1, largest);
        Guarded<Bf16> y(n);
        table().activate[activation](x.data(), gate.data(), y.data(), n);
        ASSERT_TRUE(y.guarded());
        for (std::int64_t i = 0; i < n; ++i) {
          const double exact = activated(activation, x[i], gate[i]);
          const double most = (x[i] < -4 ? 0x1p-7 : 0x1.2p-8) * std::abs(exact) + (x[i] < -5) * 1e-8;
          ASSERT_NEAR(y.value(i), exact, most) << activation << ": " << x[i] << ", " << gate[i];
        }
      }
}

TEST_P(FfnTest, ScalesInPlace) {
  for (std::int64_t n = 1; n <= 140; ++n) {
    Floats c(n, 3), scale(n, 1);
    fill(c, scale, n, 3, 1);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < n; ++i) expected.push_back(value(c, scale, i));
    table().scale(c.data(), scale.data(), n);
    ASSERT_TRUE(c.guarded());
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(c[i], static_cast<float>(expected[i]));
  }
}

TEST_P(FfnTest, TiesGoToEvenAndWhatIsTooLargeIsTheLargest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float scales[] = {0.5f,   1.5f,  2.5f,      126.5f, 127.5f,
                          300.0f, 1e30f, kInfinity, -0.5f,  std::numeric_limits<float>::quiet_NaN()};
  const int relu[] = {0, 2, 2, 126, 127, 127, 127, 127, 0};
  const int swiglu[] = {0, -2, -2, -126, -128, -128, -128, -128, 0, 0};  // of -x, with a gate that is 1 after all
  for (int i = 0; i < 10; ++i) {
    const float x = std::bit_cast<float>(1), y = std::bit_cast<float>(-1), gate = std::bit_cast<float>(64), gate_scale = 1;
    std::int8_t to = 99;
    if (i < 9) {
      table().quantize[kRelu](&x, &scales[i], nullptr, nullptr, 1, &to, 1);
      EXPECT_EQ(to, relu[i]) << scales[i];
    }
    table().quantize[kSwiGlu](&y, &scales[i], &gate, &gate_scale, 1 / 64.0f, &to, 1);
    EXPECT_EQ(to, swiglu[i]) << scales[i];
  }
}

}  // namespace
}  // namespace roofline::cpu
