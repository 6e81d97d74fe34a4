// The largest scores of several tokens at once, by sorting networks, and lower bounds of those of one. A kernel file includes it.
//
// As many tokens as a vector has lanes are done together. Each lane of a token's vectors is a column of scores, put in order by a
// network; columns are merged by pairs, of which only the largest stay, and at each merging the vectors of two tokens become one,
// until a lane holds a token. The last bits of a score give way to its expert's number meanwhile.
#pragma once

#include <cstdint>

#include "cpu/routers_kernels.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

// Pairs that are to be put in order, the larger first.
struct Exchanges {
  int count;
  std::uint8_t first[63], second[63];

  constexpr void add(int a, int b) {
    first[count] = static_cast<std::uint8_t>(a), second[count++] = static_cast<std::uint8_t>(b);
  }
};
// Batcher's odd-even merge sort of n numbers, of which each `ordered` in a row are in order.
constexpr Exchanges sorting(int n, int ordered) {
  Exchanges all = {};
  for (int p = ordered; p < n; p *= 2)
    for (int k = p; k > 0; k /= 2)
      for (int j = k % p; j + k < n; j += 2 * k)
        for (int i = 0; i < k; ++i)
          if ((i + j) / (2 * p) == (i + j + k) / (2 * p)) all.add(i + j, i + j + k);
  return all;
}
// For n numbers that rise and then fall, or fall and then rise.
constexpr Exchanges sorting_bitonic(int n) {
  Exchanges all = {};
  for (int k = n / 2; k > 0; k /= 2)
    for (int i = 0; i < n; ++i)
      if ((i & k) == 0) all.add(i, i + k);
  return all;
}

typedef std::int32_t Words __attribute__((vector_size(sizeof(Vec))));
ROOFLINE_INLINE Words words(Vec x) { return __builtin_bit_cast(Words, x); }
ROOFLINE_INLINE Vec bits(Words x) { return __builtin_bit_cast(Vec, x); }
ROOFLINE_INLINE Words each_word(std::int32_t x) { return Words{} + x; }
ROOFLINE_INLINE Words load_words(const std::int32_t* p) {
  Words x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
ROOFLINE_INLINE Words first_words() {  // 0, 1, 2 ..
  Words x;
  for (int i = 0; i < kLanes; ++i) x[i] = i;
  return x;
}
ROOFLINE_INLINE void store_words(std::int32_t* p, Words x) { __builtin_memcpy(p, &x, sizeof x); }

// Positive: right where a number is positive; the result may be the larger one of two negative numbers.
template <bool Positive>
ROOFLINE_INLINE Vec smaller(Vec a, Vec b) {
  return Positive ? min_positive(a, b) : min(a, b);
}

// make(): the network.
template <bool Positive, class Make, int N>
ROOFLINE_INLINE void exchange(Make make, Vec (&x)[N]) {
  constexpr Exchanges kAll = make();
#pragma GCC unroll 64
  for (int e = 0; e < kAll.count; ++e) {
    const Vec a = x[kAll.first[e]], b = x[kAll.second[e]];
    x[kAll.first[e]] = max(a, b), x[kAll.second[e]] = smaller<Positive>(a, b);
  }
}
template <bool Positive, int N>
ROOFLINE_INLINE void sort(Vec (&x)[N]) {
  exchange<Positive>([] { return sorting(N, 1); }, x);
}
// Two halves, each in order, become one.
template <bool Positive, int N>
ROOFLINE_INLINE void merge(Vec (&x)[N]) {
  exchange<Positive>([] { return sorting(N, N / 2); }, x);
}
// x becomes the larger half of x and y, each in order; `others` rises to the largest of the rest.
template <bool Positive, int N>
ROOFLINE_INLINE void keep_larger(Vec (&x)[N], const Vec (&y)[N], Vec& others) {
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    const Vec a = x[i], b = y[N - 1 - i];
    x[i] = max(a, b), others = max(others, smaller<Positive>(a, b));
  }
  exchange<Positive>([] { return sorting_bitonic(N); }, x);
}

constexpr float kMostFinite = __FLT_MAX__;

// A key is a score whose last bits, `mask`, are those of its expert's place: larger for experts that come first, so that these do
// on a tie of positive scores.
struct Places {
  std::int32_t mask = 1;
  alignas(64) std::int32_t of[TopkPart::kMostExperts];

  explicit Places(std::int64_t experts) {
    while (mask < experts - 1) mask = 2 * mask + 1;
    for (std::int64_t i = 0; i < TopkPart::pitch(experts); ++i) of[i] = (mask - static_cast<std::int32_t>(i)) & mask;
  }
};

// Fetches data for later, a little in each step of the work meanwhile: a core has few buffers for that.
class Ahead {
 public:
  Ahead(const void* from, std::int64_t bytes, std::int64_t steps)
      : at_(reinterpret_cast<std::uintptr_t>(from)), step_(static_cast<std::uintptr_t>((bytes + steps - 1) / steps)) {}

  __attribute__((always_inline)) void fetch_some() {
    constexpr std::uintptr_t kLine = 64;
    const std::uintptr_t next = at_ + step_;
    for (std::uintptr_t line = (at_ + kLine - 1) / kLine * kLine; line < next; line += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
    at_ = next;
  }

 private:
  std::uintptr_t at_;
  const std::uintptr_t step_;
};

// The N largest of each column of a token's vectors; their squares add up. Exact: scores are keys already; else those that are
// masked become finite, for bits of a place would make minus infinity a NaN.
template <bool Exact, bool Positive, int N>
ROOFLINE_INLINE void sort_columns(const float* scores, std::int64_t experts, const Places& places, Vec (&largest)[N],
                                  Vec (&squares)[4]) {
  const auto sorted = [&](std::int64_t first, Vec (&x)[N]) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) {
      const std::int64_t i = first + v * kLanes;
      x[v] = load(scores + i);
      if constexpr (!Exact)
        x[v] = bits((words(max(set1(-kMostFinite), x[v])) & ~each_word(places.mask)) | load_words(places.of + i));
      squares[v % 4] = fma(x[v], x[v], squares[v % 4]);
    }
    sort<Positive>(x);
  };
  sorted(0, largest);
  for (std::int64_t i = N * kLanes; i < experts; i += N * kLanes) {
    Vec some[N], others = zero();
    sorted(i, some);
    keep_larger<Positive>(largest, some, others);
  }
}

// Lists of N vectors, of which each lane is a column of a token, are merged with those of the next token, and so on until each lane
// is a token. Behind each list stands a number no less than those of its columns that are not in it.
template <bool Positive, int Level, int N, int K>
ROOFLINE_INLINE void merge_columns(Vec (*lists)[K + 1], int tokens, Ahead& ahead, float (*ordered)[kLanes]) {
  if constexpr ((2 << Level) <= kLanes) {
    constexpr int kNext = N < K ? 2 * N : K;
    for (int t = 0; t < tokens; t += 2) {
      ahead.fetch_some();
      const auto &one = lists[t], &other = lists[t + 1 < tokens ? t + 1 : t];
      Vec x[kNext], y[N], others, more;
      interleave<Level>(one[K], other[K], others, more);
      others = max(others, more);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) {
        interleave<Level>(one[i], other[i], x[i], y[i]);
        if constexpr (N < K) x[N + i] = y[i];
      }
      if constexpr (N < K)
        merge<Positive>(x);
      else
        keep_larger<Positive>(x, y, others);
#pragma GCC unroll 16
      for (int i = 0; i < kNext; ++i) lists[t / 2][i] = x[i];
      lists[t / 2][K] = others;
    }
    merge_columns<Positive, Level + 1, kNext, K>(lists, (tokens + 1) / 2, ahead, ordered);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < K; ++i) store(ordered[i], i < N ? lists[0][i] : set1(-kInfinity));
    store(ordered[K], lists[0][K]);
  }
}

// ordered[i], lane t: the key of the i-th largest score of token t, whose scores begin at t row. At most N of a column
// count: ordered[K] is no less than the others. Positive: see `smaller`. Returns sums of squares, NaN where a score is.
template <bool Exact, bool Positive, int N, int K>
Vec select(const float* scores, std::int64_t row, int tokens, std::int64_t experts, const Places& places, Ahead& ahead,
            float (*ordered)[kLanes]) {
  if (tokens < 1) __builtin_unreachable();
  Vec lists[kLanes][K + 1], squares[4] = {zero(), zero(), zero(), zero()};
  for (int t = 0; t < tokens; ++t) {
    ahead.fetch_some();
    Vec largest[N];
    sort_columns<Exact, Positive>(scores + t * row, experts, places, largest, squares);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) lists[t][i] = largest[i];
    lists[t][K] = experts <= N * kLanes ? set1(-kInfinity) : largest[N - 1];
  }
  merge_columns<Positive, 0, N, K>(lists, tokens, ahead, ordered);
  return add(add(squares[0], squares[1]), add(squares[2], squares[3]));
}

// Vectors of a column of which the largest are kept: seldom are more of a token's K largest in one of many columns.
template <int K>
constexpr int kColumn = K <= 4 || kLanes == 1 ? K : K == 8 && kLanes >= 8 ? 4 : 8;

// maxima[g] = the largest of every kGroups-th score from g on.
template <int kGroups>
ROOFLINE_INLINE void group_maxima(const float* scores, std::int64_t padded, float* maxima) {
  constexpr int kVectors = kGroups / kLanes;
  Vec largest[kVectors];
#pragma GCC unroll 64
  for (Vec& one : largest) one = set1(-kInfinity);
  for (std::int64_t i = 0; i < padded; i += TopkPart::kBlock) {
#pragma GCC unroll 64
    for (int u = 0; u < TopkPart::kBlock / kLanes; ++u)
      largest[u % kVectors] = max_number(load(scores + i + u * kLanes), largest[u % kVectors]);
  }
#pragma GCC unroll 64
  for (int v = 0; v < kVectors; ++v) store(maxima + v * kLanes, largest[v]);
}

// A number that at least `chosen` scores reach: one of the largest in each of twice as many columns or more. With a NaN it may be
// too large.
template <int K>
float bound_of_few(const float* scores, std::int64_t padded, std::int64_t chosen) {
  float ordered[K + 1][kLanes];
  if constexpr (kLanes == 1) {
    float maxima[2 * K];
    group_maxima<2 * K>(scores, padded, maxima);
    Vec half[K], other[K], others = zero();
    for (int i = 0; i < K; ++i) half[i] = load(maxima + i), other[i] = load(maxima + K + i);
    sort<false>(half), sort<false>(other), keep_larger<false>(half, other, others);
    for (int i = 0; i < K; ++i) store(ordered[i], half[i]);
  } else {
    Ahead nothing(nullptr, 0, 1);
    select<true, false, (2 * K + kLanes - 1) / kLanes, K>(scores, 0, 1, padded, Places(0), nothing, ordered);
  }
  return ordered[chosen - 1][0];
}

// The same of more: so many of the maxima of groups of them reach it.
float bound_of_many(const float* scores, std::int64_t padded, std::int64_t chosen) {
  constexpr int kGroups = 64, kVectors = kGroups / kLanes;
  float each[kGroups];
  group_maxima<kGroups>(scores, padded, each);
  Vec bound = set1(-kInfinity);
#pragma GCC unroll 64
  for (int v = 0; v < kVectors; ++v) {
    const Vec maximum = load(each + v * kLanes);
    Vec reached[2] = {zero(), zero()};  // how many maxima are no less
#pragma GCC unroll 16
    for (int i = 0; i < kGroups; ++i) reached[i % 2] = add(reached[i % 2], select_less(set1(each[i]), maximum, zero(), set1(1.0f)));
    bound = max(bound, select_less(add(reached[0], reached[1]), set1(static_cast<float>(chosen)), set1(-kInfinity), maximum));
  }
  return reduce_max(bound);
}

}  // namespace
}  // namespace roofline::cpu
