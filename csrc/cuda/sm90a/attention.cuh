// The body of warp-specialised attention: wgmma, tensor copies and a running softmax (sm_90a), for 16-bit elements.
//
// A block stays on its SM. One warpgroup copies, two or three compute, 64 rows of queries each, over all keys that their rows see,
// from the last tile of keys to the first, so that masked tiles come first. Q has one or two buffers, of which each warpgroup
// gives its own part back after its last q kᵀ; tiles of K and V follow each other through a ring, in the order in which they are
// used: K of a tile, then V of the one before. Every buffer has a barrier that says it is full and one that says it is free. The
// product of the probabilities of one tile with V is under way together with q kᵀ of the next, and the softmax of one warpgroup
// falls under the products of the others. The first q kᵀ of the next rows begins before the results of these are stored.
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
  void* out = nullptr;         // [units, unit_rows, head_dim]
  float* logsumexp = nullptr;  // [units, unit_rows], or null
  unsigned* drawn = nullptr;  // how many blocks of queries were handed out beyond the first of each block; 0 after the launch
  int grid = 0;               // blocks of the launch
  int seq_q = 0;
  int seq_kv = 0;
  int head_dim = 0;
  bool causal = false;
  float scale = 0;  // of scores, with log2(e)
};

// q: [units, unit_rows, head_dim] in boxes of kGroupRows; k and v: [units / units_per_kv, seq_kv, head_dim] in boxes of
// kBlockKv.
struct AttentionMaps {
  TensorMap q, k, v;
};

template <int Head, int Keys, int Groups, int Slots, int QueryBuffers>
struct WarpSpecializedShape {
  static constexpr int kHeadDim = Head;
  static constexpr int kBlockKv = Keys;
  static constexpr int kGroups = Groups;  // warpgroups that compute
  static constexpr int kGroupRows = 64;
  static constexpr int kBlockQ = kGroupRows * Groups;
  static constexpr int kThreads = 128 * (1 + Groups);
  static constexpr int kQueryBuffers = QueryBuffers;
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
  static constexpr int kTileBarriers = kQueryBarriers + 16 * Groups * kQueryBuffers;
  static constexpr int kNumbersAt = kTileBarriers + 16 * Slots;  // of the blocks of queries in Q's buffers; -1: no more
  static constexpr int kSharedBytes = kNumbersAt + 4 * Groups * kQueryBuffers;
  // Registers a thread after setmaxnreg: the copying warpgroup gives its own to those that compute, within the launch's total.
  static constexpr int kCopyRegisters = Groups == 3 ? 32 : Head > 128 ? 24 : 40;
  static constexpr int kComputeRegisters = Groups == 3 ? 160 : Head > 128 ? 240 : 232;
  static_assert(kSharedBytes <= 227 << 10, "an SM's shared memory");
  static_assert(kCopyRegisters + Groups * kComputeRegisters <= (1 + Groups) * (65536 / kThreads / 8 * 8), "an SM's registers");
};

// Buffers used in turn, and the parity of the phase that their barriers are in. Parts of a buffer are filled and freed alone.
template <int Barriers, int Buffers, int Parts = 1>
struct Ring {
  int buffer = 0;
  unsigned parity = 0;
  ROOFLINE_DEVICE std::uint64_t* full(int part = 0) const {
    return shared_at<std::uint64_t>(Barriers + 16 * (Parts * buffer + part));
  }
  ROOFLINE_DEVICE std::uint64_t* free(int part = 0) const { return full(part) + 1; }
  ROOFLINE_DEVICE void next() {
    if (++buffer == Buffers) buffer = 0, parity ^= 1;
  }
};

template <class Shape>
using QueryRing = Ring<Shape::kQueryBarriers, Shape::kQueryBuffers, Shape::kGroups>;
template <class Shape>
using TileRing = Ring<Shape::kTileBarriers, Shape::kSlots>;

// Tiles with keys that some of these rows see.
template <class Shape>
ROOFLINE_DEVICE int tiles_of(const SeenKeys& seen, int first, int rows) {
  return (seen.most(first, rows) + Shape::kBlockKv - 1) / Shape::kBlockKv;
}
// Where the copying thread writes which block the queries of a group belong to.
template <class Shape>
ROOFLINE_DEVICE volatile int* number_at(int buffer, int group) {
  return shared_at<volatile int>(Shape::kNumbersAt + 4 * (Shape::kGroups * buffer + group));
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
  const auto copy_queries = [&](int number, int unit, int row) {
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group) {
      wait_phase(q.free(group), q.parity ^ 1);
      *number_at<Shape>(q.buffer, group) = number;
      if (number < 0) {
        arrive_at(q.full(group));
        continue;
      }
      expect_bytes(q.full(group), Shape::kGroupBytes);
#pragma unroll
      for (int slab = 0; slab < Shape::kSlabs; ++slab)
        load_box(shared_at<Chunk>(q.buffer * Shape::kQueryBytes + group * Shape::kGroupBytes + slab * Shape::kGroupSlabBytes),
                 &maps.q, 64 * slab, row + group * Shape::kGroupRows, unit, q.full(group));
    }
    q.next();
  };

  const int blocks = static_cast<int>(work.tiling.blocks());
  for (int number = static_cast<int>(block()); number < blocks;) {
    const QueryBlock at = query_block(work.tiling, number, Shape::kBlockQ);
    const int unit = static_cast<int>(at.unit), matrix = unit / static_cast<int>(work.tiling.units_per_kv);
    const int row = static_cast<int>(at.row), count = tiles_of<Shape>(seen, row, Shape::kBlockQ);
    copy_tile(maps.k, count - 1, matrix);
    copy_queries(number, unit, row);
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
  copy_queries(-1, 0, 0);
}

// What a warpgroup does that computes: the one of this number of those.
template <class T, class Shape>
ROOFLINE_DEVICE void compute_attention(const WarpSpecializedWork& work, const SeenKeys& seen, int group) {
  constexpr int kKeys = Shape::kBlockKv, kSlabs = Shape::kSlabs, kSums = Shape::kHeadDim / 2, kScores = kKeys / 2;
  const int lane = thread() % 32, warp = thread() / 32 % 4;
  const bool first_thread = thread() % 128 == 0;
  QueryRing<Shape> q;
  TileRing<Shape> tiles;

  struct Rows {
    int buffer, unit, first, tiles, whole;  // whole: tiles that all rows see wholly. No tiles: no more rows
  };
  const auto await_rows = [&]() -> Rows {
    wait_phase(q.full(group), q.parity);
    const int buffer = q.buffer, number = of_first_lane(lane == 0 ? *number_at<Shape>(buffer, group) : 0);
    if (number < 0) return {};
    q.next();
    const QueryBlock at = query_block(work.tiling, number, Shape::kBlockQ);
    const int row = static_cast<int>(at.row), first = row + Shape::kGroupRows * group;
    const int count = tiles_of<Shape>(seen, row, Shape::kBlockQ);
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
  const auto release_queries = [&](int buffer) {  // each warp for itself, by the lane that read the number of their block
    if (lane == 0) arrive_at(QueryRing<Shape>{buffer, 0}.free(group));
  };
  const auto queries_at = [&](int buffer) { return buffer * Shape::kQueryBytes + group * Shape::kGroupBytes; };
  const auto tile_at = [](const TileRing<Shape>& tile) { return Shape::kTilesAt + tile.buffer * Shape::kTileBytes; };

  float sums[kSums], scores[kScores], row_max[2], row_sum[2], shrink[2];
  std::uint32_t p[kKeys / 16][4];
  bool grown = false;

  const auto multiply_keys = [&](int buffer, const TileRing<Shape>& tile) {
    const std::uint64_t queries = row_descriptor(shared_address(queries_at(buffer)));
    const std::uint64_t keys = row_descriptor(shared_address(tile_at(tile)));
#pragma unroll
    for (int step = 0; step < 4 * kSlabs; ++step)
      multiply_async(T{}, scores, queries + descriptor_field(step / 4 * Shape::kGroupSlabBytes) + step % 4 * kNextInner,
                     keys + descriptor_field(step / 4 * Shape::kTileSlabBytes) + step % 4 * kNextInner, step != 0);
    commit_products();
  };
  const auto multiply_values = [&](const TileRing<Shape>& tile, int add) {
    const std::uint64_t values = column_descriptor(shared_address(tile_at(tile)), Shape::kTileSlabBytes);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      multiply_async(T{}, sums, p[step], values + step * kNextRows, step == 0 ? add : 1);
    commit_products();
  };

  // Scores become probabilities.
  const auto softmax = [&](auto is_first, auto is_masked, const Rows& rows, int tile) {
    constexpr bool kFirst = decltype(is_first)::value, kMasked = decltype(is_masked)::value;
    if (kMasked)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Place c = c_place(lane, 2 * half);
        mask(scores, half, seen.of(rows.first + 16 * warp + c.row) - tile * kKeys - c.column);
      }
    float top[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = largest(scores, half);
      if (!kFirst) top[half] = larger_of(top[half], row_max[half]);
      top[half] = largest_of_row(top[half]);
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
      const float total = exponentiate(scores, half, work.scale, less);
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
    if (Shape::kQueryBuffers == 1 && tile == 0) release_queries(rows.buffer);  // at once: the next are waited for
    softmax(std::false_type{}, is_masked, rows, tile);
    // Never so. Without a branch on the sums the assembler has the wait before the exponentials: at head_dim 64, where these take
    // as long as the products, that costs 5 to 7 %; at 128 it gains 1 %.
    if (Shape::kHeadDim <= 64 && row_sum[0] + row_sum[1] < 0) await(values);
    wait_products<0>();
    hold(sums), hold(p);
    release(values);
    pack();
    if (grown) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] *= shrink[i / 2 % 2];
    }
  };

  // Pieces of 32 bytes of eight rows at a time: neighbours exchange one of two pairs each.
  const auto store = [&](const Rows& rows, const float (&inverse)[2]) {
    const bool odd = lane % 2 != 0;
    const int row = rows.first + 16 * warp + lane / 4, column = lane % 2 * 8 + lane % 4 / 2 * 4;
    std::uint16_t* const out =
        static_cast<std::uint16_t*>(work.out) + (rows.unit * work.tiling.unit_rows + row) * work.head_dim + column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool valid = row + 8 * half < seen.unit_rows;
#pragma unroll
      for (int d = 0; d < kSums / 8; ++d) {
        const float* c = sums + 8 * d + 2 * half;
        const std::uint32_t left = packed(T{}, c[0] * inverse[half], c[1] * inverse[half]);
        const std::uint32_t right = packed(T{}, c[4] * inverse[half], c[5] * inverse[half]);
        const std::uint32_t other = from_lane_xor(odd ? left : right, 1);
        if (valid && 16 * d + column < work.head_dim)
          *reinterpret_cast<TwoWords*>(out + 8 * half * work.head_dim + 16 * d) = {{odd ? other : left, odd ? right : other}};
      }
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
    if (Shape::kQueryBuffers > 1 || rows.tiles == 1) release_queries(rows.buffer);
    const TileRing<Shape> values = next_in_ring();
    await(values);
    hold(sums), hold(p);
    begin_products();
    multiply_values(values, add);
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_row(row_sum[half]);
      inverse[half] = 1.f / sum;
      const int row = rows.first + 16 * warp + lane / 4 + 8 * half;
      if (work.logsumexp && lane % 4 == 0 && row < seen.unit_rows)
        work.logsumexp[rows.unit * work.tiling.unit_rows + row] = (row_max[half] * work.scale + log2_of(sum)) * 0.6931471805599453f;
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
}

template <class T, class Shape>
ROOFLINE_DEVICE void warp_specialized_attention(const WarpSpecializedWork& work, const AttentionMaps& maps) {
  const int warpgroup = of_first_lane(thread() / 128);
  const SeenKeys seen = {static_cast<int>(work.tiling.unit_rows), work.seq_q, work.seq_kv, work.causal};
  if (thread() == 0) {
    for (QueryRing<Shape> q; q.parity == 0; q.next())
      for (int group = 0; group < Shape::kGroups; ++group) init_barrier(q.full(group), 1), init_barrier(q.free(group), 4);
    for (TileRing<Shape> tiles; tiles.parity == 0; tiles.next())
      init_barrier(tiles.full(), 1), init_barrier(tiles.free(), Shape::kGroups);
    fence_barriers();
  }
  synchronize();
  if (warpgroup == 0) {
    give_registers<Shape::kCopyRegisters>();
    if (thread() == 0) copy_for_attention<Shape>(work, maps, seen);
  } else {
    take_registers<Shape::kComputeRegisters>();
    compute_attention<T, Shape>(work, seen, warpgroup - 1);
  }
}

}  // namespace roofline::cuda
