// The kernels of pointer_chase: laying the cycle out, and following it.
#pragma once

#include <cstdint>

#include "ops/pointer_chase.h"

namespace roofline::cuda {

// The first of its bytes holds the address of the next line of the cycle: base plus index would cost cycles of its own.
struct alignas(ops::PointerChase::kLineBytes) Line {
  const Line* next;
  long long place;  // in the cycle; -1 before it is laid out
};
static_assert(sizeof(Line) == ops::PointerChase::kLineBytes);

struct Chase {
  const Line* at;      // where the last launch ended
  long long cycles;    // of the hops of the last launch
  long long wrong;     // a place of `order` that makes it no permutation; -1
};

enum class Through { l1, l2 };  // the nearest cache that may serve a hop

constexpr int kLayOutThreads = 256;

// Line order[i] leads to line order[i + 1], the last to the first. All lines' places are -1 before.
__global__ void __launch_bounds__(kLayOutThreads) lay_out_kernel(Line* lines, const std::int32_t* order, std::int64_t count,
                                                                 Chase* chase) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kLayOutThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kLayOutThreads + threadIdx.x; i < count; i += stride) {
    const std::int64_t after = i + 1 < count ? i + 1 : 0, line = order[i], next = order[after];
    const bool strays = next < 0 || next >= count;
    if (strays || line < 0 || line >= count ||
        atomicCAS(reinterpret_cast<unsigned long long*>(&lines[line].place), ~0ull, static_cast<unsigned long long>(i)) != ~0ull) {
      chase->wrong = strays ? after : i;  // of several any one
      continue;
    }
    lines[line].next = &lines[next];
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && order[0] >= 0 && order[0] < count) chase->at = &lines[order[0]];
}

template <Through through>
__device__ inline const Line* hop(const Line* at) {
  const auto* place = reinterpret_cast<const unsigned long long*>(&at->next);
  return reinterpret_cast<const Line*>(through == Through::l1 ? __ldca(place) : __ldcg(place));
}

// One thread follows the cycle, a load at a time, from where the last launch ended; the other threads only bring the set into L1
// before, which every launch finds empty.
constexpr int kChaseThreads = 256, kChaseUnroll = 16;

template <Through through>
__global__ void __launch_bounds__(kChaseThreads) chase_kernel(const Line* lines, const std::int32_t* order, std::int64_t count,
                                                              std::int64_t hops, Chase* chase, std::int32_t* reached) {
  if constexpr (through == Through::l1) {
    for (std::int64_t i = threadIdx.x; i < count; i += kChaseThreads)
      if (hop<through>(&lines[i]) == nullptr) *reached = -1;  // never: every line leads somewhere
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const Line* at = chase->at;
  const long long from = at->place;
  const long long begin = clock64();
  std::int64_t left = hops;
  for (; left >= kChaseUnroll; left -= kChaseUnroll) {
#pragma unroll
    for (int u = 0; u < kChaseUnroll; ++u) at = hop<through>(at);
  }
  for (; left > 0; --left) at = hop<through>(at);
  chase->at = at;  // waits for the last hop
  const long long place = at->place;
  chase->cycles = clock64() - begin;
  *reached = order[(place - from + count) % count];
}

}  // namespace roofline::cuda
