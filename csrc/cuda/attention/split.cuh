// The body of split_kv attention: few queries over many keys, bound by reading K and V.
//
// All steps over the keys of all units (a KV head of a batch entry with up to 8 * HeadTiles of its queries) stand in one line, and
// each block takes an equal share (KvSplit). Of a step each of four warps takes its own 16 * KeyTiles keys: it copies them into a
// ring of its own in shared memory, slots - 1 tiles ahead and across units, and waits for nobody until a unit ends. Keys are the
// rows of the products and queries the columns, so that 8 of them fill a tile: scores are k qᵀ, and transposed by movmatrix they
// are the second operand of vᵀ pᵀ. At a unit's end the warps add up through shared memory. A unit that several blocks share goes
// to memory in parts, and the last block to arrive adds them up; the counter it used is then 0 again.
//
// Caches of one byte a number are read as they are: pairs of bytes through ldmatrix, in an order that queries and results follow.
#pragma once

#include <type_traits>

#include "cuda/attention/parts.cuh"

namespace roofline::cuda {

enum class Cache : std::uint8_t { same, fp8_e4m3, int8 };  // what K and V hold: numbers as of q, or one byte each

struct SplitWork : PartsWork {  // parts: of 8 * HeadTiles rows, HeadDim wide
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
};

template <Cache Kind, int Head, int HeadTileCount, int Blocks = 2>
struct SplitShape {
  static constexpr Cache kCache = Kind;
  static constexpr int kHeadDim = Head;
  static constexpr int kHeadTiles = HeadTileCount;  // of 8 queries
  static constexpr int kRows = 8 * HeadTileCount;
  static constexpr int kElementBytes = Kind == Cache::same ? 2 : 1;
  // Of 16 keys, per warp and step: two where a row is short, as far as registers go.
  static constexpr int kKeyTiles = Head * kElementBytes <= 128 && Head * HeadTileCount <= 256 ? 2 : 1;
  static constexpr int kWarps = 4, kBlocks = Blocks;  // blocks: on an SM, as far as registers go
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpKeys = 16 * kKeyTiles;
  static constexpr int kStepKeys = kWarpKeys * kWarps;
  static constexpr int kRowChunks = Head * kElementBytes / kChunkBytes;
  static constexpr int kItemBytes = kWarpKeys * Head * kElementBytes;  // of one warp
  static constexpr int kSlotBytes = kItemBytes * kWarps;
  // Merging: sums of 8 tiles of 16 dimensions by 8 queries at a time, each query's 16 at a pitch of 20 floats against conflicts.
  static constexpr int kPitch = 20, kTileFloats = 8 * kPitch;
  static constexpr int kQueries = 0;
  static constexpr int kMerge = kQueries + kRows * Head * 2;
  static constexpr int kStats = kMerge + kWarps * 8 * kTileFloats * 4;  // [kWarps][kRows][2]
  static constexpr int kFlag = kStats + kWarps * kRows * 2 * 4;
  static constexpr int kFixedBytes = (kFlag + 4 + 1023) / 1024 * 1024;
};

// Two numbers of one byte each, `first` and `second` of the four in `bytes`, as a pair of 16 bits.
template <Cache Kind, class T>
ROOFLINE_DEVICE std::uint32_t widened(T type, std::uint32_t bytes, std::uint32_t first, std::uint32_t second) {
  if constexpr (Kind == Cache::int8) {
    // 2^23 + 128 + x as fp32, whose lowest byte is 128 + x.
    const std::uint32_t biased = bytes ^ 0x80808080u;
    return packed(type, as_float(bytes_of(biased, 0x4B000000u, 0x7440u | first)) - 8388736.f,
                  as_float(bytes_of(biased, 0x4B000000u, 0x7440u | second)) - 8388736.f);
  } else {
    // Sign, exponent and fraction at their places of the wider format, whose exponent is biased by more: 15 or 127 for 7.
    const std::uint32_t high = bytes_of(bytes, 0, 0x0404u | first << 4 | second << 12);
    if constexpr (std::is_same_v<T, Fp16>)
      return scaled(type, (high & 0x80008000u) | (high & 0x7F007F00u) >> 1, 0x5C005C00u);  // 2^8
    else
      return scaled(type, (high & 0x80008000u) | (high & 0x7F007F00u) >> 4, 0x7B807B80u);  // 2^120
  }
}

template <class T, class Shape>
struct SplitAttention {
  static constexpr int kHeadTiles = Shape::kHeadTiles, kKeyTiles = Shape::kKeyTiles, kRowChunks = Shape::kRowChunks;
  static constexpr int kDimTiles = Shape::kHeadDim / 16, kRows = Shape::kRows, kQueryChunks = Shape::kHeadDim / 8;
  static constexpr bool kBytes = Shape::kCache != Cache::same;

  // Whether the queries' operands stay in registers, and the next unit's are asked for early: as far as registers go.
  static constexpr bool kKept = kHeadTiles == 1 && kDimTiles <= 8, kEarly = kHeadTiles == 1;
  static constexpr int kQueryItems = (kRows * kDimTiles + Shape::kThreads - 1) / Shape::kThreads;

  const SplitWork& work;
  int lane, warp;
  // The item to copy next: K or V of one of this block's steps.
  int fill_unit, fill_kv_head, fill_key, fill_slot = 0, fill_left;  // left: steps; key: of the step, within the unit
  bool fill_values = false;
  int pages[kKeyTiles];
  float sums[kDimTiles][kHeadTiles][4];
  float less[kHeadTiles][2], sum[kHeadTiles][2];  // less: what is added to scaled scores, so that they are at most about 0
  std::uint32_t kept[kKept ? kDimTiles : 1][kHeadTiles][2];
  Chunk early[kQueryItems][2];  // this thread's part of the next unit's queries

  // The first of this block's `count` steps is the unit's step `step`.
  ROOFLINE_DEVICE SplitAttention(const SplitWork& given, int unit, int step, int count)
      : work(given), lane(thread() % 32), warp(thread() / 32), fill_unit(unit), fill_kv_head(unit / given.row_chunks),
        fill_key(step * Shape::kStepKeys), fill_left(count) {}

  // Where sums of many queries fill the registers, what follows from the lane is worked out anew.
  ROOFLINE_DEVICE int own_lane() const { return kHeadTiles > 1 ? fresh(lane) : lane; }

  ROOFLINE_DEVICE void find_pages() {
    if (work.page_table == nullptr || fill_left == 0) return;
    const int per_entry = (work.keys + work.page_size - 1) / work.page_size, entry = fill_kv_head / work.kv_heads;
#pragma unroll
    for (int m = 0; m < kKeyTiles; ++m) {
      const int key = fill_key + warp * Shape::kWarpKeys + 16 * m;
      pages[m] = key < work.keys ? work.page_table[std::int64_t{entry} * per_entry + key / work.page_size] : 0;
    }
  }

  ROOFLINE_DEVICE void fill() {
    if (fill_left > 0) {
      const char* matrix = static_cast<const char*>(fill_values ? work.v : work.k);
      const int row_bytes = work.head_dim * Shape::kElementBytes, chunk = own_lane() % kRowChunks, row = own_lane() / kRowChunks;
      const std::uint64_t policy = reading_policy(work.row_chunks == 1);  // what several units read is worth keeping in L2
      const std::uint32_t to = shared_address(Shape::kFixedBytes + fill_slot * Shape::kSlotBytes + warp * Shape::kItemBytes);
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m) {
        const int first = fill_key + warp * Shape::kWarpKeys + 16 * m;
        std::int64_t start = std::int64_t{fill_kv_head} * work.keys + first;
        if (work.page_table != nullptr)
          start = (std::int64_t{pages[m]} * work.kv_heads + fill_kv_head % work.kv_heads) * work.page_size + first % work.page_size;
        const char* from = matrix + (start + row) * row_bytes + chunk * kChunkBytes;
        const int rows = chunk * kChunkBytes < row_bytes ? work.keys - first : 0;
#pragma unroll kHeadTiles == 1 ? 16 : 4
        for (int r = 0; r < 16; r += 32 / kRowChunks)
          copy_async(to + swizzled<kRowChunks>(16 * m + row + r, chunk), from + r * row_bytes, row + r < rows, policy);
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

  // Queries of a unit, zeros beyond its rows; with caches of bytes in the order of byte_depth. Asked for while the unit before is
  // being finished, stored when that has been.
  ROOFLINE_DEVICE void ask_for_queries(int unit) {
    const int its_kv_head = unit / work.row_chunks, first = unit % work.row_chunks * kRows;
    const std::uint16_t* q =
        static_cast<const std::uint16_t*>(work.q) + (std::int64_t{its_kv_head} * work.rows + first) * work.head_dim;
#pragma unroll
    for (int n = 0; n < kQueryItems; ++n) {
      const int i = thread() + n * Shape::kThreads, row = i / kDimTiles, tile = i % kDimTiles;
      early[n][0] = early[n][1] = {};
      if (row < kRows && first + row < work.rows) {
        const Chunk* from = reinterpret_cast<const Chunk*>(q + row * work.head_dim + 16 * tile);
        if (16 * tile < work.head_dim) early[n][0] = from[0];
        if (16 * tile + 8 < work.head_dim) early[n][1] = from[1];
      }
    }
  }
  ROOFLINE_DEVICE void store_queries() {
#pragma unroll
    for (int n = 0; n < kQueryItems; ++n) {
      const int i = thread() + n * Shape::kThreads, row = i / kDimTiles, tile = i % kDimTiles;
      if (row >= kRows) break;
      Chunk chunks[2] = {early[n][0], early[n][1]};
      if constexpr (kBytes) {  // pairs: 0 2 4 6 | 1 3 5 7
        const Chunk a = chunks[0], b = chunks[1];
        chunks[0] = {{a.words[0], a.words[2], b.words[0], b.words[2]}};
        chunks[1] = {{a.words[1], a.words[3], b.words[1], b.words[3]}};
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) *shared_at<Chunk>(Shape::kQueries + swizzled<kQueryChunks>(row, 2 * tile + c)) = chunks[c];
    }
  }

  // b[h]: the second operand of step `tile` of the scores, for each tile of queries.
  ROOFLINE_DEVICE void query_operands(std::uint32_t (&b)[kHeadTiles][2], int tile) {
    if constexpr (kHeadTiles == 1) {  // rows of one tile only: the other two matrices are not needed
      std::uint32_t r[4];
      load_matrices(r, shared_address(Shape::kQueries + swizzled<kQueryChunks>(lane % 8, 2 * tile + lane / 8 % 2)));
      b[0][0] = r[0], b[0][1] = r[1];
    } else {
      const Place at = right_then_down(own_lane());
#pragma unroll
      for (int h = 0; h < kHeadTiles; h += 2) {
        std::uint32_t r[4];
        load_matrices(r, shared_address(Shape::kQueries + swizzled<kQueryChunks>(8 * h + at.row, 2 * tile + at.column)));
        b[h][0] = r[0], b[h][1] = r[1], b[h + 1][0] = r[2], b[h + 1][1] = r[3];
      }
    }
  }

  ROOFLINE_DEVICE void add_scores(float (&scores)[kKeyTiles][kHeadTiles][4], std::uint32_t item) {
    const Place at = down_then_right(own_lane());
#pragma unroll
    for (int tile = 0; tile < kDimTiles; tile += kBytes ? 2 : 1) {
      std::uint32_t b[kBytes ? 2 : 1][kHeadTiles][2];
#pragma unroll
      for (int t = 0; t < (kBytes ? 2 : 1); ++t) {
        if constexpr (kKept) {
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h) b[t][h][0] = kept[tile + t][h][0], b[t][h][1] = kept[tile + t][h][1];
        } else {
          query_operands(b[t], tile + t);
        }
      }
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m) {
        std::uint32_t r[4];
        load_matrices(r, item + swizzled<kRowChunks>(16 * m + at.row, (kBytes ? tile : 2 * tile) + at.column));
        if constexpr (kBytes) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const std::uint32_t above = r[2 * half], below = r[2 * half + 1];  // keys 0 ... 7 and 8 ... 15
            const std::uint32_t a[4] = {widened<Shape::kCache>(T{}, above, 0, 1), widened<Shape::kCache>(T{}, below, 0, 1),
                                        widened<Shape::kCache>(T{}, above, 2, 3), widened<Shape::kCache>(T{}, below, 2, 3)};
#pragma unroll
            for (int h = 0; h < kHeadTiles; ++h) multiply_add(T{}, scores[m][h], a, b[half][h][0], b[half][h][1]);
          }
        } else {
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h) multiply_add(T{}, scores[m][h], r, b[0][h][0], b[0][h][1]);
        }
      }
    }
  }

  ROOFLINE_DEVICE void add_values(const std::uint32_t (&p)[kKeyTiles][kHeadTiles][2], std::uint32_t item) {
    const Place at = kBytes ? down_then_right(own_lane()) : right_then_down(own_lane());
#pragma unroll
    for (int tile = 0; tile < kDimTiles; tile += kBytes ? 2 : 1)
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m) {
        std::uint32_t r[4];
        load_matrices_transposed(r, item + swizzled<kRowChunks>(16 * m + at.row, (kBytes ? tile : 2 * tile) + at.column));
        if constexpr (kBytes) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const std::uint32_t left = r[2 * half], right = r[2 * half + 1];  // keys 0 ... 7 and 8 ... 15
            const std::uint32_t a[4] = {widened<Shape::kCache>(T{}, left, 0, 2), widened<Shape::kCache>(T{}, left, 1, 3),
                                        widened<Shape::kCache>(T{}, right, 0, 2), widened<Shape::kCache>(T{}, right, 1, 3)};
#pragma unroll
            for (int h = 0; h < kHeadTiles; ++h) multiply_add(T{}, sums[tile + half][h], a, p[m][h][0], p[m][h][1]);
          }
        } else {
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h) multiply_add(T{}, sums[tile][h], r, p[m][h][0], p[m][h][1]);
        }
      }
  }

  // Keys [first, past) that query `row` of a KV head sees.
  ROOFLINE_DEVICE int past_key(int row) const { return work.causal ? row % work.seq_q + work.keys - work.seq_q + 1 : work.keys; }
  ROOFLINE_DEVICE int first_key(int row) const {
    const int first = past_key(row) - work.window;
    return work.window == 0 || first < 0 ? 0 : first;
  }
  // Whether all queries see all keys from `key` on of a warp's step: the first query the last of them, the last query the first.
  ROOFLINE_DEVICE bool all_seen(int key) const {
    const int past = work.causal ? work.keys - work.seq_q + 1 : work.keys;
    return key + Shape::kWarpKeys <= past && (work.window == 0 || key >= work.keys - work.window);
  }

  ROOFLINE_DEVICE void softmax(float (&scores)[kKeyTiles][kHeadTiles][4], std::uint32_t (&p)[kKeyTiles][kHeadTiles][2], int unit,
                               int key) {
    if (!all_seen(key)) {
      const int first_row = fresh(unit) % work.row_chunks * kRows;
#pragma unroll
      for (int h = 0; h < kHeadTiles; ++h)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int row = first_row + 8 * h + c_place(lane, j).column;
          const int first = first_key(row), past = past_key(row);
#pragma unroll
          for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int at = key + 16 * m + c_place(lane, 2 * half).row;
              if (at < first || at >= past) scores[m][h][2 * half + j] = -INFINITY;
            }
        }
    }
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      float most[2] = {-INFINITY, -INFINITY};
      bool grown = false;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int m = 0; m < kKeyTiles; ++m) most[j] = larger_of(most[j], larger_of(scores[m][h][j], scores[m][h][j + 2]));
        grown |= fused(most[j], work.scale, less[h][j]) > kSlack;
      }
      if (any_lane(grown)) {
        float shrunk[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int mask = 4; mask < 32; mask *= 2) most[j] = larger_of(most[j], from_lane_xor(most[j], mask));
          // Until a warp has seen a key of this query, its sums are 0, and less stays infinite.
          const float now = smaller_of(less[h][j], -most[j] * work.scale);
          shrunk[j] = now == INFINITY ? 1.f : exp2_of(now - less[h][j]);
          less[h][j] = now;
          sum[h][j] *= shrunk[j];
        }
#pragma unroll
        for (int tile = 0; tile < kDimTiles; ++tile)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[tile][h][i] *= shrunk[i % 2];
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float now = less[h][j] == INFINITY ? 0.f : less[h][j];
#pragma unroll
        for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
          for (int i = j; i < 4; i += 2)
            sum[h][j] += scores[m][h][i] = exp2_of(fused(scores[m][h][i], work.scale, now));  // of this lane's keys so far
      }
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          p[m][h][half] = transposed(packed(T{}, scores[m][h][2 * half], scores[m][h][2 * half + 1]));
    }
  }

  // Eight results of one query, 16 bytes.
  ROOFLINE_DEVICE void write(int unit, int row, int dim, const float (&x)[8], float total_max, float total) {
    const int kv_head = unit / work.row_chunks, at = unit % work.row_chunks * kRows + row;
    if (at >= work.rows || dim >= work.head_dim) return;
    float factor = 1.f / total;
    if (work.sinks != nullptr) {
      const int heads = work.rows / work.seq_q;
      const float sink = work.sinks[kv_head % work.kv_heads * heads + at / work.seq_q] * 1.4426950408889634f;
      const float most = larger_of(total_max, sink), shrunk = exp2_of(total_max - most);
      factor = shrunk / fused(total, shrunk, exp2_of(sink - most));
    }
    Chunk chunk;
#pragma unroll
    for (int i = 0; i < 4; ++i) chunk.words[i] = packed(T{}, x[2 * i] * factor, x[2 * i + 1] * factor);
    const std::int64_t out_row = std::int64_t{kv_head} * work.rows + at;
    *reinterpret_cast<Chunk*>(static_cast<std::uint16_t*>(work.out) + out_row * work.head_dim + dim) = chunk;
  }

  // The warps' sums of a unit, added up: to out, or where other blocks have the rest, to memory. As add_parts, this runs seldom.
  ROOFLINE_DEVICE void finish(int unit) {
    const int first = work.split.first_block(unit), last = work.split.last_block(unit);
    const int place = work.split.scratch(static_cast<int>(block()), unit);
    TwoFloats* stats = shared_at<TwoFloats>(Shape::kStats);  // maximum and sum
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float all = sum[h][j];
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) all += from_lane_xor(all, mask);
        if (lane < 4) stats[warp * kRows + 8 * h + c_place(lane, j).column] = {{-less[h][j], all}};
      }
    constexpr int kTiles = kDimTiles * kHeadTiles;
#pragma unroll
    for (int round = 0; round < kTiles; round += 8) {
      if (round > 0) synchronize();  // the round before has been read
      float* mine = shared_at<float>(Shape::kMerge) + warp * 8 * Shape::kTileFloats;
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        if (round + t >= kTiles) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place c = c_place(lane, i);
          const int row = kBytes ? byte_row(c.row) : c.row;
          const float (&tile)[kHeadTiles][4] = sums[(round + t) / kHeadTiles];
          mine[t * Shape::kTileFloats + c.column * Shape::kPitch + row] = tile[(round + t) % kHeadTiles][i];
        }
      }
      synchronize();
      const int t = thread() / 16, column = thread() / 2 % 8, half = thread() % 2;
      if (round + t < kTiles) {
        const int row = (round + t) % kHeadTiles * 8 + column, dim = (round + t) / kHeadTiles * 16 + half * 8;
        float most = -INFINITY, total = 0.f, x[8] = {};
#pragma unroll
        for (int w = 0; w < Shape::kWarps; ++w) most = larger_of(most, stats[w * kRows + row].x[0]);
#pragma unroll 1
        for (int w = 0; w < Shape::kWarps; ++w) {
          const TwoFloats its = stats[w * kRows + row];
          const float weight = most == -INFINITY ? 0.f : exp2_of(its.x[0] - most);
          total = fused(its.x[1], weight, total);
          const FourFloats* from = reinterpret_cast<const FourFloats*>(
              shared_at<float>(Shape::kMerge) + (w * 8 + t) * Shape::kTileFloats + column * Shape::kPitch + half * 8);
          const FourFloats its_x[2] = {from[0], from[1]};
#pragma unroll
          for (int i = 0; i < 8; ++i) x[i] = fused(its_x[i / 4].x[i % 4], weight, x[i]);
        }
        if (first == last) {
          write(unit, row, dim, x, most, total);
        } else {
          const std::int64_t at = std::int64_t{place} * kRows + row;
          float* part = work.parts + at * Shape::kHeadDim + dim;
#pragma unroll
          for (int i = 0; i < 8; i += 4) *reinterpret_cast<FourFloats*>(part + i) = {{x[i], x[i + 1], x[i + 2], x[i + 3]}};
          if (dim == 0) reinterpret_cast<TwoFloats*>(work.stats)[at] = {{most, total}};
        }
      }
    }
    if (first == last || !last_to_arrive(work, unit, first, last, Shape::kFlag)) return;
#pragma unroll 1
    for (int i = thread(); i < kRows * kQueryChunks; i += Shape::kThreads) {
      const int row = i / kQueryChunks, dim = i % kQueryChunks * 8;
      const AddedParts added = add_parts<kRows, Shape::kHeadDim>(work, unit, first, last, row, dim);
      write(unit, row, dim, added.x, added.most, added.total);
    }
  }

  ROOFLINE_DEVICE void run(int unit, int step, int left) {
    find_pages();
    for (int i = 0; i < work.slots - 1; ++i) fill();
    if constexpr (kEarly) ask_for_queries(unit);
    int slot = 0;
    const auto next = [&] {  // waits for an item of this warp, and begins the one that takes the place of the item before it
      wait_copies(work.slots - 2);
      synchronize_warp();
      fill();
      const int offset = Shape::kFixedBytes + slot * Shape::kSlotBytes + warp * Shape::kItemBytes;
      slot = slot + 1 == work.slots ? 0 : slot + 1;
      return shared_address(offset);
    };
    const int unit_steps = work.split.unit_steps;
    while (left > 0) {
      synchronize();  // the unit before has been written
      if constexpr (!kEarly) ask_for_queries(unit);
      store_queries();
      synchronize();
      if constexpr (kKept) {
#pragma unroll
        for (int tile = 0; tile < kDimTiles; ++tile) query_operands(kept[tile], tile);
      }
#pragma unroll
      for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
        for (int j = 0; j < 2; ++j) less[h][j] = INFINITY, sum[h][j] = 0.f;
#pragma unroll
        for (int tile = 0; tile < kDimTiles; ++tile)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[tile][h][i] = 0.f;
      }
      for (; step < unit_steps && left > 0; ++step, --left) {
        const std::uint32_t keys = next();
        float scores[kKeyTiles][kHeadTiles][4] = {};
        add_scores(scores, keys);
        std::uint32_t p[kKeyTiles][kHeadTiles][2];
        softmax(scores, p, unit, step * Shape::kStepKeys + warp * Shape::kWarpKeys);
        add_values(p, next());
      }
      if constexpr (kEarly)
        if (left > 0) ask_for_queries(unit + 1);
      finish(unit);
      step = 0, ++unit;
    }
    wait_copies<0>();
  }
};

template <class T, class Shape>
ROOFLINE_DEVICE void split_attention(const SplitWork& work) {
  const int begin = work.split.begin(static_cast<int>(block())), count = work.split.begin(static_cast<int>(block()) + 1) - begin;
  const int unit = begin / work.split.unit_steps, step = begin % work.split.unit_steps;
  SplitAttention<T, Shape>(work, unit, step, count).run(unit, step, count);
}

}  // namespace roofline::cuda
