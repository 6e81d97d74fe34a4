// Bulk copies and their barriers on the emulated GPU (emulated_gpu.h). What is asynchronous happens as late as it may, so that a
// kernel that does not wait reads poison or stores what was written over.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

namespace emulated {

struct BulkCopy {
  void* to;
  const void* from;
  std::uint32_t bytes;
};

struct BulkBarrier {
  unsigned arrivals = 0, left = 0, parity = 0;
  std::int64_t expected = 0;
  std::vector<BulkCopy> loads;
};

inline std::map<const void*, BulkBarrier> bulk_barriers;
inline std::vector<BulkCopy> open_group;
inline std::deque<std::vector<BulkCopy>> groups;
inline long bulk_loads = 0, bulk_stores = 0;

[[noreturn]] inline void bulk_error(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

inline void check_bulk(const void* to, const void* from, std::uint32_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 || reinterpret_cast<std::uintptr_t>(from) % 16 || bytes % 16 || bytes == 0)
    bulk_error("a bulk copy is not of whole units of 16 bytes");
}

// At the end of a kernel: nothing is under way.
inline bool bulk_idle() {
  for (const auto& [address, barrier] : bulk_barriers)
    if (!barrier.loads.empty() || barrier.expected) return false;
  return open_group.empty() && groups.empty();
}

}  // namespace emulated

namespace roofline::cuda {

alignas(1024) inline unsigned char dynamic_shared[228 << 10];

inline void init_barrier(std::uint64_t* barrier, unsigned arrivals) {
  emulated::bulk_barriers[barrier] = {arrivals, arrivals, 0, 0, {}};
}
inline void fence_barriers() {}
inline void expect_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  emulated::BulkBarrier& b = emulated::bulk_barriers.at(barrier);
  if (b.left == 0) emulated::bulk_error("more arrivals than the barrier waits for");
  b.expected += bytes;
  --b.left;
}
inline void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  emulated::check_bulk(to, from, bytes);
  for (const auto& group : emulated::groups)
    for (const emulated::BulkCopy& store : group)
      if (static_cast<const char*>(store.from) < static_cast<char*>(to) + bytes &&
          static_cast<char*>(to) < static_cast<const char*>(store.from) + store.bytes)
        emulated::bulk_error("a load overwrites what a store has still to read");
  std::memset(to, 0xFF, bytes);  // NaNs
  emulated::bulk_barriers.at(barrier).loads.push_back({to, from, bytes});
  ++emulated::bulk_loads;
}
inline void wait_phase(std::uint64_t* barrier, unsigned parity) {
  emulated::BulkBarrier& b = emulated::bulk_barriers.at(barrier);
  while (b.parity == parity) {
    std::int64_t come = 0;
    for (const emulated::BulkCopy& load : b.loads) come += load.bytes;
    if (b.left == 0 && come == b.expected) {
      for (const emulated::BulkCopy& load : b.loads) std::memcpy(load.to, load.from, load.bytes);
      b.loads.clear();
      b.expected = 0, b.left = b.arrivals, b.parity ^= 1;
      return;
    }
    emulated::Block::current->poll();
  }
}
inline void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  emulated::check_bulk(to, from, bytes);
  emulated::open_group.push_back({to, from, bytes});
  ++emulated::bulk_stores;
}
inline void commit_stores() {
  emulated::groups.push_back(std::move(emulated::open_group));
  emulated::open_group.clear();
}
inline void wait_stores_read() {
  for (; !emulated::groups.empty(); emulated::groups.pop_front())
    for (const emulated::BulkCopy& store : emulated::groups.front()) std::memcpy(store.to, store.from, store.bytes);
}

}  // namespace roofline::cuda
