// The body of warp-specialised attention: wgmma, tensor copies and a running softmax (sm_90a), for 16-bit elements.
//
// A block stays on its SM. One warpgroup copies, two or three compute, 64 rows of queries each, over all keys that their rows see,
// from the last tile of keys to the first, so that masked tiles come first. Q has two buffers; tiles of K and V follow each other
// through a ring, in the order in which they are used: K of a tile, then V of the one before. Every buffer has a barrier that says
// it is full and one that says it is free. The product of the probabilities of one tile with V is under way together with q kᵀ of
// the next, and the softmax of one warpgroup falls under the products of the others. The first q kᵀ of the next rows begins
// before the results of these are stored, by way of the buffer that their queries had.
//
// Exponentials are in base 2, with the scale folded into one multiply-add. Sums are scaled down only where a maximum of the warp's
// rows grew by more than kSlack: until then probabilities are above 1.
#pragma once

#include <type_traits>

#include "cuda/attention/plan.h"
#include "cuda/sm90a/products.cuh"
#include "cuda/sm90a/roles.cuh"

namespace roofline::cuda {

struct WarpSpecializedWork {
  QueryTiling tiling;
  unsigned* drawn = nullptr;  // how many blocks of queries were handed out beyond the first of each block; 0 after the launch
  int grid = 0;               // blocks of the launch
  int seq_q = 0;
  int seq_kv = 0;
  bool causal = false;
  float scale = 0;  // of scores, with log2(e)
};

// q and out: [units, unit_rows, head_dim] in boxes of kGroupRows; k and v: [units / units_per_kv, seq_kv, head_dim] in boxes of
// kBlockKv.
struct AttentionMaps {
  TensorMap q, k, v, out;
};

template <int Head, int Keys, int Groups, int Slots>
struct WarpSpecializedShape {
  static constexpr int kHeadDim = Head;
  static constexpr int kBlockKv = Keys;
  static constexpr int kGroups = Groups;  // warpgroups that compute
  static constexpr int kGroupRows = 64;
  static constexpr int kBlockQ = kGroupRows * Groups;
  static constexpr int kThreads = 128 * (1 + Groups);
  static constexpr int kQueryBuffers = 2;
  static constexpr int kSlots = Slots;  // of tiles of K and V
  // Tiles lie in slabs of 64 columns, 128 bytes to a row, swizzled: what a box is, and what wgmma reads.
  static constexpr int kSlabs = Head / 64;
  static constexpr int kGroupSlabBytes = kGroupRows * 128;
  static constexpr int kTileSlabBytes = Keys * 128;
  static constexpr int kGroupBytes = kSlabs * kGroupSlabBytes;
  static constexpr int kQueryBytes = Groups * kGroupBytes;
  static constexpr int kTileBytes = kSlabs * kTileSlabBytes;
  static constexpr int kTilesAt = kQueryBuffers * kQueryBytes;
  static constexpr int kQueryBarriers = kTilesAt + Slots * kTileBytes;
  static constexpr int kTileBarriers = kQueryBarriers + 16 * kQueryBuffers;
  static constexpr int kNumbersAt = kTileBarriers + 16 * Slots;  // of the blocks of queries in Q's buffers; -1: no more
  static constexpr int kSharedBytes = kNumbersAt + 4 * kQueryBuffers;
  // Registers a thread after setmaxnreg: the copying warpgroup gives its own to those that compute, within the launch's total.
  static constexpr int kCopyRegisters = Groups == 2 ? 40 : 32;
  static constexpr int kComputeRegisters = Groups == 2 ? 232 : 160;
  static_assert(kSharedBytes <= 227 << 10, "an SM's shared memory");
  static_assert(kCopyRegisters + Groups * kComputeRegisters <= (1 + Groups) * (65536 / kThreads / 8 * 8), "an SM's registers");
};

// Buffers used in turn, and the parity of the phase that their barriers are in.
template <int Barriers, int Buffers>
struct Ring {
  int buffer = 0;
  unsigned parity = 0;
  ROOFLINE_DEVICE std::uint64_t* full() const { return shared_at<std::uint64_t>(Barriers + 16 * buffer); }
  ROOFLINE_DEVICE std::uint64_t* free() const { return shared_at<std::uint64_t>(Barriers + 16 * buffer + 8); }
  ROOFLINE_DEVICE void next() {
    if (++buffer == Buffers) buffer = 0, parity ^= 1;
  }
};

template <class Shape>
using QueryRing = Ring<Shape::kQueryBarriers, Shape::kQueryBuffers>;
template <class Shape>
using TileRing = Ring<Shape::kTileBarriers, Shape::kSlots>;

template <class Shape>
ROOFLINE_DEVICE int tiles_of(const SeenKeys& seen, const QueryBlock& at) {
  return (seen.most(static_cast<int>(at.row), Shape::kBlockQ) + Shape::kBlockKv - 1) / Shape::kBlockKv;
}

// What the one thread does that copies. Barriers are waited for with the parity of the phase before: free at the start.
template <class Shape>
ROOFLINE_DEVICE void copy_for_attention(const WarpSpecializedWork& work, const AttentionMaps& maps, const SeenKeys& seen) {
  QueryRing<Shape> q;
  TileRing<Shape> tiles;
  const auto copy_tile = [&](const TensorMap& map, int tile, int matrix) {
    wait_phase(tiles.free(), tiles.parity ^ 1);
    expect_bytes(tiles.full(), Shape::kTileBytes);
#pragma unroll
    for (int slab = 0; slab < Shape::kSlabs; ++slab)
      load_box(shared_at<Chunk>(Shape::kTilesAt + tiles.buffer * Shape::kTileBytes + slab * Shape::kTileSlabBytes), &map, 64 * slab,
               tile * Shape::kBlockKv, matrix, tiles.full());
    tiles.next();
  };
  const auto number_queries = [&](int number) {
    wait_phase(q.free(), q.parity ^ 1);
    *shared_at<volatile int>(Shape::kNumbersAt + 4 * q.buffer) = number;
  };

  const int blocks = static_cast<int>(work.tiling.blocks());
  for (int number = static_cast<int>(block()); number < blocks;) {
    const QueryBlock at = query_block(work.tiling, number, Shape::kBlockQ);
    const int unit = static_cast<int>(at.unit), matrix = unit / static_cast<int>(work.tiling.units_per_kv);
    const int count = tiles_of<Shape>(seen, at);
    copy_tile(maps.k, count - 1, matrix);
    number_queries(number);
    expect_bytes(q.full(), Shape::kQueryBytes);
#pragma unroll
    for (int i = 0; i < Shape::kGroups * Shape::kSlabs; ++i)
      load_box(shared_at<Chunk>(q.buffer * Shape::kQueryBytes + i * Shape::kGroupSlabBytes), &maps.q, i % Shape::kSlabs * 64,
               static_cast<int>(at.row) + i / Shape::kSlabs * Shape::kGroupRows, unit, q.full());
    q.next();
    for (int tile = count - 2; tile > 0; --tile) {
      copy_tile(maps.k, tile, matrix);
      copy_tile(maps.v, tile + 1, matrix);
    }
    // As late as the last copies still hide how long it takes, so that work goes to where there is none soonest.
    number = work.grid + static_cast<int>(arrive(work.drawn, static_cast<unsigned>(blocks)));
    if (count > 1) {
      copy_tile(maps.k, 0, matrix);
      copy_tile(maps.v, 1, matrix);
    }
    copy_tile(maps.v, 0, matrix);
  }
  number_queries(-1);
  arrive_at(q.full());
}

// What a warpgroup does that computes: the one of this number of those.
template <class T, class Shape>
ROOFLINE_DEVICE void compute_attention(const WarpSpecializedWork& work, const AttentionMaps& maps, const SeenKeys& seen,
                                       int group) {
  constexpr int kKeys = Shape::kBlockKv, kSlabs = Shape::kSlabs, kSums = Shape::kHeadDim / 2, kScores = kKeys / 2;
  const int lane = thread() % 32, warp = thread() / 32 % 4;
  const bool first_thread = thread() % 128 == 0;
  QueryRing<Shape> q;
  TileRing<Shape> tiles;

  struct Rows {
    int buffer, unit, first, tiles, whole;  // whole: tiles that all rows see wholly. No tiles: no more rows
  };
  const auto await_rows = [&]() -> Rows {
    wait_phase(q.full(), q.parity);
    const int buffer = q.buffer, number = *shared_at<volatile int>(Shape::kNumbersAt + 4 * buffer);
    if (number < 0) return {};
    q.next();
    const QueryBlock at = query_block(work.tiling, number, Shape::kBlockQ);
    const int first = static_cast<int>(at.row) + Shape::kGroupRows * group, count = tiles_of<Shape>(seen, at);
    const int whole = first < seen.unit_rows ? seen.fewest(first, Shape::kGroupRows) / kKeys : count;
    return {buffer, static_cast<int>(at.unit), first, count, whole};
  };
  const auto next_in_ring = [&] {
    const TileRing<Shape> one = tiles;
    tiles.next();
    return one;
  };
  const auto await = [&](const TileRing<Shape>& tile) { wait_phase(tile.full(), tile.parity); };
  const auto release = [&](const TileRing<Shape>& tile) {
    if (first_thread) arrive_at(tile.free());
  };
  const auto queries_at = [&](int buffer) { return buffer * Shape::kQueryBytes + group * Shape::kGroupBytes; };

  float sums[kSums], scores[kScores], row_max[2], row_sum[2], shrink[2];
  std::uint32_t p[kKeys / 16][4];
  bool grown = false;

  const auto multiply_keys = [&](int buffer, const TileRing<Shape>& tile) {
    const std::uint64_t queries = row_descriptor(shared_address(queries_at(buffer)));
    const std::uint64_t keys = row_descriptor(shared_address(Shape::kTilesAt + tile.buffer * Shape::kTileBytes));
#pragma unroll
    for (int step = 0; step < 4 * kSlabs; ++step)
      multiply_async(T{}, scores, queries + descriptor_field(step / 4 * Shape::kGroupSlabBytes) + step % 4 * kNextInner,
                     keys + descriptor_field(step / 4 * Shape::kTileSlabBytes) + step % 4 * kNextInner, step != 0);
    commit_products();
  };
  const auto multiply_values = [&](const TileRing<Shape>& tile, int add) {
    const std::uint64_t values =
        column_descriptor(shared_address(Shape::kTilesAt + tile.buffer * Shape::kTileBytes), Shape::kTileSlabBytes);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      multiply_async(T{}, sums, p[step], values + step * kNextRows, step == 0 ? add : 1);
    commit_products();
  };

  // Scores become probabilities.
  const auto softmax = [&](auto is_first, auto is_masked, const Rows& rows, int tile) {
    constexpr bool kFirst = decltype(is_first)::value, kMasked = decltype(is_masked)::value;
    if (kMasked) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Place c = c_place(lane, 2 * half);
        const int left = seen.of(rows.first + 16 * warp + c.row) - tile * kKeys - c.column;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (8 * n + i >= left) scores[4 * n + 2 * half + i] = -INFINITY;
      }
    }
    float top[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) max[i] = scores[4 * (i / 2) + 2 * half + i % 2];
#pragma unroll
      for (int n = 2; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) max[n % 2 * 2 + i] = larger_of(max[n % 2 * 2 + i], scores[4 * n + 2 * half + i]);
      top[half] = larger_of(larger_of(max[0], max[1]), larger_of(max[2], max[3]));
      if (!kFirst) top[half] = larger_of(top[half], row_max[half]);
      top[half] = larger_of(top[half], from_lane_xor(top[half], 1));
      top[half] = larger_of(top[half], from_lane_xor(top[half], 2));
    }
    if (!kFirst) {
      grown = any_lane((top[0] - row_max[0]) * work.scale > kSlack || (top[1] - row_max[1]) * work.scale > kSlack);
      if (!grown) top[0] = row_max[0], top[1] = row_max[1];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // In tiles that are masked wholly for a row nothing is the largest.
      const float less = kMasked && top[half] == -INFINITY ? 0.f : -top[half] * work.scale;
      if (!kFirst) shrink[half] = exp2_of(fused(row_max[half], work.scale, less));
      row_max[half] = top[half];
      float sum[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = exp2_of(fused(score, work.scale, less));
          sum[n % 2 * 2 + i] += score;
        }
      const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      row_sum[half] = kFirst ? total : fused(row_sum[half], shrink[half], total);
    }
  };
  const auto pack = [&] {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[step][i] = packed(T{}, scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]);
  };

  // Another tile of keys, while the values of the one before are summed up.
  const auto next_tile = [&](auto is_masked, const Rows& rows, int tile, int add) {
    const TileRing<Shape> keys = next_in_ring(), values = next_in_ring();
    await(keys);
    hold(scores), hold(sums), hold(p);
    begin_products();
    multiply_keys(rows.buffer, keys);
    await(values);
    begin_products();
    multiply_values(values, add);
    wait_products<1>();
    hold(scores);
    release(keys);
    softmax(std::false_type{}, is_masked, rows, tile);
    wait_products<0>();
    hold(sums), hold(p);
    release(values);
    pack();
    if (grown) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] *= shrink[i / 2 % 2];
    }
  };

  // Whole rows of out, through the warpgroup's queries, which nobody reads any more.
  const auto store = [&](const Rows& rows, const float (&inverse)[2]) {
    const int at = queries_at(rows.buffer);
    const Place to = down_then_right(lane);
    meet<128>(1 + group);
#pragma unroll
    for (int d = 0; d < kSums / 8; ++d) {
      const float* c = sums + 8 * d;
      store_matrices(shared_address(at + d / 4 * Shape::kGroupSlabBytes + swizzled<8>(16 * warp + to.row, d % 4 * 2 + to.column)),
                     packed(T{}, c[0] * inverse[0], c[1] * inverse[0]), packed(T{}, c[2] * inverse[1], c[3] * inverse[1]),
                     packed(T{}, c[4] * inverse[0], c[5] * inverse[0]), packed(T{}, c[6] * inverse[1], c[7] * inverse[1]));
    }
    show_to_units();
    meet<128>(1 + group);
    if (first_thread) {
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab)
        store_box(&maps.out, shared_at<Chunk>(at + slab * Shape::kGroupSlabBytes), 64 * slab, rows.first, rows.unit);
      commit_stores();
      wait_stores_read();
      arrive_at(shared_at<std::uint64_t>(Shape::kQueryBarriers + 16 * rows.buffer + 8));
    }
  };

  Rows rows = await_rows();
  TileRing<Shape> keys = next_in_ring();
  await(keys);
  begin_products();
  multiply_keys(rows.buffer, keys);
  while (true) {
    wait_products<0>();
    hold(scores);
    release(keys);
    softmax(std::true_type{}, std::true_type{}, rows, rows.tiles - 1);
    pack();
    int tile = rows.tiles - 2, add = 0;
    for (; tile >= rows.whole; --tile, add = 1) next_tile(std::true_type{}, rows, tile, add);
    for (; tile >= 0; --tile, add = 1) next_tile(std::false_type{}, rows, tile, add);
    const TileRing<Shape> values = next_in_ring();
    await(values);
    hold(sums), hold(p);
    begin_products();
    multiply_values(values, add);
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = row_sum[half];
      sum += from_lane_xor(sum, 1);
      sum += from_lane_xor(sum, 2);
      inverse[half] = 1.f / sum;
    }
    // Where there are no more rows the product is of what the buffers hold, and nobody looks at it: products under way are not
    // to depend on a branch.
    const Rows next = await_rows();
    keys = next_in_ring();
    if (next.tiles > 0) await(keys);
    begin_products();
    multiply_keys(next.buffer, keys);
    wait_products<1>();
    hold(sums), hold(p);
    release(values);
    store(rows, inverse);
    if (next.tiles == 0) break;
    rows = next;
  }
  wait_products<0>();
  if (first_thread) wait_stores();
}

template <class T, class Shape>
ROOFLINE_DEVICE void warp_specialized_attention(const WarpSpecializedWork& work, const AttentionMaps& maps) {
  const int warpgroup = uniform(thread() / 128);
  const SeenKeys seen = {static_cast<int>(work.tiling.unit_rows), work.seq_q, work.seq_kv, work.causal};
  if (thread() == 0) {
    const auto init = [](auto ring, int buffers) {
      for (; buffers > 0; --buffers, ring.next()) init_barrier(ring.full(), 1), init_barrier(ring.free(), Shape::kGroups);
    };
    init(QueryRing<Shape>{}, Shape::kQueryBuffers), init(TileRing<Shape>{}, Shape::kSlots);
    fence_barriers();
  }
  synchronize();
  if (warpgroup == 0) {
    give_registers<Shape::kCopyRegisters>();
    if (thread() == 0) copy_for_attention<Shape>(work, maps, seen);
  } else {
    take_registers<Shape::kComputeRegisters>();
    compute_attention<T, Shape>(work, maps, seen, warpgroup - 1);
  }
}

}  // namespace roofline::cuda
