// Products with weights of 8 and 4 bits on every instruction set against double: few rows and blocks, groups of every size with their
// scales and zero points, remainders of rows, columns and inner, with guard zones. AVX-512 also runs by SIMDe's emulation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/gemm_kernels.h"
#include "cpu/isa.h"
#include "guarded.h"
#include "tested.h"

namespace roofline::cpu {

extern const QuantizedKernels quantized_simde;
extern const QuantizedTiles quantized_tiles_emulated;

namespace {

const std::vector<Tested<QuantizedKernels>> kTested = {
    ROOFLINE_TESTED(quantized), {"avx512_vnni", ROOFLINE_TESTED_IF_BUILT(avx512_vnni, quantized_avx512_vnni), "avx512_vnni"}};

// Kernels of tiles take what FixedPoint::fix makes of a for strips of this width.
constexpr int kTileWidth = 32;
const std::vector<Tested<QuantizedTiles>> kTiles = {ROOFLINE_TESTED_TILES(quantized_tiles)};

class QuantizedTest : public TableTest<QuantizedKernels> {
 protected:
  static int number(std::int64_t i, int bits) {
    const int most = 1 << (bits - 1);
    return std::max(-most, std::min(most - 1, static_cast<int>(std::floor(random_uniform(11, i) * most / 1.7))));
  }

  // The same product with a rounded to 16-bit numbers, or to digits: each term errs by at most half of a unit times a weight, and
  // the largest a has 32767 units, 127 254, or 127 254 254.
  void check_fixed(QuantizedPart part, int which, const FixedPoint& as, const std::vector<double>& expected) const {
    const QuantizedKernels& table = this->table();
    const std::int64_t chunk = table.chunk[which] << part.longer;
    const std::int64_t chunks = part.groups * ((part.group - 1) / chunk + 1);
    const std::int64_t tile_rows = (part.rows + QuantizedTiles::kRows - 1) / QuantizedTiles::kRows * QuantizedTiles::kRows;
    Floats a(tile_rows * as.words(part.group, part.groups), 1), scales(part.rows * chunks, 0), sums(part.rows * chunks, 2);
    Floats c(part.rows * part.columns, 3);
    for (Floats* each : {&a, &scales, &sums}) each->fill(5);
    const auto* const exact = static_cast<const float*>(part.a);
    auto* const words = reinterpret_cast<std::uint32_t*>(a.data());
    part.a = a.data(), part.sums = sums.data(), part.scales_of_a = scales.data(), part.c = c.data();
    double top = 0;
    for (std::int64_t i = 0; i < part.rows * part.inner; ++i) top = std::max(top, std::abs(static_cast<double>(exact[i])));
    const double most = 0.75 * ((which ? 8 : 128) + 5);  // of a weight with its zero point
    const double units = as.digits == 1 ? 65534 : as.digits == 2 ? 64516 : 16.387e6;
    const double error = (top / units * 1.01 + 1e-7) * most * part.inner + 1e-5;
    std::vector<float> infinite(exact, exact + part.rows * part.inner);
    const std::int64_t odd = part.rows / 2;
    infinite[(odd + 1) * part.inner - 1] = HUGE_VALF;
    std::vector<void (*)(const QuantizedPart&)> kernels;
    if (as.few) kernels.push_back(as.few);
    for (const auto& tiles : kTiles)
      if (as.digits > 1 && table.width == kTileWidth && tiles.table && lacks(tiles.needs).empty())
        kernels.push_back(tiles.table->few[which][as.digits - 2]);
    for (const auto kernel : kernels) {
      SCOPED_TRACE(kernel == as.few ? "in vectors" : "in tiles");
      c.fill(5);
      as.fix(exact, words, scales.data(), sums.data(), part.rows, part.inner, part.group, chunk, part.zeros);
      kernel(part);
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(c[static_cast<std::int64_t>(i)], expected[i], error) << "number " << i;
      as.fix(infinite.data(), words, scales.data(), sums.data(), part.rows, part.inner, part.group, chunk, part.zeros);
      kernel(part);
      for (std::int64_t i = 0; i < part.rows * part.columns; ++i)
        ASSERT_EQ(std::isfinite(c[i]), i / part.columns != odd) << "number " << i;
    }
    for (Floats* each : {&a, &scales, &sums, &c}) EXPECT_TRUE(each->guarded());
  }

  // Scales and zero points in fp32, or as the high halves of words in bf16.
  void check(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t group, int bits, bool few, bool zeros,
             bool narrow) const {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " x " << inner << (few ? " few " : " block ") << bits << " bits, groups of "
                                    << group << (zeros ? ", zero points" : "") << (narrow ? ", bf16" : ""));
    const QuantizedKernels& table = this->table();
    const int which = bits == 4, width = table.width;
    const std::int64_t groups = (inner + group - 1) / group, strips = (columns + width - 1) / width, inner_block = 16;
    const std::int64_t size = narrow ? 2 : 4, header = width * size * (zeros ? 2 : 1), padded = (group + 3) / 4 * 4;
    const std::int64_t group_bytes = header + padded * width * bits / 8, bytes = strips * groups * group_bytes;
    const auto scale = [&](std::int64_t g, std::int64_t j) { return static_cast<float>((g * 7 + j * 3) % 13 - 6) / 8; };
    const auto zero = [&](std::int64_t g, std::int64_t j) { return zeros ? static_cast<float>((g * 5 + j) % 11 - 5) : 0.0f; };
    Floats packed((bytes + 3) / 4, 0), a(rows * inner, 1), c(rows * columns, 3);
    GemmKernels sizes{};
    sizes.width = width;
    Floats workspace(few ? sizes.few_floats(rows) : sizes.block_floats(rows, columns, inner_block), 0);
    const int longer = static_cast<int>(rows % 3);
    const std::int64_t chunk = table.chunk[which] << longer, parts = (group - 1) / chunk + 1;
    Floats sums(rows * groups * parts, 0);
    a.fill(1);
    c.fill(7);
    auto* const to = reinterpret_cast<std::uint8_t*>(packed.data());
    std::memset(to, 0, bytes);
    for (std::int64_t strip = 0; strip < strips; ++strip)
      for (std::int64_t g = 0; g < groups; ++g) {
        std::uint8_t* const from = to + (strip * groups + g) * group_bytes;
        for (int j = 0; j < width && strip * width + j < columns; ++j) {
          const std::int64_t column = strip * width + j;
          const float stated[2] = {scale(g, column), zero(g, column)};
          for (int each = 0; each < (zeros ? 2 : 1); ++each)
            std::memcpy(from + (each * width + j) * size, reinterpret_cast<const char*>(&stated[each]) + (narrow ? 2 : 0), size);
          for (std::int64_t r = 0; r < group && g * group + r < inner; ++r) {
            const int n = number((g * group + r) * columns + column, bits);
            if (bits == 8)
              from[header + r * width + j] = static_cast<std::uint8_t>(n);
            else
              from[header + (r / 4 * (width / 2) + j % (width / 2)) * 4 + r % 2 * 2 + r % 4 / 2] |= (n + 8) << (j / (width / 2) * 4);
          }
        }
      }
    table.add_up(a.data(), sums.data(), rows, inner, group, chunk);
    QuantizedPart part{};
    part.a = a.data(), part.b = packed.data(), part.c = c.data(), part.workspace = workspace.data();
    part.rows = rows, part.columns = columns, part.c_stride = columns, part.inner = inner;
    part.first = 0, part.last = strips, part.inner_block = inner_block;
    part.group = group, part.groups = groups, part.longer = longer, part.streams.count = 1 + static_cast<int>(rows / 3 % 2);
    part.scale = narrow ? Stored::bf16 : Stored::fp32, part.zeros = zeros, part.sums = sums.data();
    (few ? table.few : table.block)[which](part);
    std::vector<double> sums_of_rows;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k)
          sum += static_cast<double>(a[row * inner + k]) * scale(k / group, column) * (number(k * columns + column, bits) - zero(k / group, column));
        ASSERT_NEAR(c[row * columns + column], sum, 1e-7 * (1 << bits) * (inner + 16)) << "row " << row << " column " << column;
        sums_of_rows.push_back(sum);
      }
    const std::vector<std::uint8_t> in_rows(to, to + bytes);
    for (const FixedPoint& as : table.fixed[which]) {
      if (!few || !as.numbers || (as.digits == 1 && rows > table.tile_rows)) continue;
      const std::int64_t together = as.numbers;  // rows of 8 bits
      for (std::int64_t at = header; bits == 8 && at < bytes; at += group_bytes)
        for (std::int64_t row = 0; row < padded; ++row)
          for (std::int64_t j = 0; j < width; ++j) {
            const std::int64_t within = row % together, place = together == 4 ? within % 2 * 2 + within / 2 : within;
            const int byte = in_rows[at + row * width + j] + (together == 4 ? 128 : 0);
            to[at + (row / together * width + j) * together + place] = static_cast<std::uint8_t>(byte);
          }
      check_fixed(part, which, as, sums_of_rows);
    }
    for (std::int64_t strip = 0; !few && strip < strips; ++strip) {
      const std::int64_t first = inner / 3;
      Floats wide((inner - first) * width, 0);
      table.widen[which](part, reinterpret_cast<const char*>(to + strip * groups * group_bytes), first, inner - first, wide.data());
      for (std::int64_t k = first; k < inner; ++k)
        for (std::int64_t j = 0; j < width && strip * width + j < columns; ++j) {
          const std::int64_t column = strip * width + j;
          const double exact = scale(k / group, column) * (number(k * columns + column, bits) - zero(k / group, column));
          ASSERT_NEAR(wide[(k - first) * width + j], exact, 1e-7 * (1 << bits)) << "row " << k << " column " << column;
        }
      EXPECT_TRUE(wide.guarded());
    }
    for (Floats* each : {&a, &c, &packed, &workspace, &sums}) EXPECT_TRUE(each->guarded());
  }
};

TEST_P(QuantizedTest, EveryNumberOfFewRows) {
  for (std::int64_t rows = 1; rows <= GemmKernels::kMostFewRows; ++rows)
    for (const int bits : {8, 4})
      for (const bool zeros : {false, true}) check(rows, 9 * table().width, 70, 32, bits, true, zeros, true);
}

TEST_P(QuantizedTest, EveryNumberOfRowsOfABlock) {
  for (std::int64_t rows = 1; rows <= 2 * table().tile_rows + 1; ++rows)
    for (const int bits : {8, 4}) check(rows, 2 * table().width, 45, 20, bits, false, true, false);
}

TEST_P(QuantizedTest, EveryRemainderOfColumns) {
  for (std::int64_t columns = 1; columns <= 2 * table().width + 1; ++columns)
    for (const bool few : {false, true})
      for (const int bits : {8, 4}) check(3, columns, 33, 16, bits, few, false, false);
}

TEST_P(QuantizedTest, GroupsOfEverySize) {
  for (const std::int64_t group : {1, 2, 3, 4, 5, 7, 8, 31, 64, 100, 130, 300})
    for (const std::int64_t rows : {2, 15})
      for (const bool few : {false, true})
        for (const int bits : {8, 4})
          for (const bool zeros : {false, true}) check(rows, table().width + 3, 131, group, bits, few, zeros, !zeros);
}

TEST_P(QuantizedTest, EveryRemainderOfInner) {
  for (const std::int64_t inner : {1, 2, 3, 4, 5, 15, 16, 17, 1025, 2051})
    for (const bool few : {false, true})
      for (const int bits : {8, 4})
        for (const bool narrow : {false, true}) check(5, table().width - 1, inner, inner, bits, few, narrow, narrow);
}

// Digits of the largest number of a chunk, of many: where it is rounded up, they must not carry beyond the first.
TEST_P(QuantizedTest, DigitsOfTheLargest) {
  for (const FixedPoint& as : table().fixed[1]) {
    if (as.digits < 2) continue;
    constexpr std::int64_t kRows = 4;
    std::vector<std::uint32_t> words(as.words(kRows, 1));
    for (std::int64_t i = 0; i < 20000; ++i) {
      const float top = 2 + static_cast<float>(random_uniform(3, i));
      const float a[kRows] = {top, -top, top / 3, 0};
      float scale = 0, sum = 0;
      as.fix(a, words.data(), &scale, &sum, 1, kRows, kRows, kRows, true);
      for (std::int64_t k = 0; k < kRows; ++k) {
        double number = 0;
        for (int digit = 0; digit < as.digits; ++digit) {
          const std::uint32_t word = words[digit * as.words(kRows, 1) / as.digits];  // whose second and third byte change places
          number = 256 * number + static_cast<std::int8_t>(word >> 8 * (k % 2 * 2 + k / 2));
        }
        // Half of a unit, and four roundings in fp32.
        ASSERT_NEAR(number * scale, a[k], top * ((as.digits == 2 ? 1.6e-5 : 6e-8) + 4 * 6e-8)) << "number " << k << " of " << top;
      }
    }
  }
}

// The longest chunk there is, of the largest numbers of a and the least weights: sums of words do not overflow.
TEST_P(QuantizedTest, SumsOfTheLargestFit) {
  const QuantizedKernels& table = this->table();
  const std::int64_t inner = table.chunk[0] << 2, header = 4 * table.width;
  for (const FixedPoint& as : table.fixed[0]) {
    if (!as.few) continue;
    Floats packed((header + inner * table.width) / 4, 0), a(inner, 0), words(as.words(inner, 1), 0), scales(1, 0), sums(1, 0);
    Floats c(table.width, 0), workspace(GemmKernels::kMostStreams * table.width, 0);
    std::fill_n(a.data(), inner, 1.0f);
    std::fill_n(packed.data(), table.width, 1.0f);
    std::memset(packed.data() + table.width, as.numbers == 4 ? 0 : -128, inner * table.width);
    as.fix(a.data(), reinterpret_cast<std::uint32_t*>(words.data()), scales.data(), sums.data(), 1, inner, inner, inner, false);
    QuantizedPart part{};
    part.a = words.data(), part.b = packed.data(), part.c = c.data(), part.workspace = workspace.data();
    part.rows = 1, part.columns = part.c_stride = table.width, part.inner = inner, part.last = 1;
    part.group = inner, part.groups = 1, part.longer = 2, part.scale = Stored::fp32;
    part.sums = sums.data(), part.scales_of_a = scales.data();
    as.few(part);
    for (int j = 0; j < table.width; ++j) EXPECT_NEAR(c[j], -128.0 * inner, 0.01 * inner) << "column " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, QuantizedTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

}  // namespace
}  // namespace roofline::cpu
