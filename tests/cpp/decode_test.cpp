// Attention of few queries on every instruction set and of every element, and in fp64, against double: all rows and
// remainders, masks, windows, sinks, pages, more columns of the keys, ranges of keys that some rows do not see, growing scores,
// with guard zones around what is written. AVX-512 also runs by SIMDe's emulation (table decode_simde).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "attention_cases.h"
#include "cpu/decode_kernels.h"
#include "cpu/isa.h"
#include "tested.h"

namespace roofline::cpu {

extern const DecodeKernels<float> decode_simde, decode_pairs_simde;
extern const DecodeKernels<double> decode_doubles_simde;

namespace {

const std::vector<Tested<DecodeKernels<float>>> kTested = {ROOFLINE_TESTED(decode), ROOFLINE_TESTED_PAIRS(decode)};
const std::vector<Tested<DecodeKernels<double>>> kDoubles = {ROOFLINE_TESTED(decode_doubles)};
constexpr std::int64_t kStep = DecodeKernels<float>::kStep;

template <class Number, class T, class K>
void run(const DecodeKernels<Number>& table, const Shape& shape, Tensors<T, K>& tensors) {
  using Kernels = DecodeKernels<Number>;
  const std::int64_t rows = shape.rows(), whole = Kernels::whole(rows), head_dim = shape.head_dim, key_dim = shape.key_dim();
  const std::int64_t parts = std::max<std::int64_t>(shape.ranges, 1), blocks = (shape.seq_kv + kStep - 1) / kStep;
  const std::int64_t key_words = key_dim / table.numbers;
  Guarded<Number> queries(whole * key_words), workspace(Kernels::workspace_numbers(rows, key_dim));
  Guarded<Number> out(parts * whole * head_dim), tops(parts * whole, 2), sums(parts * whole, 4);
  const Number unit = Cached::unit(kCachedOf<K>), log2_e = static_cast<Number>(1.4426950408889634);
  std::fill_n(queries.data(), whole * key_words, Number{0});
  const auto take = [&](std::int64_t first, std::int64_t columns) {  // columns of the queries that lie by themselves
    Guarded<T> from(rows * columns, 1);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(tensors.q.data() + row * key_dim + first, columns, from.data() + row * columns);
    table.take[kElementOf<T>](from.data(), rows, columns, queries.data() + first / table.numbers, key_words);
  };
  take(0, head_dim);
  if (shape.rope_dim) take(head_dim, shape.rope_dim);
  for (std::int64_t part = 0; part < parts; ++part)
    table.attend[kCachedOf<K>]({
        .q = queries.data(), .k = tensors.k.data(), .v = tensors.values.data(), .rope = tensors.rope.data(),
        .workspace = workspace.data(), .out = out.data() + part * whole * head_dim, .top = tops.data() + part * whole,
        .sum = sums.data() + part * whole, .rows = rows, .head_dim = head_dim, .rope_dim = shape.rope_dim,
        .first = blocks * part / parts * kStep, .last = std::min(blocks * (part + 1) / parts * kStep, shape.seq_kv),
        .first_row = 0, .seq_q = shape.seq_q, .visible = shape.visible(0), .growth = shape.causal ? 1 : 0,
        .window = shape.window ? shape.window : shape.seq_kv,
        .scale = static_cast<Number>(1.4426950408889634 * shape.scale()) * unit,
        .softcap = log2_e * static_cast<Number>(shape.softcap),
        .pages = shape.page_size ? tensors.pages.data() : nullptr, .page_size = shape.page_size,
        .page_rows = 2 * shape.page_size, .element = kCachedOf<K>, .streams = parts > 1 ? 4 : 1,
        .lead_bytes = parts > 1 ? 6 << 10 : 0, .to_l1 = parts > 2,
    });
  table.combine[kElementOf<T>]({
      .out = out.data(), .top = tops.data(), .sum = sums.data(), .sinks = shape.sinks ? tensors.sinks.data() : nullptr,
      .to = tensors.out.data(), .logsumexp = tensors.logsumexp.data(), .parts = parts, .rows = rows, .head_dim = head_dim,
      .first_row = 0, .seq_q = shape.seq_q, .unit = unit,
  });
  for (Guarded<Number>* each : {&queries, &workspace, &out, &tops, &sums}) EXPECT_TRUE(each->guarded());
}

// Whether a table has kernels for queries of T and a cache of K.
template <class T, class K, class Number>
bool computes(const DecodeKernels<Number>& table) { return table.take[kElementOf<T>] && table.attend[kCachedOf<K>]; }

template <class T, class K, class Number>
void check_of(const DecodeKernels<Number>& table, const Shape& shape) {
  if (table.numbers > 1 && (shape.head_dim % 2 || shape.rope_dim % 2)) return;
  if (!computes<T, K>(table)) {
    if constexpr (std::is_same_v<T, float> && std::is_same_v<K, float>) check_of<Bf16, Bf16>(table, shape);  // instead
    return;
  }
  Tensors<T, K> tensors(shape);
  run(table, shape, tensors);
  const double tolerance = sizeof(T) == 8 ? 1e-12 : shape.growth > 0 ? 3e-4 : 2e-5;
  compare(shape, tensors, attend(shape, tensors), tolerance, table.numbers > 1 ? step_of(kBf16) : 0);
}

// Queries of T over a cache of every element.
template <class T>
void check_caches(const DecodeKernels<float>& table, const Shape& shape) {
  check_of<T, float>(table, shape);
  check_of<T, Bf16>(table, shape);
  check_of<T, Fp16>(table, shape);
  check_of<T, Int8>(table, shape);
  check_of<T, Fp8<3>>(table, shape);
  check_of<T, Fp8<2>>(table, shape);
}

// One key of all numbers of an element: the result is its value.
template <class T, class K>
void check_numbers(const DecodeKernels<float>& table) {
  if (!computes<T, K>(table)) return;
  const Shape shape = {.group = 1, .seq_q = 1, .seq_kv = 1, .head_dim = std::int64_t{1} << 8 * sizeof(K)};
  Tensors<T, K> tensors(shape);
  std::fill_n(tensors.q.data(), shape.head_dim, T{});
  std::memset(tensors.k.data(), 0, shape.head_dim * sizeof(K));
  for (std::int64_t i = 0; i < shape.head_dim; ++i) std::memcpy(&tensors.v[i], &i, sizeof(K));
  run(table, shape, tensors);
  for (std::int64_t i = 0; i < shape.head_dim; ++i)
    ASSERT_TRUE(is_number<K>(tensors.out.value(i), tensors.v.value(i), 1e-44)) << "bits " << i;
}

template <class T, class K>
void check_nan(const DecodeKernels<float>& table) {
  if (!computes<T, K>(table)) return;
  for (const std::int64_t rows : {1, 4, 8}) {
    const Shape shape = {.group = rows, .seq_q = 1, .seq_kv = 200, .head_dim = 16};
    Tensors<T, K> tensors(shape);
    set_nan(tensors.k[150 * 16]);
    run(table, shape, tensors);
    for (std::int64_t row = 0; row < rows; ++row)
      EXPECT_TRUE(std::isnan(tensors.out.value(row * 16)) && std::isnan(tensors.logsumexp[row])) << row;
  }
}

class DecodeTest : public TableTest<DecodeKernels<float>> {
 protected:
  void check(const Shape& shape) const { check_of<float, float>(table(), shape); }
};

class DecodeDoublesTest : public TableTest<DecodeKernels<double>> {
 protected:
  void check(const Shape& shape) const { check_of<double, double>(table(), shape); }
};

TEST_P(DecodeTest, EveryNumberOfRows) {
  for (std::int64_t group = 1; group <= 24; ++group)
    check_caches<float>(table(), {.group = group, .seq_q = 1, .seq_kv = 200, .head_dim = 64});
}

TEST_P(DecodeTest, EveryRemainderOfKeysAndColumns) {
  for (const std::int64_t keys : {1, 2, 7, 15, 17, 23, 24, 25, 191, 192, 193, 400})
    for (const std::int64_t head_dim : {1, 3, 8, 15, 16, 17, 40, 128, 300})
      for (const std::int64_t group : {keys % 5 + 1, keys % 7 + 7})
        check({.group = group, .seq_q = 1, .seq_kv = keys, .head_dim = head_dim});
  for (const std::int64_t head_dim : {1, 5, 12, 19, 33, 70})
    for (const std::int64_t group : {3, 7, 12})
      check_caches<float>(table(), {.group = group, .seq_q = 1, .seq_kv = 61, .head_dim = head_dim});
}

TEST_P(DecodeTest, QueriesAndResultsOf16Bits) {
  for (const std::int64_t head_dim : {7, 64}) {
    check_caches<Bf16>(table(), {.group = 2, .seq_q = 3, .seq_kv = 77, .head_dim = head_dim});
    check_caches<Fp16>(table(), {.group = 2, .seq_q = 3, .seq_kv = 77, .head_dim = head_dim});
  }
}

TEST_P(DecodeTest, QueriesOfBf16OverBytes) {
  const auto check = [&](const Shape& shape) {
    check_of<Bf16, Int8>(table(), shape);
    check_of<Bf16, Fp8<3>>(table(), shape);
    check_of<Bf16, Fp8<2>>(table(), shape);
  };
  for (std::int64_t group = 1; group <= 24; ++group) check({.group = group, .seq_q = 1, .seq_kv = 200, .head_dim = 64});
  for (const std::int64_t keys : {1, 2, 15, 17, 193, 400})
    for (const std::int64_t head_dim : {2, 16, 32, 34, 62, 96, 128, 130, 256})
      for (const std::int64_t group : {keys % 5 + 1, keys % 7 + 7})
        check({.group = group, .seq_q = 1, .seq_kv = keys, .head_dim = head_dim});
  for (const std::int64_t queries : {1, 2, 5, 8})
    for (const std::int64_t page : {0, 16})
      check({.group = 2, .seq_q = queries, .seq_kv = 700, .head_dim = 72, .causal = true, .window = queries == 2 ? 0 : 250,
             .page_size = page, .sinks = true, .softcap = queries == 5 ? 5.0 : 0.0, .ranges = 3});
  for (const auto& [head_dim, rope_dim] : {std::pair{512, 64}, {200, 40}, {6, 2}})
    for (const std::int64_t group : {1, 4, 21})
      for (const std::int64_t ranges : {1, 2, 3})
        check({.group = group, .seq_q = 1, .seq_kv = 3 * kStep + 7, .head_dim = head_dim, .rope_dim = rope_dim, .ranges = ranges,
               .shared = group == 4});
}

TEST_P(DecodeTest, MasksAndRangesThatSomeRowsDoNotSee) {
  for (const std::int64_t queries : {2, 5, 8}) {
    check({.group = 1, .seq_q = queries, .seq_kv = queries, .head_dim = 24, .causal = true});
    // The last range is one key, which the last query alone sees.
    check({.group = 3, .seq_q = queries, .seq_kv = kStep + 1, .head_dim = 24, .causal = true, .ranges = 2});
    check({.group = 2, .seq_q = queries, .seq_kv = 900, .head_dim = 80, .causal = true, .ranges = 3});
  }
}

TEST_P(DecodeTest, Windows) {
  for (const std::int64_t window : {1, 3, 8, 190, 500, 2000})
    for (const std::int64_t queries : {1, 4, 8})
      check({.group = 2, .seq_q = queries, .seq_kv = 700, .head_dim = 24, .causal = true, .window = window,
             .sinks = queries == 4, .ranges = 3});
}

TEST_P(DecodeTest, CapsOfScores) {
  for (const double cap : {0.5, 3.0, 50.0, 1e6})
    for (const std::int64_t window : {0, 100})
      check({.group = 3, .seq_q = 2, .seq_kv = 300, .head_dim = 24, .causal = true, .window = window, .softcap = cap, .ranges = 2});
}

TEST_P(DecodeTest, SinksThatAllRowsOfAHeadHave) {
  check({.group = 5, .seq_q = 3, .seq_kv = 400, .head_dim = 24, .causal = true, .sinks = true, .ranges = 2});
}

TEST_P(DecodeTest, Pages) {
  for (const std::int64_t page : {1, 3, 16, 64, 1000}) {
    const Shape shape = {.group = 4, .seq_q = 2, .seq_kv = 700, .head_dim = 24, .causal = true, .page_size = page, .ranges = 3};
    check_caches<float>(table(), shape);
  }
}

TEST_P(DecodeTest, MoreColumnsOfTheKeysAndMoreRowsThanTheCacheHolds) {
  check_caches<float>(table(), {.group = 3, .seq_q = 2, .seq_kv = 50, .head_dim = 5, .causal = true, .rope_dim = 2});
  for (const auto& [head_dim, rope_dim] : {std::pair{512, 64}, {200, 40}}) {
    const Shape shape = {.group = 21, .seq_q = 1, .seq_kv = 130, .head_dim = head_dim, .rope_dim = rope_dim};
    check(shape);
    check_of<float, Fp16>(table(), shape);
  }
}

TEST_P(DecodeTest, KeysThatAreTheValuesToo) {
  for (const std::int64_t group : {1, 2, 4, 8}) {
    const Shape shape = {.group = group, .seq_q = 1, .seq_kv = 3 * kStep + 7, .head_dim = 200, .rope_dim = 24, .ranges = 2,
                         .shared = true};
    check(shape);
    check_of<float, Bf16>(table(), shape);
  }
}

TEST_P(DecodeTest, ManyRanges) {
  for (const std::int64_t ranges : {2, 3, 8})
    check({.group = 4, .seq_q = 1, .seq_kv = 8 * kStep + 5, .head_dim = 72, .ranges = ranges});
}

TEST_P(DecodeTest, RowsOfWholeVectors) {
  for (const std::int64_t head_dim : {32, 64, 128, 256})
    for (const std::int64_t group : {1, 2, 3, 4, 5, 6, 8})
      for (const std::int64_t ranges : {1, 2, 3}) {
        const Shape shape = {.group = group, .seq_q = 1, .seq_kv = 4 * kStep + 7, .head_dim = head_dim, .ranges = ranges};
        check(shape);
        check_of<float, Bf16>(table(), shape);
        check_of<Bf16, Bf16>(table(), shape);
        check_of<float, Fp16>(table(), shape);
      }
  for (const std::int64_t queries : {1, 2, 4, 7})
    for (const std::int64_t page : {0, 16})
      check({.group = 1, .seq_q = queries, .seq_kv = 3 * kStep - 1, .head_dim = 128, .causal = true, .window = 250,
             .page_size = page, .sinks = true, .softcap = 5.0, .ranges = 3});
}

TEST_P(DecodeTest, GrowingScores) {
  check({.group = 1, .seq_q = 1, .seq_kv = 1000, .head_dim = 64, .growth = 0.002, .ranges = 2});
}

TEST_P(DecodeTest, EveryNumberOfAnElement) {
  check_numbers<float, Bf16>(table());
  check_numbers<float, Fp16>(table());
  check_numbers<float, Int8>(table());
  check_numbers<float, Fp8<3>>(table());
  check_numbers<float, Fp8<2>>(table());
  check_numbers<Bf16, Int8>(table());
  check_numbers<Bf16, Fp8<3>>(table());
  check_numbers<Bf16, Fp8<2>>(table());
}

TEST_P(DecodeTest, NotANumberStaysOne) {
  check_nan<float, float>(table());
  check_nan<float, Bf16>(table());
  check_nan<Bf16, Bf16>(table());
  check_nan<float, Fp16>(table());
  check_nan<float, Fp8<3>>(table());
  check_nan<float, Fp8<2>>(table());
  check_nan<Bf16, Fp8<3>>(table());
  check_nan<Bf16, Fp8<2>>(table());
}

TEST_P(DecodeDoublesTest, RowsAndRemainders) {
  for (std::int64_t group = 1; group <= 9; ++group) check({.group = group, .seq_q = 1, .seq_kv = 200, .head_dim = 64});
  for (const std::int64_t keys : {1, 7, 17, 24, 191, 193, 400})
    for (const std::int64_t head_dim : {1, 3, 8, 15, 40, 128, 300})
      check({.group = keys % 5 + 1, .seq_q = 1, .seq_kv = keys, .head_dim = head_dim});
}

TEST_P(DecodeDoublesTest, RowsOfWholeVectors) {
  for (const std::int64_t head_dim : {16, 32, 64})
    for (const std::int64_t group : {1, 2, 4})
      for (const std::int64_t ranges : {1, 2, 3})
        check({.group = group, .seq_q = 1, .seq_kv = 3 * kStep + 7, .head_dim = head_dim, .ranges = ranges});
}

TEST_P(DecodeDoublesTest, MasksWindowsCapsSinksPagesAndRanges) {
  for (const std::int64_t window : {0, 3, 190})
    for (const double cap : {0.0, 0.5, 50.0})
      for (const std::int64_t queries : {1, 4, 8})
        check({.group = 3, .seq_q = queries, .seq_kv = 700, .head_dim = 24, .causal = true, .rope_dim = queries == 8 ? 5 : 0,
               .window = window, .page_size = window ? 16 : 0, .sinks = queries == 4, .softcap = cap, .ranges = 3});
  check({.group = 4, .seq_q = 1, .seq_kv = 8 * kStep + 5, .head_dim = 72, .ranges = 8});
  check({.group = 1, .seq_q = 1, .seq_kv = 1000, .head_dim = 64, .growth = 0.002, .ranges = 2});
}

INSTANTIATE_TEST_SUITE_P(Sets, DecodeDoublesTest, testing::ValuesIn(kDoubles), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Sets, DecodeTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

}  // namespace
}  // namespace roofline::cpu
