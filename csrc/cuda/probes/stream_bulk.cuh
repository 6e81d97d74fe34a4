// The kernels of stream that go through shared memory: rings of bulk copies, and a block's own part re-read from there.
//
// A ring keeps as many bytes in flight as it has shared memory, with no register for them and one instruction for 8 or 16 KB. What
// consumes it must be faster: HBM of 4.8 TB/s is 36 GB/s for each of 132 SMs, and shared memory gives 128 bytes a cycle, 253 GB/s
// at 1.98 GHz, so that adding up every element takes a seventh of the time there is.
#pragma once

#include "cuda/probes/stream_kernels.cuh"
#include "cuda/simt/bulk.cuh"

namespace roofline::cuda {

constexpr int kBulkThreads = 256;

struct BulkWork {
  StreamWork stream;
  Ring ring;
  Pieces pieces;
};

// A walk over the pieces that one block takes, begun again with every pass.
struct PieceWalk {
  std::int64_t at, count;
  int piece_bytes;
  std::int64_t bytes;  // of the whole array

  __device__ std::int64_t offset() const { return at * piece_bytes; }
  __device__ std::uint32_t size() const {
    const std::int64_t left = bytes - offset();
    return static_cast<std::uint32_t>(left < piece_bytes ? left : piece_bytes);
  }
  __device__ void next() { at = at + gridDim.x < count ? at + gridDim.x : blockIdx.x; }
};

// Pieces that this block takes in one pass.
__device__ inline std::int64_t own_pieces(const Pieces& pieces) {
  return blockIdx.x < pieces.count ? (pieces.count - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
}

__device__ inline void wait_stores_read(int pending) {
  switch (pending) {
    case 0: return wait_stores_read<0>();
    case 1: return wait_stores_read<1>();
    case 2: return wait_stores_read<2>();
    case 3: return wait_stores_read<3>();
    case 4: return wait_stores_read<4>();
    case 6: return wait_stores_read<6>();
    case 8: return wait_stores_read<8>();
    default: return wait_stores_read<12>();
  }
}

// Elements past the last 16 bytes, by the first block; sums of read are returned.
template <Access access, class T>
__device__ T tail_elements(const StreamWork& work, std::int64_t tail) {
  T sum = 0;
  if (blockIdx.x != 0 || static_cast<std::int64_t>(threadIdx.x) >= tail) return sum;
  const std::int64_t at = work.elements - tail + threadIdx.x;
  for (std::int64_t pass = 0; pass < work.passes; ++pass) {
    const T p = reads_a<access> ? __ldcg(static_cast<const T*>(work.a) + at) : T{0};
    const T q = reads_b<access> ? __ldcg(static_cast<const T*>(work.b) + at) : T{0};
    if constexpr (access == Access::read)
      sum += p;
    else
      static_cast<T*>(work.c)[at] = combine<access>(p, q, static_cast<T>(work.factor));
  }
  return sum;
}

// All accesses but write. Thread 0 issues every copy; all threads wait for a stage, add it up (read), compute in it (scale, add,
// triad) or leave it as it is (copy), and meet before thread 0 stores it and refills the stage whose store has been read.
template <Access access, class T>
__global__ void __launch_bounds__(kBulkThreads, 1) bulk_kernel(const BulkWork work) {
  constexpr bool kReadsB = reads_b<access>, kWrites = access != Access::read, kComputes = kWrites && access != Access::copy;
  constexpr int kLanes = 16 / sizeof(T);
  using V = Vector<T>;
  __shared__ std::uint64_t full[kMostStages];
  const Ring ring = work.ring;
  const bool issues = threadIdx.x == 0;
  const std::int64_t total = own_pieces(work.pieces) * work.stream.passes;
  const T factor = static_cast<T>(work.stream.factor);
  V partial = {};

  const auto stage_of = [&](int stage) { return dynamic_shared + stage * ring.piece_bytes * (kReadsB ? 2 : 1); };
  PieceWalk used{blockIdx.x, work.pieces.count, ring.piece_bytes, work.pieces.bytes}, loaded = used;
  const auto load_next = [&](int stage) {
    const std::uint32_t size = loaded.size();
    expect_bytes(&full[stage], kReadsB ? 2 * size : size);
    bulk_load(stage_of(stage), static_cast<const char*>(work.stream.a) + loaded.offset(), size, &full[stage]);
    if constexpr (kReadsB)
      bulk_load(stage_of(stage) + ring.piece_bytes, static_cast<const char*>(work.stream.b) + loaded.offset(), size, &full[stage]);
    loaded.next();
  };

  if (issues) {
    for (int stage = 0; stage < ring.stages; ++stage) init_barrier(&full[stage], 1);
    fence_barriers();
  }
  __syncthreads();
  if (issues)
    for (int stage = 0; stage < ring.stages && stage < total; ++stage) load_next(stage);

  int stage = 0, refilled = 0;
  unsigned parity = 0;
  for (std::int64_t k = 0; k < total; ++k) {
    wait_phase(&full[stage], parity);
    const int vectors = static_cast<int>(used.size() / 16);
    V* const x = reinterpret_cast<V*>(stage_of(stage));
    if constexpr (!kWrites)
      for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kBulkThreads) {
        const V each = x[i];
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) partial.lane[lane] += each.lane[lane];
      }
    if constexpr (kComputes) {
      [[maybe_unused]] const V* const y = reinterpret_cast<const V*>(stage_of(stage) + ring.piece_bytes);
      for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kBulkThreads) {
        V each = x[i], other = {};
        if constexpr (kReadsB) other = y[i];
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) each.lane[lane] = combine<access>(each.lane[lane], other.lane[lane], factor);
        x[i] = each;
      }
      fence_shared_for_bulk();
    }
    __syncthreads();
    if (issues) {
      if constexpr (kWrites) {
        bulk_store(static_cast<char*>(work.stream.c) + used.offset(), x, used.size());
        commit_stores();
        wait_stores_read(ring.lag);
      }
      if (k >= ring.lag && k - ring.lag + ring.stages < total) {
        load_next(refilled);
        refilled = refilled + 1 == ring.stages ? 0 : refilled + 1;
      }
    }
    used.next();
    if (++stage == ring.stages) stage = 0, parity ^= 1;
  }
  if (issues && kWrites) wait_stores();
  const T tail = tail_elements<access, T>(work.stream, work.pieces.tail_elements);
  if constexpr (!kWrites) {
    double mine = tail;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) mine += partial.lane[lane];
    add_up<kBulkThreads>(mine, work.stream.sum);
  }
}

// Write: one piece in shared memory is stored again and again, as many stores at a time as the ring has stages.
template <class T>
__global__ void __launch_bounds__(kBulkThreads, 1) bulk_write_kernel(const BulkWork work) {
  T* const piece = reinterpret_cast<T*>(dynamic_shared);
  const T factor = static_cast<T>(work.stream.factor);
  for (int i = static_cast<int>(threadIdx.x); i < work.ring.piece_bytes / static_cast<int>(sizeof(T)); i += kBulkThreads)
    piece[i] = factor;
  fence_shared_for_bulk();
  __syncthreads();
  if (threadIdx.x == 0) {
    PieceWalk walk{blockIdx.x, work.pieces.count, work.ring.piece_bytes, work.pieces.bytes};
    const std::int64_t total = own_pieces(work.pieces) * work.stream.passes;
    for (std::int64_t k = 0; k < total; ++k, walk.next()) {
      bulk_store(static_cast<char*>(work.stream.c) + walk.offset(), piece, walk.size());
      commit_stores();
      wait_stores_read(work.ring.stages);
    }
    wait_stores();
  }
  tail_elements<Access::write, T>(work.stream, work.pieces.tail_elements);
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
        for (int u = 0; u < kSharedUnroll; ++u) {
          const V x = kept[at + u * kSharedThreads];
#pragma unroll
          for (int lane = 0; lane < 4; ++lane) partial.lane[lane] += x.lane[lane];
        }
      }
      for (; at < count; at += kSharedThreads) {
        const V x = kept[at];
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) partial.lane[lane] += x.lane[lane];
      }
      asm volatile("" ::: "memory");
    }
  }
  double mine = 0;
  if (blockIdx.x == 0 && static_cast<std::int64_t>(threadIdx.x) < work.plan.tail_elements)
    mine = static_cast<double>(work.passes) * static_cast<const float*>(work.a)[vectors * 4 + threadIdx.x];
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) mine += partial.lane[lane];
  add_up<kSharedThreads>(mine, work.sum);
}

}  // namespace roofline::cuda
