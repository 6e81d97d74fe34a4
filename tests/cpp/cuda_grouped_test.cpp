// The grouped product where there is no GPU: whole kernels on emulated blocks against products in float64.
#define ROOFLINE_CUDA_EMULATED

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "cuda/matmul/grouped_tiled.cuh"
#include "emulated_attention.h"

namespace {

using namespace roofline;
using namespace roofline::cuda;

// Tiles of experts with so many rows each, as the kernel that routes tokens cuts them.
std::vector<RowTile> cut(const std::vector<int>& rows, int tile_rows) {
  std::vector<RowTile> tiles;
  int first = 0;
  for (int expert = 0; expert < static_cast<int>(rows.size()); ++expert) {
    const int of = (rows[expert] + tile_rows - 1) / tile_rows, begin = static_cast<int>(tiles.size());
    for (int i = 0; i < of; ++i)
      tiles.push_back({expert, first + i * tile_rows, std::min(tile_rows, rows[expert] - i * tile_rows), i, of, begin});
    first += rows[expert];
  }
  return tiles;
}

struct Case {
  std::vector<int> rows;  // of each expert
  int inner, columns, slots;
  std::int64_t blocks;
  bool by_token;
  After after;
};

template <class T, class Shape>
void expect_products(const Case& c, Emulation mode) {
  int rows = 0;
  for (const int each : c.rows) rows += each;
  const int experts = static_cast<int>(c.rows.size()), tokens = c.by_token ? 7 : rows;
  const std::int64_t weights = std::int64_t{experts} * c.inner * c.columns;
  const double unit = 1 / std::sqrt(c.inner);
  const Operand<T> a(std::int64_t{tokens} * c.inner, 1), b(weights, 2, unit), gate(weights, 3, unit);
  std::vector<std::int32_t> token(rows);
  for (int row = 0; row < rows; ++row) token[row] = c.by_token ? row * 5 % tokens : row;
  std::vector<std::uint16_t> out(std::int64_t{rows} * c.columns + 8, 0xFFFF);
  const std::vector<RowTile> tiles = cut(c.rows, Shape::kRows);
  const auto count = static_cast<std::int32_t>(tiles.size());
  GroupedWork work;
  work.a = a.bits.data(), work.token = c.by_token ? token.data() : nullptr, work.b = b.bits.data();
  work.gate = Shape::kGated ? gate.bits.data() : nullptr, work.c = out.data(), work.tiles = tiles.data(), work.tile_count = &count;
  work.inner = c.inner, work.columns = c.columns, work.blocks = c.blocks, work.slots = c.slots, work.after = c.after;
  EmulatedBlock::matrix_rows = EmulatedBlock::bank_conflicts = EmulatedBlock::products = 0;
  emulate(work.blocks, Shape::kThreads, c.slots * Shape::kSlotBytes, mode, [&] { grouped_product<T, Shape>(work); });
  EXPECT_EQ(EmulatedBlock::bank_conflicts, 0);
  const std::int64_t across = (c.columns + Shape::kColumns - 1) / Shape::kColumns, depth = (c.inner + 63) / 64 * 4;
  EXPECT_EQ(EmulatedBlock::products, count * across * depth * 4 * (Shape::kRows / 16) * 4) << "every tile once";
  const double eps = std::is_same_v<T, Bf16> ? 0x1p-8 : 0x1p-11;
  int row = 0;
  for (int expert = 0; expert < experts; ++expert)
    for (int i = 0; i < c.rows[expert]; ++i, ++row)
      for (int column = 0; column < c.columns; ++column) {
        double sum = 0, other = 0;
        for (int k = 0; k < c.inner; ++k) {
          const double left = a.values[std::int64_t{token[row]} * c.inner + k];
          const std::int64_t at = (std::int64_t{expert} * c.inner + k) * c.columns + column;
          sum += left * b.values[at], other += left * gate.values[at];
        }
        const double want = Shape::kGated             ? reference::silu(other) * sum
                            : c.after == After::relu ? reference::relu(sum)
                            : c.after == After::gelu ? reference::gelu(sum)
                                                     : sum;
        const double got = number(T{}, out[std::int64_t{row} * c.columns + column]);
        ASSERT_NEAR(got, want, eps * std::fabs(want) + 1e-5) << "expert " << expert << ", row " << i << ", column " << column;
      }
  for (int i = 0; i < 8; ++i) ASSERT_EQ(out[std::int64_t{rows} * c.columns + i], 0xFFFF);
}

template <class T, int Rows>
void expect_everything() {
  using Plain = GroupedShape<Rows, false>;
  using Gated = GroupedShape<Rows, true>;
  expect_products<T, Plain>({{3, 0, 17, 1}, 64, 128, 2, 1, true, After::nothing}, {.late_copies = true});
  expect_products<T, Plain>({{70, 5}, 200, 136, 4, 3, false, After::relu}, {.late_copies = true, .last_warp_first = true});
  expect_products<T, Plain>({{1}, 8, 8, 3, 5, true, After::gelu}, {.last_warp_first = true});
  expect_products<T, Plain>({{0, 0, 130}, 328, 264, 3, 2, true, After::nothing}, {.last_block_first = true});
  expect_products<T, Gated>({{2, 33}, 136, 72, 4, 2, true, After::nothing}, {.late_copies = true});
  expect_products<T, Gated>({{66, 0, 1}, 72, 200, 2, 1, true, After::nothing}, {.late_copies = true, .last_warp_first = true});
}

TEST(Grouped, EveryExpertInFp16) {
  expect_everything<Fp16, 16>();
  expect_everything<Fp16, 64>();
}
TEST(Grouped, EveryExpertInBf16) {
  expect_everything<Bf16, 16>();
  expect_everything<Bf16, 64>();
}

TEST(Grouped, TilesThereAreAtMost) {
  for (const std::vector<int>& rows : {std::vector<int>{1, 1, 1}, {16, 17, 0}, {64, 65, 63}, {0, 1}, {129}})
    for (const int tile_rows : {16, 64}) {
      std::int64_t all = 0;
      for (const int each : rows) all += each;
      EXPECT_LE(static_cast<std::int64_t>(cut(rows, tile_rows).size()),
                most_tiles(all, static_cast<std::int64_t>(rows.size()), tile_rows));
    }
  EXPECT_EQ(tile_rows_of(16 * 40, 40), 16);
  EXPECT_EQ(tile_rows_of(16 * 40 + 1, 40), 64);
}

}  // namespace
