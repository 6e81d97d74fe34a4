// Barriers, tensor copies and registers of warpgroups with roles, on the host. Included by cuda/sm90a/roles.cuh under
// ROOFLINE_CUDA_EMULATED. Loads are done at once, or with late copies when somebody waits for them.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cuda_emulation.h"

namespace roofline::cuda {

// -- barriers -----------------------------------------------------------------------------------------------------------------

struct RoleBarrier {
  unsigned arrivals = 0, left = 0, parity = 0;
  std::int64_t expected = 0, come = 0;
  std::vector<std::pair<std::int64_t, std::function<void()>>> loads;
  void settle() {  // what is under way comes; and the phase ends, if nothing is missing
    for (auto& [bytes, load] : loads) load(), come += bytes;
    loads.clear();
    if (left != 0 || come != expected) return;
    left = arrivals, parity ^= 1, expected = come = 0;
  }
};
inline std::map<const void*, RoleBarrier> role_barriers;
struct NamedBarrier {
  int count = 0;
  long phase = 0;
};
inline std::array<NamedBarrier, 16> named_barriers;

inline void init_barrier(std::uint64_t* barrier, unsigned arrivals) {
  role_barriers[barrier] = {arrivals, arrivals, 0, 0, 0, {}};
  named_barriers = {};
}
inline void fence_barriers() {}
inline void arrive_at(std::uint64_t* barrier) {
  RoleBarrier& b = role_barriers.at(barrier);
  EmulatedBlock::expect(b.left > 0, "no more arrivals than the barrier waits for");
  --b.left;
  if (!EmulatedBlock::current->late() || b.expected == 0) b.settle();
  if (EmulatedBlock::current->late()) EmulatedBlock::current->poll();  // others may go on at once
}
inline void expect_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  RoleBarrier& b = role_barriers.at(barrier);
  EmulatedBlock::expect(b.left > 0, "no more arrivals than the barrier waits for");
  b.expected += bytes, --b.left;
}
inline void wait_phase(std::uint64_t* barrier, unsigned parity) {
  RoleBarrier& b = role_barriers.at(barrier);
  while (true) {
    if (b.parity == parity) b.settle();
    if (b.parity != parity) return;
    EmulatedBlock::current->poll();
  }
}
template <int Threads>
void announce(int barrier) {
  NamedBarrier& b = named_barriers[barrier];
  if (++b.count == Threads) b.count = 0, ++b.phase;
}
template <int Threads>
void meet(int barrier) {
  NamedBarrier& b = named_barriers[barrier];
  const long phase = b.phase;
  announce<Threads>(barrier);
  while (b.phase == phase) EmulatedBlock::current->poll();
}

template <int Registers>
void give_registers() {}
template <int Registers>
void take_registers() {}
inline int of_first_lane(int x) {
  return EmulatedBlock::current->together<int, int>("shfl.idx", x, [](const int* const* in, int* const* out) {
    for (int lane = 0; lane < 32; ++lane) *out[lane] = *in[0];
  });
}

// -- tensor copies ------------------------------------------------------------------------------------------------------------

struct TensorMap {
  void* data;
  std::int64_t columns, rows, matrices;
  int box_rows;
};

// In shared memory a box has rows of 64 elements, 128 bytes, whose chunks of 16 bytes are exchanged by bits 7 to 9 of the address.
inline void load_box(void* to, const TensorMap* map, int column, int row, int matrix, std::uint64_t* barrier) {
  EmulatedBlock::expect(reinterpret_cast<std::uintptr_t>(to) % 1024 == 0, "a box at a multiple of 1024 bytes");
  const TensorMap from = *map;
  std::memset(to, 0xFF, from.box_rows * 128);  // NaNs
  RoleBarrier& b = role_barriers.at(barrier);
  b.loads.push_back({std::int64_t{from.box_rows} * 128, [=] {
    for (int r = 0; r < from.box_rows; ++r)
      for (int c = 0; c < 64; ++c) {
        const bool inside = row + r < from.rows && column + c < from.columns;
        const std::int64_t at = (matrix * from.rows + row + r) * from.columns + column + c;
        const std::uint16_t value = inside ? static_cast<const std::uint16_t*>(from.data)[at] : 0;
        std::memcpy(static_cast<unsigned char*>(to) + r * 128 + (c / 8 ^ r % 8) * 16 + c % 8 * 2, &value, 2);
      }
  }});
  if (!EmulatedBlock::current->late()) b.settle();
}

inline void prefetch(const void*) {}

}  // namespace roofline::cuda
