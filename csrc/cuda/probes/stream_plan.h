// How stream keeps bytes in flight, and how its kernels cut the arrays into tiles: arithmetic of the host, without CUDA.
//
// By Little's law a bandwidth needs bytes in flight = bandwidth x latency: 4.8 TB/s over 132 SMs is 36 GB/s each, and DRAM answers
// under load after about a microsecond, so that some 40 KB per SM are the least, and more hide what varies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/plan.h"

namespace roofline::cuda {

// Per SM; 0 stands for what the kernel does best.
constexpr bool is_in_flight(std::int64_t bytes) {
  return bytes == 0 || bytes == 32 << 10 || bytes == 64 << 10 || bytes == 96 << 10 || bytes == 128 << 10 || bytes == 192 << 10;
}

constexpr int kStreamThreads = 256;
constexpr int kUnroll = 8;       // 16-byte accesses per thread and round, over all arrays: 32 KB for a block
constexpr int kDeepUnroll = 12;  // 48 KB: 192 KB in four blocks, where eight would need six, which leave 40 registers a thread

struct Flight {
  int unroll = 0;
  int blocks_per_sm = 0;  // 0: there is no such kernel
  constexpr std::int64_t bytes() const { return std::int64_t{16} * kStreamThreads * unroll * blocks_per_sm; }
};

// resident: blocks of the kernel with `kUnroll` that fit an SM. deep: whether there is one with kDeepUnroll: for read with one
// stream, since stores need registers for their addresses.
constexpr Flight plan_flight(std::int64_t in_flight_bytes, bool deep, int resident) {
  if (in_flight_bytes == 0) return {kUnroll, resident};
  constexpr std::int64_t kBlock = std::int64_t{16} * kStreamThreads * kUnroll;
  if (in_flight_bytes / kBlock <= resident) return {kUnroll, static_cast<int>(in_flight_bytes / kBlock)};
  constexpr std::int64_t kDeep = std::int64_t{16} * kStreamThreads * kDeepUnroll;
  if (deep && in_flight_bytes % kDeep == 0 && in_flight_bytes / kDeep <= resident)
    return {kDeepUnroll, static_cast<int>(in_flight_bytes / kDeep)};
  return {kUnroll, 0};
}

// Tiles of bulk copies in shared memory: a block holds one of every array that is read. All tiles on an SM together are the bytes
// in flight.
constexpr int kBulkBlocks = 2;                  // per SM: one moves while the other begins or ends
constexpr std::int64_t kBulkReserve = 4 << 10;  // of shared memory: a barrier, the tree of a sum, what the system keeps

// Bytes of one tile of one array; 0: they do not fit. arrays: that are read. shared_bytes: of an SM.
constexpr int plan_bulk_tile(std::int64_t in_flight_bytes, int arrays, bool stores, std::int64_t shared_bytes) {
  constexpr std::int64_t kFew = 64 << 10, kMany = 192 << 10;  // more than few costs what stores
  std::int64_t wanted = in_flight_bytes;
  if (wanted == 0) wanted = stores || kMany + kBulkBlocks * kBulkReserve > shared_bytes ? kFew : kMany;
  if (wanted + kBulkBlocks * kBulkReserve > shared_bytes) return 0;
  return static_cast<int>(wanted / (kBulkBlocks * arrays));
}

// An array cut into tiles: whole ones, then one of the rest in units of 16 bytes; the elements past that are the tail.
struct Tiles {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of all of them
  std::int64_t tail_elements = 0;
};

constexpr Tiles plan_tiles(std::int64_t elements, std::int64_t element_bytes, int tile_bytes) {
  const std::int64_t bytes = elements * element_bytes / 16 * 16;
  return {bytes / tile_bytes + (bytes % tile_bytes != 0), bytes, elements - bytes / element_bytes};
}

// The launches of a kernel whose passes are blocks that follow each other: one, or several where a grid cannot hold them all.
class Launches {
 public:
  // apart: each pass needs what the one before has written, which is there with the next launch.
  constexpr Launches(std::int64_t tiles, std::int64_t passes, bool apart)
      : tiles_(std::max<std::int64_t>(tiles, 1)), passes_(passes),
        most_(apart ? 1 : std::max<std::int64_t>(1, std::min(passes, kMaxGridX / tiles_))) {}
  constexpr std::int64_t count() const { return ceil_div(passes_, most_); }
  // launch(passes, blocks)
  template <class Launch>
  void each(Launch launch) const {
    for (std::int64_t left = passes_; left > 0; left -= most_) {
      const std::int64_t passes = std::min(left, most_);
      launch(passes, static_cast<unsigned>(passes * tiles_));
    }
  }

 private:
  std::int64_t tiles_, passes_, most_;
};

}  // namespace roofline::cuda
