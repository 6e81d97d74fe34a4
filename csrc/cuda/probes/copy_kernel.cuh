// Bytes from one place to another, which may be memory of a peer.
#pragma once

#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

// Each thread moves eight vectors, a block's width apart, all loaded before the first is stored; past the last whole vector bytes.
constexpr int kCopyThreads = 256, kCopyVectors = 8;
__global__ void __launch_bounds__(kCopyThreads) copy_kernel(uint4* to, const uint4* from, std::int64_t size_bytes) {
  const std::int64_t vectors = size_bytes / 16, round = std::int64_t{gridDim.x} * kCopyThreads * kCopyVectors;
  for (std::int64_t begin = std::int64_t{blockIdx.x} * kCopyThreads * kCopyVectors + threadIdx.x; begin < vectors; begin += round) {
    uint4 x[kCopyVectors];
#pragma unroll
    for (int u = 0; u < kCopyVectors; ++u)
      if (begin + u * kCopyThreads < vectors) x[u] = from[begin + u * kCopyThreads];
#pragma unroll
    for (int u = 0; u < kCopyVectors; ++u)
      if (begin + u * kCopyThreads < vectors) to[begin + u * kCopyThreads] = x[u];
  }
  if (blockIdx.x == 0 && threadIdx.x < size_bytes % 16) {
    const std::int64_t at = vectors * 16 + threadIdx.x;
    reinterpret_cast<char*>(to)[at] = reinterpret_cast<const char*>(from)[at];
  }
}

}  // namespace roofline::cuda
