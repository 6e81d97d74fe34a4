// Gradients of attention on every instruction set and in every element against double: remainders of queries, keys and columns,
// groups of heads, masks, parts of the keys, with guard zones around what is written. AVX-512 also runs by SIMDe's emulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cpu/backward_kernels.h"
#include "cpu/isa.h"
#include "guarded.h"
#include "reference.h"
#include "tested.h"

namespace roofline::cpu {

extern const BackwardKernels backward_simde, backward_pairs_simde, backward_emulated;

namespace {

const std::vector<Tested<BackwardKernels>> kTested = {
    ROOFLINE_TESTED(backward), ROOFLINE_TESTED_PAIRS(backward), ROOFLINE_TESTED_TILES(backward)};

// One KV head.
struct Shape {
  std::int64_t group, seq_q, seq_kv, head_dim;
  bool causal = false;
  std::int64_t blocks = 1;  // register tiles of keys that lie in a block
  std::int64_t parts = 1;
};

class BackwardTest : public TableTest<BackwardKernels> {
 protected:
  template <class T>
  void check(const Shape& shape) const {
    const BackwardKernels& table = this->table();
    if (!table.gradients[kElementOf<T>]) return;
    const std::int64_t rows = shape.group * shape.seq_q, head_dim = shape.head_dim, pitch = table.pitch(head_dim);
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    Guarded<T> q(rows * head_dim, 1), k(shape.seq_kv * head_dim, 3), v(shape.seq_kv * head_dim, 5), out(rows * head_dim, 1);
    Guarded<T> dout(rows * head_dim, 7), dq(rows * head_dim, 3), dk(shape.seq_kv * head_dim, 1), dv(shape.seq_kv * head_dim, 5);
    Guarded<float> logsumexp(rows), delta(rows), parts(shape.parts * rows * pitch);
    const std::int64_t key_block = shape.blocks * table.tile_width;
    Guarded<float> workspace(table.workspace_floats(key_block, head_dim));
    std::uint64_t seed = 0;
    for (Guarded<T>* each : {&q, &k, &v, &out, &dout}) each->fill(++seed);

    const std::vector<double> wide_q = q.values(), wide_k = k.values(), wide_v = v.values(), wide_dout = dout.values();
    std::vector<double> p(rows * shape.seq_kv), ds(p.size());
    std::vector<double> wanted_delta(rows), sizes(rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t seen = shape.causal ? row % shape.seq_q + shape.seq_kv - shape.seq_q + 1 : shape.seq_kv;
      double sum = 0;
      for (std::int64_t key = 0; key < seen; ++key) {
        const double score = reference::dot(&wide_q[row * head_dim], &wide_k[key * head_dim], head_dim);
        p[row * shape.seq_kv + key] = score * scale;
        sum += std::exp(score * scale);
      }
      logsumexp[row] = static_cast<float>(std::log(sum));
      for (std::int64_t d = 0; d < head_dim; ++d)
        wanted_delta[row] += out.value(row * head_dim + d) * wide_dout[row * head_dim + d];
      for (std::int64_t key = 0; key < seen; ++key) {
        const double dp = reference::dot(&wide_dout[row * head_dim], &wide_v[key * head_dim], head_dim);
        double& one = p[row * shape.seq_kv + key];
        one = std::exp(one - static_cast<double>(logsumexp[row]));
        ds[row * shape.seq_kv + key] = one * (dp - wanted_delta[row]);
      }
    }

    table.deltas[kElementOf<T>](out.data(), dout.data(), rows, head_dim, delta.data());
    for (std::int64_t part = 0; part < shape.parts; ++part)
      table.gradients[kElementOf<T>]({
          .q = q.data(), .k = k.data(), .v = v.data(), .dout = dout.data(), .logsumexp = logsumexp.data(), .delta = delta.data(),
          .dk = dk.data(), .dv = dv.data(), .dq = parts.data() + part * rows * pitch, .workspace = workspace.data(),
          .group = shape.group, .seq_q = shape.seq_q, .seq_kv = shape.seq_kv, .head_dim = head_dim, .key_block = key_block,
          .first_block = part, .blocks_step = shape.parts, .scale = static_cast<float>(scale), .causal = shape.causal,
      });
    table.sum[kElementOf<T>](parts.data(), shape.parts, rows * pitch, rows, head_dim, static_cast<float>(scale), dq.data());

    // Sums of so many products, each of whose parts is rounded, in words to bf16, relative to the sum of their magnitudes.
    const double rounding = 3e-5 + (table.numbers > 1 ? step_of(kBf16) : 0);
    const auto near = [&](double found, double wanted, double magnitude, const char* name, std::int64_t i) {
      const double narrow = kElementOf<T> == kFp32 ? 0 : step_of(kElementOf<T>) * std::fabs(wanted) + 1e-7;
      return std::fabs(found - wanted) <= rounding * magnitude + narrow
                 ? testing::AssertionSuccess()
                 : testing::AssertionFailure() << name << "[" << i << "] is " << found << ", not " << wanted << ": group "
                                               << shape.group << " seq_q " << shape.seq_q
                                               << " seq_kv " << shape.seq_kv << " head_dim " << head_dim;
    };
    for (std::int64_t key = 0; key < shape.seq_kv; ++key)
      for (std::int64_t d = 0; d < head_dim; ++d) {
        double of_k = 0, of_v = 0, size_k = 1e-2, size_v = 1e-2;
        for (std::int64_t row = 0; row < rows; ++row) {
          const double one_k = ds[row * shape.seq_kv + key] * wide_q[row * head_dim + d] * scale;
          const double one_v = p[row * shape.seq_kv + key] * wide_dout[row * head_dim + d];
          of_k += one_k, of_v += one_v, size_k += std::fabs(one_k), size_v += std::fabs(one_v);
        }
        const std::int64_t i = key * head_dim + d;
        ASSERT_TRUE(near(dk.value(i), of_k, size_k + 0.1 * head_dim * size_v, "dk", i));
        ASSERT_TRUE(near(dv.value(i), of_v, size_v, "dv", i));
      }
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t d = 0; d < head_dim; ++d) {
        double wanted = 0, size = 1e-2 * head_dim;
        for (std::int64_t key = 0; key < shape.seq_kv; ++key) {
          const double one = ds[row * shape.seq_kv + key] * wide_k[key * head_dim + d] * scale;
          wanted += one, size += std::fabs(one);
        }
        ASSERT_TRUE(near(dq.value(row * head_dim + d), wanted, size, "dq", row * head_dim + d));
      }
    for (Guarded<T>* each : {&q, &k, &v, &out, &dout, &dq, &dk, &dv}) EXPECT_TRUE(each->guarded());
    for (Guarded<float>* each : {&logsumexp, &delta, &parts, &workspace}) EXPECT_TRUE(each->guarded());
  }
  void check_all(const Shape& shape) const {
    check<float>(shape);
    check<Bf16>(shape);
    check<Fp16>(shape);
  }
};

TEST_P(BackwardTest, EveryRemainderOfColumns) {
  for (const std::int64_t head_dim : {1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 33, 40, 64, 65, 80, 128, 512})
    check_all({.group = 1, .seq_q = 5, .seq_kv = 9, .head_dim = head_dim, .causal = true});
}

TEST_P(BackwardTest, EveryRemainderOfQueriesAndKeys) {
  for (std::int64_t queries = 1; queries <= 14; ++queries)
    check<float>({.group = 1, .seq_q = queries, .seq_kv = queries + 11, .head_dim = 16, .blocks = 2});
  for (const std::int64_t keys : {1, 15, 16, 17, 63, 64, 65, 129})
    for (const bool causal : {false, true}) 
      check_all({.group = 1, .seq_q = std::min<std::int64_t>(keys, 70), .seq_kv = keys, .head_dim = 20, .causal = causal});
}

// Whose queries and keys are more than a kernel takes together.
TEST_P(BackwardTest, LongBlocks) {
  for (const std::int64_t head_dim : {32, 48})
    for (const bool causal : {false, true})
      check<Bf16>({.group = 2, .seq_q = 161, .seq_kv = 203, .head_dim = head_dim, .causal = causal, .blocks = 2, .parts = 2});
}

TEST_P(BackwardTest, GroupsMasksAndPartsOfTheKeys) {
  for (const std::int64_t parts : {1, 2, 5})
    for (const bool causal : {false, true}) {
      check_all({.group = 3, .seq_q = 67, .seq_kv = 131, .head_dim = 24, .causal = causal, .parts = parts});
      check<float>({.group = 2, .seq_q = 130, .seq_kv = 130, .head_dim = 9, .causal = causal, .blocks = 2, .parts = parts});
    }
}

INSTANTIATE_TEST_SUITE_P(Sets, BackwardTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

}  // namespace
}  // namespace roofline::cpu
