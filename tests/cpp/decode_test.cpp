// Attention of few queries on every instruction set and of every element, and in fp64, against long double: all rows and
// remainders, masks, windows, sinks, pages, more columns of the keys, ranges of keys that some rows do not see, growing scores,
// with guard zones around what is written. AVX-512 also runs by SIMDe's emulation (table decode_simde).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/decode_kernels.h"
#include "cpu/isa.h"
#include "guarded.h"
#include "tested.h"

namespace roofline::cpu {

#if defined(ROOFLINE_SIMDE)
extern const DecodeKernels<float> decode_simde;
extern const DecodeKernels<double> decode_doubles_simde;
#endif

namespace {

using Element = Cached::Element;

const std::vector<Tested<DecodeKernels<float>>> kTested = {ROOFLINE_TESTED(decode)};
const std::vector<Tested<DecodeKernels<double>>> kDoubles = {ROOFLINE_TESTED(decode_doubles)};
constexpr std::int64_t kKeys = DecodeKernels<float>::kKeys;
constexpr Element kElements[] = {Cached::fp32, Cached::bf16, Cached::fp16, Cached::int8,
                                 Cached::fp8_e4m3};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// fp16 (5 bits of exponent, 10 of fraction) and the like.
double narrow_float(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const std::uint32_t fraction = bits & ((1u << fraction_bits) - 1), exponent = bits >> fraction_bits & ((1u << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool normal = exponent > 0;
  const double size = std::ldexp(normal ? fraction + (1u << fraction_bits) : fraction,
                                 (normal ? static_cast<int>(exponent) : 1) - bias - fraction_bits);
  return bits >> (exponent_bits + fraction_bits) & 1 ? -size : size;
}

// Numbers of an element, by their bits, between guard zones; those of Cached::fp32 are of type Number.
template <class Number>
struct Cache {
  Element element;
  std::int64_t size;
  Floats memory;

  static std::int64_t bytes(Element element) { return element == Cached::fp32 ? sizeof(Number) : element <= Cached::fp16 ? 2 : 1; }
  Cache(Element element, std::int64_t n, std::int64_t offset)
      : element(element), size(n), memory((n * bytes(element) + 3) / 4, offset * static_cast<std::int64_t>(sizeof(Number)) / 4) {}

  std::uint8_t* at(std::int64_t i) { return reinterpret_cast<std::uint8_t*>(memory.data()) + i * bytes(element); }
  Number& number(std::int64_t i) { return *reinterpret_cast<Number*>(at(i)); }
  std::uint32_t bits(std::int64_t i) {  // of an element that is no Number
    std::uint32_t found = 0;
    std::memcpy(&found, at(i), bytes(element));
    return found;
  }
  void set(std::int64_t i, std::uint32_t bits) { std::memcpy(at(i), &bits, bytes(element)); }
  double value(std::int64_t i) {
    if (element == Cached::fp32) return number(i);
    const std::uint32_t found = bits(i);
    switch (element) {
      case Cached::bf16: return narrow_float(found, 8, 7);
      case Cached::fp16: return narrow_float(found, 5, 10);
      case Cached::int8: return static_cast<std::int8_t>(found);
      case Cached::fp8_e4m3: return (found & 0x7F) == 0x7F ? kNan : narrow_float(found, 4, 3);
      default: return kNan;
    }
  }
  // Numbers in [-1, 1) and their bits: random ones, with the exponents brought below that of 1. Of int8 in [-4, 4).
  void fill(std::uint64_t seed) {
    for (std::int64_t i = 0; i < size; ++i) {
      const auto random = static_cast<std::uint32_t>(random_bits(seed, i));
      switch (element) {
        case Cached::bf16: set(i, (random & 0x81FF) | 0x3E00); break;
        case Cached::fp16: set(i, random & 0xBBFF); break;
        case Cached::int8: set(i, static_cast<std::uint32_t>(static_cast<int>(random & 7) - 4)); break;
        case Cached::fp8_e4m3: set(i, (random & 0xBF) - ((random & 0x38) == 0x38 ? 8 : 0)); break;
        default: number(i) = static_cast<Number>(random_uniform(seed, i)); break;
      }
    }
  }
};

struct Shape {
  std::int64_t group, seq_q, keys, head_dim;
  bool causal = false;
  std::int64_t parts = 1;
  Element element = Cached::fp32;
  Element queries = Cached::fp32;
  std::int64_t window = 0;
  bool sinks = false;
  std::int64_t page_size = 0;
  std::int64_t rope_dim = 0;
  double softcap = 0;
  bool shared = false;  // keys are the values too
  double growth = 0;  // of the scores from key to key: the running maximum moves all the time
};

template <class Number>
class DecodeTestOf : public TableTest<DecodeKernels<Number>> {
 protected:
  using Kernels = DecodeKernels<Number>;
  using Cache = roofline::cpu::Cache<Number>;

  const Kernels& table() const { return *this->GetParam().table; }

  // All keys, which every row sees.
  void run(Element element, Guarded<Number>& q, Cache& k, Cache& v, Guarded<Number>& workspace, Number* out, Number* top,
           Number* sum, std::int64_t rows, std::int64_t head_dim, std::int64_t keys) const {
    DecodePart<Number> part{};
    part.q = q.data(), part.k = k.at(0), part.v = v.at(0), part.workspace = workspace.data();
    part.out = out, part.top = top, part.sum = sum;
    part.rows = rows, part.head_dim = head_dim, part.last = keys, part.seq_q = 1, part.visible = keys, part.window = keys;
    table().attend[element](part);
  }

  void check(const Shape& shape) const {
    const std::int64_t rows = shape.group * shape.seq_q, whole = Kernels::whole(rows), head_dim = shape.head_dim;
    const std::int64_t key_dim = head_dim + shape.rope_dim, page = shape.page_size;
    // Pages backwards, those of another KV head between them.
    const std::int64_t pages = page ? (shape.keys + page - 1) / page : 0, page_rows = 2 * page;
    std::vector<std::int32_t> order(pages);
    for (std::int64_t i = 0; i < pages; ++i) order[i] = static_cast<std::int32_t>(pages - 1 - i);
    const std::int64_t cached = page ? pages * page_rows : shape.keys;
    const auto row_of = [&](std::int64_t key) { return page ? order[key / page] * page_rows + key % page : key; };

    Cache q(shape.queries, rows * head_dim, 1), q_rope(shape.queries, rows * shape.rope_dim, 2);
    Cache k(shape.element, cached * head_dim, 3), v(shape.element, cached * head_dim, 5);
    Cache& values = shape.shared ? k : v;
    Cache rope(shape.element, cached * shape.rope_dim, 1);
    Cache out(shape.queries, rows * head_dim, 7);
    std::uint64_t seed = 0;
    for (Cache* each : {&q, &q_rope, &k, &v, &rope}) each->fill(++seed);
    if (shape.growth > 0)
      for (std::int64_t key = 0; key < shape.keys; ++key)
        for (std::int64_t d = 0; d < head_dim; ++d)
          k.number(key * head_dim + d) += static_cast<Number>(shape.growth * static_cast<double>(key) * q.value(d));
    std::vector<float> sinks(shape.group);
    for (std::int64_t i = 0; i < shape.group; ++i) sinks[i] = static_cast<float>(2 * i - 1);

    const double scale = 1 / std::sqrt(static_cast<double>(key_dim));
    Guarded<Number> queries(whole * key_dim, 0), workspace(Kernels::workspace_numbers(rows, key_dim), 0);
    Guarded<Number> parts(shape.parts * whole * head_dim, 0), tops(shape.parts * whole, 2), sums(shape.parts * whole, 4);
    Guarded<float> logsumexp(rows, 1);
    const Number factor = static_cast<Number>(1.4426950408889634 * scale) * Cached::unit(shape.element);
    std::fill_n(queries.data(), whole * key_dim, Number{0});
    this->table().widen[shape.queries](q.at(0), rows, head_dim, factor, queries.data(), key_dim);
    if (shape.rope_dim)
      this->table().widen[shape.queries](q_rope.at(0), rows, shape.rope_dim, factor, queries.data() + head_dim, key_dim);
    const std::int64_t blocks = (shape.keys + kKeys - 1) / kKeys;
    for (std::int64_t part = 0; part < shape.parts; ++part)
      this->table().attend[shape.element]({
          .q = queries.data(),
          .k = k.at(0),
          .v = values.at(0),
          .rope = rope.at(0),
          .workspace = workspace.data(),
          .out = parts.data() + part * whole * head_dim,
          .top = tops.data() + part * whole,
          .sum = sums.data() + part * whole,
          .rows = rows,
          .head_dim = head_dim,
          .rope_dim = shape.rope_dim,
          .first = blocks * part / shape.parts * kKeys,
          .last = std::min(blocks * (part + 1) / shape.parts * kKeys, shape.keys),
          .first_row = 0,
          .seq_q = shape.seq_q,
          .visible = shape.causal ? shape.keys - shape.seq_q + 1 : shape.keys,
          .growth = shape.causal ? 1 : 0,
          .window = shape.window ? shape.window : shape.keys,
          .softcap = static_cast<Number>(1.4426950408889634 * shape.softcap),
          .pages = page ? order.data() : nullptr,
          .page_size = page,
          .page_rows = page_rows,
          .streams = shape.parts > 1 ? 4 : 1,
          .lead_bytes = shape.parts > 1 ? 6 << 10 : 0,
      });
    this->table().combine[shape.queries]({parts.data(), tops.data(), sums.data(), shape.sinks ? sinks.data() : nullptr, out.at(0),
                                    logsumexp.data(), shape.parts, rows, head_dim, 0, shape.seq_q, Cached::unit(shape.element)});

    const double narrow = shape.queries == Cached::fp32 ? 0 : shape.queries == Cached::bf16 ? 0x1p-8 : 0x1p-11;
    // Scores of 50 are rounded to 4e-6 of them. The logarithms of sums are in fp32.
    const double tolerance = sizeof(Number) == 8 ? 1e-13 : shape.growth > 0 ? 3e-4 : shape.element == Cached::int8 ? 2e-5 : 3e-6;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t end = shape.causal ? row % shape.seq_q + shape.keys - shape.seq_q + 1 : shape.keys;
      const std::int64_t first = shape.window ? std::max<std::int64_t>(end - shape.window, 0) : 0;
      std::vector<long double> weights;
      for (std::int64_t key = first; key < end; ++key) {
        long double score = 0;
        for (std::int64_t d = 0; d < head_dim; ++d)
          score += static_cast<long double>(q.value(row * head_dim + d)) * k.value(row_of(key) * head_dim + d);
        for (std::int64_t d = 0; d < shape.rope_dim; ++d)
          score += static_cast<long double>(q_rope.value(row * shape.rope_dim + d)) * rope.value(row_of(key) * shape.rope_dim + d);
        score *= scale;
        weights.push_back(shape.softcap > 0 ? shape.softcap * std::tanh(score / shape.softcap) : score);
      }
      const long double sink = shape.sinks ? sinks[row / shape.seq_q] : -std::numeric_limits<float>::infinity();
      const long double top = std::max(sink, *std::max_element(weights.begin(), weights.end()));
      for (long double& weight : weights) weight = std::exp(weight - top);
      const long double sum = std::accumulate(weights.begin(), weights.end(), std::exp(sink - top));
      ASSERT_NEAR(logsumexp[row], static_cast<double>(top + std::log(sum)),
                  tolerance + 2e-7 * (1 + std::fabs(static_cast<double>(top))))
          << "row " << row;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        long double wanted = 0;
        for (std::int64_t key = first; key < end; ++key)
          wanted += weights[key - first] / sum * values.value(row_of(key) * head_dim + d);
        ASSERT_NEAR(out.value(row * head_dim + d), static_cast<double>(wanted),
                    tolerance + narrow * static_cast<double>(std::fabs(wanted)) + (narrow > 0 ? 0x1p-24 : 0))
            << "row " << row << " column " << d << " of " << head_dim << ", " << shape.keys << " keys, element " << shape.element;
      }
    }
    for (Guarded<Number>* each : {&parts, &tops, &sums, &workspace, &queries}) EXPECT_TRUE(each->guarded());
    EXPECT_TRUE(logsumexp.guarded() && out.memory.guarded());
  }
};

using DecodeTest = DecodeTestOf<float>;
using DecodeDoublesTest = DecodeTestOf<double>;

TEST_P(DecodeTest, EveryNumberOfRows) {
  for (const Element element : kElements)
    for (std::int64_t group = 1; group <= 24; ++group)
      check({.group = group, .seq_q = 1, .keys = 200, .head_dim = 64, .element = element});
}

TEST_P(DecodeTest, EveryRemainderOfKeysAndColumns) {
  for (const std::int64_t keys : {1, 2, 7, 15, 17, 23, 24, 25, 191, 192, 193, 400})
    for (const std::int64_t head_dim : {1, 3, 8, 15, 16, 17, 40, 128, 300})
      for (const std::int64_t group : {keys % 5 + 1, keys % 7 + 7})
        check({.group = group, .seq_q = 1, .keys = keys, .head_dim = head_dim});
  for (const Element element : kElements)
    for (const std::int64_t head_dim : {1, 5, 12, 19, 33, 70})
      for (const std::int64_t group : {3, 7, 12})
        check({.group = group, .seq_q = 1, .keys = 61, .head_dim = head_dim, .element = element});
}

TEST_P(DecodeTest, QueriesAndResultsOf16Bits) {
  for (const Element queries : {Cached::bf16, Cached::fp16})
    for (const Element element : kElements)
      for (const std::int64_t head_dim : {7, 64})
        check({.group = 2, .seq_q = 3, .keys = 77, .head_dim = head_dim, .element = element, .queries = queries});
}

TEST_P(DecodeTest, MasksAndRangesThatSomeRowsDoNotSee) {
  for (const std::int64_t queries : {2, 5, 8}) {
    check({.group = 1, .seq_q = queries, .keys = queries, .head_dim = 24, .causal = true});
    // The last range is one key, which the last query alone sees.
    check({.group = 3, .seq_q = queries, .keys = kKeys + 1, .head_dim = 24, .causal = true, .parts = 2});
    check({.group = 2, .seq_q = queries, .keys = 900, .head_dim = 80, .causal = true, .parts = 3});
  }
}

TEST_P(DecodeTest, Windows) {
  for (const std::int64_t window : {1, 3, 8, 190, 500, 2000})
    for (const std::int64_t queries : {1, 4, 8})
      check({.group = 2, .seq_q = queries, .keys = 700, .head_dim = 24, .causal = true, .parts = 3, .window = window,
             .sinks = queries == 4});
}

TEST_P(DecodeTest, CapsOfScores) {
  for (const double cap : {0.5, 3.0, 50.0, 1e6})
    for (const std::int64_t window : {0, 100})
      check({.group = 3, .seq_q = 2, .keys = 300, .head_dim = 24, .causal = true, .parts = 2, .window = window, .softcap = cap});
}

TEST_P(DecodeTest, SinksThatAllRowsOfAHeadHave) {
  check({.group = 5, .seq_q = 3, .keys = 400, .head_dim = 24, .causal = true, .parts = 2, .sinks = true});
}

TEST_P(DecodeTest, Pages) {
  for (const Element element : {Cached::fp32, Cached::bf16, Cached::fp8_e4m3})
    for (const std::int64_t page : {1, 3, 16, 64, 1000})
      check({.group = 4, .seq_q = 2, .keys = 700, .head_dim = 24, .causal = true, .parts = 3, .element = element,
             .page_size = page});
}

TEST_P(DecodeTest, MoreColumnsOfTheKeysAndMoreRowsThanTheCacheHolds) {
  for (const Element element : {Cached::fp32, Cached::fp16}) {
    check({.group = 3, .seq_q = 2, .keys = 50, .head_dim = 5, .causal = true, .element = element, .rope_dim = 2});
    check({.group = 21, .seq_q = 1, .keys = 130, .head_dim = 512, .element = element, .rope_dim = 64});
    check({.group = 21, .seq_q = 1, .keys = 130, .head_dim = 200, .element = element, .rope_dim = 40});
  }
}

TEST_P(DecodeTest, KeysThatAreTheValuesToo) {
  for (const Element element : {Cached::fp32, Cached::bf16})
    for (const std::int64_t group : {1, 2, 4, 8})
      check({.group = group, .seq_q = 1, .keys = 3 * kKeys + 7, .head_dim = 200, .parts = 2, .element = element, .rope_dim = 24, .shared = true});
}

TEST_P(DecodeTest, ManyRanges) {
  for (const std::int64_t parts : {2, 3, 8})
    check({.group = 4, .seq_q = 1, .keys = 8 * kKeys + 5, .head_dim = 72, .parts = parts});
}

TEST_P(DecodeTest, GrowingScores) { check({.group = 1, .seq_q = 1, .keys = 1000, .head_dim = 64, .parts = 2, .growth = 0.02}); }

TEST_P(DecodeTest, EveryNumberOfAnElement) {
  for (const Element element : {Cached::bf16, Cached::fp16, Cached::int8, Cached::fp8_e4m3}) {
    // One key: out is its value.
    const std::int64_t all = Cache::bytes(element) == 1 ? 256 : 65536;
    Cache k(element, all, 0), v(element, all, 0);
    std::memset(k.at(0), 0, all * Cache::bytes(element));
    for (std::int64_t i = 0; i < all; ++i) v.set(i, static_cast<std::uint32_t>(i));
    Guarded<float> q(all, 0), workspace(Kernels::workspace_numbers(1, all), 0), part(all, 0), out(all, 0);
    std::fill_n(q.data(), all, 0.0f);
    float top, sum;
    run(element, q, k, v, workspace, part.data(), &top, &sum, 1, all, 1);
    const float unit = Cached::unit(element);
    table().combine[Cached::fp32]({part.data(), &top, &sum, nullptr, out.data(), nullptr, 1, 1, all, 0, 1, unit});
    for (std::int64_t i = 0; i < all; ++i) {
      const std::int64_t exponent = element == Cached::bf16 ? 0x7F80 : element == Cached::fp16 ? 0x7C00 : 0;
      const bool special = exponent > 0 && (i & exponent) == exponent;  // an infinity or a NaN
      if (special) ASSERT_FALSE(std::isfinite(out[i])) << "element " << element << " bits " << i;
      else if (std::isnan(v.value(i))) ASSERT_TRUE(std::isnan(out[i])) << "element " << element << " bits " << i;
      else ASSERT_NEAR(out[i], v.value(i), 2e-7 * std::fabs(v.value(i)) + 1e-44) << "element " << element << " bits " << i;
    }
  }
}

TEST_P(DecodeTest, NotANumberStaysOne) {
  for (const Element element : {Cached::fp32, Cached::bf16, Cached::fp16, Cached::fp8_e4m3})
    for (const std::int64_t rows : {1, 4, 8}) {
      Cache k(element, 200 * 16, 0), v(element, 200 * 16, 0);
      k.fill(2);
      v.fill(3);
      constexpr std::uint32_t kBits[] = {0x7FC00000u, 0x7FC0u, 0x7E00u, 0, 0xFFu};
      k.set(150 * 16, kBits[element]);
      Guarded<float> q(rows * 16, 0), out(rows * 16, 0), top(rows, 0), sum(rows, 0);
      Guarded<float> workspace(Kernels::workspace_numbers(rows, 16), 0);
      q.fill(1);
      run(element, q, k, v, workspace, out.data(), top.data(), sum.data(), rows, 16, 200);
      EXPECT_TRUE(std::isnan(sum[rows - 1]));
    }
}

TEST_P(DecodeDoublesTest, RowsAndRemainders) {
  for (std::int64_t group = 1; group <= 9; ++group) check({.group = group, .seq_q = 1, .keys = 200, .head_dim = 64});
  for (const std::int64_t keys : {1, 7, 17, 24, 191, 193, 400})
    for (const std::int64_t head_dim : {1, 3, 8, 15, 40, 128, 300})
      check({.group = keys % 5 + 1, .seq_q = 1, .keys = keys, .head_dim = head_dim});
}

TEST_P(DecodeDoublesTest, MasksWindowsCapsSinksPagesAndRanges) {
  for (const std::int64_t window : {0, 3, 190})
    for (const double cap : {0.0, 0.5, 50.0})
      for (const std::int64_t queries : {1, 4, 8})
        check({.group = 3, .seq_q = queries, .keys = 700, .head_dim = 24, .causal = true, .parts = 3, .window = window,
               .sinks = queries == 4, .page_size = window ? 16 : 0, .rope_dim = queries == 8 ? 5 : 0, .softcap = cap});
  check({.group = 4, .seq_q = 1, .keys = 8 * kKeys + 5, .head_dim = 72, .parts = 8});
  check({.group = 1, .seq_q = 1, .keys = 1000, .head_dim = 64, .parts = 2, .growth = 0.02});
}

INSTANTIATE_TEST_SUITE_P(Sets, DecodeDoublesTest, testing::ValuesIn(kDoubles),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Sets, DecodeTest, testing::ValuesIn(kTested),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace roofline::cpu
