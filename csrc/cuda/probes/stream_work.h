// What the bindings of stream's kernels share.
#pragma once

#include "cuda/launch.cuh"
#include "cuda/probes/stream_checks.h"
#include "cuda/probes/stream_kernels.cuh"

namespace roofline::cuda {

inline bool aligned(const ops::Stream& problem) { return aligned(problem.a, problem.b, problem.c); }

// of(access, T{}) with the problem's access as a constant and its element type T.
template <class Of>
auto by_access(const ops::Stream& problem, Of of) {
  const auto with = [&](auto type) {
    switch (problem.access) {
      case Access::read: return of(std::integral_constant<Access, Access::read>{}, type);
      case Access::write: return of(std::integral_constant<Access, Access::write>{}, type);
      case Access::copy: return of(std::integral_constant<Access, Access::copy>{}, type);
      case Access::scale: return of(std::integral_constant<Access, Access::scale>{}, type);
      case Access::add: return of(std::integral_constant<Access, Access::add>{}, type);
      case Access::triad: return of(std::integral_constant<Access, Access::triad>{}, type);
    }
    throw Error("stream: unknown access");
  };
  return problem.dtype == DType::fp64 ? with(double{}) : with(float{});
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
