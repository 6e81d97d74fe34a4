// What the blocks of cuda/sm90a/mla.cuh keep in shared memory, and the warp that copies it there.
#pragma once

#include "cuda/attention/parts.cuh"
#include "cuda/sm90a/attention.cuh"

namespace roofline::cuda {

struct LatentWork : PartsWork {  // split: units are batch entries, blocks are groups. parts: of each chunk of rows after the other
  void* out = nullptr;  // [batch, rows, rank]
  const void* c = nullptr;       // [batch, keys, rank]
  const void* k_rope = nullptr;  // [batch, keys, rope_dim]
  int row_chunks = 0;   // blocks of a group
  int rows = 0;         // heads * seq_q
  int seq_q = 0;
  int keys = 0;
  int rank = 0;  // at most 512, a multiple of 8; the rest is zeros
  int rope_dim = 0;
  bool causal = false;
  float scale = 0;  // of scores, with log2(e)
};

// [batch, rows or keys, columns], in boxes of 64 rows.
struct LatentMaps {
  TensorMap q_latent, q_rope, c, k_rope;
};

struct LatentShape {
  static constexpr int kRank = 512, kRows = 64, kStepKeys = 64, kLeastSteps = 4, kBuffers = 2;
  static constexpr int kComputing = 256, kThreads = 384;
  // Queries and tiles lie in slabs of 64 columns, 128 bytes to a row, swizzled: what a box is, and what wgmma reads. The order is
  // the one in which slabs are filled and freed: rotated part, columns of the second warpgroup, columns of the first.
  static constexpr int kSlabs = 9, kSecondSlab = 1, kFirstSlab = 5;
  static constexpr int kSlabBytes = kRows * 128;
  static constexpr int kTileBytes = kSlabs * kSlabBytes;
  static constexpr int kPieces = 5;  // of a tile: one slab, then two each
  static constexpr int kTilesAt = kTileBytes;  // after the queries
  static constexpr int kWeightsAt = kTilesAt + kBuffers * kTileBytes;  // p: four chunks of each thread of a warpgroup
  static constexpr int kFactorsAt = kWeightsAt + 4 * 128 * kChunkBytes;  // of each row: for older sums; at the end 1 / sum
  static constexpr int kQueryBarriers = kFactorsAt + kRows * 4;
  static constexpr int kPieceBarriers = kQueryBarriers + 16;
  static constexpr int kSharedBytes = kPieceBarriers + 16 * kPieces * kBuffers;
  static constexpr int kCopyRegisters = 24, kComputeRegisters = 240;
  static_assert(kSharedBytes <= 227 << 10, "an SM's shared memory");
  static_assert(kCopyRegisters + 2 * kComputeRegisters <= 3 * (65536 / kThreads / 8 * 8), "an SM's registers");
};
ROOFLINE_HOST_DEVICE constexpr int first_of_piece(int piece) { return piece == 0 ? 0 : 2 * piece - 1; }

// The buffer of a tile, and the parity of the phase that the barriers of its pieces are in.
struct TileOfCache {
  int buffer = 0;
  unsigned parity = 0;
  ROOFLINE_DEVICE std::uint64_t* full(int piece) const {
    return shared_at<std::uint64_t>(LatentShape::kPieceBarriers + 16 * (LatentShape::kBuffers * piece + buffer));
  }
  ROOFLINE_DEVICE std::uint64_t* free(int piece) const { return full(piece) + 1; }
  ROOFLINE_DEVICE int at() const { return LatentShape::kTilesAt + buffer * LatentShape::kTileBytes; }
  ROOFLINE_DEVICE TileOfCache next() const {
    const bool last = buffer == LatentShape::kBuffers - 1;
    return {last ? 0 : buffer + 1, last ? parity ^ 1 : parity};
  }
};
using LatentQueries = Ring<LatentShape::kQueryBarriers, 1>;

// The share of a block: each(unit, first tile, tiles), one unit after the other.
template <class F>
ROOFLINE_DEVICE void each_unit(const KvSplit& split, int group, F each) {
  const int begin = split.begin(group);
  int unit = begin / split.unit_steps, first = begin % split.unit_steps;
  for (int left = split.begin(group + 1) - begin; left > 0; ++unit, first = 0) {
    const int count = left < split.unit_steps - first ? left : split.unit_steps - first;
    each(unit, first, count);
    left -= count;
  }
}

// Keys of a tile on their way to L2, of both parts of the cache, ahead of the copy that waits for room: a row for each lane. Blocks
// of a group share a tile, and two of them its rows; a block alone does without, as it waits for memory anyway.
ROOFLINE_DEVICE void prefetch_latents(const LatentWork& work, int chunk, int unit, int tile) {
  if (work.row_chunks == 1) return;
  const int key = tile * LatentShape::kStepKeys + chunk % 2 * 32 + thread() % 32;
  if (key >= work.keys) return;
  const std::int64_t row = std::int64_t{unit} * work.keys + key;
  const std::uint16_t* latents = static_cast<const std::uint16_t*>(work.c) + row * work.rank;
  for (int column = 0; column < work.rank; column += 64) prefetch(latents + column);
  prefetch(static_cast<const std::uint16_t*>(work.k_rope) + row * work.rope_dim);
}

// What the one warp does that copies.
ROOFLINE_DEVICE void copy_latents(const LatentWork& work, const LatentMaps& maps, int group, int chunk) {
  using Shape = LatentShape;
  const int first_row = chunk * Shape::kRows;
  const bool copies = thread() % 32 == 0;
  TileOfCache tile;
  LatentQueries q;
  const auto copy_slab = [&](const TensorMap& latent, const TensorMap& rotated, int at, int slab, int row, int unit,
                             std::uint64_t* full) {
    const int column = slab < Shape::kFirstSlab ? slab - Shape::kSecondSlab + 4 : slab - Shape::kFirstSlab;
    load_box(shared_at<Chunk>(at + slab * Shape::kSlabBytes), slab == 0 ? &rotated : &latent, slab == 0 ? 0 : 64 * column, row,
             unit, full);
  };
  each_unit(work.split, group, [&](int unit, int first, int count) {
    for (int i = 0; i < count; ++i) {
#pragma unroll
      for (int piece = 0; piece < Shape::kPieces; ++piece) {
        const int begin = first_of_piece(piece), end = first_of_piece(piece + 1);
        wait_phase(tile.free(piece), tile.parity ^ 1);
        if (copies) {
          expect_bytes(tile.full(piece), (end - begin) * Shape::kSlabBytes);
#pragma unroll
          for (int slab = begin; slab < end; ++slab)
            copy_slab(maps.c, maps.k_rope, tile.at(), slab, (first + i) * Shape::kStepKeys, unit, tile.full(piece));
        }
        if (i > 0 || piece > 0) continue;
        wait_phase(q.free(), q.parity ^ 1);
        if (copies) {
          expect_bytes(q.full(), Shape::kTileBytes);
#pragma unroll
          for (int slab = 0; slab < Shape::kSlabs; ++slab)
            copy_slab(maps.q_latent, maps.q_rope, 0, slab, first_row, unit, q.full());
        }
        q.next();
      }
      if (i + 1 < count) prefetch_latents(work, chunk, unit, first + i + 1);
      tile = tile.next();
    }
  });
}

}  // namespace roofline::cuda
