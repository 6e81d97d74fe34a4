// Attention of few queries on every instruction set against double: all rows and remainders, masks, ranges of keys that some rows do
// not see, growing scores, with guard zones around what is written. AVX-512 also runs by SIMDe's emulation (table decode_simde).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/decode_kernels.h"
#include "cpu/isa.h"
#include "floats.h"
#include "tested.h"

namespace roofline::cpu {

#if defined(ROOFLINE_SIMDE)
extern const DecodeKernels decode_simde;
#endif

namespace {

const std::vector<Tested<DecodeKernels>> kTested = {ROOFLINE_TESTED(decode)};

struct Shape {
  std::int64_t group, seq_q, seq_kv, head_dim;
  bool causal;
  std::int64_t parts;
  double growth = 0;  // of the scores from key to key: the running maximum moves all the time
};

// One KV head, by double: [rows, head_dim].
std::vector<double> expected(const Shape& shape, Floats& q, Floats& k, Floats& v) {
  std::vector<double> out(shape.group * shape.seq_q * shape.head_dim);
  for (std::int64_t row = 0; row < shape.group * shape.seq_q; ++row) {
    const std::int64_t seen = shape.causal ? row % shape.seq_q + shape.seq_kv - shape.seq_q + 1 : shape.seq_kv;
    std::vector<double> scores(seen);
    for (std::int64_t key = 0; key < seen; ++key)
      for (std::int64_t d = 0; d < shape.head_dim; ++d)
        scores[key] += static_cast<double>(q[row * shape.head_dim + d]) * k[key * shape.head_dim + d] / std::sqrt(static_cast<double>(shape.head_dim));
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - top);
    for (std::int64_t key = 0; key < seen; ++key)
      for (std::int64_t d = 0; d < shape.head_dim; ++d)
        out[row * shape.head_dim + d] += scores[key] / sum * v[key * shape.head_dim + d];
  }
  return out;
}

class DecodeTest : public TableTest<DecodeKernels> {
 protected:
  void check(const Shape& shape) const {
    const std::int64_t rows = shape.group * shape.seq_q, head_dim = shape.head_dim;
    const std::int64_t results = rows * head_dim;
    Floats q(results, 1), k(shape.seq_kv * head_dim, 3), v(shape.seq_kv * head_dim, 5), out(results, 7);
    Floats parts(shape.parts * results, 0), tops(shape.parts * rows, 2), sums(shape.parts * rows, 4);
    Floats workspace(DecodeKernels::workspace_floats(rows, head_dim), 0);
    q.fill(1);
    k.fill(2);
    v.fill(3);
    for (std::int64_t key = 0; key < shape.seq_kv; ++key)
      for (std::int64_t d = 0; d < head_dim; ++d) k[key * head_dim + d] += static_cast<float>(shape.growth * key * q[d]);
    const std::int64_t blocks = (shape.seq_kv + DecodeKernels::kKeys - 1) / DecodeKernels::kKeys;
    for (std::int64_t part = 0; part < shape.parts; ++part)
      GetParam().table->attend({
          .q = q.data(), .k = k.data(), .v = v.data(), .workspace = workspace.data(), .out = parts.data() + part * results,
          .top = tops.data() + part * rows, .sum = sums.data() + part * rows, .rows = rows, .head_dim = head_dim,
          .first = blocks * part / shape.parts * DecodeKernels::kKeys,
          .last = std::min(blocks * (part + 1) / shape.parts * DecodeKernels::kKeys, shape.seq_kv), .seq_q = shape.seq_q,
          .visible = shape.causal ? shape.seq_kv - shape.seq_q + 1 : shape.seq_kv, .growth = shape.causal ? 1 : 0,
          .scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(head_dim))),
      });
    GetParam().table->combine({parts.data(), tops.data(), sums.data(), out.data(), shape.parts, rows, head_dim});
    const std::vector<double> wanted = expected(shape, q, k, v);
    const double tolerance = shape.growth > 0 ? 3e-4 : 3e-6;  // scores of 50 are rounded to 4e-6 of them
    for (std::int64_t i = 0; i < results; ++i)
      ASSERT_NEAR(out[i], wanted[i], tolerance) << "row " << i / head_dim << " column " << i % head_dim;
    for (Floats* each : {&parts, &tops, &sums, &workspace, &out}) EXPECT_TRUE(each->guarded());
  }
};

TEST_P(DecodeTest, EveryNumberOfRows) {
  for (std::int64_t group = 1; group <= 9; ++group) check({group, 1, 200, 64, false, 1});
}

TEST_P(DecodeTest, EveryRemainderOfKeysAndColumns) {
  for (const std::int64_t keys : {1, 2, 7, 15, 17, 127, 128, 129, 300})
    for (const std::int64_t head_dim : {1, 3, 8, 15, 16, 17, 40, 128, 300}) check({keys % 5 + 1, 1, keys, head_dim, false, 1});
}

TEST_P(DecodeTest, MasksAndRangesThatSomeRowsDoNotSee) {
  for (const std::int64_t queries : {2, 5, 8}) {
    check({1, queries, queries, 24, true, 1});
    check({3, queries, 128 + 1, 24, true, 2});  // the last range is one key, which the last query alone sees
    check({2, queries, 700, 80, true, 3});
  }
}

TEST_P(DecodeTest, ManyRanges) {
  for (const std::int64_t parts : {2, 3, 8}) check({4, 1, 8 * DecodeKernels::kKeys + 5, 72, false, parts});
}

TEST_P(DecodeTest, GrowingScores) { check({1, 1, 1000, 64, false, 2, 0.02}); }

TEST_P(DecodeTest, NotANumberStaysOne) {
  Floats q(16, 0), k(200 * 16, 0), v(200 * 16, 0), out(16, 0), workspace(DecodeKernels::workspace_floats(1, 16), 0);
  q.fill(1);
  k.fill(2);
  v.fill(3);
  k[150 * 16] = std::numeric_limits<float>::quiet_NaN();
  float top, sum;
  GetParam().table->attend({.q = q.data(), .k = k.data(), .v = v.data(), .workspace = workspace.data(), .out = out.data(), .top = &top,
                            .sum = &sum, .rows = 1, .head_dim = 16, .first = 0, .last = 200, .seq_q = 1, .visible = 200, .growth = 0,
                            .scale = 0.25f});
  EXPECT_TRUE(std::isnan(sum));
}

INSTANTIATE_TEST_SUITE_P(Sets, DecodeTest, testing::ValuesIn(kTested), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace roofline::cpu
