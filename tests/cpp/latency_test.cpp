// The latency kernels: every hop is made, launches go on, bad cycles are refused, two workers never hang; memory and clocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cpu/device.h"
#include "cpu/kernels.h"

namespace roofline::cpu {
namespace {

Bound bound(const std::vector<KernelEntry>& kernels, const Arguments& arguments, Device& device) {
  return kernels.at(0).bind(arguments, device);
}

// A random order of lines, followed from its first.
struct Chase {
  std::vector<std::int32_t> order;
  std::int32_t reached = -1;

  explicit Chase(std::int64_t lines) : order(lines) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
  }

  Bound bind(Device& device, std::int64_t hops, const std::string& pages = "huge") {
    const auto lines = static_cast<std::int64_t>(order.size());
    Arguments all("pointer_chase", DType::int32);
    all.add("size_bytes", 64 * lines);
    all.add("hops", hops);
    all.add("pages", pages);
    all.add(Tensor{"order", order.data(), DType::int32, {lines}, {}, Role::constant});
    all.add(Tensor{"reached", &reached, DType::int32, {1}, {}, Role::out});
    return bound(pointer_chase_kernels(), all, device);
  }
};

void launch(const Bound& bound, Device& device) { bound.steps.at(0).launch(device); }

TEST(PointerChase, FollowsTheOrder) {
  Device device(1);
  for (const std::int64_t lines : {1, 2, 3, 16, 17, 1000, 40'009})
    for (const std::int64_t hops : {1, 2, 15, 16, 17, 33, 5000})
      for (const char* pages : {"huge", "small"}) {
        Chase chase(lines);
        const Bound all = chase.bind(device, hops, pages);
        for (int i = 0; i < 3; ++i) {  // each from where the last one ended
          chase.reached = -1;
          launch(all, device);
          ASSERT_EQ(chase.reached, chase.order[hops % lines]) << lines << " lines, " << hops << " hops, launch " << i;
        }
      }
}

TEST(PointerChase, RefusesWhatIsNoCycle) {
  Device device(1);
  for (const std::int32_t bad : {-1, 5, 2}) {  // out of range on either side, and a line that is there twice
    Chase chase(5);
    chase.order = {0, 1, 2, 3, bad};
    EXPECT_THROW(chase.bind(device, 1), Error) << bad;
  }
  Chase chase(5);
  chase.order = {-2, 1, 2, 3, 4};
  EXPECT_THROW(chase.bind(device, 1), Error);
}

TEST(CoreToCore, HandsOverTwiceARound) {
  Device alone(1);
  std::int32_t handovers = -1;
  Arguments all("core_to_core", DType::fp32);
  all.add("first", std::int64_t{0});
  all.add("second", std::int64_t{1});
  all.add("rounds", std::int64_t{100});
  all.add(Tensor{"handovers", &handovers, DType::int32, {1}, {}, Role::out});
  EXPECT_THROW(bound(core_to_core_kernels(), all, alone), Unsupported);
  if (usable_cpus().size() < 2) GTEST_SKIP() << "one usable core";
  Device device(0);
  const Bound pair = bound(core_to_core_kernels(), all, device);
  for (int i = 0; i < 20; ++i) {
    handovers = -1;
    launch(pair, device);
    ASSERT_EQ(handovers, 200);
  }
  all.add("second", static_cast<std::int64_t>(device.threads()));
  EXPECT_THROW(bound(core_to_core_kernels(), all, device), Unsupported);
}

TEST(ForkJoin, LaunchesAndReturns) {
  Device device(0);
  ASSERT_EQ(fork_join_kernels().size(), 2u);
  EXPECT_EQ(fork_join_kernels().back().variant, "pool") << "the default";
  for (const std::int64_t calls : {1, 3}) {
    Arguments arguments("fork_join", DType::fp32);
    arguments.add("calls", calls);
    for (const KernelEntry& kernel : fork_join_kernels()) launch(kernel.bind(arguments, device), device);
  }
}

TEST(Memory, OfBothKindsOfPages) {
  Device device(1);
  for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, kHugePage - 1, kHugePage, 3 * kHugePage + 77})
    for (const Pages pages : {Pages::huge, Pages::small}) {
      auto* memory = static_cast<char*>(device.allocate(size, pages));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (size >= kHugePage ? kHugePage : 4096), 0u);
      memory[0] = memory[size - 1] = 1;
      const double share = device.huge_page_share(memory, size);
      EXPECT_LE(share, 1);
      EXPECT_TRUE(share >= 0 || share == -1) << share;
      if (pages == Pages::small) {
        EXPECT_LE(share, 0);
      }
      device.release(memory, size);
    }
}

}  // namespace
}  // namespace roofline::cpu
