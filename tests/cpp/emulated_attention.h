// Attention as a case of a test on emulated blocks: random operands, and out against float64. After the header of a kernel, which
// brings the emulation.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/random.h"
#include "cuda_emulation.h"
#include "reference.h"

namespace roofline::cuda {

using reference::attend;

// In fp32, or in 16 bits.
template <class T>
struct Operand {
  using Word = std::conditional_t<std::is_same_v<T, float>, float, std::uint16_t>;
  std::vector<Word> bits;
  std::vector<double> values;
  Operand(std::int64_t elements, std::uint64_t seed, double size = 1) : bits(elements), values(elements) {
    for (std::int64_t i = 0; i < elements; ++i) set(i, size * random_uniform(seed, i));
  }
  void set(std::size_t i, double x) { bits[i] = word(static_cast<float>(x)), values[i] = value(bits[i]); }
  static Word word(float x) {
    if constexpr (std::is_same_v<T, float>) return x;
    else return static_cast<Word>(rounded(T{}, x));
  }
  static double value(Word word) {
    if constexpr (std::is_same_v<T, float>) return word;
    else return number(T{}, word);
  }
};

// The operator's own.
template <class T>
constexpr double kTolerance = std::is_same_v<T, float> ? 1e-5 : std::is_same_v<T, Bf16> ? 1.5e-2 : 2e-3;

struct AttentionShape {
  int batch, heads, kv_heads, seq_q, seq_kv, head_dim;
  bool causal;
};

template <class T>
struct AttentionOperands {
  using Word = typename Operand<T>::Word;
  AttentionShape s;
  Operand<T> q, k, v;
  explicit AttentionOperands(const AttentionShape& shape)
      : s(shape),
        q(std::int64_t{s.batch} * s.heads * s.seq_q * s.head_dim, 1),
        k(std::int64_t{s.batch} * s.kv_heads * s.seq_kv * s.head_dim, 2),
        v(std::int64_t{s.batch} * s.kv_heads * s.seq_kv * s.head_dim, 3) {}

  // Scores of the first keys become up to `times` as large as those of the last.
  void grow(double times) {
    for (std::size_t i = 0; i < k.bits.size(); ++i) {
      const double key = static_cast<double>(i / s.head_dim % s.seq_kv) / s.seq_kv;
      k.set(i, k.values[i] * (1 + (times - 1) * (1 - key)));
    }
  }

  // For out, and a few elements beyond it.
  std::vector<Word> poisoned() const {
    std::vector<Word> out(q.bits.size() + 8);
    std::memset(out.data(), 0xFF, out.size() * sizeof out[0]);
    return out;
  }

  // logsumexp: of each row, and one element beyond them; or none.
  void expect(const std::vector<Word>& out, const std::vector<float>& logsumexp = {}) const {
    const double relative = std::is_same_v<T, float> ? 1e-4 : 0.01;
    for (std::int64_t row = 0; row < std::int64_t{s.batch} * s.heads * s.seq_q; ++row) {
      const std::int64_t head = row / s.seq_q, kv_head = head / (s.heads / s.kv_heads), query = row % s.seq_q;
      const std::int64_t at = kv_head * s.seq_kv * s.head_dim;
      double sum = 0;
      const auto want = attend(&q.values[row * s.head_dim], &k.values[at], &v.values[at], 0,
                               s.causal ? query + s.seq_kv - s.seq_q + 1 : s.seq_kv, s.head_dim, &sum);
      if (!logsumexp.empty()) {
        ASSERT_NEAR(logsumexp[row], sum, 1e-5 * (1 + std::fabs(sum))) << "row " << row;
      }
      for (int d = 0; d < s.head_dim; ++d)
        ASSERT_NEAR(Operand<T>::value(out[row * s.head_dim + d]), want[d], kTolerance<T> + relative * std::fabs(want[d]))
            << "row " << row << " of " << s.seq_q << ", " << d;
    }
    for (std::size_t i = q.bits.size(); i < out.size(); ++i) ASSERT_EQ(std::memcmp(&out[i], "\xFF\xFF\xFF\xFF", sizeof out[i]), 0);
    EXPECT_TRUE(logsumexp.empty() || std::isnan(logsumexp.back()));
  }
};

}  // namespace roofline::cuda
