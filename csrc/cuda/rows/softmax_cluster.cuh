// Softmax of rows that one block cannot keep: a cluster of blocks shares a row, each keeps its part in registers, so that the row
// is read once. What the parts have to tell each other goes from shared memory to shared memory.
#pragma once

#include "cuda/rows/rows_kernels.cuh"
#include "cuda/simt/cluster.cuh"

namespace roofline::cuda {

// A pack as words: the compiler would keep elements of 16 bits in a register each.
template <class T>
struct Words {
  uint4 bits;

  // Converted anew once `after` is known, and not kept converted from an earlier pass.
  __device__ Pack<T> again([[maybe_unused]] float after) {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w) : "f"(after));
#endif
    union {
      uint4 bits;
      Pack<T> pack;
    } u;
    u.bits = bits;
    return u.pack;
  }
};

// Blocks that an SM has room for, by its registers; from sm_100 on the compiler needs more for the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kClusterBlocks = 2;
#else
constexpr int kClusterBlocks = 4;
#endif

// While a row is worked on, the block's part of the next is on its way to shared memory. Dynamic shared memory: a part.
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
  const unsigned minus_infinity = sizeof(T) == 4 ? 0xFF800000u : std::is_same_v<T, __half> ? 0xFC00FC00u : 0xFF80FF80u;
  unsigned round = 0;
  for (std::int64_t row = blockIdx.x / size; row < work.rows; row += step, ++round) {
    const unsigned turn = round % 2;
    if (thread == 0) expect_bytes(&told[turn], static_cast<std::uint32_t>(size * warps) * 8);
    if (mine > 0) wait_phase(&arrived, turn);
    Words<T> kept[kChunks];
#pragma unroll
    for (int v = 0; v < kChunks; ++v) {
      const int chunk = thread + v * threads;
      kept[v].bits = make_uint4(minus_infinity, minus_infinity, minus_infinity, minus_infinity);
      if (chunk < mine) kept[v].bits = reinterpret_cast<const uint4*>(dynamic_shared)[chunk];
    }
    __syncthreads();
    request(row + step);

    float largest = -INFINITY, sum = 0.f;  // of a warp's part
#pragma unroll
    for (int v = 0; v < kChunks; ++v) {
      const Pack<T> pack = kept[v].again(0.f);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) largest = larger(largest, to_float(pack.lane[j]));
    }
    Team warp{32, lane, nullptr};
    largest = warp.max(largest);
    const float base = largest == -INFINITY ? 0.f : largest;  // a part of -inf alone adds 0
#pragma unroll
    for (int v = 0; v < kChunks; ++v) {
      const Pack<T> pack = kept[v].again(base);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) sum += exponential<T>(to_float(pack.lane[j]) - base);
    }
    sum = warp.sum(sum);
    // A turn is written again after every warp has sent its part of the next, behind its reading of this one.
    if (lane < size) send_to_block(&parts[turn][rank * warps + thread / 32], lane, {largest, sum}, &told[turn]);
    wait_phase(&told[turn], round / 2 % 2);
    float whole = -INFINITY, all = 0.f;
    for (int i = lane; i < size * warps; i += 32) whole = larger(whole, parts[turn][i].x);
    whole = warp.max(whole);
    for (int i = lane; i < size * warps; i += 32) all += parts[turn][i].y * exponential<T>(parts[turn][i].x - whole);
    const float inverse = 1.f / warp.sum(all);
    T* const to = y + row * work.columns + start;
#pragma unroll
    for (int v = 0; v < kChunks; ++v) {
      const int chunk = thread + v * threads;
      if (chunk >= mine) continue;
      const Pack<T> pack = kept[v].again(inverse);
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < kLanes; ++j)
        out.lane[j] = from_float<T>(exponential<T>(to_float(pack.lane[j]) - whole) * inverse);
      store_streamed(to + chunk * kLanes, out);
    }
  }
  synchronize_cluster();  // before the shared memory that others send to is gone
}

}  // namespace roofline::cuda
