// Grids and tiles, computed on the host without CUDA: what tests can check on any machine.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roofline::cuda {

constexpr std::int64_t kMaxGridX = 2147483647;  // gridDim.x; y and z end at 65535, so every grid here is one-dimensional

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

// Whether vectors of 16 bytes can be moved from and to them.
template <class... Pointers>
bool aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// Blocks for `tiles` tiles handed out round-robin: no more than can be resident, none without work.
constexpr std::int64_t persistent_grid(std::int64_t tiles, int sms, int blocks_per_sm) {
  return std::max<std::int64_t>(1, std::min<std::int64_t>(tiles, std::int64_t{sms} * std::max(blocks_per_sm, 1)));
}

// A block for each tile, which ends with it: what streams past goes faster so, since wherever a block has ended the loads of the
// next are under way beside the others' stores.
constexpr std::int64_t passing_grid(std::int64_t tiles) { return std::max<std::int64_t>(1, std::min(tiles, kMaxGridX)); }

// As persistent_grid, but no more blocks than need as many rounds: 8 tiles for 6 places are 4 blocks of 2 each. With one block a
// tile those that find no place would go where one is free first, to some SMs six more and to others none.
constexpr std::int64_t even_grid(std::int64_t tiles, int sms, int blocks_per_sm) {
  const std::int64_t grid = persistent_grid(tiles, sms, blocks_per_sm);
  return std::max<std::int64_t>(1, ceil_div(tiles, std::max<std::int64_t>(1, ceil_div(tiles, grid))));
}

// Division of 0 ... 2^31 - 1 by a number that a plan knows, as a product and a shift: the processor has no instruction for it.
// With l = ceil(log2 divisor), the factor is above 2^(31 + l) / divisor by at most 1, which makes less than the last step of n.
struct Divisor {
  std::uint32_t factor = 0;
  int shift = 0, divisor = 1;

  Divisor() = default;
  constexpr explicit Divisor(int by) : divisor(by) {
    int log = 0;
    while ((std::int64_t{1} << log) < by) ++log;
    shift = 31 + log;
    factor = static_cast<std::uint32_t>((std::uint64_t{1} << shift) / static_cast<std::uint64_t>(by) + 1);
  }
};

// How stream walks its arrays. All counts are of 16-byte vectors, but `tail_elements`.
//
// The arrays are cut into `streams` parts of `part` vectors, walked side by side. In each part the blocks take whole tiles,
// the same number each, as far as that goes (`waves` rounds); the vectors that remain are spread over all threads of the grid, so
// that no SM waits for another. Elements past the last whole vector of the last part are the tail.
struct StreamPlan {
  std::int64_t vectors = 0;        // in all parts together
  std::int64_t part = 0;           // in one part
  std::int64_t waves = 0;          // rounds in which every block takes one whole tile of every part
  std::int64_t tail_elements = 0;  // elements past vectors
};

// unroll: vectors per thread and round over all parts; a tile of one part is threads * unroll / streams vectors.
constexpr StreamPlan plan_stream(std::int64_t elements, std::int64_t element_bytes, bool aligned, int streams, int unroll,
                                 int threads, std::int64_t blocks) {
  StreamPlan plan;
  const std::int64_t lanes = 16 / element_bytes;
  plan.part = aligned ? elements / lanes / streams : 0;
  plan.vectors = plan.part * streams;
  plan.waves = plan.part / (std::int64_t{threads} * (unroll / streams) * blocks);
  plan.tail_elements = elements - plan.vectors * lanes;
  return plan;
}

// Tiles of a batch of row-major matrices, numbered column fastest, then row, then matrix.
struct TileGrid {
  std::int64_t rows = 0;     // of tiles in one matrix
  std::int64_t columns = 0;
  std::int64_t matrices = 0;
  constexpr std::int64_t tiles() const { return rows * columns * matrices; }
};

constexpr TileGrid tile_grid(std::int64_t matrices, std::int64_t rows, std::int64_t columns, int tile_rows, int tile_columns) {
  return {ceil_div(rows, tile_rows), ceil_div(columns, tile_columns), matrices};
}

// Launches to queue behind one closed gate: the queue is finite (about 1000 entries), and a full queue blocks the host, which
// then cannot open the gate. Half of that leaves room for events and for launches of several kernels.
constexpr std::int64_t kGateEntries = 512;
constexpr std::int64_t kMostGateEntries = 900;  // of a single launch; what takes more keeps the queue full without a gate
constexpr std::int64_t gate_chunk(std::int64_t launches, std::int64_t entries_per_launch) {
  return std::max<std::int64_t>(1, std::min(launches, kGateEntries / std::max<std::int64_t>(entries_per_launch, 1)));
}

// What sm_XX or sm_XXa asks for, against a compute capability written as one number (90). Portable code runs on anything newer;
// architecture-specific code ("a") on exactly its own.
inline bool architecture_fits(const char* needs, int capability) {
  int number = 0;
  const char* p = needs + 3;
  for (; *p >= '0' && *p <= '9'; ++p) number = number * 10 + (*p - '0');
  return *p == 'a' ? capability == number : capability >= number;
}

}  // namespace roofline::cuda
