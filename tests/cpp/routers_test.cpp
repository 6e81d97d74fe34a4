// Every router of every instruction set against double, with guard zones: all tails, ties, infinities and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cpu/routers_kernels.h"
#include "guarded.h"
#include "reference.h"
#include "tested.h"

namespace roofline::cpu {

extern const RoutersKernels routers_simde;

namespace {

const std::vector<Tested<RoutersKernels>> kTested = {ROOFLINE_TESTED(routers)};

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Chosen {
  std::vector<float> weights;
  std::vector<std::int32_t> numbers;
};

class RoutersTest : public TableTest<RoutersKernels> {
 protected:
  // What the kernel chooses of `tokens` rows, after all that holds for any input has been checked.
  template <class T>
  Chosen topk(Guarded<T>& logits, std::int64_t tokens, std::int64_t experts, std::int64_t chosen, bool sigmoid, float* bias,
              bool renormalise) const {
    const std::int64_t room = chosen + 3 * TopkPart::kBlock;
    const std::int64_t kept = TopkPart::rows(experts, chosen) * TopkPart::pitch(experts);
    Guarded<float> weights(tokens * chosen, 1), picked(chosen * TopkPart::kTogether), found(chosen * TopkPart::kTogether);
    Guarded<float> scores(kept);
    Guarded<std::int32_t> numbers(tokens * chosen, 3);
    Guarded<double> candidates(room), ordered(room);
    TopkPart part{};
    part.logits = logits.data(), part.bias = bias, part.weights = weights.data(), part.numbers = numbers.data();
    part.scores = scores.data(), part.picked = picked.data(), part.found = found.data();
    part.candidates = candidates.data(), part.ordered = ordered.data(), part.room = room;
    part.tokens = tokens, part.experts = experts, part.chosen = chosen, part.sigmoid = sigmoid, part.renormalise = renormalise;
    table().topk[kElementOf<T>](part);
    EXPECT_TRUE(weights.guarded() && numbers.guarded() && scores.guarded() && picked.guarded() && found.guarded() &&
                candidates.guarded() && ordered.guarded()) << experts << " " << chosen;
    return {{weights.data(), weights.data() + tokens * chosen}, {numbers.data(), numbers.data() + tokens * chosen}};
  }

  template <class T>
  void expect_topk(Guarded<T>& logits, std::int64_t tokens, std::int64_t experts, std::int64_t chosen, bool sigmoid, float* bias,
                   bool renormalise) const {
    const Chosen found = topk(logits, tokens, experts, chosen, sigmoid, bias, renormalise);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const reference::Topk wanted = reference::topk(logits.values(t * experts, experts), chosen, sigmoid, bias, renormalise);
      for (std::int64_t i = 0; i < chosen; ++i) {
        const double weight = wanted.weights[i];
        ASSERT_EQ(found.numbers[t * chosen + i], wanted.numbers[i]) << experts << " experts, place " << i << " of " << chosen;
        ASSERT_NEAR(found.weights[t * chosen + i], weight, 2e-6 * weight + 1e-12) << experts << " " << chosen << " " << i;
      }
    }
  }

  template <class T>
  void every_router() const {
    const std::int64_t tokens = 18;
    for (const std::int64_t experts : {1, 5, 16, 17, 63, 64, 100, 128, 256, 300, 513, 1100})
      for (const std::int64_t chosen : {1, 2, 6, 8, 12, 13, 48, 49, 300}) {
        if (chosen > experts) continue;
        Guarded<T> logits(tokens * experts, 1);
        logits.fill(experts);
        Guarded<float> bias(experts, 1);
        for (std::int64_t e = 0; e < experts; ++e) bias[e] = static_cast<float>(random_bits(9, e) % 9) / 8 - 0.5f;
        const bool renormalise = (experts + chosen) % 2;
        expect_topk(logits, tokens, experts, chosen, false, nullptr, renormalise);
        expect_topk(logits, tokens, experts, chosen, true, nullptr, renormalise);
        // Numbers far enough apart that sums in fp32 stand in the order of those in double.
        if constexpr (sizeof(T) == 4)
          for (std::int64_t i = 0; i < tokens * experts; ++i) logits[i] = std::round(logits[i] * 4) / 4;
        else if constexpr (std::is_same_v<T, Fp16>)
          for (std::int64_t i = 0; i < tokens * experts; ++i) logits[i].bits &= 0xFF00;
        expect_topk(logits, tokens, experts, chosen, true, bias.data(), renormalise);
      }
  }
};

INSTANTIATE_TEST_SUITE_P(All, RoutersTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

TEST_P(RoutersTest, RoutersOfFp32) { every_router<float>(); }
TEST_P(RoutersTest, RoutersOfBf16) { every_router<Bf16>(); }
TEST_P(RoutersTest, RoutersOfFp16) { every_router<Fp16>(); }

// All candidates at once, and in the order in which each displaces another.
TEST_P(RoutersTest, OrderedAndEqualScores) {
  for (const std::int64_t experts : {64, 200, 640, 1152})
    for (const std::int64_t chosen : {1, 8, 40, 60})
      for (const auto& logit : std::vector<std::function<float(std::int64_t)>>{
               [](auto) { return 0.0f; },
               [](auto e) { return e % 2 ? 0.0f : -0.0f; },
               [](auto e) { return static_cast<float>(e) / 64; },
               [](auto e) { return static_cast<float>(-e) / 64; },
               [](auto e) { return static_cast<float>(e % 3); },
               [](auto e) { return static_cast<float>(-1 - e % 3); },
               [](auto e) { return static_cast<float>(e % 16 == 3 ? e : -e) / 64; },      // the largest in one column
               [](auto e) { return 1 + static_cast<float>(e * 37 % 64) * 0x1p-23f; }}) {  // alike but for their last bits
        Guarded<float> logits(2 * experts);
        for (std::int64_t i = 0; i < 2 * experts; ++i) logits[i] = logit(i % experts);
        if (chosen <= experts) expect_topk(logits, 2, experts, chosen, false, nullptr, true);
      }
}

TEST_P(RoutersTest, MaskedExpertsAndHugeLogits) {
  for (const std::int64_t experts : {7, 64, 130}) {
    Guarded<float> logits(experts);
    for (std::int64_t e = 0; e < experts; ++e) logits[e] = e % 5 ? -kInfinity : 3e38f / static_cast<float>(1 + e);
    for (const bool renormalise : {false, true}) {
      const Chosen found = topk(logits, 1, experts, 4, false, nullptr, renormalise);
      EXPECT_EQ(found.weights[0], 1);
      EXPECT_EQ(found.numbers[0], 0);
      EXPECT_EQ(found.weights[3], 0);
      EXPECT_EQ(found.numbers[3], experts == 7 ? 2 : 15);  // of two numbers and no more, else of twelve and more
    }
  }
}

// Masked experts have no weight, whatever their number; where fewer are left than are chosen, the first of the masked are too.
TEST_P(RoutersTest, MaskedExpertsAreChosenLast) {
  const auto check = [this](auto masked) {
    using T = decltype(masked);
    for (const std::int64_t experts : {16, 60, 128, 1100})
      for (const std::int64_t chosen : {2, 8, 13})
        for (const std::int64_t left : {experts / 2, chosen + 1, chosen, chosen - 1, std::int64_t{1}})
          for (const bool sigmoid : {false, true}) {
            if (left > experts) continue;
            Guarded<T> logits(17 * experts, 1);
            logits.fill(experts);
            for (std::int64_t t = 0; t < 17; ++t)  // every other token; experts from the t-th on are left
              for (std::int64_t e = 0; t % 2 == 0 && e < experts; ++e)
                if ((e + experts - t % experts) % experts >= left) logits[t * experts + e] = masked;
            expect_topk(logits, 17, experts, chosen, sigmoid, nullptr, true);
          }
  };
  check(-kInfinity), check(Bf16{0xFF80}), check(Fp16{0xFC00});
}

// A softmax of nothing but masked experts is NaN.
TEST_P(RoutersTest, NothingIsLeft) {
  for (const std::int64_t experts : {64, 100, 1200}) {
    Guarded<float> logits(18 * experts);
    logits.fill(experts);
    for (std::int64_t e = 0; e < experts; ++e) logits[5 * experts + e] = -kInfinity;
    const Chosen found = topk(logits, 18, experts, 4, false, nullptr, true);
    for (std::int64_t i = 0; i < 18 * 4; ++i) EXPECT_EQ(std::isnan(found.weights[i]), i / 4 == 5) << experts << " " << i;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(found.numbers[5 * 4 + i], i);
  }
}

TEST_P(RoutersTest, NanIsNeverChosen) {
  for (const std::int64_t experts : {5, 64, 130, 1300})
    for (std::int64_t at = 0; at < experts; at += 1 + experts / 9)
      for (const bool renormalise : {false, true}) {
        Guarded<float> logits(experts);
        for (std::int64_t e = 0; e < experts; ++e) logits[e] = static_cast<float>(e == at ? 0 : e % 11) / 4;
        logits[at] = kNan;
        Chosen found = topk(logits, 1, experts, 3, false, nullptr, renormalise);
        for (int i = 0; i < 3; ++i)
          EXPECT_TRUE(std::isnan(found.weights[i]) && found.numbers[i] >= 0 && found.numbers[i] != at) << experts << " " << at;
        found = topk(logits, 1, experts, 3, true, nullptr, renormalise);
        for (int i = 0; i < 3; ++i)
          EXPECT_TRUE(found.weights[i] > 0 && found.weights[i] <= 1 && found.numbers[i] != at) << experts << " " << at;
        Guarded<float> bias(experts);
        for (std::int64_t e = 0; e < experts; ++e) bias[e] = 0.25f;
        found = topk(logits, 1, experts, 3, true, bias.data(), renormalise);
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(found.weights[i] > 0 && found.numbers[i] != at) << experts << " " << at;
        for (std::int64_t e = 0; e < experts; ++e)
          if (e != 2) logits[e] = kNan;
        logits[2] = 1;
        found = topk(logits, 1, experts, 3, true, nullptr, renormalise);
        EXPECT_EQ(found.numbers, (std::vector<std::int32_t>{2, -1, -1}));
        EXPECT_EQ(std::isnan(found.weights[0]), renormalise);
        EXPECT_TRUE(std::isnan(found.weights[1]) && std::isnan(found.weights[2]));
      }
}

TEST_P(RoutersTest, SigmoidsSaturate) {
  Guarded<float> logits(6), bias(6);
  const float given[] = {1000, -1000, kInfinity, -kInfinity, 50, -50};
  for (std::int64_t e = 0; e < 6; ++e) logits[e] = given[e], bias[e] = static_cast<float>(6 - e);
  const Chosen found = topk(logits, 1, 6, 6, true, bias.data(), false);
  EXPECT_EQ(found.numbers, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(found.weights[i], i % 2 ? 0 : 1, 1e-21) << i;
}

}  // namespace
}  // namespace roofline::cpu
