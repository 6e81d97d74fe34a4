// Barriers, tensor copies and registers of warpgroups with roles, on the host. Included by cuda/sm90a/roles.cuh under
// ROOFLINE_CUDA_EMULATED. Loads are done as soon as all of a phase are asked for, or with late copies when somebody waits for them.
#pragma once

#include <array>
#include <cstring>

#include "cuda_emulation.h"
#include "emulated_barriers.h"

namespace roofline::cuda {

// -- barriers -----------------------------------------------------------------------------------------------------------------

struct NamedBarrier {
  int count = 0;
  long phase = 0;
};
inline std::array<NamedBarrier, 16> named_barriers;

inline void arrive_at(std::uint64_t* barrier) {
  EmulatedBarrier& b = emulated_barriers.at(barrier);
  b.arrive();
  if (!EmulatedBlock::current->late() || b.expected == 0) b.settle();
  if (EmulatedBlock::current->late()) EmulatedBlock::current->poll();  // others may go on at once
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
  EmulatedBarrier& b = emulated_barriers.at(barrier);
  b.add(std::int64_t{from.box_rows} * 128, [=] {
    for (int r = 0; r < from.box_rows; ++r)
      for (int c = 0; c < 64; ++c) {
        const bool inside = row + r < from.rows && column + c < from.columns;
        const std::int64_t at = (matrix * from.rows + row + r) * from.columns + column + c;
        const std::uint16_t value = inside ? static_cast<const std::uint16_t*>(from.data)[at] : 0;
        std::memcpy(static_cast<unsigned char*>(to) + r * 128 + (c / 8 ^ r % 8) * 16 + c % 8 * 2, &value, 2);
      }
  });
  if (!EmulatedBlock::current->late()) b.settle();
}

inline void prefetch(const void*) {}

}  // namespace roofline::cuda
