// The workspace of a sum over a grid (cuda/probes/sum.cuh).
#pragma once

#include <memory>

#include "cuda/device.h"

namespace roofline::cuda {

struct GridSum {
  double* partials;    // [gridDim.x]
  unsigned* finished;  // [1], 0 between launches
  double* sum;         // [1]; null where there is none
};

inline std::int64_t sum_workspace(const GridSum& sum, std::int64_t grid) { return sum.sum ? grid * 8 + 8 : 0; }

// memory: owns the workspace; it stays empty where `sum` is null.
inline GridSum grid_sum(Device& device, double* sum, std::int64_t grid, std::shared_ptr<void>& memory) {
  GridSum made{nullptr, nullptr, sum};
  if (!sum) return made;
  const std::int64_t size = sum_workspace(made, grid);
  memory = workspace(device, size);
  device.fill(memory.get(), DType::int8, size, Fill::zeros, 0);
  made.partials = static_cast<double*>(memory.get());
  made.finished = reinterpret_cast<unsigned*>(made.partials + grid);
  return made;
}

}  // namespace roofline::cuda
