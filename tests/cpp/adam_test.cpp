// A step of Adam of every instruction set against double, for every combination of elements, with guard zones.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/adam_kernels.h"
#include "guarded.h"
#include "ops/adam.h"
#include "tested.h"

namespace roofline::cpu {

extern const AdamKernels adam_simde;

namespace {

const std::vector<Tested<AdamKernels>> kTested = {ROOFLINE_TESTED(adam)};

using ops::Adam;

class AdamTest : public TableTest<AdamKernels> {
 protected:
  static AdamPart part(std::int64_t elements, bool decayed) {
    AdamPart part{};
    part.elements = elements;
    part.beta1 = static_cast<float>(Adam::kBeta1), part.rest1 = static_cast<float>(1 - Adam::kBeta1);
    part.beta2 = static_cast<float>(Adam::kBeta2), part.rest2 = static_cast<float>(1 - Adam::kBeta2);
    part.keep = static_cast<float>(decayed ? 1 - Adam::kRate * Adam::kDecay : 1);
    part.step = static_cast<float>(Adam::step()), part.root = static_cast<float>(1 / Adam::root());
    part.eps = static_cast<float>(Adam::kEps);
    return part;
  }

  template <class P, class G, class M>
  void check(std::int64_t n, bool master, bool decayed, bool non_temporal, std::int64_t offset) const {
    Guarded<P> p(n, non_temporal ? 0 : offset), p_before(n);
    Guarded<G> g(n, offset / 2);
    Guarded<M> m(n, offset), m_before(n), v(n, offset / 2), v_before(n);
    Guarded<float> kept(n, offset), kept_before(n);
    p.fill(1), p_before.fill(1), g.fill(2), m.fill(3), m_before.fill(3), v.fill(4), v_before.fill(4);
    kept.fill(5), kept_before.fill(5);
    AdamPart work = part(n, decayed);
    work.p = p.data(), work.master = master ? kept.data() : nullptr, work.g = g.data(), work.m = m.data(), work.v = v.data();
    work.parameter = kElementOf<P>, work.gradient = kElementOf<G>, work.moment = kElementOf<M>;
    table().step[non_temporal](work);
    ASSERT_TRUE(p.guarded() && g.guarded() && m.guarded() && v.guarded() && kept.guarded()) << n;
    ASSERT_EQ(master, !(kept == kept_before));
    for (std::int64_t i = 0; i < n; ++i) {
      const double gradient = g.value(i);
      const double first = Adam::kBeta1 * m_before.value(i) + (1 - Adam::kBeta1) * gradient;
      const double second = Adam::kBeta2 * std::abs(v_before.value(i)) + (1 - Adam::kBeta2) * gradient * gradient;
      const double before = master ? kept_before.value(i) : p_before.value(i);
      const double after = before * (decayed ? 1 - Adam::kRate * Adam::kDecay : 1) -
                           Adam::step() * first / (std::sqrt(second) / Adam::root() + Adam::kEps);
      const auto near = [&](double actual, double expected, Element element) {
        ASSERT_NEAR(actual, expected, step_of(element) / 2 * std::abs(expected) + 4e-7) << n << ", element " << i;
      };
      near(m.value(i), first, work.moment);
      near(v.value(i), second, work.moment);
      near(p.value(i), after, work.parameter);
      if (master) near(kept.value(i), after, kFp32);
    }
  }

  template <class P, class G, class M>
  void every_size() const {
    for (const std::int64_t n : {1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 1000})
      for (const std::int64_t offset : {0, 3})
        for (const bool master : {false, true})
          for (const bool non_temporal : {false, true})
            if (master || !non_temporal) check<P, G, M>(n, master, n % 2, non_temporal, offset);
  }
  template <class P, class G>
  void every_moment() const {
    every_size<P, G, float>(), every_size<P, G, Bf16>(), every_size<P, G, Fp16>();
  }
  template <class P>
  void every_gradient() const {
    every_moment<P, float>(), every_moment<P, Bf16>(), every_moment<P, Fp16>();
  }
};

INSTANTIATE_TEST_SUITE_P(All, AdamTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

TEST_P(AdamTest, ParametersInFp32) { every_gradient<float>(); }
TEST_P(AdamTest, ParametersInBf16) { every_gradient<Bf16>(); }
TEST_P(AdamTest, ParametersInFp16) { every_gradient<Fp16>(); }

TEST_P(AdamTest, NanStaysAndNothingDividesByZero) {
  const std::int64_t n = 21;
  Guarded<float> p(n), g(n), m(n), v(n);
  for (std::int64_t i = 0; i < n; ++i) p[i] = 1, g[i] = m[i] = v[i] = 0;
  g[5] = std::numeric_limits<float>::quiet_NaN();
  AdamPart work = part(n, false);
  work.p = p.data(), work.g = g.data(), work.m = m.data(), work.v = v.data();
  table().step[0](work);
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(std::isnan(p[i]) && std::isnan(m[i]) && std::isnan(v[i]), i == 5) << i;
    if (i != 5) {
      EXPECT_EQ(p[i], 1) << i;
    }
  }
}

}  // namespace
}  // namespace roofline::cpu
