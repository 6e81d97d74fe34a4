// Every kernel over tokens of every instruction set against double, with guard zones: all tails, tables of other elements, ranges
// that begin within a token, rows that begin anywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/tokens_kernels.h"
#include "guarded.h"
#include "tested.h"

namespace roofline::cpu {

extern const TokensKernels tokens_simde;

namespace {

const std::vector<Tested<TokensKernels>> kTested = {ROOFLINE_TESTED(tokens)};

class TokensTest : public TableTest<TokensKernels> {
 protected:
  template <class T, class Table>
  void rope(std::int64_t half, std::int64_t heads, std::int64_t kv_heads, std::int64_t offset, bool from_memory) const {
    const std::int64_t tokens = 3, all = tokens * (heads + kv_heads);
    Guarded<T> q(tokens * heads * 2 * half, offset), k(tokens * kv_heads * 2 * half, offset / 2);
    Guarded<T> q_before(tokens * heads * 2 * half), k_before(tokens * kv_heads * 2 * half);
    Guarded<Table> cos(tokens * half, offset), sin(tokens * half);
    Guarded<float> scratch(2 * half);
    q.fill(1), q_before.fill(1), k.fill(2), k_before.fill(2), cos.fill(3), sin.fill(4);
    const std::int64_t first = std::min<std::int64_t>(offset % 2, all), last = all - offset % 2;
    table().rope[kElementOf<T>][from_memory]({q.data(), k.data(), cos.data(), sin.data(), scratch.data(), first, last, heads, kv_heads,
                                              half, kElementOf<Table>});
    ASSERT_TRUE(q.guarded() && k.guarded() && scratch.guarded()) << half;
    for (std::int64_t item = 0; item < all; ++item) {
      const std::int64_t token = item / (heads + kv_heads), head = item % (heads + kv_heads);
      Guarded<T>& after = head < heads ? q : k;
      Guarded<T>& before = head < heads ? q_before : k_before;
      const std::int64_t at = (head < heads ? token * heads + head : token * kv_heads + head - heads) * 2 * half;
      for (std::int64_t i = 0; i < half; ++i) {
        const double x = before.value(at + i), y = before.value(at + half + i);
        const bool turned = item >= first && item < last;
        const double c = turned ? cos.value(token * half + i) : 1, s = turned ? sin.value(token * half + i) : 0;
        const auto near = [&](double actual, double a, double b) {
          ASSERT_NEAR(actual, a + b, step_of(kElementOf<T>) / 2 * std::abs(a + b) + 2e-7 * (std::abs(a) + std::abs(b)))
              << "half " << half << ", item " << item << ", pair " << i;
        };
        near(after.value(at + i), x * c, -y * s);
        near(after.value(at + half + i), y * c, x * s);
      }
    }
  }
  template <class T>
  void every_table() const {
    for (const std::int64_t half : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 64, 65})
      for (const std::int64_t offset : {0, 1, 5})
        for (const std::int64_t heads : {1, 3})
          for (const bool from_memory : {false, true}) {
            rope<T, float>(half, heads, 1, offset, from_memory);
            rope<T, Bf16>(half, heads, 2, offset, from_memory);
            rope<T, Fp16>(half, heads, 1, offset, from_memory);
          }
  }
};

INSTANTIATE_TEST_SUITE_P(All, TokensTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

TEST_P(TokensTest, RopeOfFp32) { every_table<float>(); }
TEST_P(TokensTest, RopeOfBf16) { every_table<Bf16>(); }
TEST_P(TokensTest, RopeOfFp16) { every_table<Fp16>(); }

TEST_P(TokensTest, EmbeddingCopiesRowsOfAnyLength) {
  const std::vector<std::int32_t> ids = {3, 0, 4, 4, 1, 2, 0};
  const auto tokens = static_cast<std::int64_t>(ids.size());
  for (const std::int64_t elements : {1, 3, 31, 32, 33, 64, 100, 500, 2049})
    for (const std::int64_t offset : {0, 1, 17, 32})
      for (const int kernel : {0, 1, 2}) {
        Guarded<Bf16> rows(5 * elements, offset / 2), out(tokens * elements, offset);
        rows.fill(1);
        table().embedding[kernel]({ids.data(), reinterpret_cast<const char*>(rows.data()),
                                   reinterpret_cast<char*>(out.data()), tokens, elements * 2});
        ASSERT_TRUE(out.guarded()) << elements;
        for (std::int64_t t = 0; t < tokens; ++t)
          ASSERT_EQ(0, std::memcmp(out.data() + t * elements, rows.data() + ids[t] * elements, elements * 2))
              << elements << " " << offset;
      }
}

}  // namespace
}  // namespace roofline::cpu
