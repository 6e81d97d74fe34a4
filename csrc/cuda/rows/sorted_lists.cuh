// Lists of kListed keys, the largest first, by networks of minima and maxima: no step depends on the data.
#pragma once

#include "cuda/rows/routers_plan.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

template <class K>
__device__ inline void exchange(K& a, K& b) {
  const K low = min(a, b);
  a = max(a, b), b = low;
}

// The largest first, in 19 exchanges: as few as there can be.
template <class K>
__device__ inline void sort(K (&key)[kListed]) {
  constexpr int kExchanges[19][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}, {0, 1}, {2, 3},
                                     {4, 5}, {6, 7}, {2, 4}, {3, 5}, {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6}};
#pragma unroll
  for (const auto& [above, below] : kExchanges) exchange(key[above], key[below]);
}

// The largest of two sorted lists: maxima of one and the other in reverse rise and fall once, which log2 n steps sort.
template <class K>
__device__ inline void merge(K (&key)[kListed], const K (&other)[kListed]) {
#pragma unroll
  for (int i = 0; i < kListed; ++i) key[i] = max(key[i], other[kListed - 1 - i]);
#pragma unroll
  for (int step = kListed / 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < kListed; ++i)
      if (i / step % 2 == 0) exchange(key[i], key[i + step]);
}

// The lists of all lanes of a token become one, in each.
template <class K>
__device__ inline void merge_over(K (&key)[kListed], int lanes) {
#pragma unroll 1
  for (int half = 1; half < lanes; half *= 2) {
    K other[kListed];
#pragma unroll
    for (int j = 0; j < kListed; ++j) other[j] = __shfl_xor_sync(0xFFFFFFFFu, key[j], half);
    merge(key, other);
  }
}

template <class K>
__device__ inline K at_place(const K (&key)[kListed], int place) {
  K found[kListed];
#pragma unroll
  for (int i = 0; i < kListed; ++i) found[i] = key[i];
#pragma unroll
  for (int half = kListed / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) found[i] = place & half ? found[i + half] : found[i];
  return found[0];
}

}  // namespace roofline::cuda
