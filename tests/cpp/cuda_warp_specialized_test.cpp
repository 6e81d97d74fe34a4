// Warp-specialised attention where there is no GPU: descriptors of columns against the tables of the PTX ISA, and whole kernels,
// with their barriers, tensor copies and products under way, on emulated blocks against float64.
#define ROOFLINE_CUDA_EMULATED

#include <gtest/gtest.h>

#include <set>

#include "cuda/sm90a/attention.cuh"
#include "emulated_attention.h"

namespace {

using namespace roofline;
using namespace roofline::cuda;

// PTX ISA, "Strides" of the canonical layouts: columns contiguous, 128-byte swizzle.
TEST(ColumnDescriptor, FieldsStandWhereTheIsaHasThem) {
  EXPECT_EQ(column_descriptor(0x400, 16384), 0x4000'0040'0400'0040u);
  EXPECT_EQ(column_descriptor(0x400, 16384) + kNextRows, column_descriptor(0x400 + 2048, 16384));
}

TEST(ColumnDescriptor, ReachesEveryElementOnceWhereBoxesPutThem) {
  constexpr int kKeys = 128, kColumns = 128;
  const std::uint64_t first = column_descriptor(0, kKeys * 128);
  std::set<std::int64_t> seen;
  for (int key = 0; key < kKeys; ++key)
    for (int column = 0; column < kColumns; ++column) {
      const std::int64_t at = swizzled_address(column_address(first + key / 16 * kNextRows, column, key % 16));
      EXPECT_EQ(at, column / 64 * kKeys * 128 + swizzled<8>(key, column % 64 / 8) + column % 8 * 2);
      seen.insert(at);
    }
  EXPECT_EQ(seen.size(), std::size_t{kKeys} * kColumns);
}

TEST(SeenKeys, AreThoseOfEveryRow) {
  for (const int seq_q : {1, 5, 64, 100})
    for (const int heads : {1, 3})
      for (const bool causal : {false, true}) {
        const SeenKeys seen = {heads * seq_q, seq_q, 130, causal};
        for (int first = 0; first < seen.unit_rows; first += 16) {
          int most = 0, fewest = 1 << 30;
          for (int row = first; row < std::min(first + 64, seen.unit_rows); ++row) {
            EXPECT_EQ(seen.of(row), causal ? row % seq_q + 131 - seq_q : 130);
            most = std::max(most, seen.of(row)), fewest = std::min(fewest, seen.of(row));
          }
          EXPECT_EQ(seen.most(first, 64), most);
          EXPECT_EQ(seen.fewest(first, 64), fewest);
        }
        EXPECT_EQ(seen.of(seen.unit_rows + 7), seen.of(seen.unit_rows - 1));
      }
}

TEST(SizeRefuses, WhatIndicesCannotCount) {
  const QueryTiling tiling = plan_queries(4, 4, 1000, 1 << 20, 128, 5 << 20);
  EXPECT_EQ(size_refuses("tiled", 1000, tiling), "");
  EXPECT_NE(size_refuses("tiled", std::int64_t{1} << 31, tiling).find("tiled takes up to 2^31 keys"), std::string::npos);
}

// blocks: of the launch, at most; each takes further rows as long as there are any.
template <class T, class Shape>
void expect_attention(const AttentionShape& s, Emulation mode, std::int64_t blocks, double growth = 1) {
  AttentionOperands<T> operands(s);
  operands.grow(growth);
  auto out = operands.poisoned();
  std::vector<float> logsumexp(std::size_t{1} * s.batch * s.heads * s.seq_q + 1, NAN);
  WarpSpecializedWork work;
  work.out = out.data(), work.logsumexp = logsumexp.data(), work.head_dim = s.head_dim;
  work.tiling = plan_queries(s.batch * s.heads, s.batch * s.kv_heads, s.seq_q, 1 << 20, Shape::kBlockQ, 5 << 20);
  work.seq_q = s.seq_q, work.seq_kv = s.seq_kv, work.causal = s.causal;
  work.scale = exponent_scale(s.head_dim);
  unsigned drawn = 0;
  work.drawn = &drawn, work.grid = static_cast<int>(std::min(blocks, work.tiling.blocks()));
  AttentionMaps maps;
  maps.q = {operands.q.bits.data(), s.head_dim, work.tiling.unit_rows, work.tiling.units, Shape::kGroupRows};
  maps.k = {operands.k.bits.data(), s.head_dim, s.seq_kv, std::int64_t{s.batch} * s.kv_heads, Shape::kBlockKv};
  maps.v = maps.k, maps.v.data = operands.v.bits.data();
  emulate(work.grid, Shape::kThreads, Shape::kSharedBytes, mode, [&] { warp_specialized_attention<T, Shape>(work, maps); });
  operands.expect(out, logsumexp);
  EXPECT_EQ(drawn, 0u) << "the next launch begins with it";
}

using Small = WarpSpecializedShape<64, 128, 3, 4, 2>;
using Large = WarpSpecializedShape<128, 128, 2, 5, 2>;
using Wide = WarpSpecializedShape<192, 128, 2, 3, 1>;
using Widest = WarpSpecializedShape<256, 64, 2, 5, 1>;

TEST(WarpSpecialized, EmulatedBlocksAgreeWithFloat64) {
  for (const bool late : {false, true})
    for (const bool last : {false, true}) {
      const Emulation mode = {.late_copies = late, .last_warp_first = last};
      expect_attention<Bf16, Large>({1, 1, 1, 128, 300, 128, false}, mode, 132);
      expect_attention<Bf16, Small>({1, 3, 3, 200, 200, 64, true}, mode, 2);  // three blocks of queries, one drawn
      expect_attention<Bf16, Widest>({1, 2, 2, 200, 200, 256, true}, mode, 1);
    }
}

TEST(WarpSpecialized, RowsAndColumnsEndAnywhere) {
  expect_attention<Bf16, Large>({1, 1, 1, 1, 1, 128, false}, {.late_copies = true}, 132);
  expect_attention<Bf16, Large>({1, 2, 1, 131, 67, 104, false}, {.late_copies = true}, 1);
  expect_attention<Fp16, Small>({1, 1, 1, 193, 129, 40, false}, {.last_warp_first = true}, 1);
  expect_attention<Bf16, Widest>({1, 1, 1, 1, 1, 256, false}, {.late_copies = true}, 132);
  expect_attention<Fp16, Widest>({1, 2, 1, 131, 97, 200, false}, {.late_copies = true}, 1);
  expect_attention<Fp16, Wide>({1, 1, 1, 129, 300, 192, false}, {.last_warp_first = true}, 1);
}

TEST(WarpSpecialized, MasksFollowTheDiagonal) {
  // Rows that see nothing of the first tile; and heads of a KV head together.
  expect_attention<Bf16, Large>({1, 2, 2, 200, 523, 128, true}, {.late_copies = true}, 3);
  expect_attention<Fp16, Small>({2, 8, 2, 33, 100, 64, true}, {.late_copies = true}, 132);
  expect_attention<Bf16, Wide>({1, 2, 2, 200, 523, 136, true}, {.late_copies = true}, 3);
  expect_attention<Fp16, Widest>({2, 8, 2, 33, 100, 256, true}, {.late_copies = true}, 3);
}

TEST(WarpSpecialized, SumsFollowGrowingMaxima) {
  expect_attention<Fp16, Small>({1, 1, 1, 192, 500, 64, false}, {}, 132, 40);
  expect_attention<Bf16, Large>({1, 1, 1, 128, 500, 128, true}, {}, 132, 40);
  expect_attention<Bf16, Widest>({1, 1, 1, 100, 300, 256, true}, {}, 132, 40);
}

}  // namespace
