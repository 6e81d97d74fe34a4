// Routers, one thread's range of tokens: a token's logits are read from memory once, and the selection takes place in L1. Up to
// 1024 experts, as many tokens as a vector has lanes go through sorting networks together, and their scores tell which results are
// right. All other tokens are done alone: the few scores that reach a lower bound of the chosen are put in order.
#include "cpu/routers_kernels.h"

#include <type_traits>

#include "cpu/isa.h"
#include "cpu/routers_select.h"

namespace roofline::cpu {
namespace {

// A score and its expert as one number: the larger comes first, and on a tie the lowest expert. The upper word is the score's,
// which orders numbers of fp64 as it does those of fp32, beyond the denormal ones.
using Key = double;

constexpr std::int64_t kBlock = TopkPart::kBlock;
constexpr Key kLeastKey = -__builtin_inf();
constexpr std::uint32_t kNormal = 0x00100000;

ROOFLINE_INLINE Key key_of(float score, std::int64_t expert) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, score + 0.0f);  // -0 and 0 are the same
  const auto upper = static_cast<std::int32_t>(bits + kNormal);
  const std::uint32_t lower = static_cast<std::uint32_t>(~expert ^ (upper >> 31));
  return __builtin_bit_cast(Key, std::uint64_t{static_cast<std::uint32_t>(upper)} << 32 | lower);
}
ROOFLINE_INLINE std::int32_t expert_of(Key key) {
  const std::int64_t bits = __builtin_bit_cast(std::int64_t, key);
  return static_cast<std::int32_t>(~(bits ^ (bits >> 63)));
}
// The least number above a key's score: later experts have to reach it. Above infinity it is a NaN, which none does.
ROOFLINE_INLINE float above(Key key) {
  const std::uint32_t bits = static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, key) >> 32) - kNormal;
  return __builtin_bit_cast(float, bits + (bits >> 31 ? ~0u : 1u));
}

typedef Key SomeKeys __attribute__((vector_size(kLanes == 1 ? 16 : sizeof(Vec))));
typedef std::int64_t Ranks __attribute__((vector_size(sizeof(SomeKeys))));
constexpr int kRegisters = 64 / sizeof(SomeKeys), kKeys = sizeof(SomeKeys) / sizeof(Key);

// The keys in order: each goes where as many stand before it as are larger. There are few, and no branch depends on them. Eight are
// compared at once, and both have room for that.
void put_in_order(Key* keys, std::int64_t count, Key* ordered) {
  for (int i = 0; i < 8; ++i) keys[count + i] = kLeastKey;
  for (std::int64_t first = 0; first < count; first += 8) {
    SomeKeys some[kRegisters];
    Ranks rank[kRegisters];
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) __builtin_memcpy(&some[r], keys + first + r * kKeys, sizeof(SomeKeys)), rank[r] = Ranks{};
    for (std::int64_t j = 0; j < count; ++j) {
      const SomeKeys other = SomeKeys{} + keys[j];
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; ++r) rank[r] -= some[r] < other;
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i) ordered[rank[r][i]] = some[r][i];
    }
  }
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
Found collect(const TopkPart& part, const float* scores, float bound, Ahead& ahead) {
  Key *const candidates = part.candidates, *const ordered = part.ordered;
  const std::int64_t chosen = part.chosen, experts = part.experts, limit = part.room - 2 * kBlock;
  Vec squares[2] = {set1(1.0f), set1(1.0f)};
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < experts; i += kBlock) {
    ahead.fetch_some();
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

// Without vectors: the chosen in order, each put where it belongs when it is found.
Found insert(const TopkPart& part, const float* scores, float reach) {
  Key* const ordered = part.ordered;
  std::int64_t count = 0;
  float poison = 0;
  for (std::int64_t expert = 0; expert < part.experts; ++expert) {
    const float score = scores[expert];
    if (!(score >= reach)) {
      if (score != score) poison = score;
      continue;
    }
    const Key key = key_of(score, expert);
    if (count == part.chosen && key < ordered[count - 1]) continue;
    std::int64_t i = count < part.chosen ? count++ : count - 1;
    for (; i > 0 && ordered[i - 1] < key; --i) ordered[i] = ordered[i - 1];
    ordered[i] = key;
    if (count == part.chosen) reach = scores[expert_of(ordered[count - 1])];
  }
  return {count, poison};
}

// 1 / (1 + e^-x): 0 or 1 to within 1e-37 where it is not computed. In this order a NaN stays one.
ROOFLINE_INLINE Vec sigmoid(Vec x) {
  const Vec one = set1(1.0f);
  return div(one, add(one, exp2_bounded(min(set1(126.0f), mul(x, set1(-1.44269504f))))));
}

// A token's scores: its logits or, with a bias, their sigmoids and the bias; `padding` behind them up to `padded`. Without a bias
// logits stand in the order of what they become, so that only those of the chosen go through an exponential. Exact: as keys, which
// have bits to spare, `mask`, for the places of experts, and are in the right order even if scores are equal.
constexpr float kMasked = -0x1.fff8p127f;  // for minus infinity: below all numbers of 16 bits, and with room for a place
template <class T, bool Biased, bool Exact>
ROOFLINE_INLINE void score(const TopkPart& part, const T* logits, float padding, std::int64_t padded, std::int32_t mask,
                           float* scores) {
  const std::int64_t experts = part.experts;
  const auto each = [&](std::int64_t i, int n, Words place) __attribute__((always_inline)) {
    const Vec x = get(logits + i, n, set1(padding));
    if constexpr (Biased) {
      store(scores + i, add(sigmoid(x), get(part.bias + i, n, set1(padding))));
    } else if constexpr (Exact) {
      const Words score = words(add(max(set1(kMasked), x), zero()));  // -0 and 0 are the same
      store(scores + i, bits(score | (place ^ ((score >> 31) & mask))));
    } else {
      store(scores + i, x);
    }
  };
  Words place = mask - first_words();
  std::int64_t i = 0;
  for (; i + kLanes <= experts; i += kLanes, place -= kLanes) each(i, kLanes, place);
  if (i < experts) each(i, static_cast<int>(experts - i), place & mask), i += kLanes;
  for (; i < padded; i += kLanes) store(scores + i, set1(padding));
}

// e^(x - top) summed over a token's scores, of which the bits of `kept` count.
float sum_of_powers(const float* scores, std::int64_t experts, std::int32_t kept, float top) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  const auto each = [&](Vec& sum, std::int64_t i, int n) __attribute__((always_inline)) {
    const Vec x = bits(words(get(scores + i, n, set1(-kInfinity))) & kept);
    sum = add(sum, exp2_bounded(mul(sub(x, set1(top)), set1(1.44269504f))));
  };
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= experts; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) each(sums[u], i + u * kLanes, kLanes);
  }
  for (; i + kLanes <= experts; i += kLanes) each(sums[0], i, kLanes);
  if (i < experts) each(sums[0], i, static_cast<int>(experts - i));
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

// Tokens that are done together, one to a lane.
struct Group {
  std::int64_t first;
  int tokens;
  bool positive;  // whether the chosen scores were in the group before
  float divisors[kLanes];  // of what becomes of the chosen; what their sum is added to where weights are renormalised
};

// Writes up to `Words` words of a row of n, from its i-th on. `below` rows, this one among them, end the table. A whole vector
// where the table has room: the next write covers the surplus.
template <int Words>
ROOFLINE_INLINE void store_words_of(float* to, const float* from, std::int64_t i, std::int64_t n, std::int64_t below) {
  if (const std::int64_t room = below * n - i; room >= Words)
    __builtin_memcpy(to + i, from, Words * sizeof(float));
  else
    __builtin_memcpy(to + i, from, static_cast<std::size_t>(least(room, n - i)) * sizeof(float));
}
// Two tables of rows of n words, one below the other, whose i-th words are those of column i. Few of both are transposed at once.
ROOFLINE_INLINE void store_rows(const float* columns, const float* others, std::int64_t n, int rows, float* to, float* to_others) {
  constexpr int kHalf = kLanes > 1 ? kLanes / 2 : 1;
  const auto pass = [&](const float* low, const float* high, float* to_low, float* to_high) __attribute__((always_inline)) {
    for (std::int64_t i = (n - 1) / kLanes * kLanes; i >= 0; i -= kLanes) {
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int k = 0; k < kLanes; ++k)
        square[k] = load((k < kHalf || !high ? low : high) + least(i + (high ? k % kHalf : k), n - 1) * kLanes);
      transpose(square);
      for (int t = 0; t < rows; ++t) {
        const float* const row = reinterpret_cast<const float*>(&square[t]);
        if (high) {
          store_words_of<kHalf>(to_low + t * n, row, 0, n, rows - t);
          store_words_of<kHalf>(to_high + t * n, row + kHalf, 0, n, rows - t);
        } else {
          store_words_of<kLanes>(to_low + t * n, row, i, n, rows - t);
        }
      }
    }
  };
  if (kLanes > 1 && n <= kHalf)
    pass(columns, others, to, to_others);
  else
    pass(columns, nullptr, to, nullptr), pass(others, nullptr, to_others, nullptr);
}

// Whether a token's experts are those of its largest scores, in order, on a tie the earlier expert first: as many scores as are not
// chosen are less than the last, which is more than `lowest`.
bool are_right(const float* scores, std::int64_t vectors, const float* found, std::int64_t chosen, float lowest) {
  float last = kInfinity;
  std::int32_t last_expert = -1;
  for (std::int64_t i = 0; i < chosen; ++i) {
    const auto expert = __builtin_bit_cast(std::int32_t, found[i * kLanes]);
    const float score = scores[expert];
    if (!(score < last || (score == last && expert > last_expert))) return false;
    last = score, last_expert = expert;
  }
  std::int64_t below = 0;
  for (std::int64_t v = 0; v < vectors; ++v) below += __builtin_popcount(bits_less(load(scores + v * kLanes), set1(last)));
  return last > lowest && below == vectors * kLanes - chosen;
}

// Tokens by sorting networks: picked, divisors and found are right of those whose bits are returned.
template <class T, bool Biased>
ROOFLINE_INLINE std::uint32_t choose_together(const TopkPart& part, const Places& places, Group& group) {
  constexpr bool kExact = sizeof(T) == 2 && !Biased;  // fp32 has bits to spare
  const std::int64_t experts = part.experts, chosen = part.chosen;
  const T* const logits = static_cast<const T*>(part.logits) + group.first * experts;
  const int columns = experts <= kLanes ? 1 : chosen <= 4 ? kColumn<4> : chosen <= 8 ? kColumn<8> : kColumn<16>;
  const std::int64_t padded = (experts + columns * kLanes - 1) / (columns * kLanes) * (columns * kLanes);

  const bool in_place = std::is_same_v<T, float> && !Biased && experts == padded;
  const float* const scores = in_place ? reinterpret_cast<const float*>(logits) : part.scores;
  const std::int64_t row = in_place ? experts : TopkPart::pitch(experts);
  const bool of_all = !part.renormalise && !part.sigmoid;
  // What the next groups read and write is fetched beside each of the loops below.
  const std::int64_t bytes = kLanes * experts * std::int64_t{sizeof(T)};
  Ahead ahead(reinterpret_cast<const char*>(logits) + most(4096, 2 * bytes), bytes, (2 + !in_place + of_all) * kLanes + chosen);
  for (int t = 0; t < group.tokens && !in_place; ++t) {
    ahead.fetch_some();
    score<T, Biased, kExact>(part, logits + t * experts, -kMostFinite, padded, places.mask, part.scores + t * row);
  }

  float ordered[TopkPart::kMostChosen + 1][kLanes];
  const auto by = [&](auto* few, auto* some, auto* many) __attribute__((always_inline)) {
    return (chosen <= 4 ? few : chosen <= 8 ? some : many)(scores, row, group.tokens, experts, places, ahead, ordered);
  };
  const auto in_order = [&](auto positive) __attribute__((always_inline)) {
    constexpr bool kP = decltype(positive)::value;
    if (columns == 1) return by(select<kExact, kP, 1, 4>, select<kExact, kP, 1, 8>, select<kExact, kP, 1, 16>);
    return by(select<kExact, kP, kColumn<4>, 4>, select<kExact, kP, kColumn<8>, 8>, select<kExact, kP, kColumn<16>, 16>);
  };
  const auto positive = [&] { return bits_less(zero(), load(ordered[chosen - 1])) == (1u << kLanes) - 1; };
  const bool probably = kMinPositive && group.positive;
  Vec squares = probably ? in_order(std::bool_constant<kMinPositive>{}) : zero();
  if (!probably || !positive()) squares = in_order(std::false_type{});
  group.positive = positive();

  // The order is sure where scores differ in more than the bits that gave way to places.
  const auto score_of = [&](Vec key) __attribute__((always_inline)) { return kExact ? key : bits(words(key) & ~places.mask); };
  constexpr float kLowest = kExact ? kMasked : -kInfinity;
  Vec last = set1(kInfinity);
  const std::uint32_t all = (1u << group.tokens) - 1;
  std::uint32_t right = poison_of(squares) == 0 ? all : 0;
  for (std::int64_t i = 0; i < chosen; ++i) {
    ahead.fetch_some();
    __builtin_prefetch(part.numbers + (group.first + 2 * kLanes) * chosen + i * kLanes, 1);
    __builtin_prefetch(part.weights + (group.first + 2 * kLanes) * chosen + i * kLanes, 1);
    const Vec key = load(ordered[i]), score = score_of(key);
    Words expert = ~words(key);
    if constexpr (kExact) expert ^= words(key) >> 31;
    expert &= places.mask;
    store(part.found + i * kLanes, bits(expert < static_cast<std::int32_t>(experts) ? expert : 0));
    if constexpr (kExact) store(part.picked + i * kLanes, bits(words(key) & ~places.mask));
    right &= bits_less(score, last);
    last = score;
  }
  right &= bits_less(set1(kLowest), last);
  for (std::int64_t i = chosen, lists = chosen <= 4 ? 4 : chosen <= 8 ? 8 : 16; i <= lists; ++i)
    right &= bits_less(score_of(load(ordered[i])), last);
  if constexpr (std::is_same_v<T, float>) {
    const Words token = first_words(), of_row = (token < group.tokens ? token : 0) * static_cast<std::int32_t>(experts);
    for (std::int64_t i = 0; i < chosen * kLanes; i += kLanes)
      store(part.picked + i, gather(logits, bits(words(load(part.found + i)) + of_row)));
  } else if constexpr (!kExact) {
    T picked[TopkPart::kMostChosen][kLanes];
    for (int t = 0; t < kLanes; ++t) {
      const T* const from = logits + (t < group.tokens ? t : 0) * experts;
      for (std::int64_t i = 0; i < chosen; ++i) picked[i][t] = from[__builtin_bit_cast(std::int32_t, part.found[i * kLanes + t])];
    }
    for (std::int64_t i = 0; i < chosen; ++i) store(part.picked + i * kLanes, load(picked[i]));
  }

  for (std::uint32_t doubtful = all & ~right; doubtful; doubtful &= doubtful - 1) {
    const int t = __builtin_ctz(doubtful);
    if (are_right(scores + t * row, padded / kLanes, part.found + t, chosen, kLowest)) right |= 1u << t;
  }
  store(group.divisors, set1(part.renormalise ? 0.0f : 1.0f));
  for (int t = 0; t < group.tokens && of_all; ++t) {
    ahead.fetch_some();
    group.divisors[t] = sum_of_powers(scores + t * row, experts, kExact ? ~places.mask : -1, part.picked[t]);
  }
  return right;
}

// A token by itself, of any number of experts.
template <class T, bool Biased>
void choose_alone(const TopkPart& part, Group& group, int t) {
  const std::int64_t experts = part.experts, chosen = part.chosen;
  const T* const logits = static_cast<const T*>(part.logits) + (group.first + t) * experts;
  const std::int64_t padded = (experts + kBlock - 1) / kBlock * kBlock;
  const float* scores = part.scores;
  if constexpr (std::is_same_v<T, float> && !Biased)
    if (experts == padded) scores = logits;
  if (scores == part.scores) score<T, Biased, false>(part, logits, -kInfinity, padded, 0, part.scores);
  const bool bounded = experts > 2 * chosen && chosen <= (kLanes == 1 ? 16 : 48);  // else half would reach one
  const float bound = !bounded      ? -kInfinity
                      : chosen > 16 ? bound_of_many(scores, padded, chosen)
                      : chosen > 8  ? bound_of_few<16>(scores, padded, chosen)
                                    : bound_of_few<8>(scores, padded, chosen);
  Found found;
  if constexpr (kLanes == 1) {
    found = insert(part, scores, bound);
  } else {
    Ahead ahead(logits + experts, experts * std::int64_t{sizeof(T)}, padded / kBlock);
    found = collect(part, scores, bound, ahead);
    if (found.count < chosen) found = collect(part, scores, -kInfinity, ahead);
    put_in_order(part.candidates, found.count, part.ordered);
  }
  const std::int64_t count = least(found.count, chosen);
  for (std::int64_t i = 0; i < chosen; ++i) {
    const std::int32_t expert = i < count ? expert_of(part.ordered[i]) : -1;
    float lanes[kLanes];
    store(lanes, i < count ? get(logits + expert, 1, zero()) : set1(__builtin_nanf("")));
    part.picked[i * kLanes + t] = lanes[0], part.found[i * kLanes + t] = __builtin_bit_cast(float, expert);
  }
  group.divisors[t] = part.renormalise ? (part.sigmoid ? 0.0f : found.poison)
                      : part.sigmoid   ? 1.0f
                                       : sum_of_powers(scores, experts, -1, part.picked[t]);
}

// The picked numbers of a group's tokens become their weights, which are written with their experts.
ROOFLINE_INLINE void weigh(const TopkPart& part, const Group& group) {
  float *const begin = part.picked, *const end = begin + part.chosen * kLanes;
  const Vec top = load(begin);
  Vec divisor = load(group.divisors);
  for (float* at = begin; at < end; at += kLanes) {
    const Vec x = load(at), y = part.sigmoid ? sigmoid(x) : exp(sub(x, top));
    store(at, y);
    if (part.renormalise) divisor = add(divisor, y);
  }
  const Vec factor = div(set1(1.0f), divisor);
  for (float* at = begin; at < end; at += kLanes) store(at, mul(load(at), factor));
  const std::int64_t first = group.first * part.chosen;
  store_rows(begin, part.found, part.chosen, group.tokens, part.weights + first, reinterpret_cast<float*>(part.numbers + first));
}

template <class T, bool Biased>
void topk(const TopkPart& part) {
  constexpr std::int64_t kMost = kLanes == 1 ? 2 * kBlock : TopkPart::kMostExperts;  // exchanges pay where they do many lanes
  const bool together = part.experts <= kMost && TopkPart::together(part.experts, part.chosen);
  const Places places(together ? part.experts : 0);
  Group group{};
  group.positive = true;
  for (; group.first < part.tokens; group.first += group.tokens) {
    group.tokens = static_cast<int>(least(kLanes, part.tokens - group.first));
    const std::uint32_t right = together ? choose_together<T, Biased>(part, places, group) : 0;
    for (std::uint32_t wrong = ((1u << group.tokens) - 1) & ~right; wrong; wrong &= wrong - 1)
      choose_alone<T, Biased>(part, group, __builtin_ctz(wrong));
    weigh(part, group);
  }
}

template <class T>
void topk_of(const TopkPart& part) {
  part.bias ? topk<T, true>(part) : topk<T, false>(part);
}

}  // namespace

extern const RoutersKernels ROOFLINE_TABLE(routers) = {{topk_of<float>, topk_of<Bf16>, topk_of<Fp16>}};

}  // namespace roofline::cpu
