// One number from every thread of a grid: the sum that the probes of reading return, so that no load of theirs is idle.
#pragma once

#include <cstdint>

#include "cuda/probes/grid_sum.h"

namespace roofline::cuda {

// One block reduces its sums in a fixed tree; the last block to finish adds the blocks' sums in their order, so that the result
// does not depend on timing. Threads: of the block, a power of two.
template <int Threads>
__device__ void add_up(double mine, const GridSum& to) {
  __shared__ double sums[Threads];
  __shared__ bool last;
  const auto tree = [&](double x) {
    sums[threadIdx.x] = x;
    for (int half = Threads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  };
  tree(mine);
  if (threadIdx.x == 0) {
    to.partials[blockIdx.x] = sums[0];
    __threadfence();  // the partial is visible before the count is
    last = atomicAdd(to.finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  double total = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += Threads) total += __ldcg(to.partials + block);
  tree(total);
  if (threadIdx.x == 0) {
    *to.sum = sums[0];
    *to.finished = 0;  // for the next launch
  }
}

}  // namespace roofline::cuda
