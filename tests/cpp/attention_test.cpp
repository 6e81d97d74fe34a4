// Attention of many queries, in three passes and tiled, on every instruction set and in every element against double:
// remainders of queries, keys and columns, groups of heads, masks, growing scores, logarithms of sums; tiled also windows, sinks,
// pages, keys of two parts, capped scores, caches of every element; with guard zones around what is written. AVX-512 also runs by
// SIMDe's emulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_cases.h"
#include "cpu/attention_naive_kernels.h"
#include "cpu/attention_tiled_kernels.h"
#include "cpu/decode_kernels.h"
#include "cpu/isa.h"
#include "tested.h"

namespace roofline::cpu {

extern const AttentionNaiveKernels attention_naive_simde, attention_naive_doubles_simde;
extern const AttentionTiledKernels attention_tiled_simde, attention_doubles_simde, attention_pairs_simde, attention_emulated;

namespace {

const std::vector<Tested<AttentionNaiveKernels>> kNaive = {ROOFLINE_TESTED(attention_naive)},
                                                 kNaiveDoubles = {ROOFLINE_TESTED(attention_naive_doubles)};
const std::vector<Tested<AttentionTiledKernels>> kTiled = {
    ROOFLINE_TESTED(attention_tiled), ROOFLINE_TESTED_PAIRS(attention), ROOFLINE_TESTED_TILES(attention)};

const std::vector<Tested<AttentionTiledKernels>> kDoubles = {ROOFLINE_TESTED(attention_doubles)};

template <class T>
void run(const AttentionNaiveKernels& kernels, const Shape& shape, Tensors<T>& tensors) {
  const std::int64_t most = shape.query_block ? shape.query_block : 48, head_dim = shape.head_dim;
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Guarded<Number> scores(shape.rows() * shape.seq_kv), workspace(kernels.workspace_numbers(most, head_dim));
  for (std::int64_t head = 0; head < shape.group; ++head)
    for (std::int64_t query = 0; query < shape.seq_q; query += most) {
      const std::int64_t row = head * shape.seq_q + query;
      const AttentionRows rows = {
          .q = tensors.q.data() + row * head_dim, .k = tensors.k.data(), .v = tensors.v.data(),
          .scores = scores.data() + row * shape.seq_kv, .workspace = workspace.data(), .out = tensors.out.data() + row * head_dim,
          .logsumexp = tensors.logsumexp.data() + row,
          .rows = std::min(most, shape.seq_q - query), .seq_kv = shape.seq_kv, .head_dim = head_dim,
          .visible = shape.visible(query), .growth = shape.causal ? 1 : 0, .scale = shape.scale(),
      };
      kernels.scores[kElementOf<T>](rows);
      kernels.softmax(rows);
      kernels.values[kElementOf<T>](rows);
    }
  ASSERT_TRUE(scores.guarded() && workspace.guarded());
}

template <class T, class K>
void run(const AttentionTiledKernels& kernels, const Shape& shape, Tensors<T, K>& tensors) {
  const std::int64_t query_block = shape.query_block ? shape.query_block : AttentionTiledKernels::kMaxQueryBlock;
  const std::int64_t step = 2 * kernels.tile_rows, key_dim = shape.key_dim(), values = shape.values();
  const std::int64_t kv_block = ((shape.kv_block ? shape.kv_block : 240) + step - 1) / step * step;
  const bool value_panel = kernels.gathers_values(kCachedOf<K>, values, shape.page_size > 0);
  const bool key_panel = kernels.gathers_keys(kCachedOf<K>, key_dim, shape.rope_dim, shape.page_size > 0);
  const double unit = Cached::unit(kCachedOf<K>);
  Guarded<char> workspace(kernels.word_bytes *
                          kernels.workspace_words(query_block, kv_block, key_dim, values, key_panel, value_panel));
  for (std::int64_t row = 0; row < shape.rows(); row += query_block) {
    const std::int64_t rows = std::min(query_block, shape.rows() - row), whole = DecodeKernels<float>::whole(rows);
    AttentionBlock block = {
        .q = tensors.q.data() + row * key_dim, .k = tensors.k.data(), .rope = tensors.rope.data(), .v = tensors.values.data(),
        .out = tensors.out.data() + row * values, .logsumexp = shape.logsumexp ? tensors.logsumexp.data() + row : nullptr,
        .sinks = shape.sinks ? tensors.sinks.data() : nullptr, .pages = shape.page_size ? tensors.pages.data() : nullptr,
        .page_size = shape.page_size, .page_rows = 2 * shape.page_size, .workspace = workspace.data(),
        .rows = rows, .first_row = row, .seq_q = shape.seq_q, .seq_kv = shape.seq_kv,
        .head_dim = shape.head_dim, .rope_dim = shape.rope_dim, .value_dim = values, .kv_block = kv_block,
        .window = shape.window ? shape.window : shape.seq_kv, .element = kCachedOf<K>, .key_panel = key_panel,
        .value_panel = value_panel, .causal = shape.causal,
        .scale = 1.4426950408889634 * shape.scale() * unit, .unit = unit,
        .softcap = 1.4426950408889634 * shape.softcap,
    };
    if (shape.ranges == 0 || kernels.word_bytes == 8) {
      kernels.of[kElementOf<T>](block);
      continue;
    }
    std::vector<float> out(shape.ranges * whole * values), top(shape.ranges * whole), sum(top.size());
    const float* const sinks = std::exchange(block.sinks, nullptr);
    for (std::int64_t range = 0; range < shape.ranges; ++range) {
      block.first = shape.seq_kv * range / shape.ranges, block.last = shape.seq_kv * (range + 1) / shape.ranges;
      block.out = out.data() + range * whole * values, block.top = top.data() + range * whole,
      block.sum = sum.data() + range * whole;
      kernels.of[kElementOf<T>](block);
    }
    decode_scalar.combine[kElementOf<T>]({
        .out = out.data(), .top = top.data(), .sum = sum.data(), .sinks = sinks, .to = tensors.out.data() + row * values,
        .logsumexp = tensors.logsumexp.data() + row, .parts = shape.ranges, .rows = rows, .head_dim = values, .first_row = row,
        .seq_q = shape.seq_q, .unit = static_cast<float>(unit),
    });
  }
  ASSERT_TRUE(workspace.guarded());
}

template <class T, class K>
bool computes(const AttentionNaiveKernels& table) { return std::is_same_v<T, double> == (table.number_bytes == 8); }
template <class T, class K>
bool computes(const AttentionTiledKernels& table) {
  const bool doubles = table.word_bytes == 8;
  if (std::is_same_v<T, double> != doubles || std::is_same_v<K, double> != doubles) return false;
  const bool in_words = kCachedOf<K> == Cached::bf16 || (Cached::bytes(kCachedOf<K>) == 1 && table.columns > 1);
  return table.of[kElementOf<T>] && (table.numbers == 1 || in_words);
}
double weight_step(const AttentionNaiveKernels&) { return 0; }
double weight_step(const AttentionTiledKernels& table) { return table.numbers > 1 ? step_of(kBf16) : 0; }

// Whether weights are made in another way where no logarithms of sums are asked for.
bool has_other_weights(const AttentionNaiveKernels&) { return false; }
bool has_other_weights(const AttentionTiledKernels& table) { return table.columns > 1; }

// change(tensors) before the runs.
template <class T, class K = T, class Table, class F>
void check_of(const Table& table, Shape shape, const F& change) {
  if (!computes<T, K>(table)) return;
  Tensors<T, K> tensors(shape);
  change(tensors);
  const Attended wanted = attend(shape, tensors);
  for (const bool logsumexp : {true, false}) {
    if (!logsumexp && !has_other_weights(table)) continue;
    shape.logsumexp = logsumexp;
    tensors.out.fill(9);
    run(table, shape, tensors);
    compare(shape, tensors, wanted, std::is_same_v<T, double> ? 1e-12 : 1e-4, weight_step(table));
  }
}
template <class T, class K = T, class Table>
void check_of(const Table& table, const Shape& shape) {
  check_of<T, K>(table, shape, [](const auto&) {});
}

template <class Table>
void check(const Table& table, const Shape& shape) {
  check_of<float>(table, shape);
  check_of<Bf16>(table, shape);
  check_of<Fp16>(table, shape);
  check_of<double>(table, shape);
}

template <class Table>
void check_columns(const Table& table) {
  for (const std::int64_t head_dim : {1, 3, 8, 15, 16, 17, 33, 40, 64, 80, 96, 127, 128, 257, 512}) {
    check(table, {1, 19, 23, head_dim});
    check(table, {1, 19, 23, head_dim, true});
  }
}

template <class Table>
void check_masks(const Table& table) {
  for (const std::int64_t queries : {1, 2, 31, 70, 131}) {
    check(table, {1, queries, queries, 24, true});
    check(table, {3, queries, queries + 5, 24, true});  // blocks of queries run over the ends of heads
    check(table, {2, queries, 300, 17, true});
    check(table, {2, queries, 70, 17});
  }
}

// A NaN in a key that not all queries see reaches those that do.
template <class T, class Table>
void check_nan(const Table& table) {
  if (!computes<T, T>(table)) return;
  for (const bool logsumexp : {true, false}) {
    const Shape shape = {.group = 1, .seq_q = 40, .seq_kv = 300, .head_dim = 16, .causal = true, .logsumexp = logsumexp};
    Tensors<T> tensors(shape);
    set_nan(tensors.k[280 * 16]);
    set_nan(tensors.q[7 * 16 + 3]);
    run(table, shape, tensors);
    for (std::int64_t row = 0; row < 40; ++row)
      EXPECT_EQ(std::isnan(tensors.out.value(row * 16)), row == 7 || shape.visible(row) > 280) << row;
  }
}

using AttentionNaiveTest = TableTest<AttentionNaiveKernels>;
using AttentionTiledTest = TableTest<AttentionTiledKernels>;

TEST_P(AttentionNaiveTest, EveryNumberOfColumns) { check_columns(table()); }
TEST_P(AttentionTiledTest, EveryNumberOfColumns) { check_columns(table()); }

TEST_P(AttentionNaiveTest, MasksAndGroups) { check_masks(table()); }
TEST_P(AttentionTiledTest, MasksAndGroups) { check_masks(table()); }

TEST_P(AttentionNaiveTest, NotANumberStaysOne) {
  check_nan<float>(table());
  check_nan<double>(table());
}
TEST_P(AttentionTiledTest, NotANumberStaysOne) {
  check_nan<float>(table());
  check_nan<Bf16>(table());
  check_nan<double>(table());
}

TEST_P(AttentionNaiveTest, EveryNumberOfQueriesAndKeys) {
  for (std::int64_t n = 1; n <= 50; ++n) check(table(), {1, n, 51 - n, 16, false, n % 3 ? 0 : 7});
  check(table(), {1, 5, 600, 20});
}

TEST_P(AttentionTiledTest, EveryNumberOfQueriesAndKeys) {
  for (std::int64_t n = 1; n <= 130; n += n < 70 ? 1 : 7) check(table(), {1, n, 131 - n, 16});
  check(table(), {1, 5, 600, 20});
}

TEST_P(AttentionTiledTest, EveryBlock) {
  for (std::int64_t query_block = table().lanes; query_block <= AttentionTiledKernels::kMaxQueryBlock; query_block *= 2)
    for (const std::int64_t kv_block : {2 * table().tile_rows, 48, 96}) {
      check(table(), {2, 75, 100, 20, false, query_block, kv_block});
      check(table(), {2, 75, 100, 20, true, query_block, kv_block});
    }
}

TEST_P(AttentionTiledTest, Windows) {
  for (const std::int64_t window : {1, 2, 9, 31, 64, 150, 1000})
    for (const std::int64_t kv_block : {48, 240})
      for (const bool sinks : {false, true}) {
        // Blocks of queries run over the ends of heads; some of them do not see a block's keys yet, and others no longer.
        check(table(), {.group = 3, .seq_q = 75, .seq_kv = 200, .head_dim = 20, .causal = true, .kv_block = kv_block,
                        .window = window, .sinks = sinks});
        check(table(), {.group = 1, .seq_q = 150, .seq_kv = 150, .head_dim = 16, .causal = true, .kv_block = kv_block,
                        .growth = 0.01, .window = window, .sinks = sinks});
      }
}

TEST_P(AttentionTiledTest, Sinks) {
  for (const std::int64_t queries : {1, 33}) {
    check(table(), {.group = 4, .seq_q = queries, .seq_kv = 90, .head_dim = 20, .causal = true, .sinks = true});
    check(table(), {.group = 4, .seq_q = queries, .seq_kv = 90, .head_dim = 20, .sinks = true});
  }
}

TEST_P(AttentionTiledTest, KeysOfTwoParts) {
  for (const std::int64_t rope : {1, 8, 17, 64})
    for (const std::int64_t values : {1, 24, 40}) {
      check(table(), {.group = 1, .seq_q = 40, .seq_kv = 70, .head_dim = 24, .causal = true, .kv_block = 48, .rope_dim = rope,
                      .value_dim = values});
      check(table(), {.group = 2, .seq_q = 5, .seq_kv = 70, .head_dim = 13, .rope_dim = rope, .value_dim = values});
    }
}

TEST_P(AttentionTiledTest, RangesOfKeys) {
  for (const std::int64_t ranges : {1, 2, 5, 40})
    for (const std::int64_t window : {0, 30})
      for (const double growth : {0.0, 0.01}) {
        check(table(), {.group = 3, .seq_q = 21, .seq_kv = 133, .head_dim = 24, .causal = true, .kv_block = 48, .growth = growth,
                        .rope_dim = 8, .value_dim = 24, .window = window, .sinks = window > 0, .ranges = ranges});
        check(table(),
              {.group = 1, .seq_q = 40, .seq_kv = 50, .head_dim = 16, .growth = growth, .page_size = 16, .ranges = ranges});
      }
}

// Which some kernels lay in rows.
TEST_P(AttentionTiledTest, FewQueriesOfWideKeys) {
  for (const std::int64_t rows : {7, 8, 9, 16})
    for (const std::int64_t ranges : {0, 3}) {
      for (const std::int64_t rope : {22, 24})
        check(table(), {.group = rows, .seq_q = 1, .seq_kv = 37, .head_dim = 272, .kv_block = 24, .growth = 0.01, .rope_dim = rope,
                        .ranges = ranges});
      check(table(), {.group = rows, .seq_q = 1, .seq_kv = 30, .head_dim = 512, .rope_dim = 64, .ranges = ranges});
      check(table(), {.group = rows, .seq_q = 1, .seq_kv = 30, .head_dim = 128, .ranges = ranges});
      check(table(), {.group = rows, .seq_q = 1, .seq_kv = 25, .head_dim = 257, .rope_dim = 3, .value_dim = 41, .ranges = ranges});
    }
  for (const std::int64_t values : {2, 16, 18, 46, 64})
    for (const std::int64_t window : {0, 20}) {
      check(table(), {.group = 3, .seq_q = 5, .seq_kv = 37, .head_dim = 256, .causal = true, .kv_block = 24, .value_dim = values,
                      .window = window, .sinks = true, .softcap = window ? 3.0 : 0.0});
      check(table(), {.group = 2, .seq_q = 8, .seq_kv = 37, .head_dim = 320, .causal = true, .value_dim = values, .window = window,
                      .page_size = 16});
    }
}

// Some kernels read values where they lie, in whole pairs of vectors of columns and others.
TEST_P(AttentionTiledTest, KeysThatAreValues) {
  for (const std::int64_t group : {1, 2, 5, 8, 9})
    for (const std::int64_t columns : {6, 24, 32, 80, 264})
      for (const std::int64_t ranges : {0, 3}) {
        check(table(), {.group = group, .seq_q = 1, .seq_kv = 37, .head_dim = columns, .growth = 0.01, .rope_dim = 8, .ranges = ranges,
                        .shared = true});
        check(table(), {.group = group, .seq_q = 7, .seq_kv = 60, .head_dim = columns, .causal = true, .kv_block = 24, .rope_dim = 8,
                        .window = ranges ? 20 : 0, .ranges = ranges, .shared = true});
      }
}

// Which AMX reads where they lie: rows of 32 columns and their multiples, in pages of 16 keys and more, or of bytes.
TEST_P(AttentionTiledTest, FewQueriesOfWholeTiles) {
  const auto check_all = [&](const Shape& shape) {
    check(table(), shape);
    if (table().columns == 1) return;
    check_of<Bf16, Int8>(table(), shape);
    check_of<Bf16, Fp8<3>>(table(), shape);
    check_of<Bf16, Fp8<2>>(table(), shape);
  };
  for (const std::int64_t rows : {1, 16, 17, 33, 64})
    for (const std::int64_t keys : {15, 32, 61, 150})
      for (const std::int64_t page : {0, 16, 24, 32}) {
        check_all({.group = rows, .seq_q = 1, .seq_kv = keys, .head_dim = 64, .kv_block = 64, .growth = 0.01, .rope_dim = 32,
                   .value_dim = 256, .page_size = page});
        check_all({.group = rows, .seq_q = 1, .seq_kv = keys, .head_dim = 512, .rope_dim = 64, .value_dim = 512,
                   .page_size = page, .ranges = 3});
        check_all({.group = (rows + 2) / 3, .seq_q = 3, .seq_kv = keys, .head_dim = 32, .causal = true, .kv_block = 64,
                   .value_dim = 288, .window = 20, .page_size = page, .sinks = true, .softcap = 3});
      }
}

TEST_P(AttentionTiledTest, Pages) {
  for (const std::int64_t page : {1, 3, 16, 64, 1000}) {
    check(table(), {.group = 2, .seq_q = 40, .seq_kv = 133, .head_dim = 13, .causal = true, .kv_block = 48, .page_size = page});
    check(table(), {.group = 2, .seq_q = 40, .seq_kv = 133, .head_dim = 24, .causal = true, .kv_block = 48, .window = 50,
                    .page_size = page, .sinks = true});
  }
}

TEST_P(AttentionTiledTest, CapsOfScores) {
  for (const double cap : {0.5, 3.0, 50.0, 1e6})
    for (const std::int64_t window : {0, 20}) {
      check(table(), {.group = 2, .seq_q = 40, .seq_kv = 133, .head_dim = 24, .causal = true, .kv_block = 48, .window = window,
                      .sinks = window > 0, .softcap = cap});
      check(table(), {.group = 1, .seq_q = 3, .seq_kv = 133, .head_dim = 16, .causal = window > 0, .kv_block = 48, .growth = 0.01,
                      .window = window, .softcap = cap});
    }
}

// Queries of every element over a cache of every element.
template <class T>
void check_caches(const AttentionTiledKernels& table) {
  for (const std::int64_t head_dim : {7, 32})
    for (const std::int64_t page : {0, 16}) {
      const Shape shape = {.group = 2, .seq_q = 21, .seq_kv = 77, .head_dim = head_dim, .causal = true, .kv_block = 48,
                           .window = 30, .page_size = page};
      check_of<T, float>(table, shape);
      check_of<T, double>(table, shape);
      check_of<T, Bf16>(table, shape);
      check_of<T, Fp16>(table, shape);
      check_of<T, Int8>(table, shape);
      check_of<T, Fp8<3>>(table, shape);
      check_of<T, Fp8<2>>(table, shape);
    }
}

TEST_P(AttentionTiledTest, CachesOfEveryElement) {
  check_caches<float>(table());
  check_caches<Bf16>(table());
  check_caches<Fp16>(table());
  check_caches<double>(table());
}

// One key, whose values are all numbers of 8 bits: so are results.
template <class T, class K>
void check_numbers(const AttentionTiledKernels& table) {
  if (!computes<T, K>(table)) return;
  for (const std::int64_t rows : {1, 40}) {
    const Shape shape = {.group = rows, .seq_q = 1, .seq_kv = 1, .head_dim = 32, .value_dim = 256};
    Tensors<T, K> tensors(shape);
    for (int i = 0; i < 256; ++i) std::memcpy(&tensors.v[i], &i, 1);
    run(table, shape, tensors);
    for (std::int64_t i = 0; i < rows * 256; ++i)
      ASSERT_TRUE(is_number<K>(tensors.out.value(i), tensors.v.value(i % 256), 0)) << "bits " << i % 256;
  }
}

TEST_P(AttentionTiledTest, EveryNumberOf8Bits) {
  check_numbers<float, Fp8<3>>(table());
  check_numbers<float, Fp8<2>>(table());
  check_numbers<Bf16, Int8>(table());
  check_numbers<Bf16, Fp8<3>>(table());
  check_numbers<Bf16, Fp8<2>>(table());
}

TEST_P(AttentionNaiveTest, GrowingScores) { check(table(), {1, 3, 300, 16, false, 0, 0, 0.01}); }
TEST_P(AttentionTiledTest, GrowingScores) {
  check(table(), {1, 3, 300, 16, false, 0, 24, 0.01});
  check(table(), {1, 30, 300, 16, true, 0, 24, 0.01});
  for (const double growth : {0.0, 0.002, 0.01})  // of whole tiles, whose maximum moves never, late, or within a block
    for (const bool causal : {false, true})
      for (const std::int64_t head_dim : {16, 136})
        check(table(), {1, 100, 500, head_dim, causal, 0, 0, growth * 16 / head_dim});
}

// From block to block of keys, up and down; by AMX the highest are beyond what a table of weights takes. Others scale queries, or begin
// sums with a maximum, and so round high scores.
TEST_P(AttentionTiledTest, ScoresThatJump) {
  const double highest = table().numbers > 1 ? 1e4 : 30;
  for (const double height : {7.0, 30.0, 250.0, 1e4})
    for (const double sink : {-highest, 0.0, 20.0, highest})
      for (const bool causal : {false, true}) {
        if (height > highest) continue;
        const Shape shape = {.group = 2, .seq_q = 70, .seq_kv = 330, .head_dim = 32, .causal = causal, .kv_block = 48, .sinks = sink != 0};
        const auto change = [&](auto& tensors) {
          for (std::int64_t i = 0; i < tensors.q.size(); ++i)
            if (i % 32 == 0 || height > 100) set(tensors.q[i], i % 32 == 0);
          const double parts[] = {0, 0.2, -1, 0.1, 0.6, -0.3, 1};
          for (std::int64_t key = 0; key < shape.seq_kv; ++key)
            set(tensors.k[key * 32], (parts[key / 48] * height + key % 5 * 0.25) / shape.scale());
          tensors.sinks = {static_cast<float>(sink), -std::numeric_limits<float>::infinity()};
        };
        check_of<float>(table(), shape, change);
        check_of<Bf16>(table(), shape, change);
      }
}

INSTANTIATE_TEST_SUITE_P(Sets, AttentionNaiveTest, testing::ValuesIn(kNaive), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Sets, AttentionTiledTest, testing::ValuesIn(kTiled), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Doubles, AttentionNaiveTest, testing::ValuesIn(kNaiveDoubles), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Doubles, AttentionTiledTest, testing::ValuesIn(kDoubles), testing::PrintToStringParamName());

}  // namespace
}  // namespace roofline::cpu
