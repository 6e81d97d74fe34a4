// Barriers in shared memory on the host, and the copies that they wait for; used by emulated_bulk.h and roles_emulation.h. All
// copies of a phase run together, once none is missing and somebody waits or settles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "emulated_block.h"

namespace roofline::cuda {

struct EmulatedBarrier {
  unsigned arrivals = 0, left = 0, parity = 0;
  std::int64_t expected = 0, come = 0;
  std::vector<std::function<void()>> loads;
  void arrive() {
    EmulatedBlock::expect(left > 0, "no more arrivals than the barrier waits for");
    --left;
  }
  void add(std::int64_t bytes, std::function<void()> load) { come += bytes, loads.push_back(std::move(load)); }
  void settle() {
    if (left != 0 || come != expected) return;
    for (const auto& load : loads) load();
    loads.clear();
    left = arrivals, parity ^= 1, expected = come = 0;
  }
};
inline std::map<const void*, EmulatedBarrier> emulated_barriers;

inline void init_barrier(std::uint64_t* barrier, unsigned arrivals) {
  emulated_barriers[barrier] = {arrivals, arrivals, 0, 0, 0, {}};
}
inline void fence_barriers() {}
inline void expect_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  EmulatedBarrier& b = emulated_barriers.at(barrier);
  b.arrive();
  b.expected += bytes;
}
inline void wait_phase(std::uint64_t* barrier, unsigned parity) {
  EmulatedBarrier& b = emulated_barriers.at(barrier);
  while (true) {
    if (b.parity == parity) b.settle();
    if (b.parity != parity) return;
    EmulatedBlock::current->poll();
  }
}

}  // namespace roofline::cuda
