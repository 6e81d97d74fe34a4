// Softmax of rows that one block cannot keep: a cluster of blocks shares a row, each keeps its part in registers, so that the row
// is read once. What the parts have to tell each other goes from shared memory to shared memory.
#pragma once

#include "cuda/rows/rows_kernels.cuh"
#include "cuda/simt/cluster.cuh"

namespace roofline::cuda {

// Blocks that an SM has room for, by its registers; for other architectures than sm_90 the compiler needs more for the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 == 9
constexpr int kClusterBlocks = 2;
#else
constexpr int kClusterBlocks = 1;
#endif

// The exponentials stay where the elements were. While a row is worked on, the block's part of the next is on its way to shared
// memory. Dynamic shared memory: a part.
template <class T>
__global__ void __launch_bounds__(kClusterThreads, kClusterBlocks) softmax_cluster(const T* __restrict__ x,  // [rows, columns]
                                                                                   T* __restrict__ y,        // [rows, columns]
                                                                                   RowsWork work) {
  constexpr int kLanes = Pack<T>::kLanes, kChunks = kClusterElements / kLanes;
  __shared__ std::uint64_t arrived, told[2];
  __shared__ float2 parts[2][kMostCluster * kClusterThreads / 32];  // maximum and sum of every warp of the cluster; rows in turn
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lane = thread % 32;
  const int rank = cluster_rank(), size = cluster_size(), warps = threads / 32;
  const int chunks = static_cast<int>(work.columns / kLanes), each = (chunks + size - 1) / size;
  const int first = min(rank * each, chunks), mine = min(each, chunks - first);
  const std::int64_t step = gridDim.x / size, start = std::int64_t{first} * kLanes;
  const auto request = [&](std::int64_t row) {
    if (thread != 0 || mine == 0 || row >= work.rows) return;
    expect_bytes(&arrived, static_cast<std::uint32_t>(mine) * 16);
    bulk_load(dynamic_shared, x + row * work.columns + start, static_cast<std::uint32_t>(mine) * 16, &arrived);
  };
  if (thread == 0) {
    init_barrier(&arrived, 1);
    for (std::uint64_t& each_turn : told) init_barrier(&each_turn, 1);
    fence_barriers();
  }
  synchronize_cluster();  // whose blocks are all there
  request(blockIdx.x / size);
  unsigned round = 0;
  for (std::int64_t row = blockIdx.x / size; row < work.rows; row += step, ++round) {
    const unsigned turn = round % 2;
    if (thread == 0) expect_bytes(&told[turn], static_cast<std::uint32_t>(size * warps) * 8);
    if (mine > 0) wait_phase(&arrived, turn);
    float e[kChunks][kLanes], largest = -INFINITY, sum = 0.f;  // maximum and sum of a warp's part
#pragma unroll
    for (int v = 0; v < kChunks; ++v) {
#pragma unroll
      for (int j = 0; j < kLanes; ++j) e[v][j] = -INFINITY;
      if (const int chunk = thread + v * threads; chunk < mine) {
        const uint4 bits = reinterpret_cast<const uint4*>(dynamic_shared)[chunk];
        largest = larger(largest, largest_of<T>(bits));
        to_floats<T>(bits, e[v]);
      }
    }
    __syncthreads();
    request(row + step);

    Team warp{32, lane, nullptr};
    largest = warp.max(largest);
    const float base = largest == -INFINITY ? 0.f : largest;  // a part of -inf alone adds 0
#pragma unroll
    for (int v = 0; v < kChunks; ++v)
#pragma unroll
      for (int j = 0; j < kLanes; ++j) sum += e[v][j] = exponential<T>(e[v][j] - base);
    sum = warp.sum(sum);
    // A turn is written again after every warp has sent its part of the next, behind its reading of this one.
    if (lane < size) send_to_block(&parts[turn][rank * warps + thread / 32], lane, {largest, sum}, &told[turn]);
    wait_phase(&told[turn], round / 2 % 2);
    float whole = -INFINITY, all = 0.f;
    for (int i = lane; i < size * warps; i += 32) whole = larger(whole, parts[turn][i].x);
    whole = warp.max(whole);
    for (int i = lane; i < size * warps; i += 32) all += parts[turn][i].y * exponential<T>(parts[turn][i].x - whole);
    const float factor = exponential<T>(largest - whole) * fast_inverse(warp.sum(all));
    T* const to = y + row * work.columns + start;
#pragma unroll
    for (int v = 0; v < kChunks; ++v) {
      const int chunk = thread + v * threads;
      if (chunk >= mine) continue;
#pragma unroll
      for (int j = 0; j < kLanes; ++j) e[v][j] *= factor;
      reinterpret_cast<uint4*>(to)[chunk] = rounded_bits<T>(e[v]);
    }
  }
  synchronize_cluster();  // before the shared memory that others send to is gone
}

}  // namespace roofline::cuda
