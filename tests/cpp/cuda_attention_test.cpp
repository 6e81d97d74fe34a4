// CUDA attention where there is no GPU: layouts against the tables of the PTX ISA, plans by counting, and whole kernels on emulated
// blocks against float64.
#define ROOFLINE_CUDA_EMULATED

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>
#include <vector>

#include "core/random.h"
#include "cuda/attention/fp32.cuh"
#include "cuda/attention/mla.cuh"
#include "cuda/attention/plan.h"
#include "cuda/attention/split.cuh"
#include "cuda/attention/tiled.cuh"
#include "cuda/simt/tiles.h"
#include "emulated_attention.h"
#include "emulated_mla.h"
#include "guarded.h"

namespace {

using namespace roofline;
using namespace roofline::cuda;

// -- layouts ------------------------------------------------------------------------------------------------------------------

template <int RowChunks>
void expect_swizzle() {
  constexpr int kRows = 32;
  std::set<int> seen;
  for (int row = 0; row < kRows; ++row)
    for (int chunk = 0; chunk < RowChunks; ++chunk) {
      const int at = swizzled<RowChunks>(row, chunk);
      ASSERT_EQ(at % kChunkBytes, 0);
      ASSERT_EQ(at / (RowChunks * kChunkBytes), row);  // rows stay where they are
      seen.insert(at);
      if constexpr (RowChunks >= 8) {
        ASSERT_EQ(at, swizzled_from<RowChunks>(swizzled<RowChunks>(row % 8, chunk % 2), row / 8, chunk / 2));
        ASSERT_EQ(at, swizzled_from<RowChunks>(swizzled<RowChunks>(row % 16, chunk % 2), row / 16 * 2, chunk / 2));
      }
    }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kRows * RowChunks));
  for (int row = 0; row < kRows; row += 8)
    for (int chunk = 0; chunk < RowChunks; ++chunk) {
      std::set<int> banks;  // of ldmatrix: eight rows, one chunk
      for (int i = 0; i < 8; ++i) banks.insert(swizzled<RowChunks>(row + i, chunk) / kChunkBytes % 8);
      EXPECT_EQ(banks.size(), 8u) << RowChunks;
    }
  for (int first = 0; first < kRows * RowChunks; first += 8) {
    std::set<int> banks;  // of a copy: eight chunks, one after the other
    for (int i = first; i < first + 8; ++i) banks.insert(swizzled<RowChunks>(i / RowChunks, i % RowChunks) / kChunkBytes % 8);
    EXPECT_EQ(banks.size(), 8u) << RowChunks;
  }
}

TEST(Tiles, SwizzleIsAPermutationWithoutBankConflicts) {
  expect_swizzle<4>();
  expect_swizzle<8>();
  expect_swizzle<16>();
  expect_swizzle<32>();
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": groupID = %laneid >> 2, threadID_in_group = %laneid % 4.
TEST(Tiles, SumsLieWhereThePtxIsaHasThem) {
  std::set<std::pair<int, int>> seen;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, in_group = lane % 4;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(c_place(lane, i).row, i < 2 ? group : group + 8);
      EXPECT_EQ(c_place(lane, i).column, in_group * 2 + (i & 1));
      seen.insert({c_place(lane, i).row, c_place(lane, i).column});
    }
  }
  EXPECT_EQ(seen.size(), 128u);
}

TEST(Tiles, RowsOfBytesAreAPermutation) {
  std::set<int> rows;
  for (int i = 0; i < 16; ++i) rows.insert(byte_row(i));
  EXPECT_EQ(rows.size(), 16u);
  EXPECT_EQ(*rows.rbegin(), 15);
}

// -- plans --------------------------------------------------------------------------------------------------------------------

TEST(QueryTiling, TakesEveryRowOnceAndTheLongestFirst) {
  for (const std::int64_t kv_heads : {1, 2, 6})
    for (const std::int64_t group : {1, 4})
      for (const std::int64_t seq_q : {1, 5, 127, 128, 129, 300})
        for (const std::int64_t l2 : {1, 5000, 1 << 30}) {
          const QueryTiling tiling = plan_queries(kv_heads * group, kv_heads, seq_q, 1000, 128, l2);
          ASSERT_EQ(tiling.units * tiling.unit_rows, kv_heads * group * seq_q);
          std::set<std::pair<std::int64_t, std::int64_t>> seen;
          std::int64_t before = INT64_MAX, unit_before = 0;
          for (std::int64_t i = 0; i < tiling.blocks(); ++i) {
            const QueryBlock at = query_block(tiling, i, 128);
            ASSERT_GE(at.row, 0);
            ASSERT_LT(at.row, tiling.unit_rows);
            ASSERT_EQ(at.row % 128, 0);
            ASSERT_LT(at.unit, tiling.units);
            seen.insert({at.unit, at.row});
            if (at.unit / tiling.section != unit_before / tiling.section) before = INT64_MAX;  // a new section
            ASSERT_LE(at.row, before);
            before = at.row, unit_before = at.unit;
          }
          ASSERT_EQ(seen.size(), static_cast<std::size_t>(tiling.blocks()));
        }
}

TEST(Buffers, FitEveryArchitecture) {
  struct Limits {
    std::int64_t per_sm, per_block;
  };
  // Shared memory of sm_80, sm_86 (and 89, 120), sm_90 (and 100), as the driver gives it.
  for (const Limits limits : {Limits{167936, 166912}, Limits{102400, 101376}, Limits{233472, 232448}})
    for (const std::int64_t fixed : {16384, 32768})
      for (const std::int64_t slot : {8192, 16384, 32768}) {
        const Buffers buffers = plan_buffers(fixed, slot, 4, 2, limits.per_sm, limits.per_block);
        ASSERT_GE(buffers.slots, 2);
        ASSERT_LE(buffers.shared_bytes, limits.per_block);
        ASSERT_LE(buffers.blocks_per_sm * (buffers.shared_bytes + 1024), limits.per_sm);
      }
  EXPECT_EQ(plan_buffers(1 << 20, 1024, 4, 2, 233472, 232448).blocks_per_sm, 0);
}

TEST(TiledRefuses, WhatItCannotLoad) {
  EXPECT_EQ(head_refuses("tiled", 64, 2), "");
  EXPECT_EQ(head_refuses("tiled", 17, 4), "");
  EXPECT_NE(head_refuses("tiled", 17, 2).find("multiples of 8"), std::string::npos);
  EXPECT_NE(head_refuses("tiled", 512, 4).find("up to 256"), std::string::npos);
}

TEST(KvSplit, CoversEveryStepOnceWithEqualShares) {
  for (const std::int64_t units : {1, 2, 3, 7, 8, 64})
    for (const std::int64_t unit_steps : {1, 3, 5, 12, 16, 100})
      for (const std::int64_t resident : {1, 4, 5, 7, 100, 132, 264})
        for (const auto& [least, busy] : {std::pair<std::int64_t, int>{1, 17}, {4, 17}, {1, 12}, {4, 12}, {1, 8}, {1, 0}}) {
          const KvSplit split = plan_split(units, unit_steps, resident, least, busy);
          ASSERT_GE(split.blocks, 1);
          ASSERT_LE(split.blocks, resident);
          ASSERT_EQ(split.begin(0), 0);
          ASSERT_EQ(split.begin(split.blocks), split.steps());
          std::set<std::int64_t> places;
          for (std::int64_t block = 0; block < split.blocks; ++block) {
            const std::int64_t share = split.begin(block + 1) - split.begin(block);
            ASSERT_GE(share, std::min<std::int64_t>(least, split.steps()));
            ASSERT_LE(share, ceil_div(split.steps(), split.blocks));
            for (std::int64_t step = split.begin(block); step < split.begin(block + 1); ++step)
              ASSERT_EQ(split.block_of(step), block);
          }
          std::int64_t shares = 0;
          for (std::int64_t unit = 0; unit < units; ++unit)
            for (std::int64_t block = split.first_block(unit); block <= split.last_block(unit); ++block, ++shares) {
              const bool shared = split.first_block(unit) != split.last_block(unit);
              if (!shared) continue;
              ASSERT_TRUE(places.insert(split.scratch(block, unit)).second) << "two parts in one place";
              ASSERT_LT(split.scratch(block, unit), 2 * split.blocks);
            }
          ASSERT_LE(shares, units + split.blocks);
          ASSERT_EQ(split_parts(split), static_cast<std::int64_t>(places.size())) << "parts are those of shared units";
        }
}

TEST(KvSplit, SharesEndWhereUnitsDoIfThatKeepsTheGpuBusy) {
  EXPECT_EQ(plan_split(64, 128, 66, 4, 15).blocks, 64);
  EXPECT_EQ(split_parts(plan_split(64, 128, 66, 4, 15)), 0);
  EXPECT_EQ(plan_split(128, 64, 66, 4, 15).blocks, 64);
  EXPECT_EQ(plan_split(60, 128, 66, 4, 15).blocks, 66);   // 10 % would be idle
  EXPECT_EQ(plan_split(129, 128, 66, 4, 15).blocks, 66);  // two units to a block, and one left
  EXPECT_EQ(plan_split(8, 256, 264, 4, 12).blocks, 256);  // 33 to a unit take 8 steps at most, as 32 do
  EXPECT_EQ(plan_split(56, 128, 264, 4, 12).blocks, 224);
  EXPECT_EQ(plan_split(56, 128, 264, 4, 14).blocks, 264);
}

TEST(SplitRefuses, WhatItCannotTake) {
  EXPECT_EQ(split_refuses(128, 8, 2, 16, 1000, 64), "");
  EXPECT_EQ(split_refuses(64, 1, 1, 0, 1000, 64), "");
  EXPECT_NE(split_refuses(128, 9, 2, 0, 1000, 64).find("seq_q up to 8"), std::string::npos);
  EXPECT_NE(split_refuses(264, 1, 2, 0, 1000, 64).find("up to 256"), std::string::npos);
  EXPECT_NE(split_refuses(256, 1, 1, 0, 1000, 64).find("up to 128"), std::string::npos);
  EXPECT_NE(split_refuses(72, 1, 1, 0, 1000, 64).find("multiples of 16 as head_dim"), std::string::npos);
  EXPECT_NE(split_refuses(128, 1, 2, 24, 1000, 64).find("page_size"), std::string::npos);
  EXPECT_NE(split_refuses(128, 1, 2, 0, std::int64_t{1} << 31, 64).find("2^31"), std::string::npos);
}

TEST(MlaRefuses, WhatItCannotTake) {
  EXPECT_EQ(mla_refuses(512, 64, 1000, 128), "");
  EXPECT_NE(mla_refuses(520, 64, 1000, 128).find("up to 512"), std::string::npos);
  EXPECT_NE(mla_refuses(512, 4, 1000, 128).find("multiples of 8"), std::string::npos);
  EXPECT_NE(mla_refuses(512, 64, std::int64_t{1} << 31, 128).find("2^31"), std::string::npos);
}

TEST(Fp8, IsRoundedToNearestEven) {
  for (int bits = 0; bits < 126; ++bits) {  // between every two neighbours: half and a bit to either side
    const auto value = [](int b) { return cpu::value_of(cpu::Fp8<3>{static_cast<std::uint8_t>(b)}); };
    const double low = value(bits), high = value(bits + 1), half = (low + high) / 2;
    EXPECT_EQ(to_fp8_e4m3(low), bits);
    EXPECT_EQ(to_fp8_e4m3(half), bits + bits % 2);
    EXPECT_EQ(to_fp8_e4m3(half + (high - low) / 1024), bits + 1);
    EXPECT_EQ(to_fp8_e4m3(half - (high - low) / 1024), bits);
    EXPECT_EQ(to_fp8_e4m3(-high), bits + 1 + 128);
  }
}

template <class... Shapes>
void expect_room(std::int64_t per_sm, std::int64_t per_block) {
  EXPECT_TRUE(((plan_buffers(Shapes::kFixedBytes, Shapes::kSlotBytes, 6, 2, per_sm, per_block).slots >= 2) && ...));
}

TEST(Buffers, HoldEveryKernelOnTheSmallest) {
  constexpr std::int64_t kPerSm = 102400, kPerBlock = 101376;  // sm_86, 89 and 120
  expect_room<SplitShape<Cache::same, 64, 1>, SplitShape<Cache::same, 64, 4>, SplitShape<Cache::same, 128, 1>,
              SplitShape<Cache::same, 128, 4>, SplitShape<Cache::same, 256, 1>, SplitShape<Cache::same, 256, 2>,
              SplitShape<Cache::fp8_e4m3, 128, 1>, SplitShape<Cache::int8, 128, 4>, FmaShape<64, 4>, FmaShape<64, 8>,
              FmaShape<128, 4>, FmaShape<128, 8>, FmaShape<256, 8>, MlaShape<2, 1>>(kPerSm, kPerBlock);
  const auto tiled_slots = [&](auto shape) {
    using Shape = decltype(shape);
    return plan_buffers(Shape::kQueryBytes, Shape::kSlotBytes, Shape::kMostSlots, 2, kPerSm, kPerBlock).slots;
  };
  EXPECT_GE(tiled_slots(TiledFor64{}), 2);
  EXPECT_GE(tiled_slots(TiledFor128{}), 3);
  EXPECT_GE(tiled_slots(TiledFor256{}), 2);
  EXPECT_LE((Fp32Shape<128, 128>::kSharedBytes), kPerBlock);
  EXPECT_LE((Fp32Shape<256, 64>::kSharedBytes), kPerBlock);
  expect_room<MlaShape<4, 2>>(167936, 166912);  // sm_80
}

// -- numbers ------------------------------------------------------------------------------------------------------------------

template <class T, class Shape>
void expect_tiled(const AttentionShape& s, Emulation mode, int slots = 0, bool rising = false) {
  AttentionOperands<T> operands(s);
  if (rising) {  // scores of the first keys are next to 0, those of the last up to 30 powers of two
    operands.grow(0.001);
    for (std::size_t i = 0; i < operands.q.bits.size(); ++i) operands.q.set(i, 4 * operands.q.values[i]);
  }
  auto out = operands.poisoned();
  TiledWork work;
  work.q = operands.q.bits.data(), work.k = operands.k.bits.data(), work.v = operands.v.bits.data(), work.out = out.data();
  work.tiling = plan_queries(s.batch * s.heads, s.batch * s.kv_heads, s.seq_q, 1 << 20, Shape::kBlockQ, 5 << 20);
  work.seq_q = s.seq_q, work.seq_kv = s.seq_kv, work.head_dim = s.head_dim, work.slots = slots, work.causal = s.causal;
  work.scale = exponent_scale(s.head_dim);
  if constexpr (std::is_same_v<T, float>)
    emulate(work.tiling.blocks(), Shape::kThreads, Shape::kSharedBytes, mode, [&] { fp32_attention<Shape>(work); });
  else
    emulate(work.tiling.blocks(), Shape::kThreads, Shape::kQueryBytes + slots * Shape::kSlotBytes, mode,
            [&] { tiled_attention<T, Shape>(work); });
  operands.expect(out);
}

TEST(TiledFp32, EmulatedBlocksAgreeWithFloat64) {
  expect_tiled<float, Fp32Shape<64, 128>>({1, 2, 1, 150, 200, 64, true}, {.late_copies = true});
  expect_tiled<float, Fp32Shape<64, 128>>({2, 4, 2, 33, 100, 17, true}, {.last_warp_first = true});
  expect_tiled<float, Fp32Shape<64, 128>>({1, 1, 1, 1, 63, 1, false}, {});
  expect_tiled<float, Fp32Shape<128, 128>>({1, 1, 1, 130, 129, 80, false}, {.last_warp_first = true});
  expect_tiled<float, Fp32Shape<256, 64>>({1, 1, 1, 70, 90, 250, true}, {.late_copies = true, .last_warp_first = true});
}

TEST(Tiled, EmulatedBlocksAgreeWithFloat64) {
  EmulatedBlock::matrix_rows = EmulatedBlock::bank_conflicts = 0;
  expect_tiled<Bf16, TiledFor64>({1, 1, 1, 130, 70, 64, false}, {}, 2);
  expect_tiled<Fp16, TiledFor64>({1, 2, 1, 150, 200, 64, true}, {.late_copies = true}, 3);
  expect_tiled<Bf16, TiledFor64>({2, 4, 2, 33, 100, 40, true}, {.late_copies = true, .last_warp_first = true}, 2);  // heads packed
  expect_tiled<Bf16, TiledFor64>({1, 1, 1, 1, 1, 8, true}, {.last_warp_first = true}, 2);
  expect_tiled<Fp16, TiledFor64>({1, 1, 1, 2, 63, 64, false}, {}, 2);  // one key short of a tile
  expect_tiled<Fp16, TiledFor128>({1, 2, 2, 129, 129, 128, true}, {.late_copies = true}, 3);
  expect_tiled<Bf16, TiledFor128>({1, 1, 1, 64, 65, 80, false}, {.last_warp_first = true}, 2);
  expect_tiled<Bf16, TiledFor256>({1, 1, 1, 70, 90, 256, true}, {.late_copies = true}, 2);
  expect_tiled<Fp16, TiledFor256>({1, 1, 1, 70, 190, 200, false}, {.last_warp_first = true}, 4);
  EXPECT_GT(EmulatedBlock::matrix_rows, 0);
  EXPECT_EQ(EmulatedBlock::bank_conflicts, 0);
}

TEST(Tiled, MaximaGrowBeyondTheSlack) {
  expect_tiled<Bf16, TiledFor64>({1, 1, 1, 70, 300, 64, false}, {}, 2, true);
  expect_tiled<Fp16, TiledFor128>({1, 1, 1, 150, 200, 128, true}, {.late_copies = true}, 3, true);
}

// -- split_kv -----------------------------------------------------------------------------------------------------------------

// A number of one byte: all 256 of int8, and of e4m3.
double byte_number(Cache cache, std::uint8_t bits) {
  return cache == Cache::int8 ? static_cast<std::int8_t>(bits) : cpu::value_of(cpu::Fp8<3>{bits});
}

template <Cache Kind, bool Alternate>
void expect_widened() {
  for (int bits = 0; bits < 256; ++bits) {
    if (Kind == Cache::fp8_e4m3 && (bits & 127) == 127) continue;
    for (int place = 0; place < 4; ++place) {
      const std::uint32_t word = (0x3800429Bu & ~(255u << 8 * place)) | static_cast<std::uint32_t>(bits) << 8 * place;
      std::uint32_t pairs[2];
      widen<Kind, Alternate>(pairs, word);
      for (int i = 0; i < 4; ++i) {
        const int from = Alternate ? i % 2 * 2 + i / 2 : i;
        EXPECT_EQ(number(Fp16{}, pairs[i / 2] >> 16 * (i % 2) & 0xFFFF), byte_number(Kind, word >> 8 * from & 255)) << word;
      }
    }
  }
}

TEST(SplitKv, BytesAreWidenedExactly) {
  expect_widened<Cache::fp8_e4m3, false>();
  expect_widened<Cache::fp8_e4m3, true>();
  expect_widened<Cache::int8, false>();
  expect_widened<Cache::int8, true>();
}

struct DecodeShape {
  int batch, kv_heads, group, seq_q, keys, head_dim;
  bool causal = true;
  int window = 0;
  bool sinks = false;
  int page_size = 0;
  float size = 1;  // of queries, a power of two that the scale of scores takes back
};

template <class Arithmetic>
void expect_split(const DecodeShape& s, Emulation mode, int slots, int resident, int busy = 17) {
  using Shape = typename Arithmetic::Shape;
  using T = typename Arithmetic::Result;
  constexpr double relative = std::is_same_v<T, float> ? 1e-4 : 0.012;
  const int rows = s.group * s.seq_q, units = s.batch * s.kv_heads;
  const int per_entry = s.page_size ? static_cast<int>(ceil_div(s.keys, s.page_size)) : 0;
  // Keys of unit u lie at place(u, key): in order, or in pages handed out backwards, with one to spare.
  const int all_pages = s.batch * per_entry + 1;
  std::vector<int> table(s.batch * per_entry);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = all_pages - 1 - static_cast<int>(i);
  const auto place = [&](int unit, int key) -> std::int64_t {
    if (!s.page_size) return std::int64_t{unit} * s.keys + key;
    const int page = table[unit / s.kv_heads * per_entry + key / s.page_size];
    return (std::int64_t{page} * s.kv_heads + unit % s.kv_heads) * s.page_size + key % s.page_size;
  };
  const std::int64_t cached = s.page_size ? std::int64_t{all_pages} * s.kv_heads * s.page_size : std::int64_t{units} * s.keys;
  const Operand<T> q(std::int64_t{units} * rows * s.head_dim, 1);
  auto given = q.bits;
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = Operand<T>::word(static_cast<float>(q.values[i]) * s.size);
  struct Cached {
    std::vector<std::uint8_t> bytes;
    std::vector<double> values;
  };
  const auto make = [&](std::uint64_t seed) {
    Cached made;
    const std::int64_t elements = cached * s.head_dim;
    made.bytes.resize(elements * Shape::kElementBytes);
    made.values.resize(elements);
    for (std::int64_t i = 0; i < elements; ++i) {
      if constexpr (Shape::kElementBytes > 1) {
        const auto word = Operand<T>::word(static_cast<float>(random_uniform(seed, i)));
        std::memcpy(&made.bytes[Shape::kElementBytes * i], &word, sizeof word);
        made.values[i] = Operand<T>::value(word);
      } else {  // of a size near 1, so that more than one key counts
        const std::uint64_t random = random_bits(seed, i);
        made.bytes[i] = Shape::kCache == Cache::int8 ? static_cast<std::uint8_t>(random % 5 - 2)
                                                     : static_cast<std::uint8_t>(random % 2 << 7 | random / 2 % 0x40);
        made.values[i] = byte_number(Shape::kCache, made.bytes[i]);
      }
    }
    return made;
  };
  const Cached k = make(2), v = make(3);
  std::vector<float> sinks(s.kv_heads * s.group);
  for (std::size_t i = 0; i < sinks.size(); ++i) sinks[i] = static_cast<float>(random_uniform(5, i)) + 1;

  SplitWork work;
  constexpr typename Operand<T>::Word kUntouched = 12345;
  std::vector<typename Operand<T>::Word> out(q.bits.size() + 8, kUntouched);
  work.q = given.data(), work.k = k.bytes.data(), work.v = v.bytes.data(), work.out = out.data();
  work.page_table = s.page_size ? table.data() : nullptr, work.sinks = s.sinks ? sinks.data() : nullptr;
  work.row_chunks = static_cast<int>(ceil_div(rows, Shape::kRows));
  work.split = plan_split(std::int64_t{units} * work.row_chunks, ceil_div(s.keys, Shape::kStepKeys), resident, 1, busy);
  work.kv_heads = s.kv_heads, work.rows = rows, work.seq_q = s.seq_q, work.keys = s.keys, work.window = s.window;
  work.head_dim = s.head_dim, work.page_size = s.page_size, work.slots = slots, work.causal = s.causal;
  work.scale = exponent_scale(s.head_dim) / s.size;
  std::vector<float> parts(2 * work.split.blocks * Shape::kRows * Shape::kHeadDim, NAN);
  std::vector<float> stats(2 * work.split.blocks * Shape::kRows * 2, NAN);
  std::vector<unsigned> arrivals(work.split.units, 0);
  work.parts = parts.data(), work.stats = stats.data(), work.arrivals = arrivals.data();
  emulate(work.split.blocks, Shape::kThreads, Shape::kFixedBytes + slots * Shape::kSlotBytes, mode,
          [&] { split_attention<Arithmetic>(work); });
  for (const unsigned arrived : arrivals) ASSERT_EQ(arrived, 0u) << "a counter is not ready for the next launch";

  for (int unit = 0; unit < units; ++unit) {
    std::vector<double> keys, values;
    for (int key = 0; key < s.keys; ++key)
      for (int d = 0; d < s.head_dim; ++d) {
        keys.push_back(k.values[place(unit, key) * s.head_dim + d]);
        values.push_back(v.values[place(unit, key) * s.head_dim + d]);
      }
    for (int row = 0; row < rows; ++row) {
      const int past = s.causal ? row % s.seq_q + s.keys - s.seq_q + 1 : s.keys;
      const int first = s.window ? std::max(0, past - s.window) : 0;
      const std::int64_t at = (std::int64_t{unit} * rows + row) * s.head_dim;
      double logsumexp;
      auto want = attend(&q.values[at], keys.data(), values.data(), first, past, s.head_dim, &logsumexp);
      const double sink = sinks[unit % s.kv_heads * s.group + row / s.seq_q];  // one more term of the denominator
      for (double& x : want) x /= s.sinks ? 1 + std::exp(sink - logsumexp) : 1;
      for (int d = 0; d < s.head_dim; ++d) {
        const double got = Operand<T>::value(out[at + d]);
        ASSERT_LE(std::fabs(got - want[d]), kTolerance<T> + relative * std::fabs(want[d])) << unit << ", row " << row << ", " << d;
      }
    }
  }
  for (std::size_t i = q.bits.size(); i < out.size(); ++i) ASSERT_EQ(out[i], kUntouched);
}

constexpr Emulation kLate = {.late_copies = true};
constexpr Emulation kBackwards = {.last_warp_first = true, .last_block_first = true};
constexpr Emulation kLateBackwards = {.late_copies = true, .last_warp_first = true, .last_block_first = true};

template <class T>
using Small = SplitMma<T, SplitShape<Cache::same, 64, 1>>;

TEST(SplitKv, EmulatedBlocksAgreeWithFloat64) {
  EmulatedBlock::matrix_rows = EmulatedBlock::bank_conflicts = 0;
  expect_split<Small<Bf16>>({1, 1, 8, 1, 300, 64}, {}, 2, 1);
  expect_split<Small<Fp16>>({2, 2, 4, 2, 1000, 64}, kLate, 3, 7);  // blocks that share units, and units that share blocks
  expect_split<Small<Bf16>>({3, 1, 1, 1, 1, 40}, kBackwards, 2, 64);
  expect_split<SplitMma<Bf16, SplitShape<Cache::same, 64, 4>>>({1, 2, 5, 8, 520, 64}, kLateBackwards, 4, 5);  // 40 rows: two chunks
  expect_split<SplitMma<Fp16, SplitShape<Cache::same, 128, 1>>>({1, 2, 7, 1, 333, 128}, kLate, 5, 6);
  expect_split<SplitMma<Bf16, SplitShape<Cache::same, 128, 4>>>({1, 1, 4, 5, 200, 80, false}, kBackwards, 2, 3);
  expect_split<SplitMma<Bf16, SplitShape<Cache::same, 256, 1>>>({1, 1, 3, 1, 200, 256}, kLate, 2, 2);
  expect_split<SplitMma<Fp16, SplitShape<Cache::same, 256, 2>>>({1, 1, 2, 6, 150, 200}, {}, 3, 2);
  expect_split<Small<Bf16>>({2, 2, 4, 1, 900, 64}, kLate, 3, 9, 12);  // two blocks to a unit
  expect_split<Small<Bf16>>({3, 2, 4, 1, 300, 64}, kLate, 3, 3, 12);  // two units to a block
  // More parts than are asked for at once, and one whose only keys the first queries do not see.
  expect_split<Small<Bf16>>({1, 1, 8, 1, 2500, 64}, kLateBackwards, 3, 19);
  expect_split<Small<Fp16>>({1, 2, 1, 8, 1155, 64}, kBackwards, 2, 20);
  EXPECT_GT(EmulatedBlock::matrix_rows, 0);
  EXPECT_EQ(EmulatedBlock::bank_conflicts, 0);
}

TEST(SplitKv, WindowsAndSinks) {
  expect_split<Small<Bf16>>({1, 2, 2, 3, 130, 64, true, 128}, kLate, 3, 5);
  expect_split<Small<Fp16>>({1, 1, 1, 8, 12, 64, true, 5, true}, {}, 2, 1);
  expect_split<SplitMma<Fp16, SplitShape<Cache::same, 128, 1>>>({1, 2, 4, 2, 300, 128, true, 0, true}, kBackwards, 2, 4);
}

TEST(SplitKv, Pages) {
  expect_split<SplitMma<Bf16, SplitShape<Cache::same, 64, 1>>>({2, 2, 2, 1, 301, 64, true, 0, false, 16}, kLate, 3, 5);
  expect_split<SplitMma<Fp16, SplitShape<Cache::same, 128, 4>>>({2, 1, 4, 4, 200, 128, true, 0, false, 64}, kBackwards, 2, 3);
  expect_split<SplitMma<Bf16, SplitShape<Cache::fp8_e4m3, 128, 1>>>({2, 2, 2, 1, 201, 128, true, 0, false, 16}, kLate, 4, 5);
}

TEST(SplitKv, InFp32) {
  using Few = SplitFma<FmaShape<128, 4>>;
  expect_split<Few>({1, 2, 4, 1, 300, 128}, kLate, 3, 5);
  expect_split<Few>({2, 1, 3, 1, 45, 100, false}, kLateBackwards, 2, 3);
  expect_split<SplitFma<FmaShape<128, 8>>>({2, 2, 4, 3, 200, 128, true, 90, true}, kBackwards, 4, 6);  // 12 rows: two chunks
  expect_split<SplitFma<FmaShape<64, 4>>>({1, 2, 2, 2, 500, 64, true, 0, true, 16}, kLate, 2, 7);
  expect_split<SplitFma<FmaShape<64, 8>>>({1, 1, 1, 8, 1155, 36}, kLateBackwards, 3, 20);
  expect_split<SplitFma<FmaShape<256, 8>>>({2, 1, 2, 4, 100, 256, true, 0, false, 32}, kLate, 3, 4);
}

TEST(SplitKv, CachesOfBytes) {
  EmulatedBlock::matrix_rows = EmulatedBlock::bank_conflicts = 0;
  expect_split<SplitMma<Bf16, SplitShape<Cache::fp8_e4m3, 128, 1>>>({1, 2, 8, 1, 333, 128}, kLate, 4, 3);
  expect_split<SplitMma<Fp16, SplitShape<Cache::fp8_e4m3, 128, 4>>>({1, 1, 4, 8, 200, 64}, kBackwards, 3, 3);
  expect_split<SplitMma<Fp16, SplitShape<Cache::int8, 128, 1>>>({1, 2, 3, 2, 300, 128}, kLateBackwards, 5, 4);
  expect_split<SplitMma<Bf16, SplitShape<Cache::int8, 128, 4>>>({1, 1, 16, 2, 150, 96}, {}, 2, 2);
  EXPECT_EQ(EmulatedBlock::bank_conflicts, 0);
  // Queries in bf16 that fp16 would not hold.
  for (const float size : {0x1p-40f, 0x1p40f})
    expect_split<SplitMma<Bf16, SplitShape<Cache::fp8_e4m3, 128, 1>>>({1, 1, 3, 2, 100, 112, true, 0, false, 0, size}, {}, 3, 1);
}

// -- mla_decode ---------------------------------------------------------------------------------------------------------------

template <class T, class Shape>
void expect_mla(const MlaCase& s, Emulation mode, int slots, int resident, int busy = 17) {
  MlaOperands<T> operands(s);
  MlaWork work;
  work.q_latent = operands.latent.bits.data(), work.q_rope = operands.rotated.bits.data();
  work.c = operands.c.bits.data(), work.k_rope = operands.rope.bits.data(), work.out = operands.out.data();
  work.rows = s.rows(), work.seq_q = s.seq_q, work.keys = s.keys, work.rank = s.rank, work.rope_dim = s.rope_dim;
  work.slots = slots, work.causal = s.causal, work.row_chunks = static_cast<int>(ceil_div(s.rows(), Shape::kRows));
  work.split = plan_split(std::int64_t{s.batch} * work.row_chunks, ceil_div(s.keys, Shape::kStepKeys), resident, 1, busy);
  work.scale = exponent_scale(s.rank + s.rope_dim);
  std::vector<float> parts(2 * work.split.blocks * Shape::kRows * Shape::kRank, NAN);
  std::vector<float> stats(2 * work.split.blocks * Shape::kRows * 2, NAN);
  std::vector<unsigned> arrivals(work.split.units, 0);
  work.parts = parts.data(), work.stats = stats.data(), work.arrivals = arrivals.data();
  emulate(work.split.blocks, Shape::kThreads, Shape::kFixedBytes + slots * Shape::kSlotBytes, mode,
          [&] { mla_attention<T, Shape>(work); });
  for (const unsigned arrived : arrivals) ASSERT_EQ(arrived, 0u);
  operands.expect();
}

TEST(Mla, EmulatedBlocksAgreeWithFloat64) {
  EmulatedBlock::matrix_rows = EmulatedBlock::bank_conflicts = 0;
  using Large = MlaShape<4, 2>;
  using Lean = MlaShape<2, 1>;
  expect_mla<Bf16, Large>({1, 70, 1, 100, 512, 64}, kLate, 2, 3);
  expect_mla<Fp16, Large>({2, 16, 2, 65, 512, 64}, kBackwards, 3, 5);
  expect_mla<Bf16, Lean>({2, 20, 3, 50, 512, 64}, kLateBackwards, 2, 3);
  expect_mla<Fp16, Lean>({1, 3, 1, 40, 256, 32, false}, {}, 4, 2);
  expect_mla<Bf16, Lean>({1, 1, 8, 11, 40, 8}, kLate, 2, 1);
  expect_mla<Fp16, Lean>({1, 5, 3, 146, 64, 16}, kBackwards, 2, 10);  // more parts than are asked for at once
  EXPECT_EQ(EmulatedBlock::bank_conflicts, 0);
}

}  // namespace
