// The memory probes of the CUDA backend, run thread by thread on the host: every access of stream by every kernel, and what plans
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "emulated_gpu.h"
#include "guarded.h"

#include "cuda/probes/mixed_intensity_kernels.cuh"
#include "cuda/probes/pointer_chase_kernels.cuh"
#include "cuda/probes/stream_bulk.cuh"

namespace {

using namespace roofline::cuda;

// Elements in 16 bytes: the memory of a test is `shift` elements and as many past a cache line.
template <class T>
constexpr int kUnit = 16 / sizeof(T);

// Small whole numbers: every sum of them is exact, in any order.
template <class T>
struct Arrays {
  explicit Arrays(std::int64_t n, int shift = 0)
      : n(n), memory_a(n, kUnit<T> + shift), memory_b(n, kUnit<T> + shift), memory_c(n, kUnit<T> + shift) {
    for (std::int64_t i = 0; i < n; ++i) a[i] = T(i * 7 % 13 - 6), b[i] = T(i * 5 % 11 - 5), c[i] = T(-77);
  }
  T expected(Access access, std::int64_t i) const {
    switch (access) {
      case Access::write: return T(3);
      case Access::copy: return a[i];
      case Access::scale: return T(3) * a[i];
      case Access::add: return a[i] + b[i];
      default: return a[i] + T(3) * b[i];
    }
  }
  double total(std::int64_t passes) const {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]);
    return sum * static_cast<double>(passes);
  }
  StreamWork work(std::int64_t passes, std::int64_t grid) {
    partials.assign(grid, -1e300), finished = 0, sum = -1e300;
    StreamWork made{};
    made.a = a, made.b = b, made.c = c, made.factor = 3, made.elements = n, made.passes = passes;
    made.stride = 1;
    made.sum = {partials.data(), &finished, &sum};
    return made;
  }
  // Whether the access did exactly what it should, and nothing else; a second launch finds all as the first did.
  void check(Access access, std::int64_t passes) {
    if (access == Access::read) {
      ASSERT_EQ(sum, total(passes));
      ASSERT_EQ(finished, 0u);
      ASSERT_EQ(c[0], T(-77)) << "nothing is stored";
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(c[i], expected(access, i)) << i;
    ASSERT_TRUE(memory_c.guarded());
  }
  std::int64_t n;
  roofline::cpu::Guarded<T> memory_a, memory_b, memory_c;
  T *a = memory_a.data(), *b = memory_b.data(), *c = memory_c.data();
  std::vector<double> partials;
  unsigned finished = 0;
  double sum = 0;
};

// check(access) of each, as a constant.
template <class F>
void every_access(F check) {
  const auto each = [&]<Access... Each>() { (check(std::integral_constant<Access, Each>{}), ...); };
  each.template operator()<Access::read, Access::write, Access::copy, Access::scale, Access::add, Access::triad>();
}

template <class T, int Streams, int Unroll>
void expect_vectors() {
  for (const auto& [n, grid] : std::vector<std::pair<std::int64_t, std::int64_t>>{{7, 1}, {1000, 1}, {40961, 2}})
      for (const int shift : {0, 1})
        every_access([&, n = n, grid = grid](auto access) {
          SCOPED_TRACE(std::to_string(n) + " access " + std::to_string(static_cast<int>(access())));
          Arrays<T> arrays(n, shift);
          const bool two = access() == Access::add || access() == Access::triad;
          const int round = two && Streams < kUnroll ? Unroll / 2 : Unroll;
          StreamWork work = arrays.work(3, grid);
          work.plan = plan_stream(n, sizeof(T), shift == 0, Streams, round, kStreamThreads, grid);
          for (int launch = 0; launch < 2; ++launch)
            emulated::launch(grid, kStreamThreads, stream_kernel<access(), T, Streams, Unroll>, work);
          arrays.check(access, 3);
        });
}

TEST(Stream, VectorsOfEveryAccess) {
  expect_vectors<float, 1, 8>();
  expect_vectors<double, 2, 8>();
  expect_vectors<float, 8, 8>();
  expect_vectors<double, 1, 12>();
}

template <class T, Access access>
void expect_tiles() {
  for (const std::int64_t n : {1, 7, 1000, 8192, 40961})
    for (const int shift : {0, 1}) {
      SCOPED_TRACE(std::to_string(n) + " access " + std::to_string(static_cast<int>(access)));
      Arrays<T> arrays(n, shift);
      StreamWork work = arrays.work(3, 1);
      work.plan = plan_stream(n, sizeof(T), shift == 0, 1, kTileVectors<access>, kTileThreads, 1);
      const std::int64_t tiles = ceil_div(n * std::int64_t{sizeof(T)}, 16 * kTileThreads * kTileVectors<access>);
      emulated::launch(3 * tiles, kTileThreads, tile_kernel<access, T>, work, static_cast<unsigned>(tiles));
      arrays.check(access, 3);
    }
}

TEST(Stream, TilesOfEveryAccess) {
  expect_tiles<float, Access::write>();
  expect_tiles<double, Access::write>();
  expect_tiles<float, Access::copy>();
  expect_tiles<double, Access::copy>();
  expect_tiles<float, Access::scale>();
  expect_tiles<double, Access::add>();
  expect_tiles<float, Access::triad>();
}

TEST(Stream, SingleElementsOfEveryAccess) {
  for (const std::int64_t n : {1, 9, 1003, 9001})
    every_access([&](auto access) {
      Arrays<float> arrays(n, 1);
      emulated::launch(3, kStreamThreads, element_kernel<access(), float>, arrays.work(2, 3));
      arrays.check(access, 2);
    });
}

template <class T, int... Streams>
void expect_updates() {
  const auto check = [](std::int64_t n, std::int64_t grid, int streams, auto kernel) {
    Arrays<T> arrays(n);
    const std::vector<T> before(arrays.a, arrays.a + n);
    StreamWork work = arrays.work(3, grid);
    work.c = arrays.a;
    work.plan = plan_stream(n, sizeof(T), true, streams, kUnroll, kStreamThreads, grid);
    emulated::launch(grid, kStreamThreads, kernel, work);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(arrays.a[i], 27 * before[i]) << i << " of " << n << ", streams " << streams;
  };
  for (const std::int64_t n : {1, 3, 7, 17, 255, 1000, 5003, 20011, 40961})
    for (const std::int64_t grid : {1, 2, 3}) {
      (check(n, grid, Streams, stream_kernel<Access::scale, T, Streams, kUnroll>), ...);
      check(n, grid, 1, element_kernel<Access::scale, T>);
    }
}

TEST(Stream, AnUpdateMultipliesEveryElementOncePerPass) {
  expect_updates<float, 1, 2, 4, 8>();
  expect_updates<double, 1, 2, 4, 8>();
}

TEST(Stream, StridesVisitEveryElementOnce) {
  for (const auto& [n, stride] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {3, 2}, {10, 3}, {1000, 7}, {4099, 16}, {4099, 4098}, {9001, 32}}) {
    SCOPED_TRACE(std::to_string(n) + " / " + std::to_string(stride));
    Arrays<double> arrays(n);
    StreamWork work = arrays.work(3, 2);
    work.stride = stride;
    emulated::launch(2, kStreamThreads, element_kernel<Access::read, double>, work);
    arrays.check(Access::read, 3);
  }
}

template <class T>
void expect_bulk(std::int64_t n, std::int64_t in_flight, std::int64_t stay) {
  every_access([&](auto constant) {
    constexpr Access access = constant();
    if constexpr (access != Access::write) {
      SCOPED_TRACE(std::to_string(n) + " access " + std::to_string(static_cast<int>(access)) + " " + std::to_string(in_flight));
      Arrays<T> arrays(n);
      const int read = access == Access::add || access == Access::triad ? 2 : 1;
      BulkWork work{};
      work.tile_bytes = plan_bulk_tile(in_flight, read, access != Access::read, 228 << 10);
      ASSERT_GT(work.tile_bytes, 0);
      work.tiles = plan_tiles(n, sizeof(T), work.tile_bytes);
      work.turns = 3 * work.tiles.count;
      const std::int64_t grid = access == Access::read ? stay : std::max<std::int64_t>(work.turns, 1);
      work.stream = arrays.work(3, grid);
      emulated_barriers.clear();
      emulated::bulk_loads = emulated::bulk_stores = 0;
      for (int launch = 0; launch < 2; ++launch) emulated::launch(grid, kBulkThreads, bulk_kernel<access, T>, work);
      arrays.check(access, 3);
      EXPECT_TRUE(emulated::bulk_idle()) << "copies are under way when the kernel has ended";
      EXPECT_EQ(emulated::bulk_loads, 2 * 3 * read * work.tiles.count);
      EXPECT_EQ(emulated::bulk_stores, access == Access::copy ? 2 * 3 * work.tiles.count : 0);
    }
  });
}

TEST(Stream, BulkCopiesOfEveryAccess) {
  for (const std::int64_t n : {1, 3, 4, 1003, 40961}) expect_bulk<float>(n, 32 << 10, 2);
  expect_bulk<double>(120007, 64 << 10, 1);
  expect_bulk<float>(150001, 0, 5);
  expect_bulk<float>(250003, 192 << 10, 2);
  expect_bulk<double>(100001, 96 << 10, 3);
}

TEST(Stream, AnUpdateByBulkCopiesIsALaunchPerPass) {
  Arrays<float> arrays(40961);
  const std::vector<float> before(arrays.a, arrays.a + arrays.n);
  BulkWork work{};
  work.tile_bytes = plan_bulk_tile(32 << 10, 1, true, 228 << 10);
  work.tiles = plan_tiles(arrays.n, sizeof(float), work.tile_bytes);
  work.stream = arrays.work(3, 1);
  work.stream.c = arrays.a;
  Launches(work.tiles.count, 3, true).each([&](std::int64_t passes, unsigned blocks) {
    work.stream.passes = passes, work.turns = passes * work.tiles.count;
    emulated::launch(blocks, kBulkThreads, bulk_kernel<Access::scale, float>, work);
  });
  for (std::int64_t i = 0; i < arrays.n; ++i) ASSERT_EQ(arrays.a[i], 27 * before[i]) << i;
}

TEST(Stream, BlocksReadTheirOwnPartAgain) {
  for (const std::int64_t n : {1, 5, 1003, 8192, 40961})
    for (const std::int64_t grid : {1, 3}) {
      Arrays<float> arrays(n);
      StreamWork work = arrays.work(5, grid);
      work.plan = plan_stream(n, 4, true, 1, kCachedUnroll, kCachedThreads, grid);
      emulated::launch(grid, kCachedThreads, cached_kernel<float>, work);
      arrays.check(Access::read, 5);
      for (const int chunk : {16, 4096, 65536}) {
        if (n / chunk > 100) continue;
        arrays.sum = -1;
        emulated::launch(grid, kSharedThreads, shared_kernel, work, chunk);
        arrays.check(Access::read, 5);
      }
    }
}

// -- pointer_chase ------------------------------------------------------------------------------------------------------------

struct Cycle {
  explicit Cycle(std::int64_t lines)
      : lines(static_cast<Line*>(std::aligned_alloc(64, lines * sizeof(Line))), std::free), order(lines) {
    std::memset(static_cast<void*>(this->lines.get()), 0xFF, lines * sizeof(Line));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
  }
  void lay_out() {
    emulated::launch(2, kLayOutThreads, lay_out_kernel, lines.get(), order.data(), static_cast<std::int64_t>(order.size()), &chase);
  }
  template <Through through>
  std::int32_t follow(std::int64_t hops, int threads) {
    std::int32_t reached = -9;
    emulated::launch(1, threads, chase_kernel<through>, lines.get(), order.data(), static_cast<std::int64_t>(order.size()), hops,
                     &chase, &reached);
    return reached;
  }
  std::unique_ptr<Line, void (*)(void*)> lines;
  std::vector<std::int32_t> order;
  Chase chase{nullptr, 0, -1};
};

TEST(PointerChase, ReachesWhatLiesSoFarFromTheFirstAndGoesOnFromThere) {
  for (const std::int64_t lines : {1, 2, 3, 17, 509, 40009})
    for (const std::int64_t hops : {1, 7, 16, 33, 1000}) {
      Cycle cycle(lines);
      cycle.lay_out();
      ASSERT_EQ(cycle.chase.wrong, -1);
      ASSERT_EQ(cycle.chase.at, &cycle.lines.get()[cycle.order[0]]);
      for (int launch = 1; launch < 4; ++launch) {
        const std::int32_t reached =
            launch == 2 ? cycle.follow<Through::l1>(hops, kChaseThreads) : cycle.follow<Through::l2>(hops, 1);
        ASSERT_EQ(reached, cycle.order[hops % lines]) << lines << " " << hops;
        ASSERT_EQ(cycle.chase.at, &cycle.lines.get()[cycle.order[hops * launch % lines]]);
        ASSERT_GT(cycle.chase.cycles, 0);
      }
    }
}

TEST(PointerChase, WhatIsNoPermutationIsSeen) {
  for (const auto& bad : std::vector<std::vector<std::int32_t>>{{0, 1, 1}, {0, 1, 3}, {0, -1, 2}, {2, 2, 2}, {0, 1, INT32_MAX}}) {
    Cycle cycle(3);
    cycle.order = bad;
    cycle.lay_out();
    EXPECT_GE(cycle.chase.wrong, 0);
  }
}

// -- mixed_intensity ----------------------------------------------------------------------------------------------------------

template <class T, int Known>
void expect_mixed(std::int64_t n, std::int64_t multiply_adds, int every, std::int64_t passes, std::int64_t grid, int shift = 0) {
  SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(multiply_adds) + " every " + std::to_string(every));
  roofline::cpu::Guarded<T> memory(n, kUnit<T> + shift);
  T* a = memory.data();
  std::mt19937 generator(3);
  double want = 0, magnitude = 0;
  const std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < n; ++i) {
    a[i] = std::uniform_real_distribution<T>(-1.7, 1.7)(generator);
    if (i / line % every != 0) continue;
    const double y = a[i] * std::pow(1 + roofline::ops::MixedIntensity::alpha, multiply_adds - 1) * 0.75;
    want += static_cast<double>(passes) * y, magnitude += static_cast<double>(passes) * std::abs(y);
  }
  std::vector<double> partials(grid);
  unsigned finished = 0;
  double sum = -1e300;
  MixedWork work{};
  work.a = a, work.passes = passes, work.steps = multiply_adds - 1, work.every = every;
  work.alpha = roofline::ops::MixedIntensity::alpha, work.gamma = 0.75;
  work.plan = plan_stream(n, sizeof(T), shift == 0, 1, kMixedVectors, kMixedThreads, grid);
  work.sum = {partials.data(), &finished, &sum};
  emulated::launch(grid, kMixedThreads, mixed_intensity_kernel<T, Known>, work);
  const double eps = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
  EXPECT_NEAR(sum, want, 4 * eps * static_cast<double>(multiply_adds) * magnitude + 1e-300);
}

TEST(MixedIntensity, EveryNumberOfMultiplyAddsAndShareOfLines) {
  for (const std::int64_t n : {1, 7, 1000, 4099, 40961}) {
    expect_mixed<float, 1>(n, 1, 1, 1, 2);
    expect_mixed<float, 3>(n, 3, 2, 2, 1);
    expect_mixed<double, 5>(n, 5, 8, 1, 3);
    expect_mixed<float, 0>(n, 65, 4, 1, 2);
    expect_mixed<double, 0>(n, 40, 1, 1, 1);
    expect_mixed<double, 0>(n, 9, 2, 3, 1, 1);
  }
  expect_mixed<float, 16>(70001, 16, 1, 2, 2);  // several waves
  expect_mixed<double, 0>(60003, 17, 8, 1, 2);
}

// -- planners -----------------------------------------------------------------------------------------------------------------

static_assert(plan_flight(0, true, 4).bytes() == 128 << 10);
static_assert(plan_flight(32 << 10, true, 4).blocks_per_sm == 1);
static_assert(plan_flight(96 << 10, false, 4).bytes() == 96 << 10);
static_assert(plan_flight(192 << 10, true, 4).unroll == kDeepUnroll && plan_flight(192 << 10, true, 4).bytes() == 192 << 10);
static_assert(plan_flight(192 << 10, false, 4).blocks_per_sm == 0);
static_assert(plan_flight(192 << 10, true, 6).unroll == kUnroll);
static_assert(plan_flight(128 << 10, false, 3).blocks_per_sm == 0);

constexpr std::int64_t kHopper = 228 << 10, kAda = 100 << 10;  // shared memory of an SM
static_assert(plan_bulk_tile(0, 1, true, kHopper) == 32 << 10 && plan_bulk_tile(0, 2, true, kAda) == 16 << 10);
static_assert(plan_bulk_tile(0, 1, false, kHopper) == 96 << 10 && plan_bulk_tile(0, 1, false, kAda) == 32 << 10);
static_assert(plan_bulk_tile(96 << 10, 1, true, kAda) == 0, "they do not fit");

TEST(BulkTiles, HoldWhatIsInFlightAndFit) {
  for (const std::int64_t in_flight : {32 << 10, 64 << 10, 96 << 10, 128 << 10, 192 << 10})
    for (const int arrays : {1, 2}) {
      const std::int64_t tile = plan_bulk_tile(in_flight, arrays, true, kHopper);
      EXPECT_EQ(tile * arrays * kBulkBlocks, in_flight);
      EXPECT_EQ(tile % 16, 0);
      EXPECT_LE(tile * arrays, kHopper / kBulkBlocks - kBulkReserve) << "what a launch asks for";
    }
}

TEST(Launches, GoOverEveryTileOncePerPass) {
  const auto blocks = [](const Launches& launches) {
    std::vector<std::pair<std::int64_t, unsigned>> all;
    launches.each([&](std::int64_t passes, unsigned blocks) { all.emplace_back(passes, blocks); });
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), launches.count());
    return all;
  };
  using Blocks = std::vector<std::pair<std::int64_t, unsigned>>;
  EXPECT_EQ(blocks({7, 4, false}), (Blocks{{4, 28}}));
  EXPECT_EQ(blocks({7, 3, true}), (Blocks{{1, 7}, {1, 7}, {1, 7}}));
  EXPECT_EQ(blocks({0, 2, false}), (Blocks{{2, 2}})) << "for the elements past the last vector";
  EXPECT_EQ(blocks({std::int64_t{1} << 30, 3, false}), (Blocks{{1, 1u << 30}, {1, 1u << 30}, {1, 1u << 30}}));
  EXPECT_EQ(blocks({(std::int64_t{1} << 30) - 1, 3, false}), (Blocks{{2, (1u << 31) - 2}, {1, (1u << 30) - 1}}));
}

TEST(Tiles, CoverTheArrayInUnitsOf16Bytes) {
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{4095}, std::int64_t{4096}, (std::int64_t{1} << 33) + 5})
    for (const int tile : {4096, 16384}) {
      const Tiles tiles = plan_tiles(n, 4, tile);
      EXPECT_EQ(tiles.bytes % 16, 0);
      EXPECT_EQ(tiles.bytes / 4 + tiles.tail_elements, n);
      EXPECT_LT(tiles.tail_elements, 4);
      EXPECT_EQ(tiles.count, (tiles.bytes + tile - 1) / tile);
    }
}

}  // namespace
