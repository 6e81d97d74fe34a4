// How stream keeps bytes in flight, and how its bulk copies cut the arrays: arithmetic of the host, without CUDA.
//
// By Little's law a bandwidth needs bytes in flight = bandwidth x latency: 4.8 TB/s over 132 SMs is 36 GB/s each, and DRAM answers
// under load after about a microsecond, so that some 40 KB per SM are the least, and more hide what varies.
#pragma once

#include <cstdint>

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

// A ring of stages in shared memory, one block per SM. A stage holds a piece of every array that is read, and all stages together
// are the bytes in flight.
struct Ring {
  int piece_bytes = 0;  // of one array in one stage
  int stages = 0;       // 0: it does not fit
  int lag = 0;          // stages whose stores may still be read from shared memory when the next load is issued; 0 for read
  constexpr std::int64_t bytes(int arrays) const { return std::int64_t{piece_bytes} * arrays * stages; }
};

constexpr int kMostStages = 12;
constexpr std::int64_t kRingReserve = 4 << 10;  // of shared memory: barriers, the tree of the sum, what the system keeps

// arrays: that are read (of write the one that is stored). shared_bytes: that one block may have.
constexpr Ring plan_ring(std::int64_t in_flight_bytes, int arrays, bool stores, std::int64_t shared_bytes) {
  std::int64_t wanted = in_flight_bytes;
  if (wanted == 0) wanted = shared_bytes >= (128 << 10) + kRingReserve ? 128 << 10 : 64 << 10;
  if (wanted + kRingReserve > shared_bytes) return {};
  // Stages of 16 KB; of 8 where fewer than four would be left.
  const std::int64_t stage = wanted / (16 << 10) >= 4 ? 16 << 10 : 8 << 10;
  const int stages = static_cast<int>(wanted / stage);
  return {static_cast<int>(stage / arrays), stages, stores ? stages / 4 : 0};
}

// Pieces of an array: whole ones, then one of what is left in units of 16 bytes; the elements past that are the tail.
struct Pieces {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of all of them
  std::int64_t tail_elements = 0;
};

constexpr Pieces plan_pieces(std::int64_t elements, std::int64_t element_bytes, int piece_bytes) {
  const std::int64_t bytes = elements * element_bytes / 16 * 16;
  return {bytes / piece_bytes + (bytes % piece_bytes != 0), bytes, elements - bytes / element_bytes};
}

}  // namespace roofline::cuda
