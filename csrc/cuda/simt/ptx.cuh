// Thin wrappers of PTX that CUDA C++ has no name for.
#pragma once

#include <cstdint>

namespace roofline::cuda {

// Nanoseconds, the same clock on every SM; its step is between 32 ns and 1 us.
__device__ inline std::uint64_t global_timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace roofline::cuda
