// What the bindings of stream's kernels share.
#pragma once

#include "cuda/probes/stream_checks.h"
#include "cuda/probes/stream_kernels.cuh"

namespace roofline::cuda {

inline bool aligned(const ops::Stream& problem) {
  return (reinterpret_cast<std::uintptr_t>(problem.a) | reinterpret_cast<std::uintptr_t>(problem.b) |
          reinterpret_cast<std::uintptr_t>(problem.c)) % 16 == 0;
}

// The work of a problem, but for its plan. memory: owns what a sum needs, or nothing.
inline StreamWork work_of(const ops::Stream& problem, Device& device, std::int64_t grid, std::shared_ptr<void>& memory) {
  StreamWork work{};
  work.a = problem.a, work.b = problem.b, work.c = problem.c;
  work.factor = problem.factor;
  work.elements = problem.elements, work.passes = problem.passes, work.stride = problem.stride;
  work.sum = grid_sum(device, problem.sum, grid, memory);
  return work;
}

}  // namespace roofline::cuda
