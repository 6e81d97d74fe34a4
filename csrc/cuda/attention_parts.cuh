// Parts of a unit that several blocks share (KvSplit): each block leaves its own in memory, and the last to arrive adds them up.
#pragma once

#include <memory>

#include "cuda/attention_plan.h"
#include "cuda/device.h"
#include "cuda/warp.cuh"

namespace roofline::cuda {

struct PartsWork {
  KvSplit split;
  float* parts = nullptr;        // [2 * blocks, rows of a unit, width]
  float* stats = nullptr;        // [2 * blocks, rows of a unit, 2]: maximum, in log2 of the exponential, and sum
  unsigned* arrivals = nullptr;  // [units], all 0 between launches
};

// Whether this block is the last of `first` ... `last` to have written its part of a unit; flag: an int of shared memory for the
// answer. The whole block asks.
ROOFLINE_DEVICE bool last_to_arrive(const PartsWork& work, int unit, std::int64_t first, std::int64_t last, int flag) {
  publish();
  synchronize();
  const unsigned others = static_cast<unsigned>(last - first);
  if (thread() == 0) *shared_at<int>(flag) = arrive(work.arrivals + unit, others + 1) == others;
  synchronize();
  const bool answer = *shared_at<const int>(flag) != 0;
  if (answer) publish();
  return answer;
}

// Eight columns of a row, summed over what blocks first ... last left of it.
struct AddedParts {
  float most = -INFINITY, total = 0.f, x[8] = {};
};

template <int Rows, int Width>
ROOFLINE_DEVICE AddedParts add_parts(const PartsWork& work, int unit, std::int64_t first, std::int64_t last, int row, int column) {
  AddedParts added;
  for (std::int64_t other = first; other <= last; ++other) {
    const std::int64_t at = work.split.scratch(other, unit) * Rows + row;
    const float its_max = from_others(work.stats + at * 2), its_sum = from_others(work.stats + at * 2 + 1);
    if (its_max == -INFINITY) continue;  // it saw no key of this query
    const float before = added.most;
    added.most = larger_of(before, its_max);
    const float shrunk = exp2_of(before - added.most), weight = exp2_of(its_max - added.most);
    added.total = fused(its_sum, weight, added.total * shrunk);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const FourFloats its = from_others(reinterpret_cast<const FourFloats*>(work.parts + at * Width + column + 4 * half));
#pragma unroll
      for (int j = 0; j < 4; ++j) added.x[4 * half + j] = fused(its.x[j], weight, added.x[4 * half + j] * shrunk);
    }
  }
  return added;
}

// Memory for the parts, their maxima and sums, then one counter a unit: 0 now, and again after every launch.
inline std::shared_ptr<void> allocate_parts(PartsWork& work, std::int64_t rows, std::int64_t width, Device& device, Plan& plan) {
  const std::int64_t part_rows = 2 * work.split.blocks * rows, parts_bytes = part_rows * width * 4, stats_bytes = part_rows * 2 * 4;
  const std::int64_t workspace_bytes = parts_bytes + stats_bytes + work.split.units * 4;
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
