// The body of a grouped product: the rows of every expert times its weights, in one launch, by mma.sync and cp.async.
//
// Rows lie expert by expert, cut into tiles of Shape::kRows (RowTile); a block takes one tile of rows by one of columns at a time,
// over the whole inner dimension, through a ring of `slots` buffers. The tiles of rows of an expert follow each other for the same
// columns, so that its weights come from memory once and then from L2. Four warps share the columns: each has 16 of both halves of
// the buffer, which are neighbouring columns, or with a gate the same columns of both weights.
#pragma once

#include "cuda/matmul/grouped_plan.h"
#include "cuda/simt/warp.cuh"

namespace roofline::cuda {

enum class After : std::int32_t { nothing, relu, gelu };

struct GroupedWork {
  const void* a = nullptr;              // [tokens, inner], or without `token` [rows, inner]
  const std::int32_t* token = nullptr;  // [rows], whose it is
  const void* b = nullptr;              // [experts, inner, columns]
  const void* gate = nullptr;           // as b, or null
  void* c = nullptr;                    // [rows, columns]
  const RowTile* tiles = nullptr;
  const std::int32_t* tile_count = nullptr;
  int inner = 0, columns = 0;  // multiples of 8
  std::int64_t blocks = 0;
  int slots = 0;
  After after = After::nothing;  // of products without a gate; with one silu(gate) times the product
};

template <int Rows, bool Gated>
struct GroupedShape {
  static constexpr int kRows = Rows;
  static constexpr bool kGated = Gated;
  static constexpr int kThreads = 128;
  static constexpr int kDepth = 64;                    // of a buffer along inner
  static constexpr int kBufferColumns = 128;           // of all weights
  static constexpr int kColumns = Gated ? 64 : 128;    // of c
  static constexpr int kRowBytes = Rows * kDepth * 2;  // of a's part of a buffer
  static constexpr int kSlotBytes = kRowBytes + kDepth * kBufferColumns * 2;
};

ROOFLINE_DEVICE float after_product(After after, float x) {
  if (after == After::relu) return larger_of(x, 0.f);
  if (after == After::gelu) return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
  return x;
}
ROOFLINE_DEVICE float silu_times(float gate, float x) { return gate / (1.f + exp2_of(gate * -1.4426950408889634f)) * x; }

template <class T, class Shape>
ROOFLINE_DEVICE void grouped_product(const GroupedWork& work) {
  constexpr int kTiles = Shape::kRows / 16, kAtOnce = Shape::kThreads / 8;  // rows of a that are copied at once
  constexpr int kCopied = (Shape::kRows + kAtOnce - 1) / kAtOnce;
  const int lane = thread() % 32, warp = thread() / 32;
  const std::int64_t across = (work.columns + Shape::kColumns - 1) / Shape::kColumns;
  const int steps = (work.inner + Shape::kDepth - 1) / Shape::kDepth;
  const Place along = down_then_right(lane);
  const int a_start = swizzled<8>(along.row, along.column), b_start = swizzled<16>(along.row, along.column);
  // What this thread copies: one chunk of some rows of a, one chunk of some rows of the weights.
  const int a_row = thread() / 8, a_chunk = thread() % 8, b_row = thread() / 16, b_chunk = thread() % 16;

  for (std::int64_t item = block(); item < *work.tile_count * across; item += work.blocks) {
    const RowTile first = work.tiles[item / across];
    const std::int64_t of_expert = item - first.first_tile * across;
    const RowTile tile = work.tiles[first.first_tile + of_expert % first.of];
    const int column = static_cast<int>(of_expert / first.of) * Shape::kColumns;

    const char* rows[kCopied];  // of a, at this thread's chunk; null past the tile
#pragma unroll
    for (int i = 0; i < kCopied; ++i) {
      const int row = a_row + i * kAtOnce;
      rows[i] = nullptr;
      if (row >= tile.rows) continue;
      const std::int64_t at = work.token ? work.token[tile.first + row] : tile.first + row;
      rows[i] = static_cast<const char*>(work.a) + (at * work.inner + a_chunk * 8) * 2;
    }
    const bool of_gate = Shape::kGated && b_chunk >= 8;
    const int b_column = column + (Shape::kGated ? b_chunk % 8 : b_chunk) * 8;
    const char* const weights = static_cast<const char*>(of_gate ? work.gate : work.b) +
                                ((std::int64_t{tile.expert} * work.inner + b_row) * work.columns + b_column) * 2;
    const auto fill = [&](int step, int slot) {
      if (step < steps) {
        const std::uint32_t to = shared_address(slot * Shape::kSlotBytes);
        const int depth = step * Shape::kDepth;
#pragma unroll
        for (int i = 0; i < kCopied; ++i)
          if (a_row + i * kAtOnce < Shape::kRows) {
            const bool valid = rows[i] && depth + a_chunk * 8 < work.inner;
            copy_async(to + swizzled<8>(a_row + i * kAtOnce, a_chunk), valid ? rows[i] + std::int64_t{2} * depth : work.a, valid);
          }
#pragma unroll
        for (int r = 0; r < Shape::kDepth; r += 8) {
          const bool valid = depth + b_row + r < work.inner && b_column < work.columns;
          copy_async(to + Shape::kRowBytes + swizzled<16>(b_row + r, b_chunk),
                     valid ? weights + std::int64_t{2} * (depth + r) * work.columns : work.b, valid);
        }
      }
      commit_copies();  // also where empty, so that groups are counted alike
    };

    synchronize();  // every warp has read what the item before left in the ring
    for (int step = 0; step < work.slots - 1; ++step) fill(step, step);
    float sums[kTiles][2][2][4] = {};

    int slot = 0;
    for (int step = 0; step < steps; ++step) {
      wait_copies(work.slots - 2);
      synchronize();
      fill(step + work.slots - 1, (slot == 0 ? work.slots : slot) - 1);
      const std::uint32_t a = shared_address(slot * Shape::kSlotBytes), b = a + Shape::kRowBytes;
      slot = slot + 1 == work.slots ? 0 : slot + 1;
#pragma unroll
      for (int k = 0; k < Shape::kDepth / 16; ++k) {
        std::uint32_t left[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) load_matrices(left[m], a + swizzled_from<8>(a_start, 2 * m, k));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t right[4];
          load_matrices_transposed(right, b + swizzled_from<16>(b_start, 2 * k, 4 * half + warp));
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            multiply_add(T{}, sums[m][half][0], left[m], right[0], right[1]);
            multiply_add(T{}, sums[m][half][1], left[m], right[2], right[3]);
          }
        }
      }
    }

#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const Place place = c_place(lane, 2 * below);
        const int row = 16 * m + place.row;
        if (row >= tile.rows) continue;
        auto* const c = static_cast<std::uint16_t*>(work.c) + std::int64_t{tile.first + row} * work.columns;
#pragma unroll
        for (int half = 0; half < (Shape::kGated ? 1 : 2); ++half)
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const int at = column + 64 * half + 16 * warp + 8 * n + place.column;
            if (at >= work.columns) continue;
            float x[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const float sum = sums[m][half][n][2 * below + i];
              x[i] = Shape::kGated ? silu_times(sums[m][1][n][2 * below + i], sum) : after_product(work.after, sum);
            }
            *reinterpret_cast<std::uint32_t*>(c + at) = packed(T{}, x[0], x[1]);
          }
      }
  }
  wait_copies<0>();
}

}  // namespace roofline::cuda
