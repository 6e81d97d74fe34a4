// Barriers, tensor copies and registers of warpgroups with roles, on the host. Included by cuda/sm90a/roles.cuh under
// ROOFLINE_CUDA_EMULATED. Loads are done at once, or with late copies when somebody waits for them; stores likewise.
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
inline int uniform(int x) { return x; }

// -- tensor copies ------------------------------------------------------------------------------------------------------------

struct TensorMap {
  void* data;
  std::int64_t columns, rows, matrices;
  int box_rows;
};

// In shared memory a box has rows of 64 elements, 128 bytes, whose chunks of 16 bytes are exchanged by bits 7 to 9 of the address.
inline unsigned char* box_chunk(void* box, int row, int chunk) {
  EmulatedBlock::expect(reinterpret_cast<std::uintptr_t>(box) % 1024 == 0, "a box at a multiple of 1024 bytes");
  return static_cast<unsigned char*>(box) + row * 128 + (chunk ^ row % 8) * 16;
}
// each(row, column, place in shared memory, element of the tensor or null)
template <class F>
void each_of_box(void* box, const TensorMap& map, int column, int row, int matrix, F each) {
  for (int r = 0; r < map.box_rows; ++r)
    for (int c = 0; c < 64; ++c) {
      const bool inside = row + r < map.rows && column + c < map.columns;
      const std::int64_t at = (matrix * map.rows + row + r) * map.columns + column + c;
      each(box_chunk(box, r, c / 8) + c % 8 * 2, inside ? static_cast<std::uint16_t*>(map.data) + at : nullptr);
    }
}

inline void load_box(void* to, const TensorMap* map, int column, int row, int matrix, std::uint64_t* barrier) {
  const TensorMap from = *map;
  std::memset(to, 0xFF, from.box_rows * 128);  // NaNs
  RoleBarrier& b = role_barriers.at(barrier);
  b.loads.push_back({std::int64_t{from.box_rows} * 128, [=] {
    each_of_box(to, from, column, row, matrix, [](unsigned char* place, const std::uint16_t* element) {
      const std::uint16_t value = element ? *element : 0;
      std::memcpy(place, &value, 2);
    });
  }});
  if (!EmulatedBlock::current->late()) b.settle();
}

inline std::map<int, std::vector<std::function<void()>>> box_stores;  // of each thread
inline void wait_stores() {
  for (const auto& store : box_stores[EmulatedBlock::current->thread()]) store();
  box_stores[EmulatedBlock::current->thread()].clear();
}
inline void wait_stores_read() { wait_stores(); }
inline void commit_stores() {
  if (!EmulatedBlock::current->late()) wait_stores();
}
inline void store_box(const TensorMap* map, void* from, int column, int row, int matrix) {
  const TensorMap to = *map;
  box_stores[EmulatedBlock::current->thread()].push_back([=] {
    each_of_box(from, to, column, row, matrix, [](const unsigned char* place, std::uint16_t* element) {
      if (element) std::memcpy(element, place, 2);
    });
  });
}

inline void prefetch(const void*) {}

inline void store_matrices(std::uint32_t address, std::uint32_t r0, std::uint32_t r1, std::uint32_t r2, std::uint32_t r3) {
  struct In {
    std::uint32_t address, r[4];
  };
  EmulatedBlock::current->together<In, Nothing>("stmatrix.x4", {address, {r0, r1, r2, r3}}, [](auto in, auto) {
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int lane = 0; lane < 32; ++lane) {
        const std::uint32_t to = in[8 * matrix + lane / 4]->address;
        EmulatedBlock::expect(to % 16 == 0, "rows of stmatrix aligned to 16 bytes");
        std::memcpy(EmulatedBlock::current->shared(to + lane % 4 * 4, 4), &in[lane]->r[matrix], 4);
      }
  });
}

}  // namespace roofline::cuda
