// Grids and tiles of the CUDA backend: plain arithmetic, so it is tested where there is no GPU.
#include <gtest/gtest.h>

#include "cuda/plan.h"

namespace {

using namespace roofline::cuda;

TEST(StreamPlan, UnalignedArraysAreAllTail) {
  const StreamPlan plan = plan_stream(1000, 4, false, 1, 8, 256, 4);
  EXPECT_EQ(plan.vectors, 0);
  EXPECT_EQ(plan.waves, 0);
  EXPECT_EQ(plan.tail_elements, 1000);
}

TEST(StreamPlan, CountsPastTwoToThe31) {
  const std::int64_t elements = (std::int64_t{1} << 33) + 5;
  const StreamPlan plan = plan_stream(elements, 4, true, 1, 8, 256, 528);
  EXPECT_EQ(plan.vectors * 4 + plan.tail_elements, elements);
  EXPECT_LT(plan.part - plan.waves * 256 * 8 * 528, 256 * 8 * 528);
}

TEST(PersistentGrid, NeverEmptyNeverMoreThanResidentOrNeeded) {
  EXPECT_EQ(persistent_grid(1000, 132, 4), 528);
  EXPECT_EQ(persistent_grid(7, 132, 4), 7);
  EXPECT_EQ(persistent_grid(0, 132, 4), 1);
  EXPECT_EQ(persistent_grid(1000, 132, 0), 132);
  EXPECT_EQ(passing_grid(0), 1);
  EXPECT_EQ(passing_grid(1000), 1000);
  EXPECT_EQ(passing_grid(std::int64_t{1} << 40), kMaxGridX);
}

TEST(EvenGrid, EveryBlockTakesAsManyTiles) {
  EXPECT_EQ(even_grid(8 * 132, 132, 8), 8 * 132);
  EXPECT_EQ(even_grid(8 * 132, 132, 6), 4 * 132) << "not 6 and then 2 an SM";
  EXPECT_EQ(even_grid(8 * 132, 132, 4), 4 * 132);
  EXPECT_EQ(even_grid(6 * 84, 84, 4), 3 * 84);
  EXPECT_EQ(even_grid(7, 132, 4), 7);
  EXPECT_EQ(even_grid(0, 132, 4), 1);
}

TEST(TileGrid, CoversAwkwardShapes) {
  EXPECT_EQ(tile_grid(3, 1, 1, 128, 64).tiles(), 3);
  EXPECT_EQ(tile_grid(2, 129, 65, 128, 64).tiles(), 2 * 2 * 2);
  // More tiles than a one-dimensional grid has blocks: the kernels loop.
  EXPECT_GT(tile_grid(std::int64_t{1} << 20, 1 << 17, 1 << 17, 128, 64).tiles(), kMaxGridX);
}

TEST(GateChunk, FitsTheQueue) {
  EXPECT_EQ(gate_chunk(10, 1), 10);
  EXPECT_EQ(gate_chunk(100000, 1), 512);
  EXPECT_EQ(gate_chunk(100000, 3), 170);
  EXPECT_EQ(gate_chunk(100000, 5000), 1);
  EXPECT_EQ(gate_chunk(10, 0), 10);
}

TEST(ArchitectureFits, PortableRunsOnNewerSpecificOnItsOwn) {
  EXPECT_TRUE(architecture_fits("sm_80", 80));
  EXPECT_TRUE(architecture_fits("sm_80", 120));
  EXPECT_FALSE(architecture_fits("sm_90", 89));
  EXPECT_TRUE(architecture_fits("sm_90a", 90));
  EXPECT_FALSE(architecture_fits("sm_90a", 100));
  EXPECT_FALSE(architecture_fits("sm_90a", 80));
}

}  // namespace
