// Flushing by lines: every line of every range by exactly one thread, contents untouched, and what a bound kernel says it touches.
#include "cpu/flush.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/bypass.h"
#include "cpu/device.h"
#include "cpu/kernels.h"

namespace roofline::cpu {
namespace {

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

// How often each line is visited, by all of `workers`.
std::map<std::uintptr_t, int> visits(const std::vector<Extent>& memory, int workers, std::int64_t line_bytes) {
  std::map<std::uintptr_t, int> lines;
  for (int worker = 0; worker < workers; ++worker)
    each_line(memory, worker, workers, line_bytes, [&](std::uintptr_t line) { ++lines[line]; });
  return lines;
}

TEST(Flush, EveryLineOfARangeOnce) {
  using Lines = std::map<std::uintptr_t, int>;
  for (const int workers : {1, 2, 3, 7}) {
    EXPECT_EQ(visits({}, workers, 64), Lines{});
    EXPECT_EQ(visits({{at(1000), 0}}, workers, 64), Lines{}) << "nothing there";
    EXPECT_EQ(visits({{at(64), 64}}, workers, 64), (Lines{{64, 1}}));
    EXPECT_EQ(visits({{at(127), 1}}, workers, 64), (Lines{{64, 1}})) << "the last byte of a line";
    EXPECT_EQ(visits({{at(127), 2}}, workers, 64), (Lines{{64, 1}, {128, 1}})) << "two bytes on both sides of an edge";
    EXPECT_EQ(visits({{at(100), 200}}, workers, 64), (Lines{{64, 1}, {128, 1}, {192, 1}, {256, 1}}));
    EXPECT_EQ(visits({{at(100), 200}}, workers, 128), (Lines{{0, 1}, {128, 1}, {256, 1}})) << "lines of 128 bytes";
    EXPECT_EQ(visits({{at(0), 128}, {at(4096), 1}}, workers, 64), (Lines{{0, 1}, {64, 1}, {4096, 1}})) << "two ranges";
    EXPECT_EQ(visits({{at(1 << 20), 1 << 20}}, workers, 64).size(), (1u << 20) / 64);
  }
}

TEST(Flush, ThisCpuHasAnInstruction) {
  const std::string instruction = line_flush().instruction;
#if defined(__x86_64__)
  EXPECT_TRUE(instruction == "clflushopt" || instruction == "clflush") << instruction;
#elif defined(__aarch64__)
  EXPECT_EQ(instruction, "dc civac");
#endif
  EXPECT_GE(line_flush().line_bytes, 16);
  EXPECT_EQ(line_flush().line_bytes & (line_flush().line_bytes - 1), 0) << "a power of two";
}

TEST(Flush, ContentsStay) {
  Device device(0);
  std::vector<unsigned char> bytes(100'001);
  std::iota(bytes.begin(), bytes.end(), 0);
  const auto before = bytes;
  for (const std::int64_t first : {0, 1, 63, 64})
    for (const std::int64_t size : {0, 1, 64, 4097, 99'937}) {
      for (std::int64_t i = first; i < first + size; ++i) bytes[i] ^= 0xFF;  // dirty lines go to memory, and are not lost
      flush(device.pool(), {{bytes.data() + first, size}});
      for (std::int64_t i = first; i < first + size; ++i) bytes[i] ^= 0xFF;
      ASSERT_EQ(bytes, before) << first << " " << size;
    }
}

TEST(Flush, ABoundKernelStatesTensorsAndWhatItKeeps) {
  Device device(1);
  std::vector<std::int32_t> order(40);
  std::iota(order.begin(), order.end(), 0);
  std::int32_t reached = 0;
  Arguments arguments("pointer_chase", DType::int32);
  arguments.add("size_bytes", std::int64_t{40 * 64});
  arguments.add("hops", std::int64_t{3});
  arguments.add("pages", std::string("small"));
  arguments.add(Tensor{"order", order.data(), DType::int32, {40}, {}, Role::constant});
  arguments.add(Tensor{"reached", &reached, DType::int32, {1}, {}, Role::out});
  const Bound bound = pointer_chase_kernels().at(0).bind(arguments, device);
  ASSERT_EQ(bound.memory.size(), 3u);
  EXPECT_EQ(bound.memory[0].size_bytes, 40 * 64) << "the cycle of lines, which bind allocates";
  EXPECT_EQ(bound.memory[1].start, order.data());
  EXPECT_EQ(bound.memory[1].size_bytes, 160);
  EXPECT_EQ(bound.memory[2].start, &reached);
  EXPECT_FALSE(bound.memory[1].written) << "a constant";
  EXPECT_TRUE(bound.memory[2].written);
  bound.steps.at(0).launch(device);
  EXPECT_EQ(reached, 3);
}

float x[16], residual[16], y[16];

struct AnyProblem {
  static constexpr const char* op = "any";
  static AnyProblem from(const Arguments&) { return {}; }
};

TEST(Flush, ResultsAreToBeWrittenBackUnlessTheyGoPastTheCaches) {
  Device device(1);
  Arguments arguments("any", DType::fp32);
  arguments.add(Tensor{"x", x, DType::fp32, {16}, {}, Role::in});
  arguments.add(Tensor{"residual", residual, DType::fp32, {16}, {}, Role::in_out});
  arguments.add(Tensor{"y", y, DType::fp32, {16}, {}, Role::out});
  for (const bool past : {false, true}) {
    static bool non_temporal;
    non_temporal = past;
    const auto bind = [](const AnyProblem&, Device&) {
      Bound bound;
      state_stores(bound, y, non_temporal);
      return bound;
    };
    const Bound bound = entry<AnyProblem, Device>("fused", DType::fp32, "", bind).bind(arguments, device);
    EXPECT_EQ(bound.memory.size(), 3u);
    for (const Extent& extent : bound.memory)
      EXPECT_EQ(extent.written, extent.start == residual || (extent.start == y && !past)) << past;
  }
}

TEST(Flush, WhatIsReleasedAgainIsNotStated) {
  Device device(1);
  void *kept = nullptr, *before = device.allocate(1);
  const auto found = device.allocated_by([&] {
    void* scratch = device.allocate(5000);
    kept = device.allocate(77);
    device.release(scratch, 5000);
  });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].start, kept);
  EXPECT_EQ(found[0].size_bytes, 77);
  EXPECT_THROW(device.allocated_by([] { throw Error("bind fails"); }), Error);
  void* after = device.allocate(1);
  EXPECT_EQ(device.allocated_by([] {}).size(), 0u) << "nothing of before or after";
  for (void* memory : {before, after}) device.release(memory, 1);
  device.release(kept, 77);
}

TEST(Flush, BeforeEveryLaunchTheMemoryOfItsSet) {
  Device device(0);
  std::vector<int> launched;
  std::vector<std::vector<Launch>> sets;
  for (int set = 0; set < 3; ++set) sets.push_back({[&, set](Queue&) { launched.push_back(set); }});
  std::vector<std::vector<Extent>> memory(3);
  Batch batch{&sets, 2, 4, true};
  EXPECT_THROW(device.run_batch(batch), Error) << "no memory is stated";
  batch.memory = &memory;
  EXPECT_GE(device.run_batch(batch), 0);
  EXPECT_EQ(launched, (std::vector<int>{2, 0, 1, 2}));
  memory.pop_back();
  EXPECT_THROW(device.run_batch(batch), Error);
}

}  // namespace
}  // namespace roofline::cpu
