// How rows are shared out over threads: plain arithmetic, so that it is tested where there is no GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/plan.h"

namespace roofline::cuda {

// 16-byte vectors of a row that one thread keeps in registers: 128 bytes in flight, and as fp32 at most 64 registers.
constexpr int kKeptChunks = 8;

constexpr int kKeptPairs = kKeptChunks / 2;  // the same where each is a vector of two tensors

// Above, a thread could not have the 128 registers that it may need.
constexpr int kMostTeam = 512;

// A looped row has four vectors in flight per thread, and no more threads than have as many: 512 threads of an SM and more keep
// 32 KB and more.
constexpr int kLoopedChunks = 4;
constexpr int kLoopedTeam = 256;
constexpr int kLoopedBlocks = 2;

struct RowPlan {
  int team = 0;       // threads that share a row: 2^n up to 32, or a whole block
  int threads = 0;    // of a block
  bool kept = false;  // the row is read once and stays in registers; else each pass over it reads it again
  constexpr int rows_per_block() const { return threads / team; }
};

// keep: rows may be kept in registers, since all of them begin at multiples of 16 bytes, and end there. kept_chunks: vectors of a
// thread that shares a row with a warp at most.
constexpr RowPlan plan_row(std::int64_t columns, std::int64_t element_bytes, bool keep, int kept_chunks = kKeptChunks) {
  const std::int64_t lanes = 16 / element_bytes;
  const std::int64_t chunks = ceil_div(columns, lanes);
  keep = keep && chunks <= std::int64_t{kept_chunks} * kMostTeam;
  if (chunks > kept_chunks * 32) {
    const std::int64_t warps = ceil_div(ceil_div(chunks, keep ? kept_chunks : kLoopedChunks), 32);
    const int team = static_cast<int>(keep ? warps : std::min<std::int64_t>(warps, kLoopedTeam / 32)) * 32;
    return {team, team, keep};
  }
  // Four lanes and more, so that a team's accesses cover halves of a 128-byte line.
  int team = 1;
  while (team < 32 && team < chunks && (team < 4 || std::int64_t{team} * kept_chunks < chunks)) team *= 2;
  return {team, 128, keep};
}

}  // namespace roofline::cuda
