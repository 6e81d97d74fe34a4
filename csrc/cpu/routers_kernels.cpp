// Routers, one thread's range of tokens: a token's logits are read from memory once, and the selection takes place in L1.
#include "cpu/routers_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

// A score and its expert as one number: the larger comes first, and on a tie the lowest expert. The upper word is the score's,
// which orders numbers of fp64 as it does those of fp32, beyond the denormal ones.
using Key = double;

constexpr std::int64_t kBlock = TopkPart::kBlock;
constexpr Key kLeastKey = -__builtin_inf();
constexpr std::int32_t kNormal = 0x00100000;

ROOFLINE_INLINE Key key_of(float score, std::int64_t expert) {
  const std::int32_t upper = __builtin_bit_cast(std::int32_t, score + 0.0f) + kNormal;  // -0 and 0 are the same
  const std::uint32_t lower = static_cast<std::uint32_t>(~expert ^ (upper >> 31));
  return __builtin_bit_cast(Key, std::uint64_t{static_cast<std::uint32_t>(upper)} << 32 | lower);
}
ROOFLINE_INLINE std::int32_t expert_of(Key key) {
  const std::int64_t bits = __builtin_bit_cast(std::int64_t, key);
  return static_cast<std::int32_t>(~(bits ^ (bits >> 63)));
}
// The least number above a key's score: later experts have to reach it. Above infinity it is a NaN, which none does.
ROOFLINE_INLINE float above(Key key) {
  const std::int32_t bits = static_cast<std::int32_t>(__builtin_bit_cast(std::int64_t, key) >> 32) - kNormal;
  return __builtin_bit_cast(float, bits + (bits < 0 ? -1 : 1));
}

typedef Key Keys __attribute__((vector_size(kLanes == 1 ? 16 : sizeof(Vec))));
typedef std::int64_t Places __attribute__((vector_size(sizeof(Keys))));
constexpr int kRegisters = 64 / sizeof(Keys), kKeys = sizeof(Keys) / sizeof(Key);

ROOFLINE_INLINE Vec larger(Vec a, Vec b) { return max(a, b); }
ROOFLINE_INLINE Vec smaller(Vec a, Vec b) { return min(a, b); }
ROOFLINE_INLINE Keys larger(Keys a, Keys b) { return a > b ? a : b; }
ROOFLINE_INLINE Keys smaller(Keys a, Keys b) { return a > b ? b : a; }

// The keys in order: each goes where as many stand before it as are larger. There are few, and no branch depends on them. Eight are
// compared at once, and both have room for that.
void put_in_order(Key* keys, std::int64_t count, Key* ordered) {
  for (int i = 0; i < 8; ++i) keys[count + i] = kLeastKey;
  for (std::int64_t first = 0; first < count; first += 8) {
    Keys some[kRegisters];
    Places place[kRegisters];
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) __builtin_memcpy(&some[r], keys + first + r * kKeys, sizeof(Keys)), place[r] = Places{};
    for (std::int64_t j = 0; j < count; ++j) {
      const Keys other = Keys{} + keys[j];
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; ++r) place[r] -= some[r] < other;
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) ordered[place[r][i]] = some[r][i];
    }
  }
}

// Batcher's odd-even merge sort: exchanges that put 16 in order, the largest first, whatever they are.
constexpr int kSorted = 16, kExchanges = 63;
constexpr bool kCollectsFew = kLanes == kSorted;  // all there are, without a bound: see collect_few
struct Network {
  std::uint8_t first[kExchanges], second[kExchanges];
};
constexpr Network network() {
  Network all = {};
  int n = 0;
  for (int p = 1; p < kSorted; p *= 2)
    for (int k = p; k > 0; k /= 2)
      for (int j = k % p; j + k < kSorted; j += 2 * k)
        for (int i = 0; i < k; ++i)
          if ((i + j) / (2 * p) == (i + j + k) / (2 * p))
            all.first[n] = static_cast<std::uint8_t>(i + j), all.second[n++] = static_cast<std::uint8_t>(i + j + k);
  return all;
}
template <class X>
ROOFLINE_INLINE void sort(X (&x)[kSorted]) {
  constexpr Network kNetwork = network();
#pragma GCC unroll 64
  for (int e = 0; e < kExchanges; ++e) {
    X &a = x[kNetwork.first[e]], &b = x[kNetwork.second[e]];
    const X high = larger(a, b), low = smaller(a, b);
    a = high, b = low;
  }
}

// As put_in_order, of kSorted keys of each token.
void put_in_order(Key (&keys)[kSorted][TopkPart::kTogether]) {
  for (int t = 0; t < TopkPart::kTogether; t += kKeys) {
    Keys of_tokens[kSorted];
#pragma GCC unroll 16
    for (int i = 0; i < kSorted; ++i) __builtin_memcpy(&of_tokens[i], &keys[i][t], sizeof(Keys));
    sort(of_tokens);
#pragma GCC unroll 16
    for (int i = 0; i < kSorted; ++i) __builtin_memcpy(&keys[i][t], &of_tokens[i], sizeof(Keys));
  }
}

// maxima[g] = the largest of every kGroups-th score from g on.
template <int kGroups>
ROOFLINE_INLINE void group_maxima(const float* scores, std::int64_t padded, float* maxima) {
  constexpr int kVectors = kGroups / kLanes;
  Vec largest[kVectors];
#pragma GCC unroll 64
  for (Vec& one : largest) one = set1(-kInfinity);
  for (std::int64_t i = 0; i < padded; i += kBlock) {
#pragma GCC unroll 64
    for (int u = 0; u < kBlock / kLanes; ++u)
      largest[u % kVectors] = max_number(load(scores + i + u * kLanes), largest[u % kVectors]);
  }
#pragma GCC unroll 64
  for (int v = 0; v < kVectors; ++v) store(maxima + v * kLanes, largest[v]);
}

// A number of each token that at least `chosen` of its scores reach: so many of the maxima of groups of them do. With more groups
// than that, few other scores reach it.
void bounds_of_few(const TopkPart& part, const float* const* scores, std::int64_t padded, int tokens, float* bounds) {
  constexpr int kGroups = 2 * kSorted;
  float maxima[TopkPart::kTogether][kGroups];
  for (int t = 0; t < tokens; ++t) group_maxima<kGroups>(scores[t], padded, maxima[t]);
  for (int t = tokens; t < TopkPart::kTogether; ++t) __builtin_memcpy(maxima[t], maxima[0], sizeof maxima[t]);
  for (int t = 0; t < TopkPart::kTogether; t += kLanes) {
    Vec halves[2][kSorted];
    for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 16
      for (int g = 0; g < kSorted; g += kLanes) {
        Vec square[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) square[i] = load(maxima[t + i] + h * kSorted + g);
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) halves[h][g + i] = square[i];
      }
      sort(halves[h]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSorted; ++i) halves[0][i] = max(halves[0][i], halves[1][kSorted - 1 - i]);  // the larger half of all
    sort(halves[0]);
    float in_order[kSorted][kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kSorted; ++i) store(in_order[i], halves[0][i]);
    store(bounds + t, load(in_order[part.chosen - 1]));
  }
}

float bound_of_many(const TopkPart& part, const float* scores, std::int64_t padded) {
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
    bound = max(bound, select_less(add(reached[0], reached[1]), set1(static_cast<float>(part.chosen)), set1(-kInfinity), maximum));
  }
  return reduce_max(bound);
}

void bounds_of(const TopkPart& part, const float* const* scores, std::int64_t padded, int tokens, float* bounds) {
  const bool all_fit = kCollectsFew && part.experts <= kSorted;
  const bool some = !all_fit && part.experts > 2 * part.chosen;  // else half would reach one
  if (some && part.chosen <= 12) return bounds_of_few(part, scores, padded, tokens, bounds);
  for (int t = 0; t < tokens; ++t) bounds[t] = some && part.chosen <= 48 ? bound_of_many(part, scores[t], padded) : -kInfinity;
}

struct Found {
  std::int64_t count;
  float poison;  // NaN where a score is NaN, else 0
};

// Sums of squares are numbers, or infinite, unless a score is NaN.
ROOFLINE_INLINE float poison_of(Vec squares) {
  return bits_at_least(squares, zero()) == (1u << kLanes) - 1 ? 0 : __builtin_nanf("");
}

// The keys of the scores that reach the bound, the largest at least.
Found collect(const TopkPart& part, const float* scores, std::int64_t padded, float bound, Key* candidates, Key* ordered) {
  const std::int64_t chosen = part.chosen, experts = part.experts, limit = part.room - 2 * kBlock;
  Vec squares[2] = {set1(1.0f), set1(1.0f)};
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < padded; i += kBlock) {
    const Vec reach = set1(bound);
    std::uint64_t bits = 0;
#pragma GCC unroll 64
    for (int u = 0; u < kBlock / kLanes; ++u) {
      const Vec score = load(scores + i + u * kLanes);
      bits |= std::uint64_t{bits_at_least(score, reach)} << u * kLanes;
      squares[u % 2] = fma(score, score, squares[u % 2]);
    }
    if (const std::int64_t rest = experts - i; rest < kBlock) bits &= (std::uint64_t{1} << rest) - 1;
    while (bits) {  // four at once, those that are not there too: how many there are is hard to foresee
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) {
        const std::int64_t expert = i + __builtin_ctzll(bits | std::uint64_t{1} << 63);
        candidates[count] = key_of(scores[expert], expert);
        count += bits != 0;
        bits &= bits - 1;
      }
    }
    if (count > limit) {
      put_in_order(candidates, count, ordered);
      for (count = 0; count < chosen; ++count) candidates[count] = ordered[count];
      bound = above(ordered[chosen - 1]);
    }
  }
  return {count, poison_of(add(squares[0], squares[1]))};
}

// As collect, of those tokens of which at most kSorted scores reach the bound; of the others their number alone. Every vector takes
// the same time, so that of many experts, of which few are found, collect is faster. Calls next(token) before each.
constexpr std::int64_t kFewExperts = 4 * kBlock;
template <class Next>
ROOFLINE_INLINE void collect_few(const TopkPart& part, const float* const* scores, int tokens, const float* bounds, Next next,
                                 Found* found, Key (&keys)[kSorted][TopkPart::kTogether]) {
#if defined(ROOFLINE_STORE_THOSE)
  typedef std::int32_t Words __attribute__((vector_size(sizeof(Vec))));
  static_assert(kLanes == kSorted && kLanes == TopkPart::kTogether);
  const Words each = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  float experts[kLanes][2 * kSorted];
  Words counts = {}, rows = {};
  for (int t = 0; t < tokens; ++t) {
    next(t);
    const Vec reach = set1(bounds[t]);
    Vec squares = set1(1.0f);
    Words expert = each;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < part.experts; i += kLanes) {
      const Vec score = load(scores[t] + i);
      std::uint32_t bits = bits_at_least(score, reach);
      if (const std::int64_t rest = part.experts - i; rest < kLanes) bits &= (1u << rest) - 1;
      store_those(experts[t] + least(count, kSorted), bits, __builtin_bit_cast(Vec, expert));
      expert += kLanes;
      count += __builtin_popcount(bits);
      squares = fma(score, score, squares);
    }
    found[t] = {count, poison_of(squares)};
    counts[t] = static_cast<std::int32_t>(count);
    rows[t] = static_cast<std::int32_t>(scores[t] - scores[0]);
  }
  Vec expert[kLanes];  // of all tokens
#pragma GCC unroll 16
  for (int t = 0; t < kLanes; ++t) expert[t] = load(experts[t < tokens ? t : 0]);
  transpose(expert);
#pragma GCC unroll 16
  for (int i = 0; i < kSorted; ++i) {  // as key_of
    const Words there = i < counts, which = there ? __builtin_bit_cast(Words, expert[i]) : 0;
    const Vec score = gather(scores[0], __builtin_bit_cast(Vec, rows + which));
    const Words upper = __builtin_bit_cast(Words, add(score, zero())) + kNormal, lower = ~which ^ (upper >> 31);
    const Words least_upper = Words{} + (__builtin_bit_cast(std::int32_t, -kInfinity) + kNormal);
    store_pairs(keys[i], __builtin_bit_cast(Vec, there ? lower : -1), __builtin_bit_cast(Vec, there ? upper : least_upper));
  }
#else
  (void)part, (void)scores, (void)bounds, (void)next, (void)keys;
  for (int t = 0; t < tokens; ++t) found[t].count = kSorted + 1;
#endif
}

// 1 / (1 + e^-x), x clamped to where that is accurate: beyond, it is 0 or 1 to within 1e-37. In this order a NaN stays one.
ROOFLINE_INLINE Vec sigmoid(Vec x) {
  const Vec one = set1(1.0f);
  return div(one, add(one, exp(max(set1(-87.0f), min(set1(87.0f), sub(zero(), x))))));
}

// A token's scores: its logits or, with a bias, their sigmoids and the bias; infinitely low up to a whole block. Without a bias
// logits stand in the order of what they become, so that only those of the chosen go through an exponential.
template <class T, bool Biased>
ROOFLINE_INLINE const float* score(const TopkPart& part, const T* logits, std::int64_t padded, float* scores, float* sigmoids) {
  if constexpr (sizeof(T) == sizeof(float) && !Biased)
    if (part.experts == padded) return logits;
  const std::int64_t experts = part.experts;
  const float* const bias = part.bias;
  const auto each = [&](std::int64_t i, int n) __attribute__((always_inline)) {
    const Vec x = get(logits + i, n, set1(-kInfinity));
    if constexpr (Biased) {
      const Vec weight = sigmoid(x);
      store(sigmoids + i, weight);
      store(scores + i, add(weight, get(bias + i, n, set1(-kInfinity))));
    } else {
      store(scores + i, x);
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= experts; i += kLanes) each(i, kLanes);
  if (i < experts) each(i, static_cast<int>(experts - i)), i += kLanes;
  for (; i < padded; i += kLanes) store(scores + i, set1(-kInfinity));
  return scores;
}

// e^(x - top) summed over a token's scores: 2^-125 for what is far below, padding too.
ROOFLINE_INLINE float sum_of_powers(const float* scores, std::int64_t padded, float top) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  for (std::int64_t i = 0; i < padded; i += kBlock) {
#pragma GCC unroll 64
    for (int u = 0; u < kBlock / kLanes; ++u)
      sums[u % 4] = add(sums[u % 4], exp2_bounded(mul(sub(load(scores + i + u * kLanes), set1(top)), set1(1.44269504f))));
  }
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

// The picked numbers of `tokens` tokens, [chosen, kTogether], become their weights, [tokens, chosen].
template <bool Sigmoid, bool Biased>
ROOFLINE_INLINE void weigh(const TopkPart& part, const float* const* scores, std::int64_t padded, int tokens, const Found* found,
                           float* weights) {
  constexpr int kPitch = TopkPart::kTogether;
  const std::int64_t chosen = part.chosen;
  float* const picked = part.picked;
  float tops[kPitch], divisors[kPitch];
  __builtin_memcpy(tops, picked, sizeof tops);
  for (int t = 0; t < tokens; ++t)
    divisors[t] = part.renormalise ? (Sigmoid ? 0.0f : found[t].poison)
                  : Sigmoid        ? 1.0f
                                   : sum_of_powers(scores[t], padded, tops[t]);
  for (int t = 0; t < tokens; t += kLanes) {
    Vec sum = zero();
    for (std::int64_t i = 0; i < chosen; ++i) {
      const Vec x = load(picked + i * kPitch + t), y = Biased ? x : Sigmoid ? sigmoid(x) : exp(sub(x, load(tops + t)));
      store(picked + i * kPitch + t, y);
      sum = add(sum, y);
    }
    const Vec divisor = part.renormalise ? add(sum, load(divisors + t)) : load(divisors + t);
    for (std::int64_t i = 0; i < chosen; ++i) store(picked + i * kPitch + t, div(load(picked + i * kPitch + t), divisor));
  }
  for (int t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < chosen; ++i) weights[t * chosen + i] = picked[i * kPitch + t];
}

// Each step waits long for the one before it: several tokens together give the core something to do.
template <class T, bool Sigmoid, bool Biased>
ROOFLINE_INLINE void topk(const TopkPart& part) {
  const auto whole = [](std::int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; };
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const std::int64_t padded = whole(part.experts), chosen = part.chosen;
  const float* scores[TopkPart::kTogether];
  float bounds[TopkPart::kTogether];
  Found found[TopkPart::kTogether];
  alignas(64) Key sorted[kSorted][TopkPart::kTogether];
  for (std::int64_t first = 0; first < part.tokens; first += part.together) {
    const int tokens = static_cast<int>(least(part.together, part.tokens - first));
    for (int t = 0; t < tokens; ++t)
      scores[t] = score<T, Biased>(part, static_cast<const T*>(part.logits) + (first + t) * part.experts, padded,
                                   part.scores + t * padded, part.sigmoids + t * padded);
    bounds_of(part, scores, padded, tokens, bounds);
    const bool few = chosen <= kSorted, all_few = few && padded <= kFewExperts;
    const auto next = [&](int t) __attribute__((always_inline)) {
      const T* const logits = static_cast<const T*>(part.logits) + least(part.tokens - 1, first + part.together + t) * part.experts;
      for (std::int64_t i = 0; i < part.experts; i += kLine) __builtin_prefetch(logits + i);
    };
    if (all_few) collect_few(part, scores, tokens, bounds, next, found, sorted);
    for (int t = 0; t < tokens; ++t) {
      if (all_few && found[t].count <= kSorted) continue;
      next(t);
      Key *const candidates = part.candidates + t * part.room, *const ordered = part.ordered + t * part.room;
      found[t] = collect(part, scores[t], padded, bounds[t], candidates, ordered);
      const Key* some = candidates;
      for (std::int64_t i = found[t].count; i < kSorted; ++i) candidates[i] = kLeastKey;
      if (!few || found[t].count > kSorted) put_in_order(candidates, found[t].count, ordered), some = ordered;
      for (int i = 0; i < kSorted; ++i) sorted[i][t] = some[i];
    }
    if (few) put_in_order(sorted);
    for (int t = 0; t < tokens; ++t) {
      const Key* const ordered = part.ordered + t * part.room;
      const std::int64_t count = least(found[t].count, chosen);
      const float* const from = Biased ? part.sigmoids + t * padded : scores[t];
      std::int32_t* const numbers = part.numbers + (first + t) * chosen;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t expert = expert_of(few ? sorted[i][t] : ordered[i]);
        numbers[i] = expert;
        part.picked[i * TopkPart::kTogether + t] = from[expert];
      }
      for (std::int64_t i = count; i < chosen; ++i) numbers[i] = -1, part.picked[i * TopkPart::kTogether + t] = __builtin_nanf("");
    }
    weigh<Sigmoid, Biased>(part, scores, padded, tokens, found, part.weights + first * chosen);
  }
}

template <class T>
void topk_softmax(const TopkPart& part) {
  topk<T, false, false>(part);
}

template <class T>
void topk_sigmoid(const TopkPart& part) {
  part.bias ? topk<T, true, true>(part) : topk<T, true, false>(part);
}

}  // namespace

extern const RoutersKernels ROOFLINE_TABLE(routers) = {
    {topk_softmax<float>, topk_softmax<Bf16>, topk_softmax<Fp16>},
    {topk_sigmoid<float>, topk_sigmoid<Bf16>, topk_sigmoid<Fp16>},
};

}  // namespace roofline::cpu
