// The body of warp-specialised attention over a compressed cache (multi-head latent attention): wgmma, tensor copies and a running
// softmax (sm_90a), for 16-bit elements.
//
// A block takes 64 rows (heads times queries of a batch entry) over its group's share of the keys (KvSplit), 64 at a time; the
// blocks of a group take the same keys for other rows, so that the cache comes from memory once. Queries stay in shared memory.
// Tiles of the cache, latents and rotated keys, come through two buffers in pieces that are filled and freed by themselves. The
// first warpgroup multiplies queries and keys, 64 x 64 scores, and has their softmax; it adds p c for half of the latents' columns,
// the second warpgroup for the other half, and gets p through shared memory as the registers hold it. Beside the products of the
// next tile's scores, which read shared memory at its limit, goes a quarter of p c; the rest beside their softmax. A warp of the
// third warpgroup copies, and asks for the tile after that to come to L2.
//
// Limits per tile: 2176 cycles of the tensor units; shared memory is read for 1660 and written for 640.
#pragma once

#include "cuda/sm90a/mla_copies.cuh"

namespace roofline::cuda {

// Named barriers: p or factors are there for the second warpgroup; it has taken them; the first one has the next scores.
constexpr int kSent = 1, kTaken = 2, kScored = 3;

// An operand so many bytes further on. Only the lower half of a descriptor changes.
ROOFLINE_DEVICE std::uint64_t further(std::uint64_t descriptor, int bytes) {
  return descriptor >> 32 << 32 | (static_cast<std::uint32_t>(descriptor) + static_cast<std::uint32_t>(bytes / 16));
}

// A computing warpgroup's 256 columns: sums of p c.
template <class T>
struct LatentSums {
  float sums[2][64];
  std::uint32_t p[4][4];

  ROOFLINE_DEVICE void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 64; ++i) sums[half][i] = 0.f;
  }
  ROOFLINE_DEVICE void keep() { hold(sums[0]), hold(sums[1]), hold(p); }
  // p as the first warpgroup's same thread left it, and older sums scaled down.
  ROOFLINE_DEVICE void take(bool grown, const float (&shrink)[2]) {
    if (grown)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 64; ++i) sums[half][i] *= shrink[i / 2 % 2];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const Chunk four = shared_at<const Chunk>(LatentShape::kWeightsAt)[128 * step + thread() % 128];
#pragma unroll
      for (int i = 0; i < 4; ++i) p[step][i] = four.words[i];
    }
  }
  // Two groups of products, of two slabs each.
  ROOFLINE_DEVICE void multiply(const TileOfCache& tile, int first_slab) {
    multiply(tile, first_slab, sums[0]);
    multiply(tile, first_slab + 2, sums[1]);
  }
  ROOFLINE_DEVICE void multiply(const TileOfCache& tile, int slab, float (&half)[64]) {
    const std::uint64_t latents =
        column_descriptor(shared_address(fresh(tile.at()) + slab * LatentShape::kSlabBytes), LatentShape::kSlabBytes);
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply_async(T{}, half, p[step], further(latents, step * 16 * 128), 1);
    commit_products();
  }
  // Waits for them, and gives the pieces with their slabs away: this one and the next.
  ROOFLINE_DEVICE void finish(const TileOfCache& tile, int piece) {
    const bool first_lane = thread() % 32 == 0;
    wait_products<1>();
    if (first_lane) arrive_at(tile.free(piece));
    wait_products<0>();
    keep();
    if (first_lane) arrive_at(tile.free(piece + 1));
  }
};

// Two rows of a lane, of the warpgroup's 64.
struct LatentRows {
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, inverse[2];
};
ROOFLINE_DEVICE int lane_row() { return thread() / 32 % 4 * 16 + thread() % 32 / 4; }
ROOFLINE_DEVICE float* latent_factors() { return shared_at<float>(LatentShape::kFactorsAt) + lane_row(); }

// What the first warpgroup does with a unit.
template <class T>
ROOFLINE_DEVICE void score_latents(const LatentWork& work, int first_row, int first, int count, bool first_unit,
                                   LatentQueries& q, TileOfCache& tile, LatentSums<T>& mine, LatentRows& rows) {
  using Shape = LatentShape;
  const int lane = thread() % 32;
  const bool first_lane = lane == 0;
  const int whole = (work.causal ? work.keys - work.seq_q + 1 : work.keys) / Shape::kStepKeys;  // tiles that all rows see wholly
  float scores[32], shrink[2];
  bool grown = false;

  const auto multiply_keys = [&](const TileOfCache& of) {
    const std::uint64_t queries = row_descriptor(shared_address(fresh(0))), keys = row_descriptor(shared_address(fresh(of.at())));
#pragma unroll
    for (int piece = 0; piece < Shape::kPieces; ++piece) {
      wait_phase(of.full(piece), of.parity);
      begin_products();
#pragma unroll
      for (int slab = first_of_piece(piece); slab < first_of_piece(piece + 1); ++slab)
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          const int at = slab * Shape::kSlabBytes + 32 * step;
          multiply_async(T{}, scores, further(queries, at), further(keys, at), slab > 0 || step > 0);
        }
    }
    commit_products();
  };
  const auto softmax = [&](int index) {
    if (index >= whole)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + lane_row() + 8 * half;
        const int seen = work.causal ? row % work.seq_q + work.keys - work.seq_q + 1 : work.keys;
        mask(scores, half, seen - index * Shape::kStepKeys - lane % 4 * 2);
      }
    float top[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) top[half] = largest_of_row(larger_of(largest(scores, half), rows.max[half]));
    grown = any_lane((top[0] - rows.max[0]) * work.scale > kSlack || (top[1] - rows.max[1]) * work.scale > kSlack);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!grown) top[half] = rows.max[half];
      // A block whose share begins late may see no key of an early query.
      const float less = top[half] == -INFINITY ? 0.f : -top[half] * work.scale;
      shrink[half] = grown ? exp2_of(fused(rows.max[half], work.scale, less)) : 1.f;
      rows.max[half] = top[half];
      rows.sum[half] = fused(rows.sum[half], shrink[half], exponentiate(scores, half, work.scale, less));
    }
  };
  const auto send_factors = [&](const float (&factors)[2]) {
    if (lane % 4 == 0) latent_factors()[0] = factors[0], latent_factors()[8] = factors[1];
    announce<Shape::kComputing>(kSent);
  };
  const auto send = [&](bool first_time) {
    if (!first_time) meet<Shape::kComputing>(kTaken);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Chunk four;
#pragma unroll
      for (int i = 0; i < 4; ++i) four.words[i] = packed(T{}, scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]);
      shared_at<Chunk>(Shape::kWeightsAt)[128 * step + thread() % 128] = four;
    }
    send_factors(shrink);
  };
  const auto free_rotated = [&](const TileOfCache& of) {
    if (first_lane) arrive_at(of.free(0));
  };

  wait_phase(q.full(), q.parity);
  hold(scores);
  multiply_keys(tile);
  wait_products<0>();
  hold(scores);
  free_rotated(tile);
  softmax(first);
  send(first_unit);
  mine.take(grown, shrink);
  for (int i = 1; i < count; ++i) {
    const TileOfCache after = tile.next();
    hold(scores), mine.keep();
    multiply_keys(after);
    mine.multiply(tile, Shape::kFirstSlab);
    wait_products<2>();
    announce<Shape::kComputing>(kScored);
    hold(scores);
    free_rotated(after);
    softmax(first + i);
    send(false);
    mine.finish(tile, 3);
    mine.take(grown, shrink);
    tile = after;
  }
  if (first_lane) arrive_at(q.free());
  q.next();
  mine.keep();
  begin_products();
  mine.multiply(tile, Shape::kFirstSlab);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.sum[half] = sum_of_row(rows.sum[half]);
    rows.inverse[half] = 1.f / rows.sum[half];
  }
  meet<Shape::kComputing>(kTaken);
  send_factors(rows.inverse);
  mine.finish(tile, 3);
  tile = tile.next();
}

// What the second warpgroup does with a unit.
template <class T>
ROOFLINE_DEVICE void weight_latents(int count, TileOfCache& tile, LatentSums<T>& mine, LatentRows& rows) {
  using Shape = LatentShape;
  for (int i = 0; i <= count; ++i) {
    meet<Shape::kComputing>(kSent);
    const float factors[2] = {latent_factors()[0], latent_factors()[8]};
    if (i == count) {
      rows.inverse[0] = factors[0], rows.inverse[1] = factors[1];
      announce<Shape::kComputing>(kTaken);
      break;
    }
    mine.take(any_lane(factors[0] != 1.f || factors[1] != 1.f), factors);
    announce<Shape::kComputing>(kTaken);
    for (int piece = 1; piece < 3; ++piece) wait_phase(tile.full(piece), tile.parity);  // they are: there are scores of them
    mine.keep();
    begin_products();
    // Half of it beside the next scores, which shared memory limits; half beside their softmax.
    mine.multiply(tile, Shape::kSecondSlab, mine.sums[0]);
    if (i + 1 < count) meet<Shape::kComputing>(kScored);
    mine.multiply(tile, Shape::kSecondSlab + 2, mine.sums[1]);
    mine.finish(tile, 1);
    tile = tile.next();
  }
}

// Where parts of a chunk of rows lie.
ROOFLINE_DEVICE PartsWork parts_of(const LatentWork& work, int chunk) {
  PartsWork parts = work;
  const std::int64_t before = std::int64_t{2} * work.split.blocks * chunk * LatentShape::kRows;
  parts.parts += before * LatentShape::kRank, parts.stats += before * 2;
  return parts;
}

// Out, or this block's part of a unit.
template <class T>
ROOFLINE_DEVICE void store_latents(const LatentWork& work, int unit, int group, int chunk, int warpgroup,
                                   const LatentSums<T>& mine, const LatentRows& rows) {
  using Shape = LatentShape;
  const int lane = thread() % 32, first_row = chunk * Shape::kRows, first_column = 256 * warpgroup + lane % 4 * 2;
  const bool shared = work.split.first_block(unit) != work.split.last_block(unit);
  const PartsWork parts = parts_of(work, chunk);
  const std::int64_t place = std::int64_t{work.split.scratch(group, unit)} * Shape::kRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane_row() + 8 * half;
    if (first_row + row >= work.rows) continue;
    std::uint16_t* const out =
        static_cast<std::uint16_t*>(work.out) + (std::int64_t{unit} * work.rows + first_row + row) * work.rank + first_column;
    float* const part = parts.parts + (place + row) * Shape::kRank + first_column;
#pragma unroll
    for (int n = 0; n < 32; ++n) {
      const float x = mine.sums[n / 16][n % 16 * 4 + 2 * half], y = mine.sums[n / 16][n % 16 * 4 + 2 * half + 1];
      if (shared)
        *reinterpret_cast<TwoFloats*>(part + 8 * n) = {{x, y}};
      else if (first_column + 8 * n < work.rank)
        *reinterpret_cast<std::uint32_t*>(out + 8 * n) = packed(T{}, x * rows.inverse[half], y * rows.inverse[half]);
    }
    if (shared && warpgroup == 0 && lane % 4 == 0) {
      parts.stats[(place + row) * 2] = rows.max[half] * work.scale;
      parts.stats[(place + row) * 2 + 1] = rows.sum[half];
    }
  }
}

template <class T>
ROOFLINE_DEVICE void latent_attention(const LatentWork& work, const LatentMaps& maps) {
  using Shape = LatentShape;
  const int warpgroup = of_first_lane(thread() / 128);
  const int group = static_cast<int>(block() / work.row_chunks);
  const int chunk = static_cast<int>(block() % work.row_chunks), first_row = chunk * Shape::kRows;
  if (thread() == 0) {
    constexpr int kWarps = 4;  // of the warpgroup that gives a buffer away
    init_barrier(LatentQueries{}.full(), 1), init_barrier(LatentQueries{}.free(), kWarps);
    for (TileOfCache tile; tile.parity == 0; tile = tile.next())
      for (int piece = 0; piece < Shape::kPieces; ++piece) {
        init_barrier(tile.full(piece), 1);
        init_barrier(tile.free(piece), kWarps);
      }
    fence_barriers();
  }
  synchronize();

  if (warpgroup == 2) {
    give_registers<Shape::kCopyRegisters>();
    if (thread() / 32 == Shape::kComputing / 32) copy_latents(work, maps, group, chunk);
  } else {
    take_registers<Shape::kComputeRegisters>();
    LatentQueries q;
    TileOfCache tile;
    bool first_unit = true;
    each_unit(work.split, group, [&](int unit, int first, int count) {
      LatentSums<T> mine;
      LatentRows rows;
      mine.clear();
      if (warpgroup == 0)
        score_latents(work, first_row, first, count, first_unit, q, tile, mine, rows);
      else
        weight_latents(count, tile, mine, rows);
      first_unit = false;
      store_latents(work, unit, group, chunk, warpgroup, mine, rows);
    });
    if (warpgroup == 0 && !first_unit) meet<Shape::kComputing>(kTaken);
  }
}

// The kernel that follows where groups share units: blocks of kMergeThreads threads, kMergeRows rows each.
constexpr int kMergeRows = 2, kMergeThreads = kMergeRows * LatentShape::kRank / 8;
constexpr std::int64_t merge_blocks(std::int64_t units, std::int64_t rows) { return units * ceil_div(rows, kMergeRows); }

template <class T>
ROOFLINE_DEVICE void merge_latents(const LatentWork& work) {
  using Shape = LatentShape;
  const int unit_blocks = (work.rows + kMergeRows - 1) / kMergeRows, unit = static_cast<int>(block() / unit_blocks);
  const int row = static_cast<int>(block() % unit_blocks) * kMergeRows + thread() / (Shape::kRank / 8);
  const int column = thread() % (Shape::kRank / 8) * 8;
  const int first = work.split.first_block(unit), last = work.split.last_block(unit);
  if (first == last || row >= work.rows || column >= work.rank) return;
  store_added<T, Shape::kRows, Shape::kRank>(
      parts_of(work, row / Shape::kRows), unit, first, last, row % Shape::kRows, column,
      static_cast<std::uint16_t*>(work.out) + (std::int64_t{unit} * work.rows + row) * work.rank + column);
}

}  // namespace roofline::cuda
