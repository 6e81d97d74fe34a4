// What split_kv attention works on, and how K and V come to a warp: through a ring of its own in shared memory.
#pragma once

#include "cuda/attention/parts.cuh"

namespace roofline::cuda {

struct SplitWork : PartsWork {  // parts: of a shape's rows, its head_dim wide
  const void* q = nullptr;  // [batch * kv_heads, rows, head_dim]
  const void* k = nullptr;  // [batch * kv_heads, keys, head_dim], or [pages, kv_heads, page_size, head_dim]
  const void* v = nullptr;  // as k
  void* out = nullptr;      // as q
  const int* page_table = nullptr;  // [batch, ceil(keys / page_size)], or null
  const float* sinks = nullptr;     // [kv_heads, rows / seq_q], or null
  int row_chunks = 0;  // units per KV head
  int kv_heads = 0;
  int rows = 0;        // queries of one KV head: group * seq_q
  int seq_q = 0;
  int keys = 0;
  int window = 0;      // keys that a query sees at most; 0: all
  int head_dim = 0;
  int page_size = 0;
  int slots = 0;
  bool causal = false;
  float scale = 0;  // of scores, with log2(e)

  // Keys [first, past) that query `row` of a KV head sees.
  ROOFLINE_DEVICE int past_key(int row) const { return causal ? row % seq_q + keys - seq_q + 1 : keys; }
  ROOFLINE_DEVICE int first_key(int row) const {
    const int first = past_key(row) - window;
    return window == 0 || first < 0 ? 0 : first;
  }
  // Whether all queries see all of `count` keys from `key` on: the first query the last of them, the last query the first.
  ROOFLINE_DEVICE bool all_seen(int key, int count) const {
    const int past = causal ? keys - seq_q + 1 : keys;
    return key + count <= past && (window == 0 || key >= keys - window);
  }
};

// Shared memory of every shape: queries, what merging needs, the shape's own, and the ring.
template <int Head, int Rows, int WarpKeys, int ElementBytes, int QueryBytes, int OwnBytes, int Warps>
struct SplitLayout {
  static constexpr int kHeadDim = Head, kRows = Rows;
  static constexpr int kElementBytes = ElementBytes;  // of K and V
  static constexpr int kWarps = Warps, kBlocks = 8 / Warps;  // blocks: on an SM
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpKeys = WarpKeys, kStepKeys = kWarpKeys * kWarps;
  static constexpr int kRowChunks = Head * ElementBytes / kChunkBytes;
  static constexpr int kItemBytes = kWarpKeys * Head * ElementBytes;  // of one warp
  static constexpr int kSlotBytes = kItemBytes * kWarps;
  static constexpr int kLeastSteps = kSlotBytes < 64 << 10 ? (64 << 10) / kSlotBytes : 1;  // of a block: 128 KB of K and V
  static constexpr int kBusy = kBusyReading;
  // Merging: sums of 4 tiles of 16 dimensions by 8 queries at a time, each query's 16 at a pitch of 20 floats against conflicts.
  static constexpr int kMergedTiles = 4, kPitch = 20, kTileFloats = 8 * kPitch, kMergeFloats = kMergedTiles * kTileFloats;
  static constexpr int kQueries = 0;
  static constexpr int kMerge = kQueries + Rows * Head * QueryBytes;
  static constexpr int kStats = kMerge + kWarps * kMergeFloats * 4;  // [kWarps][kRows][2]
  static constexpr int kOwn = kStats + kWarps * Rows * 2 * 4;
  static constexpr int kFlag = kOwn + OwnBytes;
  static constexpr int kFixedBytes = (kFlag + 4 + 1023) / 1024 * 1024;
};

template <class Shape>
struct SplitRing {
  static constexpr int kRowChunks = Shape::kRowChunks;
  static constexpr int kTileKeys = Shape::kWarpKeys < 16 ? Shape::kWarpKeys : 16;  // that lie in one page
  static constexpr int kKeyTiles = Shape::kWarpKeys / kTileKeys;
  static constexpr int kLanesOfRow = kRowChunks < 32 ? kRowChunks : 32;

  const SplitWork& work;
  int lane, warp;
  // The item to copy next: K or V of one of this block's steps.
  int fill_unit, fill_kv_head, fill_key, fill_slot = 0, fill_left;  // left: steps; key: of the step, within the unit
  bool fill_values = false;
  int pages[kKeyTiles];
  int slot = 0;  // that is read next

  // The first of this block's `count` steps is the unit's step `step`.
  ROOFLINE_DEVICE SplitRing(const SplitWork& given, int unit, int step, int count)
      : work(given), lane(thread() % 32), warp(thread() / 32), fill_unit(unit), fill_kv_head(unit / given.row_chunks),
        fill_key(step * Shape::kStepKeys), fill_left(count) {}
  ROOFLINE_DEVICE void begin() {
    find_pages();
    for (int i = 0; i < work.slots - 1; ++i) fill();
  }

  ROOFLINE_DEVICE void find_pages() {
    if (work.page_table == nullptr || fill_left == 0) return;
    const int per_entry = (work.keys + work.page_size - 1) / work.page_size, entry = fill_kv_head / work.kv_heads;
#pragma unroll
    for (int m = 0; m < kKeyTiles; ++m) {
      const int key = fill_key + warp * Shape::kWarpKeys + kTileKeys * m;
      pages[m] = key < work.keys ? work.page_table[std::int64_t{entry} * per_entry + key / work.page_size] : 0;
    }
  }

  ROOFLINE_DEVICE void fill() {
    if (fill_left > 0) {
      const char* matrix = static_cast<const char*>(fill_values ? work.v : work.k);
      const int own_lane = Shape::kLean ? fresh(lane) : lane;
      const int row_bytes = work.head_dim * Shape::kElementBytes, row = own_lane / kLanesOfRow;
      const std::uint64_t policy = reading_policy(work.row_chunks == 1);  // what several units read is worth keeping in L2
      const std::uint32_t to = shared_address(Shape::kFixedBytes + fill_slot * Shape::kSlotBytes + warp * Shape::kItemBytes);
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m) {
        const int first = fill_key + warp * Shape::kWarpKeys + kTileKeys * m;
        std::int64_t start = std::int64_t{fill_kv_head} * work.keys + first;
        if (work.page_table != nullptr)
          start = (std::int64_t{pages[m]} * work.kv_heads + fill_kv_head % work.kv_heads) * work.page_size + first % work.page_size;
#pragma unroll
        for (int c = 0; c < kRowChunks; c += kLanesOfRow) {
          const int chunk = own_lane % kLanesOfRow + c;
          const char* from = matrix + (start + row) * row_bytes + chunk * kChunkBytes;
          const int rows = chunk * kChunkBytes < row_bytes ? work.keys - first : 0;
#pragma unroll Shape::kLean ? 4 : 16
          for (int r = 0; r < kTileKeys; r += 32 / kLanesOfRow)
            copy_async(to + Shape::chunk_at(kTileKeys * m + row + r, chunk), from + r * row_bytes, row + r < rows, policy);
        }
      }
      fill_values = !fill_values;
      if (!fill_values) {  // on to the next step; its pages are asked for one item ahead
        --fill_left;
        fill_key += Shape::kStepKeys;
        if (fill_key >= work.keys) fill_key = 0, ++fill_unit, fill_kv_head = fill_unit / work.row_chunks;
        find_pages();
      }
    }
    commit_copies();  // also where empty, so that groups are counted alike
    fill_slot = fill_slot + 1 == work.slots ? 0 : fill_slot + 1;
  }

  // Waits for an item of this warp, K of a step or V, and begins the one that takes the place of the item before it. Its offset.
  ROOFLINE_DEVICE int next() {
    wait_copies(work.slots - 2);
    synchronize_warp();
    fill();
    const int offset = Shape::kFixedBytes + slot * Shape::kSlotBytes + warp * Shape::kItemBytes;
    slot = slot + 1 == work.slots ? 0 : slot + 1;
    return offset;
  }
};

}  // namespace roofline::cuda
