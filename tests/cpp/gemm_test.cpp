// The parts of a matrix product on every instruction set against double: every number of rows of a tile, remainders of columns and
// of blocks of inner, ranges of strips, every dtype of b, with guard zones around what is written. AVX-512 also runs by SIMDe's
// emulation.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/gemm_kernels.h"
#include "cpu/isa.h"
#include "guarded.h"
#include "tested.h"

namespace roofline::cpu {

extern const GemmKernels gemm_simde, gemm_pairs_simde, gemm_quads_simde, gemm_emulated;
extern const GemmKernelsOf<double> gemm_doubles_simde;

namespace {

#if defined(__aarch64__)
using HalfNumber = __fp16;
#else
using HalfNumber = _Float16;
#endif

const std::vector<Tested<GemmKernels>> kTested = {
    ROOFLINE_TESTED(gemm), ROOFLINE_TESTED_PAIRS(gemm), ROOFLINE_TESTED_TILES(gemm),
    {"quads", ROOFLINE_TESTED_IF_BUILT(avx512_vnni, gemm_quads_avx512_vnni), "avx512_vnni"},
#if defined(ROOFLINE_SIMDE_QUADS)
    {"quads_simde", &gemm_quads_simde, "avx2"},
#endif
};

constexpr Stored kAll[] = {Stored::fp32, Stored::bf16, Stored::fp16, Stored::int8, Stored::fp8_e4m3, Stored::fp8_e5m2};
constexpr Stored kReal[] = {Stored::fp32, Stored::bf16, Stored::fp16};
constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2"};

int index(Stored stored) { return static_cast<int>(stored); }

class GemmTest : public TableTest<GemmKernels> {
 protected:
  // Numbers of 8 bits of fraction, the same in every type; int8 has them times 128. fp8 has as many as its fraction holds.
  static std::vector<float> numbers(std::int64_t n, std::uint64_t seed, Stored type = Stored::fp32) {
    const float steps = type == Stored::fp8_e4m3 ? 8 : type == Stored::fp8_e5m2 ? 4 : 128;
    std::vector<float> all(n);
    for (std::int64_t i = 0; i < n; ++i)
      all[i] =
          static_cast<float>(std::fmax(-steps, std::fmin(steps - 1, std::round(random_uniform(seed, i) * (steps - 1))))) / steps;
    return all;
  }

  // As `type` stores them.
  static std::vector<std::uint8_t> bits(const std::vector<float>& numbers, Stored type) {
    const std::size_t size = type == Stored::fp32 ? 4 : type >= Stored::int8 ? 1 : 2;
    std::vector<std::uint8_t> all(numbers.size() * size);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const float x = numbers[i];
      auto word = std::bit_cast<std::uint32_t>(x);
      if (type == Stored::bf16) word >>= 16;
      if (type == Stored::fp16) {
        const auto half = static_cast<HalfNumber>(x);
        std::memcpy(&word, &half, sizeof half);
      }
      if (type == Stored::int8) word = static_cast<std::uint8_t>(static_cast<int>(x * 128));
      if (type == Stored::fp8_e4m3) word = to_fp8_e4m3(x);
      if (type == Stored::fp8_e5m2) word = to_fp8_e5m2(x);
      std::memcpy(all.data() + i * size, &word, size);
    }
    return all;
  }

  static double product(const std::vector<float>& a, const std::vector<float>& b, std::int64_t row, std::int64_t column,
                        std::int64_t columns, std::int64_t inner) {
    double sum = 0;
    for (std::int64_t k = 0; k < inner; ++k) sum += static_cast<double>(a[row * inner + k]) * b[k * columns + column];
    return sum;
  }

  // Strips before `first` and of the last `skipped` are not written.
  void check(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t inner_block, bool few, Stored type,
             std::int64_t first = 0, std::int64_t skipped = 0) const {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " x " << inner << (few ? " few " : " block ")
                                    << kNames[index(type)]);
    const GemmKernels& table = this->table();
    const bool integers = type == Stored::int8;
    const std::int64_t per_word = table.numbers[index(type)];
    if (per_word == 0) return;
    inner_block = (inner_block + table.multiple - 1) / table.multiple * table.multiple;
    const std::int64_t strips = (columns + table.width - 1) / table.width, last = strips - skipped;
    const std::int64_t words = (inner + per_word * table.multiple - 1) / (per_word * table.multiple) * table.multiple;
    const std::int64_t size = type == Stored::fp32 ? 4 : type >= Stored::int8 ? 1 : 2;
    const std::int64_t packed_bytes = strips * (words * size * per_word + 4 * table.begun[index(type)]) * table.width;
    // Few rows lie apart, or whole pages from one to the next.
    const std::int64_t behind = few && words % 1024 ? 16 : 0, stride = words + behind;
    Floats wide(rows * stride, 1), c(rows * columns, 5), packed((packed_bytes + 3) / 4, 0);
    Floats workspace(few ? table.few_floats(rows) : table.block_floats(rows, columns, inner_block), 0);
    const std::vector<float> a = numbers(rows * inner, 1, type), b = numbers(inner * columns, 2, type);
    const std::vector<std::uint8_t> a_bits = bits(a, type), b_bits = bits(b, type);
    // Few rows of a, fp8 and words are widened before; a block takes 16 bits as they are.
    const bool widened = few || per_word > 1 || is_fp8(type);
    for (std::int64_t row = 0; row < (widened ? rows : 0); ++row) {
      std::vector<std::uint8_t> padded(a_bits.begin() + row * inner * size, a_bits.begin() + (row + 1) * inner * size);
      padded.resize(words * per_word * size);
      table.widen[index(type)](padded.data(), wide.data() + row * stride, words);
    }
    c.fill(7);
    const std::vector<float> before(c.data(), c.data() + rows * columns);
    table.pack[index(type)](b_bits.data(), packed.data(), columns, inner, 0, strips);
    GemmPart part{.a = widened ? static_cast<const void*>(wide.data()) : a_bits.data(), .b = packed.data(), .c = c.data(),
                  .workspace = workspace.data(), .rows = rows, .columns = columns, .c_stride = columns, .inner = words,
                  .behind = behind, .first = first, .last = last, .inner_block = inner_block, .a_stored = widened ? Stored::fp32 : type,
                  .streams = {GemmKernels::kMostStreams}};
    (few ? table.few : table.block)[index(type)](part);
    // The same, bit for bit, however many streams there are and wherever they are prefetched to, where a is packed before, and where
    // every tile reads b as stored.
    Floats again(rows * columns, 5), panels(few ? 1 : table.panel_rows(rows) * words, 0);
    again.fill(7);
    part.c = again.data(), part.streams = {1, true}, part.panels = few ? nullptr : panels.data(), part.as_stored = true;
    for (std::int64_t k = 0; !few && k < words; k += inner_block)
      table.pack_a(part, k, std::min(inner_block, words - k), panels.data() + k * table.panel_rows(rows));
    (few ? table.few : table.block)[index(type)](part);
    for (std::int64_t i = 0; i < rows * columns; ++i) ASSERT_EQ(std::memcmp(&again[i], &c[i], 4), 0) << "at " << i;
    EXPECT_TRUE(again.guarded() && panels.guarded());
    // And where words of a are read as they lie.
    if (!few && table.lies(strips) && (type == Stored::fp32 || size * per_word == 4)) {
      again.fill(7);
      part.panels = nullptr, part.lies = part.near = true;
      table.block[index(type)](part);
      part.panels = panels.data(), part.lies = part.near = false;
      for (std::int64_t i = 0; i < rows * columns; ++i) ASSERT_EQ(std::memcmp(&again[i], &c[i], 4), 0) << "at " << i;
    }
    // Words of int8 are packed from where they lie, to the same panels.
    if (integers && !few && inner == 4 * words) {
      Floats as_they_lie(table.panel_rows(rows) * words, 0);
      GemmPart from = part;
      from.a = a_bits.data(), from.a_stored = type;
      for (std::int64_t k = 0; k < words; k += inner_block)
        table.pack_a(from, k, std::min(inner_block, words - k), as_they_lie.data() + k * table.panel_rows(rows));
      for (std::int64_t i = 0; i < table.panel_rows(rows) * words; ++i)
        ASSERT_EQ(std::memcmp(&as_they_lie[i], &panels[i], 4), 0) << "at " << i;
      EXPECT_TRUE(as_they_lie.guarded());
    }
    // Rounded as `narrow` does, into rows of a wider matrix.
    for (const Stored half : {Stored::bf16, Stored::fp16}) {
      if (few || integers) break;
      std::vector<std::uint16_t> to(rows * (columns + 3), 0x1234), wanted(columns);
      part.to = to.data(), part.to_stride = columns + 3, part.to_stored = half;
      table.block[index(type)](part);
      for (std::int64_t row = 0; row < rows; ++row) {
        table.narrow[index(half)](c.data() + row * columns, wanted.data(), columns);
        for (std::int64_t at = 0; at < columns + 3; ++at) {
          const bool written = at < columns && at / table.width >= first && at / table.width < last;
          ASSERT_EQ(to[row * (columns + 3) + at], written ? wanted[at] : 0x1234) << "row " << row << " column " << at;
        }
      }
    }
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t at = row * columns + column;
        if (column / table.width < first || column / table.width >= last) {
          ASSERT_EQ(c[at], before[at]);
          continue;
        }
        const double sum = product(a, b, row, column, columns, inner);
        if (integers)
          ASSERT_EQ(std::bit_cast<std::int32_t>(c[at]), sum * 128 * 128) << "row " << row << " column " << column;
        else
          ASSERT_NEAR(c[at], sum, 1e-6 * (inner + 16)) << "row " << row << " column " << column;
      }
    for (Floats* each : {&wide, &c, &packed, &workspace}) EXPECT_TRUE(each->guarded());
  }
};

TEST_P(GemmTest, EveryNumberOfFewRows) {
  for (std::int64_t rows = 1; rows <= GemmKernels::kMostFewRows; ++rows)
    for (const Stored type : kAll) check(rows, 9 * table().width, 70, 0, true, type);
}

TEST_P(GemmTest, FewRowsWholePagesApart) {
  for (const std::int64_t rows : {8, 9, 14, 18})
    for (const Stored type : kAll) check(rows, 3, 4096, 0, true, type);
}

TEST_P(GemmTest, EveryNumberOfRowsOfABlock) {
  for (std::int64_t rows = 1; rows <= 2 * table().tile_rows + 1; ++rows)
    for (const Stored type : kAll) check(rows, 2 * table().width, 45, 45, false, type);
}

TEST_P(GemmTest, BlocksOfRowsWholePagesApart) {
  for (const Stored type : kAll) check(19, table().width + 5, 2048, 512, false, type);
}

TEST_P(GemmTest, SumsOfSeveralBlocks) {
  for (const Stored type : kAll) check(2 * table().tile_rows + 7, 2 * table().width + 5, 200, 32, false, type);
}

TEST_P(GemmTest, EveryRemainderOfColumns) {
  for (std::int64_t columns = 1; columns <= 2 * table().width + 1; ++columns)
    for (const bool few : {false, true})
      for (const Stored type : kAll) check(3, columns, 33, 16, few, type);
}

TEST_P(GemmTest, EveryRemainderOfInner) {
  for (const std::int64_t inner : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 130})
    for (const bool few : {false, true})
      for (const Stored type : kAll) check(5, table().width + 3, inner, 64, few, type);
}

TEST_P(GemmTest, ARangeOfStripsWritesItsColumnsAlone) {
  for (const bool few : {false, true})
    for (const Stored type : kAll) check(7, 21 * table().width - 1, 40, 32, few, type, 2, 1);
}

// The largest sums of int8 there are: they neither saturate nor lose a bit.
TEST_P(GemmTest, SumsOfInt8AreExact) {
  const GemmKernels& table = this->table();
  constexpr std::int64_t kInner = 4096;
  const std::vector<std::int8_t> least(kInner * table.width, -128);
  if (table.numbers[index(Stored::int8)] == 0) return;
  const std::int64_t words = kInner / table.numbers[index(Stored::int8)];
  std::vector<float> a(words), packed((kInner / 4 + table.begun[index(Stored::int8)]) * table.width), workspace(table.few_floats(1));
  std::vector<std::int32_t> c(table.width);
  table.widen[index(Stored::int8)](least.data(), a.data(), words);
  table.pack[index(Stored::int8)](least.data(), packed.data(), table.width, kInner, 0, 1);
  table.few[index(Stored::int8)]({.a = a.data(), .b = packed.data(), .c = reinterpret_cast<float*>(c.data()),
                                  .workspace = workspace.data(), .rows = 1, .columns = table.width, .c_stride = table.width,
                                  .inner = words, .first = 0, .last = 1});
  for (const std::int32_t sum : c) EXPECT_EQ(sum, kInner * 128 * 128);
}

// A row of all numbers between two of 0, times 1.
template <int Fraction>
void check_numbers(const GemmKernels& table, Stored type, std::uint8_t one) {
  constexpr std::int64_t kColumns = 256, kInner = 3;
  const std::int64_t per_word = table.numbers[index(type)];
  if (per_word == 0) return;
  const std::int64_t words = (kInner + per_word - 1) / per_word;
  std::vector<float> a(words), packed((kInner + 2) * kColumns), workspace(table.block_floats(1, kColumns, words) + table.few_floats(1));
  std::vector<std::uint8_t> b(kInner * kColumns);
  std::iota(b.begin() + kColumns, b.begin() + 2 * kColumns, std::uint8_t{0});
  const std::uint8_t padded[] = {one, one, one, 0};
  table.widen[index(type)](padded, a.data(), words);
  table.pack[index(type)](b.data(), packed.data(), kColumns, kInner, 0, kColumns / table.width);
  for (const bool few : {true, false}) {
    std::vector<float> c(kColumns);
    (few ? table.few : table.block)[index(type)](
        {.a = a.data(), .b = packed.data(), .c = c.data(), .workspace = workspace.data(), .rows = 1, .columns = kColumns,
         .c_stride = kColumns, .inner = words, .first = 0, .last = kColumns / table.width, .inner_block = 1});
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const double wanted = value_of(Fp8<Fraction>{static_cast<std::uint8_t>(i)});
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(c[i]) : c[i] == wanted) << kNames[index(type)] << " bits " << i << ": " << c[i];
    }
  }
}

TEST_P(GemmTest, EveryNumberOfFp8) {
  check_numbers<3>(table(), Stored::fp8_e4m3, 0x38);
  check_numbers<2>(table(), Stored::fp8_e5m2, 0x3C);
}

// b as it lies, a part of a wider matrix, into a part of a wider one; and the same b packed in fp32.
TEST_P(GemmTest, TakesBAsItLies) {
  const GemmKernels& table = this->table();
  for (const Stored type : kReal)
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 14, 15, 18})
      for (const std::int64_t columns : {1, 3, 16, 37, 1000})
        for (const std::int64_t inner : {1, 7, 8, 19, 45}) {
          if (!table.plain[index(type)]) continue;
          SCOPED_TRACE(testing::Message() << kNames[index(type)] << " " << rows << " x " << columns << " x " << inner);
          const std::int64_t stride = columns + 5, c_stride = columns + 3, strips = (columns + table.width - 1) / table.width;
          const std::int64_t per_word = table.numbers[index(type)], words = (inner + per_word - 1) / per_word;
          Floats c((rows - 1) * c_stride + columns, 1), packed(strips * words * table.width, 0);
          const std::vector<float> a = numbers(rows * inner, 1, type), b = numbers(inner * stride, 2, type);
          std::vector<float> of_a = a;
          if (per_word > 1) {
            of_a.assign(rows * words, 0);
            const std::vector<std::uint8_t> a_bits = bits(a, type);
            for (std::int64_t row = 0; row < rows; ++row) std::memcpy(&of_a[row * words], &a_bits[2 * row * inner], 2 * inner);
          }
          std::vector<std::uint8_t> b_bits = bits(b, type);
          b_bits.resize(b_bits.size() / (inner * stride) * ((inner - 1) * stride + columns));
          b_bits.shrink_to_fit();
          c.fill(3);
          const float between = rows > 1 ? c[columns] : 0;
          const auto multiply = [&](void* to, Stored stored) {
            table.plain[index(type)](of_a.data(), b_bits.data(), stride, to, c_stride, rows, columns, inner, stored,
                                     stored == Stored::fp32 ? Held::nowhere : stored == Stored::bf16 ? Held::in_last : Held::in_second);
          };
          multiply(c.data(), Stored::fp32);
          for (const Stored half : {Stored::bf16, Stored::fp16}) {
            std::vector<std::uint16_t> narrow(c.size(), 7), expected = narrow;
            for (std::int64_t row = 0; row < rows; ++row)
              table.narrow[index(half)](c.data() + row * c_stride, &expected[row * c_stride], columns);
            multiply(narrow.data(), half);
            ASSERT_EQ(narrow, expected);
          }
          for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t column = 0; column < columns; ++column)
              ASSERT_NEAR(c[row * c_stride + column], product(a, b, row, column, stride, inner), 1e-6 * (inner + 16));
          if (rows > 1) {
            ASSERT_EQ(c[columns], between);
          }
          table.pack_wide[index(type)](b_bits.data(), stride, packed.data(), columns, inner);
          for (std::int64_t k = 0; k < (per_word > 1 ? 0 : inner); ++k)
            for (std::int64_t column = 0; column < strips * table.width; ++column)
              ASSERT_EQ(packed[(column / table.width * inner + k) * table.width + column % table.width],
                        column < columns ? b[k * stride + column] : 0.0f);
          EXPECT_TRUE(c.guarded() && packed.guarded());
        }
}

TEST_P(GemmTest, WidensEveryKindOfNumber) {
  if (!table().widen[index(Stored::fp16)]) return;
  const std::vector<std::uint16_t> narrow = {0x0000, 0x8000, 0x3F80, 0xC000, 0x0001, 0x7F80, 0xFF80, 0x7F7F};
  std::vector<float> wide(narrow.size());
  table().widen[index(Stored::bf16)](narrow.data(), wide.data(), static_cast<std::int64_t>(narrow.size()));
  EXPECT_EQ(wide, (std::vector<float>{0.0f, -0.0f, 1.0f, -2.0f, 0x1p-133f, INFINITY, -INFINITY, 0x1.FEp127f}));
  const std::vector<std::uint16_t> halves = {0x0000, 0x8000, 0x3C00, 0xC000, 0x0001, 0x7C00, 0xFC00, 0x7BFF};
  table().widen[index(Stored::fp16)](halves.data(), wide.data(), static_cast<std::int64_t>(halves.size()));
  EXPECT_EQ(wide, (std::vector<float>{0.0f, -0.0f, 1.0f, -2.0f, 0x1p-24f, INFINITY, -INFINITY, 65504.0f}));
}

TEST_P(GemmTest, PairsAreRounded) {
  if (!table().pair) return;
  const std::vector<float> wide = {1.0f, -2.0f, 1.00390625f, 1.01171875f};  // two ties, to even
  std::vector<std::uint32_t> words(2);
  table().pair(wide.data(), reinterpret_cast<float*>(words.data()), 2);
  EXPECT_EQ(words, (std::vector<std::uint32_t>{0xC0003F80, 0x3F823F80}));
  const int width = table().width;
  std::vector<float> rows(4 * width);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = wide[i / width] * (i % width ? 1.0f : -1.0f);
  words.assign(2 * width, 0);
  table().pair_rows(rows.data(), reinterpret_cast<float*>(words.data()), 2);
  for (int i = 0; i < 2 * width; ++i)
    EXPECT_EQ(words[i], (i < width ? 0xC0003F80u : 0x3F823F80u) ^ (i % width ? 0 : 0x80008000u)) << "word " << i;
}

TEST_P(GemmTest, NarrowsToTheNearestNumber) {
  const std::vector<float> wide = {1.0f, 1.00390625f, 1.01171875f, -2.0f, INFINITY};  // two ties of bf16, to even
  std::vector<std::uint16_t> narrow(wide.size());
  table().narrow[index(Stored::bf16)](wide.data(), narrow.data(), static_cast<std::int64_t>(wide.size()));
  EXPECT_EQ(narrow, (std::vector<std::uint16_t>{0x3F80, 0x3F80, 0x3F82, 0xC000, 0x7F80}));
  table().narrow[index(Stored::fp16)](wide.data(), narrow.data(), static_cast<std::int64_t>(wide.size()));
  EXPECT_EQ(narrow, (std::vector<std::uint16_t>{0x3C00, 0x3C04, 0x3C0C, 0xC000, 0x7C00}));
}

INSTANTIATE_TEST_SUITE_P(Sets, GemmTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

// In fp64, whole numbers of up to 20 bits: products and their sums, of which fp32 would lose much, are exact.
class GemmDoublesTest : public TableTest<GemmKernelsOf<double>> {
 protected:
  using Doubles = Guarded<double>;

  static std::vector<double> numbers(std::int64_t n, std::uint64_t seed) {
    std::vector<double> all(n);
    for (std::int64_t i = 0; i < n; ++i) all[i] = std::round(random_uniform(seed, i) * 0x1p20);
    return all;
  }

  // c [rows, columns], rows c_stride apart, is a b in the columns [first, last), and elsewhere what it was.
  static void expect_product(const std::vector<double>& a, const std::vector<double>& b, std::int64_t b_stride, Doubles& c,
                             std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t inner,
                             std::int64_t first = 0, std::int64_t last = INT64_MAX) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < (row + 1 < rows ? c_stride : columns); ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) sum += a[row * inner + k] * b[k * b_stride + column];
        const bool written = column < columns && column >= first && column < last;
        ASSERT_EQ(c[row * c_stride + column], written ? sum : -1) << "row " << row << " column " << column;
      }
    EXPECT_TRUE(c.guarded());
  }

  // Strips before `first` and of the last `skipped` are not written.
  void check(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t inner_block, bool few, std::int64_t first = 0,
             std::int64_t skipped = 0) const {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " x " << inner << (few ? " few" : " block"));
    const GemmKernelsOf<double>& table = this->table();
    const std::int64_t strips = (columns + table.width - 1) / table.width, last = strips - skipped, c_stride = columns + 3;
    // Few rows lie apart, or whole pages from one to the next.
    const std::int64_t behind = few && inner % table.kPageWords ? 8 : 0, stride = inner + behind;
    const std::vector<double> a = numbers(rows * inner, 1), b = numbers(inner * columns + 3, 2);
    Doubles of_a(rows * stride, 1), packed(strips * inner * table.width), panels(few ? 1 : table.panel_rows(rows) * inner);
    Doubles workspace(few ? table.few_floats(rows) : table.block_floats(rows, columns, inner_block));
    for (std::int64_t row = 0; row < rows; ++row) table.widen[0](a.data() + row * inner, of_a.data() + row * stride, inner);
    table.pack[0](b.data(), packed.data(), columns, inner, 0, strips);
    const auto run = [&](Streams streams, bool packs, bool lies) {
      Doubles c((rows - 1) * c_stride + columns, 5);
      std::fill_n(c.data(), c.size(), -1);
      GemmPartOf<double> part{.a = of_a.data(), .b = packed.data(), .c = c.data(), .workspace = workspace.data(), .rows = rows,
                              .columns = columns, .c_stride = c_stride, .inner = inner, .behind = behind, .first = first,
                              .last = last, .inner_block = inner_block, .lies = lies, .near = lies, .streams = streams};
      for (std::int64_t k = 0; packs && k < inner; k += inner_block)
        table.pack_a(part, k, std::min(inner_block, inner - k), panels.data() + k * table.panel_rows(rows));
      if (packs) part.panels = panels.data();
      (few ? table.few : table.block)[0](part);
      expect_product(a, b, columns, c, c_stride, rows, columns, inner, first * table.width, last * table.width);
    };
    if (few)
      for (const Streams streams : {Streams{GemmKernels::kMostStreams}, {2, true}, {1, true}, {.sparse = true}, {.prefetch = false}}) run(streams, false, false);
    else
      for (const bool packs : {false, true}) run({}, packs, false);
    if (!few && table.lies(strips)) run({}, false, true);
    for (Doubles* each : {&of_a, &packed, &panels, &workspace}) EXPECT_TRUE(each->guarded());
  }
};

TEST_P(GemmDoublesTest, EveryNumberOfFewRows) {
  for (std::int64_t rows = 1; rows <= GemmKernels::kMostFewRows; ++rows) check(rows, 9 * table().width, 70, 0, true);
}

TEST_P(GemmDoublesTest, FewRowsWholePagesApart) {
  for (const std::int64_t rows : {1, 8, 9, 14, 18}) check(rows, 3, 2048, 0, true);
}

TEST_P(GemmDoublesTest, EveryNumberOfRowsOfABlock) {
  for (std::int64_t rows = 1; rows <= 2 * table().tile_rows + 1; ++rows)
    check(rows, 2 * table().width, 45, 45, false);
}

TEST_P(GemmDoublesTest, SumsOfSeveralBlocks) {
  check(2 * table().tile_rows + 7, 2 * table().width + 5, 200, 32, false);
  check(19, table().width + 5, 1024, 512, false);  // rows of whole pages
}

TEST_P(GemmDoublesTest, EveryRemainder) {
  const int width = table().width;
  for (const bool few : {false, true}) {
    for (std::int64_t columns = 1; columns <= 2 * width + 1; ++columns) check(3, columns, 33, 16, few);
    for (const std::int64_t inner : {1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 130}) check(5, width + 3, inner, 64, few);
  }
}

TEST_P(GemmDoublesTest, ARangeOfStripsWritesItsColumnsAlone) {
  for (const bool few : {false, true}) check(7, 21 * table().width - 1, 40, 32, few, 2, 1);
}

// b as it lies, a part of a wider matrix, and the same b packed.
TEST_P(GemmDoublesTest, TakesBAsItLies) {
  const GemmKernelsOf<double>& table = this->table();
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 14, 18})
    for (const std::int64_t columns : {1, 3, 16, 37, 600})
      for (const std::int64_t inner : {1, 7, 8, 19, 45}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << columns << " x " << inner);
        const std::int64_t stride = columns + 5, c_stride = columns + 3, width = table.width, strips = (columns + width - 1) / width;
        const std::vector<double> a = numbers(rows * inner, 1), b = numbers(inner * stride, 2);
        Doubles c((rows - 1) * c_stride + columns, 1), packed(strips * inner * width), of_b((inner - 1) * stride + columns);
        std::copy_n(b.data(), of_b.size(), of_b.data());
        std::fill_n(c.data(), c.size(), -1);
        table.plain[0](a.data(), of_b.data(), stride, c.data(), c_stride, rows, columns, inner, Stored::fp32,
                       inner > 19 ? Held::in_second : inner > 8 ? Held::in_last : Held::nowhere);
        expect_product(a, b, stride, c, c_stride, rows, columns, inner);
        table.pack_wide[0](of_b.data(), stride, packed.data(), columns, inner);
        for (std::int64_t k = 0; k < inner; ++k)
          for (std::int64_t column = 0; column < strips * width; ++column)
            ASSERT_EQ(packed[(column / width * inner + k) * width + column % width], column < columns ? b[k * stride + column] : 0);
        EXPECT_TRUE(packed.guarded());
      }
}

const std::vector<Tested<GemmKernelsOf<double>>> kTestedDoubles = {ROOFLINE_TESTED(gemm_doubles)};
INSTANTIATE_TEST_SUITE_P(Sets, GemmDoublesTest, testing::ValuesIn(kTestedDoubles), testing::PrintToStringParamName());

}  // namespace
}  // namespace roofline::cpu
