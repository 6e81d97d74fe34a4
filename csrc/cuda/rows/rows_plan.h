// How rows are shared out over threads: plain arithmetic, so that it is tested where there is no GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/plan.h"

namespace roofline::cuda {

// 16-byte vectors of a row that one thread keeps in registers: few, so that more threads have loads under way; of longer rows 128
// bytes, as fp32 at most 64 registers.
constexpr int kFewChunks = 4;
constexpr int kKeptChunks = 8;

constexpr int kKeptPairs = 4;  // the same where each is a vector of two tensors

// Above, a thread could not have the 128 registers that it may need.
constexpr int kMostTeam = 512;

// A looped row has four vectors in flight per thread, and no more threads than have as many: 512 threads of an SM and more keep
// 32 KB and more.
constexpr int kLoopedChunks = 4;
constexpr int kLoopedTeam = 256;
constexpr int kLoopedBlocks = 2;

constexpr int kMostCluster = 16;  // blocks; above 8 not every GPU with clusters has room
constexpr int kClusterThreads = 512;
constexpr int kClusterElements = 32;  // of a row that one thread keeps, so that it takes 64 registers at most

struct RowPlan {
  int team = 0;       // threads that share a row: 2^n up to 32, or a whole block
  int threads = 0;    // of a block
  bool kept = false;  // the row is read once and stays in registers; else each pass over it reads it again
  int chunks = 0;     // that a thread keeps, at most
  constexpr int rows_per_block() const { return threads / team; }
};

// keep: rows may be kept in registers, since all of them begin at multiples of 16 bytes, and end there. most_chunks: vectors of a
// thread that shares a row with a warp at most.
constexpr RowPlan plan_row(std::int64_t columns, std::int64_t element_bytes, bool keep, int most_chunks = kKeptChunks) {
  const std::int64_t lanes = 16 / element_bytes;
  const std::int64_t chunks = ceil_div(columns, lanes);
  keep = keep && chunks <= std::int64_t{most_chunks} * kMostTeam;
  const int kept_chunks = keep && chunks <= kFewChunks * kMostTeam ? std::min(kFewChunks, most_chunks) : most_chunks;
  if (chunks > kept_chunks * 32) {
    const std::int64_t warps = ceil_div(ceil_div(chunks, keep ? kept_chunks : kLoopedChunks), 32);
    const int team = static_cast<int>(keep ? warps : std::min<std::int64_t>(warps, kLoopedTeam / 32)) * 32;
    return {team, team, keep, kept_chunks};
  }
  // Four lanes and more, so that a team's accesses cover halves of a 128-byte line.
  int team = 1;
  while (team < 32 && team < chunks && (team < 4 || std::int64_t{team} * kept_chunks < chunks)) team *= 2;
  return {team, 128, keep, kept_chunks};
}

// Rows that clusters of blocks keep: as few blocks as can.
struct ClusterPlan {
  int blocks = 0;  // that share a row; 0 where the row is too long
  int threads = 0;
  int shared_bytes = 0;
};

constexpr ClusterPlan plan_cluster(std::int64_t columns, std::int64_t element_bytes) {
  const std::int64_t chunks = columns * element_bytes / 16, at_once = kClusterElements * element_bytes / 16;
  int blocks = 2;
  while (blocks <= kMostCluster && chunks > blocks * at_once * kClusterThreads) blocks *= 2;
  if (blocks > kMostCluster) return {};
  const std::int64_t each = ceil_div(chunks, blocks);
  return {blocks, static_cast<int>(ceil_div(each, at_once * 32)) * 32, static_cast<int>(each) * 16};
}

}  // namespace roofline::cuda
