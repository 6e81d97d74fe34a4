// The kernels of stream that load straight into registers; those of bulk copies and of shared memory are in stream_bulk.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/plan.h"
#include "cuda/probes/loads.cuh"
#include "cuda/probes/stream_plan.h"
#include "cuda/probes/sum.cuh"
#include "ops/stream.h"

namespace roofline::cuda {

using Access = ops::Stream::Access;

struct StreamWork {
  const void* a;
  const void* b;
  void* c;
  double factor;
  std::int64_t elements, passes, stride;
  StreamPlan plan;
  GridSum sum;  // of read
};

template <Access access>
constexpr bool reads_a = access != Access::write;
template <Access access>
constexpr bool reads_b = access == Access::add || access == Access::triad;

__device__ inline void store(Vector<float>* p, const Vector<float>& x) {
  *reinterpret_cast<float4*>(p) = make_float4(x.lane[0], x.lane[1], x.lane[2], x.lane[3]);
}
__device__ inline void store(Vector<double>* p, const Vector<double>& x) {
  *reinterpret_cast<double2*>(p) = make_double2(x.lane[0], x.lane[1]);
}

template <Access access, class T>
__device__ inline T combine(T a, T b, T factor) {
  if constexpr (access == Access::write) return factor;
  if constexpr (access == Access::copy) return a;
  if constexpr (access == Access::scale) return factor * a;
  if constexpr (access == Access::add) return a + b;
  return a + factor * b;
}
template <Access access, class T>
__device__ inline Vector<T> combine(const Vector<T>& a, const Vector<T>& b, T factor) {
  Vector<T> c;
#pragma unroll
  for (int lane = 0; lane < static_cast<int>(16 / sizeof(T)); ++lane)
    c.lane[lane] = combine<access>(a.lane[lane], b.lane[lane], factor);
  return c;
}

// The elements i = first, first + step, ... past the last whole vector; the sum of read's is returned.
template <Access access, class T>
__device__ T tail_elements(const StreamWork& work, std::int64_t tail, std::int64_t first, std::int64_t step) {
  T sum = 0;
  for (std::int64_t i = first; i < tail; i += step) {
    const std::int64_t at = work.elements - tail + i;
    const T p = reads_a<access> ? __ldcg(static_cast<const T*>(work.a) + at) : T{0};
    const T q = reads_b<access> ? __ldcg(static_cast<const T*>(work.b) + at) : T{0};
    if constexpr (access == Access::read)
      sum += p;
    else
      static_cast<T*>(work.c)[at] = combine<access>(p, q, static_cast<T>(work.factor));
  }
  return sum;
}

// Blocks per SM that the registers must leave room for: 1024 threads, but 768 where eight streams of two arrays make 16 loads. A
// bound of 2048 threads would leave 32 registers a thread, too few to hold eight loads at once; SMs of 8.6, 8.9, 12.0 hold 1536.
template <Access access, int Streams>
constexpr int kBlocksFor = reads_b<access> && Streams == kUnroll ? 3 : 4;

// Per round a thread loads Unroll vectors (half as many of each of two arrays), Streams parts side by side, before it stores any.
// Nothing stays on chip; every pass reads and writes the whole arrays through L2, each block another place than in the pass before,
// so that no SM meets only the half of L2 that lies near it.
template <Access access, class T, int Streams, int Unroll>
__global__ void __launch_bounds__(kStreamThreads, kBlocksFor<access, Streams>) stream_kernel(const StreamWork work) {
  constexpr bool kReadsA = reads_a<access>, kReadsB = reads_b<access>, kWrites = access != Access::read;
  constexpr int kRound = kReadsB && Streams < kUnroll ? Unroll / 2 : Unroll;
  constexpr int kPerPart = kRound / Streams;
  using V = Vector<T>;

  const V* a = static_cast<const V*>(work.a);
  const V* b = static_cast<const V*>(work.b);
  V* c = static_cast<V*>(work.c);
  const T factor = static_cast<T>(work.factor);
  const std::int64_t part = work.plan.part;
  const std::int64_t all_threads = std::int64_t{gridDim.x} * kStreamThreads;
  V partial = {};
  T tail = 0;

  // kPerPart vectors of every part, `step` apart, from `first` on; with Guarded, only those inside the part.
  const auto round = [&](std::int64_t first, std::int64_t step, auto guarded) {
    constexpr bool kGuarded = decltype(guarded)::value;
    [[maybe_unused]] V x[kRound] = {}, y[kRound] = {};
#pragma unroll
    for (int u = 0; u < kRound; ++u) {
      const std::int64_t at = first + (u % kPerPart) * step;
      [[maybe_unused]] const std::int64_t index = (u / kPerPart) * part + at;
      if (kGuarded && at >= part) continue;
      if constexpr (kReadsA) x[u] = load(a + index);
      if constexpr (kReadsB) y[u] = load(b + index);
    }
#pragma unroll
    for (int u = 0; u < kRound; ++u) {
      const std::int64_t at = first + (u % kPerPart) * step;
      [[maybe_unused]] const std::int64_t index = (u / kPerPart) * part + at;
      if constexpr (kWrites) {
        if (kGuarded && at >= part) continue;
        store(c + index, combine<access>(x[u], y[u], factor));
      } else {
        add_lanes(partial, x[u]);
      }
    }
  };

  unsigned block = blockIdx.x;
  for (std::int64_t pass = 0; pass < work.passes; ++pass) {
    constexpr std::int64_t kTile = std::int64_t{kStreamThreads} * kPerPart;
    for (std::int64_t wave = 0; wave < work.plan.waves; ++wave)
      round((wave * gridDim.x + block) * kTile + threadIdx.x, kStreamThreads, std::false_type{});
    const std::int64_t walked = work.plan.waves * gridDim.x * kTile;
    const std::int64_t thread = std::int64_t{block} * kStreamThreads + threadIdx.x;
    if (walked + thread < part) round(walked + thread, all_threads, std::true_type{});
    tail += tail_elements<access, T>(work, work.plan.tail_elements, thread, all_threads);
    // An update goes on with what this block has written itself: nobody waits for the others between two passes.
    if (work.a != work.c) block = block + 1 == gridDim.x ? 0 : block + 1;
    asm volatile("" ::: "memory");  // every pass really happens
  }

  if constexpr (!kWrites) add_up<kStreamThreads>(sum_of_lanes(tail, partial), work.sum);
}

// The accesses that store, tile after tile, by as many blocks as there are tiles. The hardware hands these out in order as others
// end, so that lines under way at any time lie close together, in reading as in writing; blocks that stay and take their tiles
// by turns drift apart, and an H200's DRAM gives 7 to 9 % less. A pass is as many blocks, numbered on. Accesses that leave the
// caches first (ld.cs, st.cs) make it no faster.
constexpr int kTileThreads = 1024;
template <Access access>
constexpr int kTileVectors = reads_b<access> ? 1 : 2;  // of each array, per thread: two blocks have 64 KB under way on an SM

template <Access access, class T>
__global__ void __launch_bounds__(kTileThreads, 2) tile_kernel(const StreamWork work, unsigned tiles) {
  constexpr int kVectors = kTileVectors<access>;
  using V = Vector<T>;
  const unsigned tile = blockIdx.x % tiles;
  const std::int64_t first = std::int64_t{tile} * (kTileThreads * kVectors) + threadIdx.x;
  V x[kVectors] = {}, y[kVectors] = {};
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const std::int64_t at = first + u * kTileThreads;
    if (at >= work.plan.vectors) continue;
    if constexpr (reads_a<access>) x[u] = load(static_cast<const V*>(work.a) + at);
    if constexpr (reads_b<access>) y[u] = load(static_cast<const V*>(work.b) + at);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const std::int64_t at = first + u * kTileThreads;
    if (at >= work.plan.vectors) continue;
    store(static_cast<V*>(work.c) + at, combine<access>(x[u], y[u], static_cast<T>(work.factor)));
  }
  tail_elements<access, T>(work, work.plan.tail_elements, std::int64_t{tile} * kTileThreads + threadIdx.x,
                           std::int64_t{tiles} * kTileThreads);
}

// One element at a time: neighbouring threads take neighbouring elements of a walk, which are `stride` apart in memory; eight
// accesses of a thread are under way together, or four of each kind where it both loads and stores.
template <Access access, class T>
__global__ void __launch_bounds__(kStreamThreads, 4) element_kernel(const StreamWork work) {
  constexpr bool kReadsA = reads_a<access>, kReadsB = reads_b<access>, kWrites = access != Access::read;
  constexpr int kRound = kReadsA && kWrites ? kUnroll / 2 : kUnroll;
  const T factor = static_cast<T>(work.factor);
  const std::int64_t all_threads = std::int64_t{gridDim.x} * kStreamThreads;
  T sum = 0;
  for (std::int64_t pass = 0; pass < work.passes; ++pass) {
#pragma unroll 1
    for (std::int64_t walk = 0; walk < work.stride; ++walk) {
      const T* a = static_cast<const T*>(work.a) + walk;
      const T* b = static_cast<const T*>(work.b) + walk;
      T* c = static_cast<T*>(work.c) + walk;
      const std::int64_t count = (work.elements - walk + work.stride - 1) / work.stride;
#pragma unroll 1
      for (std::int64_t first = std::int64_t{blockIdx.x} * kStreamThreads + threadIdx.x; first < count;
           first += all_threads * kRound) {
        [[maybe_unused]] T x[kRound] = {}, y[kRound] = {};
#pragma unroll
        for (int u = 0; u < kRound; ++u) {
          const std::int64_t place = first + u * all_threads;
          if (place >= count) continue;
          if constexpr (kReadsA) x[u] = __ldcg(a + place * work.stride);
          if constexpr (kReadsB) y[u] = __ldcg(b + place * work.stride);
        }
#pragma unroll
        for (int u = 0; u < kRound; ++u) {
          const std::int64_t place = first + u * all_threads;
          if constexpr (kWrites) {
            if (place < count) c[place * work.stride] = combine<access>(x[u], y[u], factor);
          } else {
            sum += x[u];
          }
        }
      }
    }
    asm volatile("" ::: "memory");
  }
  if constexpr (!kWrites) add_up<kStreamThreads>(sum, work.sum);
}

// Read by L1: each block owns one run of vectors and reads it `passes` times before anything else; 512 threads with four loads each
// cover 32 KB, which an SM of 128 bytes a cycle takes 256 cycles to deliver.
constexpr int kCachedThreads = 512, kCachedUnroll = 4;

template <class T>
__global__ void __launch_bounds__(kCachedThreads, 1) cached_kernel(const StreamWork work) {
  using V = Vector<T>;
  const uint4* a = static_cast<const uint4*>(work.a);
  const auto load_cached = [&](std::int64_t at) { return __builtin_bit_cast(V, __ldca(a + at)); };
  const std::int64_t vectors = work.plan.vectors, own = (vectors + gridDim.x - 1) / gridDim.x;
  const std::int64_t begin = own * blockIdx.x, end = begin + own < vectors ? begin + own : vectors;
  V partial = {};
  T tail = 0;
  for (std::int64_t pass = 0; pass < work.passes; ++pass) {
    std::int64_t at = begin + threadIdx.x;
    for (; at + (kCachedUnroll - 1) * kCachedThreads < end; at += kCachedUnroll * kCachedThreads) {
      V x[kCachedUnroll];
#pragma unroll
      for (int u = 0; u < kCachedUnroll; ++u) x[u] = load_cached(at + u * kCachedThreads);
#pragma unroll
      for (int u = 0; u < kCachedUnroll; ++u) add_lanes(partial, x[u]);
    }
    for (; at < end; at += kCachedThreads) add_lanes(partial, load_cached(at));
    if (blockIdx.x == 0)
      for (std::int64_t i = threadIdx.x; i < work.plan.tail_elements; i += kCachedThreads)
        tail += __ldca(static_cast<const T*>(work.a) + vectors * 4 + i);
    asm volatile("" ::: "memory");
  }
  add_up<kCachedThreads>(sum_of_lanes(tail, partial), work.sum);
}

}  // namespace roofline::cuda
