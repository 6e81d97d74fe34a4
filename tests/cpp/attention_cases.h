// Attention of one KV head as a case of a test: what its tensors hold, and their result against that in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/elements.h"
#include "guarded.h"
#include "reference.h"

namespace roofline::cpu {

// One KV head. query_block, kv_block: 0 is the most. What the kernel in three passes lacks comes last.
struct Shape {
  std::int64_t group, seq_q, seq_kv, head_dim;
  bool causal = false;
  std::int64_t query_block = 0, kv_block = 0;
  double growth = 0;  // of the scores from key to key: the running maximum moves all the time
  std::int64_t rope_dim = 0, value_dim = 0, window = 0, page_size = 0;  // value_dim: 0 is head_dim
  bool sinks = false;
  double softcap = 0;
  std::int64_t ranges = 0;  // of the keys, each by itself; 0: all at once
  bool shared = false;      // keys are the values too
  bool logsumexp = true;

  std::int64_t rows() const { return group * seq_q; }
  std::int64_t key_dim() const { return head_dim + rope_dim; }
  std::int64_t values() const { return value_dim ? value_dim : head_dim; }
  std::int64_t visible(std::int64_t row) const { return causal ? row % seq_q + seq_kv - seq_q + 1 : seq_kv; }
  std::int64_t first(std::int64_t row) const { return window ? std::max<std::int64_t>(0, visible(row) - window) : 0; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(key_dim())); }
  // Rows of the cache: pages lie backwards, those of another KV head between them.
  std::int64_t pages() const { return page_size ? (seq_kv + page_size - 1) / page_size : 0; }
  std::int64_t cached() const { return page_size ? pages() * 2 * page_size : seq_kv; }
  std::int64_t row_of(std::int64_t key) const {
    return page_size ? (pages() - 1 - key / page_size) * 2 * page_size + key % page_size : key;
  }
};

inline void set(float& to, double value) { to = static_cast<float>(value); }
inline void set(double& to, double value) { to = value; }
inline void set(Bf16& to, double value) {
  to.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}
inline void set(Fp16& to, double value) {
  int exponent;
  const double fraction = std::frexp(std::abs(value), &exponent);  // normal numbers only
  const int mantissa = static_cast<int>(fraction * 2048) & 1023;
  to.bits = value == 0 ? 0 : static_cast<std::uint16_t>((value < 0) << 15 | (exponent + 14) << 10 | mantissa);
}

inline void set_nan(float& to) { to = std::numeric_limits<float>::quiet_NaN(); }
inline void set_nan(double& to) { to = std::numeric_limits<double>::quiet_NaN(); }
inline void set_nan(Bf16& to) { to.bits = 0x7FC0; }
inline void set_nan(Fp16& to) { to.bits = 0x7E00; }
template <int Fraction>
void set_nan(Fp8<Fraction>& to) {
  to.bits = 0xFF;
}

// int8 and fp8: functions on their arguments say what they hold, as for those of guarded.h.
struct Int8 {
  std::int8_t bits;
};
inline double value_of(Int8 x) { return x.bits; }
inline void make_random(Int8& x, std::uint64_t bits) { x.bits = static_cast<std::int8_t>(bits % 9 - 4); }
template <int Fraction>
void make_random(Fp8<Fraction>& x, std::uint64_t bits) {  // between 1/4 and 4
  constexpr int kFirst = (64 >> Fraction) - 3;
  x.bits = static_cast<std::uint8_t>((bits & 1) << 7 | (kFirst + (bits >> 1 & 3)) << Fraction | (bits >> 3) % (1 << Fraction));
}
inline void set(Int8&, double) {}
template <int Fraction>
void set(Fp8<Fraction>&, double) {}

template <class T>
constexpr Cached::Element kCachedOf = static_cast<Cached::Element>(kElementOf<T>);
template <>
inline constexpr Cached::Element kCachedOf<Int8> = Cached::int8;
template <>
inline constexpr Cached::Element kCachedOf<Fp8<3>> = Cached::fp8_e4m3;
template <>
inline constexpr Cached::Element kCachedOf<Fp8<2>> = Cached::fp8_e5m2;

template <class T, class K = T>
struct Tensors {
  explicit Tensors(const Shape& shape)
      : q(shape.rows() * shape.key_dim(), 1), k(shape.cached() * shape.head_dim, 3), rope(shape.cached() * shape.rope_dim, 1),
        v(shape.cached() * shape.values(), 5), values(shape.shared ? k : v), out(shape.rows() * shape.values(), 7),
        logsumexp(shape.rows(), 3) {
    q.fill(1);
    k.fill(2);
    v.fill(3);
    rope.fill(4);
    if (shape.growth > 0)
      for (std::int64_t key = 0; key < shape.seq_kv; ++key)
        for (std::int64_t d = 0; d < shape.head_dim; ++d)
          set(k[shape.row_of(key) * shape.head_dim + d], shape.growth * key * q.value(d));
    for (std::int64_t head = 0; head < shape.group; ++head)  // the last head has none
      sinks.push_back(head == shape.group - 1 && head > 0 ? -std::numeric_limits<float>::infinity()
                                                          : static_cast<float>(3 - 2 * head));
    for (std::int64_t page = shape.pages(); page-- > 0;) pages.push_back(static_cast<std::int32_t>(page));
  }
  Guarded<T> q;
  Guarded<K> k, rope, v;
  Guarded<K>& values;
  Guarded<T> out;
  Guarded<float> logsumexp;
  std::vector<float> sinks;
  std::vector<std::int32_t> pages;
};

// What a problem's rows are in double; sizes: the sum of the magnitudes of what each result is the sum of.
struct Attended {
  std::vector<double> out, sizes, logsumexp;
};

template <class T, class K>
Attended attend(const Shape& shape, Tensors<T, K>& tensors) {
  const std::int64_t head_dim = shape.head_dim, rope_dim = shape.rope_dim, values = shape.values();
  const std::vector<double> q = tensors.q.values(), k = tensors.k.values(), rope = tensors.rope.values(),
                            v = tensors.values.values();
  Attended all = {std::vector<double>(shape.rows() * values), std::vector<double>(shape.rows() * values), {}};
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    const std::int64_t first = shape.first(row), count = shape.visible(row) - first;
    std::vector<double> weights;
    for (std::int64_t key = first; key < first + count; ++key) {
      const double* const query = &q[row * shape.key_dim()];
      const double score = shape.scale() * (reference::dot(query, k.data() + shape.row_of(key) * head_dim, head_dim) +
                                            reference::dot(query + head_dim, rope.data() + shape.row_of(key) * rope_dim, rope_dim));
      weights.push_back(shape.softcap > 0 ? shape.softcap * std::tanh(score / shape.softcap) : score);
    }
    const double sink = shape.sinks ? tensors.sinks[row / shape.seq_q] : -std::numeric_limits<double>::infinity();
    const double top = std::max(sink, *std::max_element(weights.begin(), weights.end()));
    double sum = std::exp(sink - top);
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    all.logsumexp.push_back(top + std::log(sum));
    double *const out = &all.out[row * values], *const sizes = &all.sizes[row * values];
    for (std::int64_t key = 0; key < count; ++key) {
      const double weight = weights[key] / sum, *const value = &v[shape.row_of(first + key) * values];
      for (std::int64_t d = 0; d < values; ++d) {
        const double part = weight * value[d];
        out[d] += part;
        sizes[d] += std::abs(part);
      }
    }
  }
  return all;
}

// weight_step: of the rounding of weights.
template <class T, class K>
void compare(const Shape& shape, Tensors<T, K>& tensors, const Attended& wanted, double tolerance, double weight_step = 0) {
  ASSERT_TRUE(tensors.out.guarded() && tensors.logsumexp.guarded());
  const double step = sizeof(T) == 8 ? 1e-15 : step_of(kElementOf<T>);
  const std::int64_t values = shape.values();
  // Scores of 100 are rounded to 8e-6 of them; results once. Logarithms of sums are in fp32.
  for (std::int64_t i = 0; i < shape.rows() * values; ++i)
    ASSERT_NEAR(tensors.out.value(i), wanted.out[i],
                tolerance + step / 2 * std::abs(wanted.out[i]) + weight_step / 2 * wanted.sizes[i])
        << shape.group << " x " << shape.seq_q << " queries, " << shape.seq_kv << " keys, head_dim " << shape.head_dim << ", causal "
        << shape.causal << ", window " << shape.window << ", row " << i / values << ", column " << i % values << ", element "
        << kCachedOf<K>;
  for (std::int64_t row = 0; shape.logsumexp && row < shape.rows(); ++row)
    ASSERT_NEAR(tensors.logsumexp[row], wanted.logsumexp[row], tolerance + 2e-7 * (1 + std::abs(wanted.logsumexp[row])))
        << "row " << row;
}

// Whether a result is the number of K that one value is, to fp32's rounding and `least`; of an infinity it may be NaN.
template <class K>
testing::AssertionResult is_number(double out, double wanted, double least) {
  const bool right = std::isinf(wanted)   ? !std::isfinite(out)
                     : std::isnan(wanted) ? std::isnan(out)
                                          : std::abs(out - wanted) <= 2e-7 * std::abs(wanted) + least;
  if (right) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << kCachedOf<K> << " is " << out << ", not " << wanted;
}

}  // namespace roofline::cpu
