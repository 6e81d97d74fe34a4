// The kernels of stream that go through shared memory: tiles of bulk copies, and a block's own part re-read from there.
//
// A bulk copy keeps as many bytes in flight as it has shared memory, with no register for them and one instruction for a tile. What
// consumes it must be faster: HBM of 4.8 TB/s is 36 GB/s for each of 132 SMs, and shared memory gives 128 bytes a cycle, 253 GB/s
// at 1.98 GHz, so that adding up every element takes a seventh of the time there is.
#pragma once

#include "cuda/probes/stream_kernels.cuh"
#include "cuda/simt/bulk.cuh"

namespace roofline::cuda {

constexpr int kBulkThreads = 128;

struct BulkWork {
  StreamWork stream;
  Tiles tiles;
  std::int64_t turns;  // tiles of all passes
  int tile_bytes;      // of one array
};

// All accesses but write. Thread 0 issues the copies; all threads wait for a tile, add it up (read) or compute from it into memory
// (scale, add, triad); a copy's tile thread 0 stores unchanged. A block that stores ends after one tile, see tile_kernel. A block
// that reads goes on to further tiles, so that few partial sums are left to add.
template <Access access, class T>
__global__ void __launch_bounds__(kBulkThreads) bulk_kernel(const BulkWork work) {
  constexpr bool kReadsB = reads_b<access>;
  using V = Vector<T>;
  __shared__ std::uint64_t full;
  const bool issues = threadIdx.x == 0;
  const auto tiles = static_cast<unsigned>(work.tiles.count);
  V* const x = reinterpret_cast<V*>(dynamic_shared);
  [[maybe_unused]] const V* const y = reinterpret_cast<const V*>(dynamic_shared + work.tile_bytes);
  [[maybe_unused]] V partial = {};

  if (issues) {
    init_barrier(&full, 1);
    fence_barriers();
  }
  unsigned tile = tiles == 0 ? 0 : blockIdx.x % tiles, parity = 0;
  for (std::int64_t turn = blockIdx.x; turn < work.turns; turn += gridDim.x) {
    const std::int64_t at = std::int64_t{tile} * work.tile_bytes, left = work.tiles.bytes - at;
    const auto size = static_cast<std::uint32_t>(left < work.tile_bytes ? left : work.tile_bytes);
    if (issues) {
      expect_bytes(&full, kReadsB ? 2 * size : size);
      bulk_load(x, static_cast<const char*>(work.stream.a) + at, size, &full);
      if constexpr (kReadsB)
        bulk_load(dynamic_shared + work.tile_bytes, static_cast<const char*>(work.stream.b) + at, size, &full);
    }
    __syncthreads();  // the barrier is there
    if constexpr (access == Access::copy) {
      if (issues) {
        wait_phase(&full, parity);
        bulk_store(static_cast<char*>(work.stream.c) + at, x, size);
        commit_stores();
        wait_stores_read();
      }
    } else {
      wait_phase(&full, parity);
      V* const c = reinterpret_cast<V*>(static_cast<char*>(work.stream.c) + at);
      for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(size / 16); i += kBulkThreads) {
        V other = {};
        if constexpr (kReadsB) other = y[i];
        if constexpr (access == Access::read)
          add_lanes(partial, x[i]);
        else
          store(c + i, combine<access>(x[i], other, static_cast<T>(work.stream.factor)));
      }
    }
    __syncthreads();  // the tile may be overwritten
    tile = (tile + gridDim.x) % tiles;
    parity ^= 1;
  }
  T tail = 0;
  if (blockIdx.x == 0)
    for (std::int64_t pass = 0; pass < work.stream.passes; ++pass)
      tail += tail_elements<access, T>(work.stream, work.tiles.tail_elements, threadIdx.x, kBulkThreads);
  if constexpr (access == Access::read) add_up<kBulkThreads>(sum_of_lanes(tail, partial), work.stream.sum);
}

// Read by shared memory: a block copies `chunk` bytes of its own run there once, and adds them up `passes` times; a run that is
// longer comes in several chunks. A warp's 128-bit loads touch every bank in turn: no conflicts.
constexpr int kSharedThreads = 512, kSharedUnroll = 4;

__global__ void __launch_bounds__(kSharedThreads, 1) shared_kernel(const StreamWork work, int chunk_bytes) {
  using V = Vector<float>;
  const V* a = static_cast<const V*>(work.a);
  V* const kept = reinterpret_cast<V*>(dynamic_shared);
  const std::int64_t vectors = work.plan.vectors, own = (vectors + gridDim.x - 1) / gridDim.x;
  const std::int64_t begin = own * blockIdx.x, end = begin + own < vectors ? begin + own : vectors;
  const int chunk = chunk_bytes / 16;
  V partial = {};
  for (std::int64_t first = begin; first < end; first += chunk) {
    const int count = static_cast<int>(end - first < chunk ? end - first : chunk);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSharedThreads) kept[i] = load(a + first + i);
    __syncthreads();
    for (std::int64_t pass = 0; pass < work.passes; ++pass) {
      int at = static_cast<int>(threadIdx.x);
      for (; at + (kSharedUnroll - 1) * kSharedThreads < count; at += kSharedUnroll * kSharedThreads) {
#pragma unroll
        for (int u = 0; u < kSharedUnroll; ++u) add_lanes(partial, kept[at + u * kSharedThreads]);
      }
      for (; at < count; at += kSharedThreads) add_lanes(partial, kept[at]);
      asm volatile("" ::: "memory");
    }
  }
  double mine = 0;
  if (blockIdx.x == 0 && static_cast<std::int64_t>(threadIdx.x) < work.plan.tail_elements)
    mine = static_cast<double>(work.passes) * static_cast<const float*>(work.a)[vectors * 4 + threadIdx.x];
  add_up<kSharedThreads>(sum_of_lanes(mine, partial), work.sum);
}

}  // namespace roofline::cuda
