// What holds a core back beside stores past the caches. A kernel file includes it.
#pragma once

#include <cstdint>

#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

// A chain of products, 9 cycles for each line that is stored past the caches. A core whose loop is shorter than that runs ahead
// of memory by its whole window and asks for many lines at once, and loads that are needed first wait behind them for a buffer.
ROOFLINE_INLINE void pace([[maybe_unused]] std::int64_t& chain) {
#if defined(__x86_64__)
  asm volatile("imul %0, %0\n imul %0, %0\n imul %0, %0" : "+r"(chain));
#endif
}

}  // namespace
}  // namespace roofline::cpu
