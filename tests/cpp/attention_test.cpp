// Attention of many queries, in three passes and tiled, on every instruction set and in every element against double: remainders of
// queries, keys and columns, groups of heads, masks, growing scores, with guard zones around what is written. AVX-512 also runs by
// SIMDe's emulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/attention_naive_kernels.h"
#include "cpu/attention_tiled_kernels.h"
#include "cpu/isa.h"
#include "guarded.h"
#include "tested.h"

namespace roofline::cpu {

#if defined(ROOFLINE_SIMDE)
extern const AttentionNaiveKernels attention_naive_simde;
extern const AttentionTiledKernels attention_tiled_simde;
#endif

namespace {

const std::vector<Tested<AttentionNaiveKernels>> kNaive = {ROOFLINE_TESTED(attention_naive)};
const std::vector<Tested<AttentionTiledKernels>> kTiled = {ROOFLINE_TESTED(attention_tiled)};

// One KV head. query_block, kv_block: 0 is the most.
struct Shape {
  std::int64_t group, seq_q, seq_kv, head_dim;
  bool causal = false;
  std::int64_t query_block = 0, kv_block = 0;
  double growth = 0;  // of the scores from key to key: the running maximum moves all the time

  std::int64_t rows() const { return group * seq_q; }
  std::int64_t visible(std::int64_t row) const { return causal ? row % seq_q + seq_kv - seq_q + 1 : seq_kv; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
};

void set(float& to, double value) { to = static_cast<float>(value); }
void set(Bf16& to, double value) {
  const float narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  to.bits = static_cast<std::uint16_t>(bits >> 16);
}
void set(Fp16& to, double value) {
  int exponent;
  const double fraction = std::frexp(std::abs(value), &exponent);  // normal numbers only
  const int mantissa = static_cast<int>(fraction * 2048) & 1023;
  to.bits = value == 0 ? 0 : static_cast<std::uint16_t>((value < 0) << 15 | (exponent + 14) << 10 | mantissa);
}

template <class T>
struct Tensors {
  explicit Tensors(const Shape& shape)
      : q(shape.rows() * shape.head_dim, 1), k(shape.seq_kv * shape.head_dim, 3), v(shape.seq_kv * shape.head_dim, 5),
        out(shape.rows() * shape.head_dim, 7) {
    q.fill(1);
    k.fill(2);
    v.fill(3);
    if (shape.growth > 0)
      for (std::int64_t key = 0; key < shape.seq_kv; ++key)
        for (std::int64_t d = 0; d < shape.head_dim; ++d) set(k[key * shape.head_dim + d], shape.growth * key * q.value(d));
  }
  Guarded<T> q, k, v, out;
};

template <class T>
void compare(const Shape& shape, Tensors<T>& tensors) {
  ASSERT_TRUE(tensors.out.guarded());
  const std::int64_t head_dim = shape.head_dim;
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    std::vector<double> weights(shape.visible(row)), wanted(head_dim);
    for (std::int64_t key = 0; key < shape.visible(row); ++key)
      for (std::int64_t d = 0; d < head_dim; ++d)
        weights[key] += tensors.q.value(row * head_dim + d) * tensors.k.value(key * head_dim + d) * shape.scale();
    const double top = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    for (std::int64_t key = 0; key < shape.visible(row); ++key)
      for (std::int64_t d = 0; d < head_dim; ++d) wanted[d] += weights[key] / sum * tensors.v.value(key * head_dim + d);
    // Scores of 100 are rounded to 8e-6 of them; results once.
    for (std::int64_t d = 0; d < head_dim; ++d)
      ASSERT_NEAR(tensors.out.value(row * head_dim + d), wanted[d], 1e-4 + step_of(kElementOf<T>) / 2 * std::abs(wanted[d]))
          << shape.group << " x " << shape.seq_q << " queries, " << shape.seq_kv << " keys, head_dim " << head_dim << ", causal "
          << shape.causal << ", row " << row << ", column " << d;
  }
}

template <class T>
void run(const AttentionNaiveKernels& kernels, const Shape& shape, Tensors<T>& tensors) {
  const std::int64_t most = shape.query_block ? shape.query_block : 48, head_dim = shape.head_dim;
  Guarded<float> scores(shape.rows() * shape.seq_kv), workspace(kernels.workspace_floats(most, head_dim));
  for (std::int64_t head = 0; head < shape.group; ++head)
    for (std::int64_t query = 0; query < shape.seq_q; query += most) {
      const std::int64_t row = head * shape.seq_q + query;
      const AttentionRows rows = {
          .q = tensors.q.data() + row * head_dim, .k = tensors.k.data(), .v = tensors.v.data(),
          .scores = scores.data() + row * shape.seq_kv, .workspace = workspace.data(), .out = tensors.out.data() + row * head_dim,
          .rows = std::min(most, shape.seq_q - query), .seq_kv = shape.seq_kv, .head_dim = head_dim,
          .visible = shape.visible(query), .growth = shape.causal ? 1 : 0, .scale = static_cast<float>(shape.scale()),
      };
      kernels.scores[kElementOf<T>](rows);
      kernels.softmax(rows);
      kernels.values[kElementOf<T>](rows);
    }
  ASSERT_TRUE(scores.guarded() && workspace.guarded());
}

template <class T>
void run(const AttentionTiledKernels& kernels, const Shape& shape, Tensors<T>& tensors) {
  const std::int64_t query_block = shape.query_block ? shape.query_block : AttentionTiledKernels::kMaxQueryBlock;
  const std::int64_t kv_block = shape.kv_block ? shape.kv_block : 240, head_dim = shape.head_dim;
  Guarded<float> workspace(kernels.workspace_floats(query_block, kv_block, head_dim, kElementOf<T>));
  for (std::int64_t row = 0; row < shape.rows(); row += query_block)
    kernels.of[kElementOf<T>]({
        .q = tensors.q.data() + row * head_dim, .k = tensors.k.data(), .v = tensors.v.data(),
        .out = tensors.out.data() + row * head_dim, .workspace = workspace.data(),
        .rows = std::min(query_block, shape.rows() - row), .first_row = row, .seq_q = shape.seq_q, .seq_kv = shape.seq_kv,
        .head_dim = head_dim, .kv_block = kv_block,
        .scale = static_cast<float>(1.4426950408889634 * shape.scale()), .causal = shape.causal,
    });
  ASSERT_TRUE(workspace.guarded());
}

template <class T, class Table>
void check_of(const Table& table, const Shape& shape) {
  Tensors<T> tensors(shape);
  run<T>(table, shape, tensors);
  compare(shape, tensors);
}

template <class Table>
void check(const Table& table, const Shape& shape) {
  check_of<float>(table, shape);
  check_of<Bf16>(table, shape);
  check_of<Fp16>(table, shape);
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

// Of a key that not all queries see, a NaN reaches those that do.
template <class Table>
void check_nan(const Table& table) {
  const Shape shape = {1, 40, 300, 16, true};
  Tensors<float> tensors(shape);
  tensors.k[280 * 16] = std::numeric_limits<float>::quiet_NaN();
  run<float>(table, shape, tensors);
  for (std::int64_t row = 0; row < 40; ++row) EXPECT_EQ(std::isnan(tensors.out[row * 16]), shape.visible(row) > 280) << row;
}

class AttentionNaiveTest : public TableTest<AttentionNaiveKernels> {
 protected:
  const AttentionNaiveKernels& table() const { return *GetParam().table; }
};

class AttentionTiledTest : public TableTest<AttentionTiledKernels> {
 protected:
  const AttentionTiledKernels& table() const { return *GetParam().table; }
};

TEST_P(AttentionNaiveTest, EveryNumberOfColumns) { check_columns(table()); }
TEST_P(AttentionTiledTest, EveryNumberOfColumns) { check_columns(table()); }

TEST_P(AttentionNaiveTest, MasksAndGroups) { check_masks(table()); }
TEST_P(AttentionTiledTest, MasksAndGroups) { check_masks(table()); }

TEST_P(AttentionNaiveTest, NotANumberStaysOne) { check_nan(table()); }
TEST_P(AttentionTiledTest, NotANumberStaysOne) { check_nan(table()); }

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

TEST_P(AttentionNaiveTest, GrowingScores) { check(table(), {1, 3, 300, 16, false, 0, 0, 0.01}); }
TEST_P(AttentionTiledTest, GrowingScores) {
  check(table(), {1, 3, 300, 16, false, 0, 24, 0.01});
  check(table(), {1, 30, 300, 16, true, 0, 24, 0.01});
}

INSTANTIATE_TEST_SUITE_P(Sets, AttentionNaiveTest, testing::ValuesIn(kNaive),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Sets, AttentionTiledTest, testing::ValuesIn(kTiled),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace roofline::cpu
