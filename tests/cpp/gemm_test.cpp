// The parts of a matrix product on every instruction set against double: every number of rows of a tile, remainders of columns and of
// blocks of inner, ranges of strips, both dtypes of b, with guard zones around what is written. AVX-512 also runs by SIMDe's emulation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/gemm_kernels.h"
#include "cpu/isa.h"
#include "floats.h"
#include "tested.h"

namespace roofline::cpu {

#if defined(ROOFLINE_SIMDE)
extern const GemmKernels gemm_simde;
#endif

namespace {

const std::vector<Tested<GemmKernels>> kTested = {ROOFLINE_TESTED(gemm)};

class GemmTest : public TableTest<GemmKernels> {
 protected:
  // b of 8 bits of fraction, so that it is the same in bf16. Strips before `first` and from `last` on are not written.
  void check(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t inner_block, bool few, bool bf16,
             std::int64_t first = 0, std::int64_t skipped = 0) const {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " x " << inner << (few ? " few" : " block") << (bf16 ? " bf16" : " fp32"));
    const GemmKernels& table = *GetParam().table;
    const std::int64_t strips = (columns + table.width - 1) / table.width, last = strips - skipped;
    Floats a(rows * inner, 1), b(inner * columns, 3), c(rows * columns, 5), packed(strips * inner * table.width / (bf16 ? 2 : 1), 0);
    Floats workspace(few ? table.few_floats(rows) : table.block_floats(rows, inner_block), 0);
    a.fill(1);
    b.fill(2);
    for (std::int64_t i = 0; i < inner * columns; ++i) b[i] = std::round(b[i] * 128) / 128;
    std::vector<std::uint16_t> narrow(inner * columns);
    for (std::int64_t i = 0; i < inner * columns; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, &b[i], sizeof bits);
      ASSERT_EQ(bits & 0xFFFF, 0u);
      narrow[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    c.fill(7);
    const std::vector<float> before(c.data(), c.data() + rows * columns);
    table.pack[bf16](bf16 ? static_cast<const void*>(narrow.data()) : b.data(), packed.data(), columns, inner, 0, strips);
    (few ? table.few : table.block)[bf16]({.a = a.data(), .b = packed.data(), .c = c.data(), .workspace = workspace.data(), .rows = rows,
                                          .columns = columns, .inner = inner, .first = first, .last = last, .inner_block = inner_block});
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t at = row * columns + column;
        if (column / table.width < first || column / table.width >= last) {
          ASSERT_EQ(c[at], before[at]);
          continue;
        }
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) sum += static_cast<double>(a[row * inner + k]) * b[k * columns + column];
        ASSERT_NEAR(c[at], sum, 1e-6 * (inner + 16)) << "row " << row << " column " << column;
      }
    for (Floats* each : {&a, &b, &c, &packed, &workspace}) EXPECT_TRUE(each->guarded());
  }
};

TEST_P(GemmTest, EveryNumberOfFewRows) {
  for (std::int64_t rows = 1; rows <= GemmKernels::kMostFewRows; ++rows)
    for (const bool bf16 : {false, true}) check(rows, 9 * GetParam().table->width, 70, 0, true, bf16);
}

TEST_P(GemmTest, EveryNumberOfRowsOfABlock) {
  for (std::int64_t rows = 1; rows <= 2 * GetParam().table->tile_rows + 1; ++rows)
    for (const bool bf16 : {false, true}) check(rows, 2 * GetParam().table->width, 45, 45, false, bf16);
}

TEST_P(GemmTest, EveryRemainderOfColumns) {
  for (std::int64_t columns = 1; columns <= 2 * GetParam().table->width + 1; ++columns)
    for (const bool few : {false, true})
      for (const bool bf16 : {false, true}) check(3, columns, 33, 16, few, bf16);
}

TEST_P(GemmTest, EveryRemainderOfInner) {
  for (const std::int64_t inner : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 130})
    for (const bool few : {false, true})
      for (const bool bf16 : {false, true}) check(5, GetParam().table->width + 3, inner, 64, few, bf16);
}

TEST_P(GemmTest, ARangeOfStripsWritesItsColumnsAlone) {
  for (const bool few : {false, true})
    for (const bool bf16 : {false, true}) check(7, 21 * GetParam().table->width - 1, 40, 32, few, bf16, 2, 1);
}

TEST_P(GemmTest, WidensEveryKindOfNumber) {
  const std::vector<std::uint16_t> narrow = {0x0000, 0x8000, 0x3F80, 0xC000, 0x0001, 0x7F80, 0xFF80, 0x7F7F};
  std::vector<float> wide(narrow.size());
  GetParam().table->widen(narrow.data(), wide.data(), static_cast<std::int64_t>(narrow.size()));
  EXPECT_EQ(wide, (std::vector<float>{0.0f, -0.0f, 1.0f, -2.0f, 0x1p-133f, INFINITY, -INFINITY, 0x1.FEp127f}));
}

INSTANTIATE_TEST_SUITE_P(Sets, GemmTest, testing::ValuesIn(kTested), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace roofline::cpu
