// The multiply-add kernels of every instruction set here, and those of AMX over an emulation of its tiles.
#include "cpu/fma_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "guarded.h"

namespace roofline::cpu {

extern const FmaKernels fma_emulated;
extern const FmaOperandKernels fma_operands_emulated;

namespace {

const std::int64_t kSteps[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 1001};

// Chains start at different whole numbers, so that every result is exact: odd steps end `moved` above, even ones where they began.
template <class T>
void whole_numbers(const std::string& name, FmaKernel kernel, double moved, const FmaOperands* operands) {
  if (!kernel.run) return;
  ASSERT_LE(kernel.block * static_cast<std::int64_t>(sizeof(T)), kWidestFmaBlockBytes) << name;
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> start(kWidestFmaBlockBytes / 64), result(kWidestFmaBlockBytes / 64 + 1);
  for (const std::int64_t steps : kSteps) {
    std::memset(result.data(), 0x55, result.size() * sizeof(Line));
    for (std::int64_t i = 0; i < kernel.block; ++i) {
      T value;
      if constexpr (sizeof(T) == 2)
        value = static_cast<T>(i % 2 ? 0x4000 : 0xC000);  // 2, -2
      else
        value = static_cast<T>(i % 1000 - 500);
      std::memcpy(reinterpret_cast<char*>(start.data()) + i * sizeof(T), &value, sizeof(T));
    }
    if (kernel.begin) kernel.begin();
    kernel.run(start.data(), result.data(), steps, operands);
    if (kernel.end) kernel.end();
    for (std::int64_t i = 0; i < kernel.block; ++i) {
      T value;
      std::memcpy(&value, reinterpret_cast<char*>(result.data()) + i * sizeof(T), sizeof(T));
      const double expected = (sizeof(T) == 2 ? (i % 2 ? 2 : -2) : i % 1000 - 500) + (steps % 2 ? moved : 0);
      if constexpr (sizeof(T) == 2)
        ASSERT_EQ(value_of(Fp16{value}), expected) << name << ", chain " << i << ", " << steps << " steps";
      else
        ASSERT_EQ(static_cast<double>(value), expected) << name << ", chain " << i << ", " << steps << " steps";
    }
    const char after = reinterpret_cast<char*>(result.data())[kernel.block * sizeof(T)];
    ASSERT_EQ(after, 0x55) << name << " writes past its block";
  }
}

// The kernel, and the loops that tell its clock: they compute the same.
template <class T>
void kernel_and_clocks(const std::string& name, FmaKernel kernel, double moved, const FmaOperands* operands = nullptr) {
  whole_numbers<T>(name, kernel, moved, operands);
  if (!kernel.run) return;
  for (const FmaClock& clock : kernel.clocks) {
    ASSERT_TRUE(clock.run) << name;
    EXPECT_GT(clock.cycles, 0) << name;
    kernel.run = clock.run;
    whole_numbers<T>(name + " clock", kernel, moved, operands);
  }
  EXPECT_EQ(kernel.clocks[0].steps, kernel.clocks[1].steps) << name;
  EXPECT_LT(kernel.clocks[0].cycles, kernel.clocks[1].cycles) << name;
}

void all_of(const std::string& name, const FmaKernels& kernels) {
  kernel_and_clocks<double>(name + " fp64", kernels.fp64, 15);
  kernel_and_clocks<float>(name + " fp32", kernels.fp32, 15);
  kernel_and_clocks<std::uint16_t>(name + " fp16", kernels.fp16, 15);
  kernel_and_clocks<float>(name + " bf16", kernels.bf16, 30);
  kernel_and_clocks<std::int32_t>(name + " int8", kernels.int8, 60);
  kernel_and_clocks<std::int32_t>(name + " int16", kernels.int16, 30);
  kernel_and_clocks<double>(name + " fp64 fma_add", kernels.fp64_add, 6);
  kernel_and_clocks<float>(name + " fp32 fma_add", kernels.fp32_add, 6);
}

TEST(Fma, EverySetHere) {
  for (const auto& [isa, kernels] : fma_tables())
    if (has(isa)) all_of(name(isa), *kernels);
}

// CHAINS_PER_THREAD of probes/compute.py are whole blocks of every set, so that no probe runs a padded one.
TEST(Fma, BlocksDivideTheChainsOfAThread) {
  for (const auto& [isa, kernels] : fma_tables())
    for (const FmaKernel& kernel : {kernels->fp64, kernels->fp32, kernels->fp16, kernels->bf16, kernels->int8, kernels->int16,
                                    kernels->fp64_add, kernels->fp32_add}) {
      if (!kernel.run) continue;
      EXPECT_EQ((isa == Isa::amx ? 16384 : 3840) % kernel.block, 0) << name(isa);
    }
}

#if defined(ROOFLINE_AMX_EMULATED)
TEST(Fma, AmxEmulated) {
  all_of("emulated amx", fma_emulated);
  EXPECT_EQ(fma_emulated.bf16.block, 1024);
}

TEST(Fma, AmxTakesSixteenStepsAtOnce) {
  std::vector<float> start(1024), result(1024);
  for (const std::int64_t steps : kSteps) {
    fma_emulated.bf16.begin();
    fma_emulated.bf16.run(start.data(), result.data(), steps, nullptr);
    EXPECT_EQ(emulated_amx.products, 4 * ((steps + 15) / 16));
    fma_emulated.bf16.end();
    EXPECT_FALSE(emulated_amx.configured);
  }
}

struct alignas(64) Tiles {
  std::uint32_t words[2][16][16];  // a pair
};
static_assert(sizeof(Tiles) == FmaOperands::kPairBytes);

// With operands in memory the results are those of registers.
TEST(Fma, AmxOperandsGiveTheSame) {
  for (const auto& [left_pairs, right_pairs] : {std::pair{1, 1}, {3, 2}, {8, 8}}) {
    std::vector<Tiles> left(left_pairs + 1), right(right_pairs + 1);
    std::memset(left.data(), 0x55, sizeof(Tiles) * left.size());
    std::memset(right.data(), 0x55, sizeof(Tiles) * right.size());
    const FmaOperands operands = {reinterpret_cast<char*>(left.data()), reinterpret_cast<char*>(right.data()), left_pairs,
                                  right_pairs};
    fma_operands_emulated.bf16.fill(operands);
    kernel_and_clocks<float>("bf16", fma_operands_emulated.bf16, 30, &operands);
    fma_operands_emulated.int8.fill(operands);
    kernel_and_clocks<std::int32_t>("int8", fma_operands_emulated.int8, 60, &operands);
    for (const Tiles* after : {&left.back(), &right.back()}) EXPECT_EQ(after->words[0][0][0], 0x55555555u) << "filled past the end";
  }
}

// Turn t multiplies rows of pair t mod left_pairs by columns of pair t mod right_pairs: every tile has a number of its own.
TEST(Fma, AmxOperandsAreWalkedInACircle) {
  constexpr int kLeft = 3, kRight = 2;
  std::vector<Tiles> left(kLeft), right(kRight);
  const auto spread = [](int value) { return 0x01010101u * static_cast<std::uint8_t>(value); };
  const auto row = [](int pair, int tile) { return 1 + 2 * pair + tile; };
  const auto column = [](int pair, int tile) { return 7 + 2 * pair + tile; };
  for (int tile = 0; tile < 2; ++tile)
    for (int r = 0; r < 16; ++r)
      for (int w = 0; w < 16; ++w) {
        for (int pair = 0; pair < kLeft; ++pair) left[pair].words[tile][r][w] = spread(row(pair, tile));
        for (int pair = 0; pair < kRight; ++pair) right[pair].words[tile][r][w] = spread(column(pair, tile));
      }
  const FmaOperands operands = {reinterpret_cast<char*>(left.data()), reinterpret_cast<char*>(right.data()), kLeft, kRight};
  const FmaKernel& kernel = fma_operands_emulated.int8;
  std::vector<std::int32_t> start(1024), result(1024);
  for (const int turns : {1, 2, 5, 12}) {
    kernel.begin();
    kernel.run(start.data(), result.data(), 16 * turns, &operands);
    kernel.end();
    for (int tile = 0; tile < 4; ++tile) {  // accumulators: rows 0 and 1 by columns 0 and 1
      int expected = 0;
      for (int turn = 0; turn < turns; ++turn) expected += 64 * row(turn % kLeft, tile / 2) * column(turn % kRight, tile % 2);
      for (int i = 0; i < 256; ++i) ASSERT_EQ(result[256 * tile + i], expected) << "tile " << tile << ", " << turns << " turns";
    }
  }
}
#endif

}  // namespace
}  // namespace roofline::cpu
