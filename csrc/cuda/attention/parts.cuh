// Parts of a unit that several blocks share (KvSplit): each block leaves its own in memory, and the last to arrive, or a kernel
// that follows, adds them up.
#pragma once

#include <memory>

#include "cuda/attention/plan.h"
#include "cuda/device.h"
#include "cuda/simt/warp.cuh"

namespace roofline::cuda {

struct PartsWork {
  KvSplit split;
  float* parts = nullptr;        // [2 * blocks, rows of a unit, width]
  float* stats = nullptr;        // [2 * blocks, rows of a unit, 2]: maximum, in log2 of the exponential, and sum
  unsigned* arrivals = nullptr;  // [units], all 0 between launches
};

// Whether this block is the last of `first` ... `last` to have written its part of a unit; flag: an int of shared memory for the
// answer. The whole block asks; one thread orders memory for all of them.
ROOFLINE_DEVICE bool last_to_arrive(const PartsWork& work, int unit, int first, int last, int flag) {
  synchronize();
  const unsigned others = static_cast<unsigned>(last - first);
  if (thread() == 0) {
    publish();
    *shared_at<int>(flag) = arrive(work.arrivals + unit, others + 1) == others;
    publish();
  }
  synchronize();
  return *shared_at<const int>(flag) != 0;
}

// Columns of a row, summed over what several blocks left of it.
template <int Columns>
struct AddedParts {
  float most = -INFINITY, total = 0.f, x[Columns] = {};
};

// The sum of the parts of blocks first ... last. AtOnce parts are asked for before the first of them is added: each time is a round
// trip to L2 and back. This runs once in a launch, and its instructions come from memory as it runs: few of them are worth more than
// fast ones.
template <int Rows, int Width, int Columns, int AtOnce>
ROOFLINE_DEVICE AddedParts<Columns> add_parts(const PartsWork& work, int unit, int first, int last, int row, int column) {
  AddedParts<Columns> added;
  const int aside = work.split.scratch(first, unit) - 2 * first;  // the blocks after it begin within the unit
#pragma unroll 1
  for (int other = first; other <= last; other += AtOnce) {
    TwoFloats its_stats[AtOnce];
    FourFloats its[AtOnce][Columns / 4];
    float most = added.most;
    const std::int64_t at = 2 * std::int64_t{other} * Rows + row;
#pragma unroll
    for (int i = 0; i < AtOnce; ++i) {
      its_stats[i] = {{-INFINITY, 0.f}};
#pragma unroll
      for (int four = 0; four < Columns / 4; ++four) its[i][four] = {};
      if (other + i > last) continue;
      const std::int64_t place = at + (2 * i + (i == 0 && other == first ? aside : 0)) * Rows;
      its_stats[i] = from_others(reinterpret_cast<const TwoFloats*>(work.stats) + place);
#pragma unroll
      for (int four = 0; four < Columns / 4; ++four)
        its[i][four] = from_others(reinterpret_cast<const FourFloats*>(work.parts + place * Width + column + 4 * four));
    }
#pragma unroll
    for (int i = 0; i < AtOnce; ++i) most = larger_of(most, its_stats[i].x[0]);
    if (most == -INFINITY) continue;  // none saw a key of this query
    const float shrunk = exp2_of(added.most - most);
    added.most = most;
    added.total *= shrunk;
#pragma unroll
    for (int j = 0; j < Columns; ++j) added.x[j] *= shrunk;
#pragma unroll
    for (int i = 0; i < AtOnce; ++i) {
      const float weight = exp2_of(its_stats[i].x[0] - most);  // 0 where it saw none
      added.total = fused(its_stats[i].x[1], weight, added.total);
#pragma unroll
      for (int j = 0; j < Columns; ++j) added.x[j] = fused(its[i][j / 4].x[j % 4], weight, added.x[j]);
    }
  }
  return added;
}

// The same, divided by their sum, in 16 bits.
template <class T, int Rows, int Width>
ROOFLINE_DEVICE void store_added(const PartsWork& work, int unit, int first, int last, int row, int column, void* out) {
  const AddedParts<8> all = add_parts<Rows, Width, 8, 8>(work, unit, first, last, row, column);
  const float inverse = 1.f / all.total;
  Chunk chunk;
#pragma unroll
  for (int j = 0; j < 4; ++j) chunk.words[j] = packed(T{}, all.x[2 * j] * inverse, all.x[2 * j + 1] * inverse);
  *static_cast<Chunk*>(out) = chunk;
}

// Memory for the parts, their maxima and sums, then one counter a unit: 0 now, and again after every launch.
inline std::shared_ptr<void> allocate_parts(PartsWork& work, std::int64_t rows, std::int64_t width, Device& device, Plan& plan) {
  const std::int64_t part_rows = 2 * std::int64_t{work.split.blocks} * rows;
  const std::int64_t parts_bytes = part_rows * width * 4, stats_bytes = part_rows * 2 * 4;
  const std::int64_t workspace_bytes = parts_bytes + stats_bytes + std::int64_t{work.split.units} * 4;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  device.fill(memory.get(), DType::int8, workspace_bytes, Fill::zeros, 0);
  work.parts = static_cast<float*>(memory.get());
  work.stats = work.parts + parts_bytes / 4;
  work.arrivals = reinterpret_cast<unsigned*>(work.stats + stats_bytes / 4);
  plan.set("units", work.split.units);
  plan.set("parts", split_parts(work.split));
  plan.set("parts_bytes", split_parts(work.split) * rows * (width + 2) * 4);
  plan.set("workspace_bytes", workspace_bytes);
  return memory;
}

}  // namespace roofline::cuda
