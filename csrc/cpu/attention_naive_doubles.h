// The three passes of naive attention in fp64, by vectors that the compiler maps to any instruction set: scores are dot products, and
// a row of them stays in the cache from its maximum to the division. For attention_naive_kernels.cpp alone.
#pragma once

#include "cpu/attention_naive_kernels.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

constexpr int kDoubles = kLanes > 1 ? kLanes / 2 : 1;
typedef double Doubles __attribute__((vector_size(8 * kDoubles)));
typedef std::int64_t Whole __attribute__((vector_size(8 * kDoubles)));

// The first n numbers, all the others `other`.
ROOFLINE_INLINE void get_doubles(const double* p, std::int64_t n, double other, Doubles& x) {
  if (n >= kDoubles) {
    __builtin_memcpy(&x, p, sizeof x);
    return;
  }
  for (int i = 0; i < kDoubles; ++i) x[i] = i < n ? p[i] : other;
}
ROOFLINE_INLINE void put_doubles(double* p, std::int64_t n, const Doubles& x) {
  if (n >= kDoubles) {
    __builtin_memcpy(p, &x, sizeof x);
    return;
  }
  for (int i = 0; i < n; ++i) p[i] = x[i];
}

// e^x for x <= 0; below -708, where it is less than 1e-307, that of -708. Taylor's polynomial of degree 12 on |r| <= ln(2) / 2.
ROOFLINE_INLINE void exp_doubles(Doubles& x) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 2^52: the whole number is in the last bits of a sum
  x = x < -708.0 ? Doubles{} - 708.0 : x;        // a NaN stays one
  const Doubles shifted = x * 1.4426950408889634 + kMagic, whole = shifted - kMagic;
  const Doubles r = x - whole * 0.69314718036912382 - whole * 1.9082149292705877e-10;
  constexpr double kInverse[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                 1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  Doubles p = Doubles{} + kInverse[0];
#pragma GCC unroll 12
  for (int i = 1; i < 13; ++i) p = p * r + kInverse[i];
  x = __builtin_bit_cast(Doubles, __builtin_bit_cast(Whole, p) + (__builtin_bit_cast(Whole, shifted) << 52));
}

// All n numbers at x in one, a half of them meeting the other.
template <int n>
struct DoublesOf {
  typedef double Type __attribute__((vector_size(8 * n)));
};
template <int n, class Meet>
ROOFLINE_INLINE double reduce_doubles(const void* x, Meet meet) {
  if constexpr (n == 1) {
    double one;
    __builtin_memcpy(&one, x, sizeof one);
    return one;
  } else {
    typename DoublesOf<n / 2>::Type halves[2];
    __builtin_memcpy(halves, x, sizeof halves);
    halves[0] = meet(halves[0], halves[1]);
    return reduce_doubles<n / 2>(halves, meet);
  }
}
ROOFLINE_INLINE double sum_of_doubles(const Doubles& x) {
  return reduce_doubles<kDoubles>(&x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

// Four keys at a time, so that sums do not wait for each other; all queries of the block meet them.
void scores_of_doubles(const AttentionRows& part) {
  constexpr int kKeys = 4;
  const std::int64_t d = part.head_dim, most_keys = part.visible + (part.rows - 1) * part.growth;
  for (std::int64_t key = 0; key < most_keys; key += kKeys) {
    const double* k[kKeys];
    for (int i = 0; i < kKeys; ++i) k[i] = static_cast<const double*>(part.k) + least(key + i, most_keys - 1) * d;
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const std::int64_t n = part.visible + row * part.growth - key;
      if (n <= 0) continue;
      const double* const q = static_cast<const double*>(part.q) + row * d;
      Doubles sums[kKeys] = {};
      for (std::int64_t at = 0; at < d; at += kDoubles) {
        Doubles of_q, of_k;
        get_doubles(q + at, d - at, 0, of_q);
#pragma GCC unroll 4
        for (int i = 0; i < kKeys; ++i) {
          get_doubles(k[i] + at, d - at, 0, of_k);
          sums[i] += of_q * of_k;
        }
      }
      double* const s = static_cast<double*>(part.scores) + row * part.seq_kv + key;
      for (int i = 0; i < kKeys && i < n; ++i) s[i] = sum_of_doubles(sums[i]) * part.scale;
    }
  }
}

void softmax_of_doubles(const AttentionRows& part) {
  for (std::int64_t row = 0; row < part.rows; ++row) {
    double* const s = static_cast<double*>(part.scores) + row * part.seq_kv;
    const std::int64_t n = part.visible + row * part.growth;
    const auto larger = [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; };
    Doubles tops = Doubles{} - static_cast<double>(kInfinity), sums = {};
    for (std::int64_t j = 0; j < n; j += kDoubles) {
      Doubles some;
      get_doubles(s + j, n - j, -static_cast<double>(kInfinity), some);
      tops = larger(some, tops);
    }
    const double top = reduce_doubles<kDoubles>(&tops, larger);
    for (std::int64_t j = 0; j < n; j += kDoubles) {
      Doubles weight;
      get_doubles(s + j, n - j, -static_cast<double>(kInfinity), weight);
      weight -= top;
      exp_doubles(weight);
      if (n - j < kDoubles)
        for (std::int64_t i = n - j; i < kDoubles; ++i) weight[i] = 0;
      put_doubles(s + j, n - j, weight);
      sums += weight;
    }
    const double sum = sum_of_doubles(sums);
    if (part.logsumexp) part.logsumexp[row] = static_cast<float>(__builtin_log(sum) + top);
    for (std::int64_t j = 0; j < n; ++j) s[j] *= 1 / sum;
  }
}

// So many keys at a time that all queries of the block meet them in a cache.
void values_of_doubles(const AttentionRows& part) {
  constexpr int kAtOnce = 4;
  constexpr std::int64_t kKeys = 128;
  const std::int64_t d = part.head_dim, most_keys = part.visible + (part.rows - 1) * part.growth;
  for (std::int64_t first = 0; first < most_keys; first += kKeys)
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const double* const p = static_cast<const double*>(part.scores) + row * part.seq_kv;
      double* const out = static_cast<double*>(part.out) + row * d;
      const std::int64_t last = least(first + kKeys, part.visible + row * part.growth);
      for (std::int64_t column = 0; column < d; column += kAtOnce * kDoubles) {
        const int vectors = static_cast<int>(least(kAtOnce, (d - column + kDoubles - 1) / kDoubles));
        Doubles sums[kAtOnce] = {}, v = {};
        const auto each = [&](auto work) __attribute__((always_inline)) {
#pragma GCC unroll 4
          for (int i = 0; i < kAtOnce; ++i)
            if (i < vectors) work(column + i * kDoubles, sums[i]);
        };
        if (first > 0) each([&](std::int64_t at, Doubles& sum) __attribute__((always_inline)) { get_doubles(out + at, d - at, 0, sum); });
        for (std::int64_t key = first; key < last; ++key)
          each([&](std::int64_t at, Doubles& sum) __attribute__((always_inline)) {
            get_doubles(static_cast<const double*>(part.v) + key * d + at, d - at, 0, v);
            sum += p[key] * v;
          });
        each([&](std::int64_t at, Doubles& sum) __attribute__((always_inline)) { put_doubles(out + at, d - at, sum); });
      }
    }
}

}  // namespace
}  // namespace roofline::cpu
