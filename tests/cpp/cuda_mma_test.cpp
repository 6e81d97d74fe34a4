// The probes of the tensor units where there is no GPU: matrix descriptors against a table worked out by hand, and whole kernels on
// emulated blocks against products in float64.
#define ROOFLINE_CUDA_EMULATED

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "core/random.h"
#include "cuda/probes/mma_kernels.cuh"
#include "cuda/sm90a/mma_kernels.cuh"
#include "guarded.h"

namespace {

using namespace roofline;
using namespace roofline::cuda;

// -- descriptors --------------------------------------------------------------------------------------------------------------

TEST(Descriptor, FieldsStandWhereTheIsaHasThem) {
  // Start address in bits 0 to 13, leading distance from 16, stride from 32, swizzle from 62; sizes over 16.
  EXPECT_EQ(row_descriptor(0x400), 0x4000'0040'0001'0040u);
  EXPECT_EQ(row_descriptor(0x420), 0x4000'0040'0001'0042u);
  EXPECT_EQ(column_descriptor(0x38000, 256), 0x4000'0040'0010'3800u);
  EXPECT_EQ(column_descriptor(0x3FFF0, 0x3FFF0), 0x4000'0040'3FFF'3FFFu);
  EXPECT_EQ(column_descriptor(0x40000, 0), 0x4000'0040'0000'0000u) << "18 bits of address";
  EXPECT_EQ(row_descriptor(0x400) + kNextInner, row_descriptor(0x420));
}

TEST(Descriptor, RowsOfATileAreWhereCopiesPutThem) {
  // Chunk 0 of eight rows: each row 128 bytes on, and 16 bytes further inside the row.
  const int first[] = {0, 144, 288, 432, 576, 720, 864, 1008};
  for (int row = 0; row < 8; ++row) EXPECT_EQ(swizzled<8>(row, 0), first[row]);
  EXPECT_EQ(swizzled<8>(1, 1), 128);
  EXPECT_EQ(swizzled<8>(13, 2), 13 * 128 + (2 ^ 5) * 16);
}

// -- whole kernels ------------------------------------------------------------------------------------------------------------

using Bytes = cpu::Guarded<char>;

template <class In>
constexpr int kBits = kBitsOf<In>;
struct Double {};
template <>
constexpr int kBits<Double> = 64;

// Element i: random of variance 1 (of int8 between -127 and 127, of int4 between -8 and 7), and the same negative (then from -7).
template <class In>
void put(char* to, char* negative, std::uint64_t seed, std::uint64_t i) {
  const double x = random_uniform(seed, i);
  const auto both = [&](auto bits, auto flipped) {
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
    if (negative) std::memcpy(negative + i * sizeof flipped, &flipped, sizeof flipped);
  };
  if constexpr (std::is_same_v<In, Int4>) {
    const int whole = negative ? static_cast<int>(random_bits(seed, i) % 15) - 7 : static_cast<int>(random_bits(seed, i) % 16) - 8;
    const auto half = [&](char& byte, int number) {
      byte = static_cast<char>(i % 2 ? (byte & 15) | (number & 15) << 4 : number & 15);
    };
    half(to[i / 2], whole);
    if (negative) half(negative[i / 2], -whole);
  }
  if constexpr (std::is_same_v<In, Double>) both(x, -x);
  if constexpr (std::is_same_v<In, Tf32>) both(static_cast<float>(x), -static_cast<float>(x));
  if constexpr (std::is_same_v<In, Fp16> || std::is_same_v<In, Bf16>) {
    const auto bits = static_cast<std::uint16_t>(rounded(In{}, static_cast<float>(x)));
    both(bits, static_cast<std::uint16_t>(bits ^ 0x8000));
  }
  if constexpr (std::is_same_v<In, Fp8E4m3>) both(to_fp8_e4m3(x), static_cast<std::uint8_t>(to_fp8_e4m3(x) ^ 0x80));
  if constexpr (std::is_same_v<In, Int8>) {
    const auto whole = static_cast<std::int8_t>(random_bits(seed, i) % 255 - 127);
    both(whole, static_cast<std::int8_t>(-whole));
  }
}
template <class In>
double get(const char* from, std::int64_t i) {
  if constexpr (std::is_same_v<In, Double>)
    return reinterpret_cast<const double*>(from)[i];
  else
    return element(In{}, from, static_cast<int>(i));
}

// Sum: what c holds; Half of 16 bits.
template <class In, class Sum, class Kernel>
void expect_products(const MmaTile& tile, int threads, int shared_bytes, double tolerance, Kernel kernel) {
  const std::int64_t inner = 8 * tile.inner_bytes / kBits<In>;
  for (const auto& [tiles, steps] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 2}, {2, 5}}) {
    const std::int64_t as = tiles * tile.rows * inner, bs = tiles * tile.columns * inner, cs = tiles * tile.rows * tile.columns;
    constexpr int kSumBytes = std::is_same_v<Sum, Half> ? 2 : static_cast<int>(sizeof(Sum));
    const std::int64_t a_bytes = as * kBits<In> / 8;
    Bytes a(2 * a_bytes), b(bs * kBits<In> / 8), c(cs * kSumBytes);
    for (std::int64_t i = 0; i < as; ++i) put<In>(a.data(), a.data() + a_bytes, 1 + steps, i);
    for (std::int64_t i = 0; i < bs; ++i) put<In>(b.data(), nullptr, 2, i);
    const MmaWork work = {a.data(), b.data(), c.data(), tiles, steps, 1};
    for (const Emulation mode : {Emulation{}, Emulation{false, true, false}})
      emulate(work.blocks, threads, shared_bytes, mode, [&] { kernel(work); });
    for (std::int64_t t = 0; t < tiles; ++t)
      for (int row = 0; row < tile.rows; ++row)
        for (int column = 0; column < tile.columns; ++column) {
          double expected = 0;
          for (std::int64_t k = 0; k < inner && steps % 2; ++k)
            expected +=
                get<In>(a.data(), (t * tile.rows + row) * inner + k) * get<In>(b.data(), (t * tile.columns + column) * inner + k);
          const std::int64_t at = (t * tile.rows + row) * tile.columns + column;
          double found;
          if constexpr (std::is_same_v<Sum, Half>)
            found = element(Fp16{}, c.data(), static_cast<int>(at));
          else
            found = static_cast<double>(reinterpret_cast<const Sum*>(c.data())[at]);
          ASSERT_NEAR(found, expected, tolerance) << "tile " << t << " [" << row << ", " << column << "], " << steps << " steps";
        }
    ASSERT_TRUE(c.guarded());
  }
}

template <class In, class Sum>
void expect_warps(double tolerance) {
  expect_products<In, Sum>(kWarpTile, kMmaThreads, 0, tolerance, mma_words<In, Sum>);
}

TEST(MmaSync, EveryFragmentIsTheProductOfItsOperands) {
  expect_warps<Fp16, float>(1e-5);
  expect_warps<Bf16, float>(1e-5);
  expect_warps<Tf32, float>(1e-5);
  expect_warps<Fp8E4m3, float>(1e-5);
  expect_warps<Int8, std::int32_t>(0);
  expect_warps<Int4, std::int32_t>(0);
  expect_warps<Fp16, Half>(0.05);
  expect_warps<Fp8E4m3, Half>(0.05);
}

TEST(MmaSync, DoublesByBothInstructions) {
  expect_products<Double, double>(kWarpDoubleTile, kMmaThreads, 0, 1e-13, mma_doubles<false>);
  expect_products<Double, double>(kWarpDoubleTile, kMmaThreads, 0, 1e-13, mma_doubles<true>);
}

TEST(MmaSync, EveryStepOfEveryTileIsExecuted) {
  Bytes a(2 * 5 * 32 * 32), b(5 * 64 * 32), c(5 * 32 * 64 * 4);
  const MmaWork work = {a.data(), b.data(), c.data(), 5, 7, 2};
  for (const auto kernel : {mma_words<Int8, std::int32_t>, mma_words<Int4, std::int32_t>}) {
    EmulatedBlock::products = 0;
    emulate(work.blocks, kMmaThreads, 0, {}, [&] { kernel(work); });
    EXPECT_EQ(EmulatedBlock::products, 5 * 7 * (32 / 16) * (64 / 8));
  }
}

template <class In, class Sum>
void expect_warpgroups(double tolerance) {
  shown_to_units = false;
  expect_products<In, Sum>(kWarpgroupTile, kWgmmaThreads, kWgmmaSharedBytes, tolerance, mma_warpgroups<In, Sum>);
}

TEST(Wgmma, SwizzledOperandsGiveTheProduct) {
  expect_warpgroups<Fp16, float>(1e-4);
  expect_warpgroups<Bf16, float>(1e-4);
  expect_warpgroups<Tf32, float>(1e-4);
  expect_warpgroups<Fp8E4m3, float>(1e-4);
  expect_warpgroups<Int8, std::int32_t>(0);
}

TEST(Wgmma, EveryStepIsOneGroupOfFour) {
  Bytes a(2 * kWgmmaABytes), b(kWgmmaBBytes), c(64 * 256 * 4);
  const MmaWork work = {a.data(), b.data(), c.data(), 1, 3, 1};
  EmulatedBlock::products = 0;
  emulate(work.blocks, kWgmmaThreads, kWgmmaSharedBytes, {}, [&] { mma_warpgroups<Int8, std::int32_t>(work); });
  EXPECT_EQ(EmulatedBlock::products, kWarpgroups * 4 * 3 * 4);  // both warpgroups on the one tile, by warps
  static_assert(kWgmmaSharedBytes <= 227 << 10);
}

}  // namespace
