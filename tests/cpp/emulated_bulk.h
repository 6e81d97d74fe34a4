// Bulk copies and their barriers on the emulated GPU (emulated_gpu.h). What is asynchronous happens as late as it may, so that a
// kernel that does not wait reads poison or stores what was written over.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "emulated_barriers.h"

namespace emulated {

struct BulkCopy {
  void* to;
  const void* from;
  std::uint32_t bytes;
};

inline std::vector<BulkCopy> open_group;
inline std::deque<std::vector<BulkCopy>> groups;
inline long bulk_loads = 0, bulk_stores = 0;

inline void check_bulk(const void* to, const void* from, std::uint32_t bytes) {
  const auto whole = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  roofline::cuda::EmulatedBlock::expect(whole(to) && whole(from) && bytes % 16 == 0 && bytes > 0, "whole units of 16 bytes");
}

// At the end of a kernel: nothing is under way.
inline bool bulk_idle() {
  for (const auto& [address, barrier] : roofline::cuda::emulated_barriers)
    if (!barrier.loads.empty() || barrier.expected) return false;
  return open_group.empty() && groups.empty();
}

}  // namespace emulated

namespace roofline::cuda {

alignas(1024) inline unsigned char dynamic_shared[228 << 10];

inline void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  emulated::check_bulk(to, from, bytes);
  for (const auto& group : emulated::groups)
    for (const emulated::BulkCopy& store : group)
      EmulatedBlock::expect(static_cast<const char*>(store.from) >= static_cast<char*>(to) + bytes ||
                                static_cast<char*>(to) >= static_cast<const char*>(store.from) + store.bytes,
                            "a load to overwrite nothing that a store has still to read");
  std::memset(to, 0xFF, bytes);  // NaNs
  emulated_barriers.at(barrier).add(bytes, [=] { std::memcpy(to, from, bytes); });
  ++emulated::bulk_loads;
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
