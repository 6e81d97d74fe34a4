// The body of tiled attention: mma.sync, cp.async and a running softmax, for 16-bit elements.
//
// A block of four warps takes BlockQ rows of queries over all keys they see, BlockKv keys at a time. Q lies in shared memory for
// the whole time, and its first `Kept` steps in registers; tiles of K and V follow each other through a ring of `slots` buffers,
// one tile (K0, V0, K1, V1, ...) or a pair of K and V to a buffer, filled slots - 1 buffers ahead. A warp owns 16 * Rows rows:
// its scores, probabilities and sums stay in registers, and the accumulators of q kᵀ are the A operands of p v as they are.
// Exponentials are in base 2, with the scale folded into one multiply-add. Sums are made smaller only where a maximum has grown by
// more than kSlack: until then the old one serves, and the lanes of a row need not agree on a new one. Only tiles that some row
// does not wholly see are masked; a warp skips those that it does not see at all.
#pragma once

#include "cuda/attention/plan.h"
#include "cuda/simt/warp.cuh"

namespace roofline::cuda {

struct TiledWork {
  const void* q = nullptr;  // [units, unit_rows, head_dim]
  const void* k = nullptr;  // [units / units_per_kv, seq_kv, head_dim]
  const void* v = nullptr;  // as k
  void* out = nullptr;      // as q
  QueryTiling tiling;
  int seq_q = 0;
  int seq_kv = 0;
  int head_dim = 0;  // at most HeadDim, a multiple of 8; the rest is zeros
  int slots = 0;
  bool causal = false;
  float scale = 0;  // of scores, with log2(e)
};

template <int Head, int Keys, int RowTiles, int Kept, bool Pairs>
struct TiledShape {
  static constexpr int kHeadDim = Head;
  static constexpr int kBlockKv = Keys;
  static constexpr int kRowTiles = RowTiles;       // of 16 rows, per warp
  static constexpr int kKept = Kept;               // of 16 dimensions
  static constexpr int kTogether = Pairs ? 2 : 1;  // tiles of a slot
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlockQ = 16 * RowTiles * kWarps;
  static constexpr int kRowChunks = Head / 8;
  static constexpr int kQueryBytes = kBlockQ * Head * 2;
  static constexpr int kTileBytes = Keys * Head * 2;
  static constexpr int kSlotBytes = kTogether * kTileBytes;
  static constexpr int kMostSlots = Pairs ? (Keys < 64 ? 3 : 2) : 4;  // more under way than this hide no further latency
};

// Q in registers where there is room. At 128 a short tile leaves registers for data on their way from shared memory to the tensor
// cores, at 64 a long one costs fewer barriers; at 256 two pairs of tiles fit no block beside another.
using TiledFor64 = TiledShape<64, 64, 2, 4, true>;
using TiledFor128 = TiledShape<128, 32, 2, 0, true>;
using TiledFor256 = TiledShape<256, 64, 1, 0, false>;

// Rows [first, first + Rows) of a matrix [rows, head_dim] of 16-bit elements into shared memory; zeros beyond its edges.
template <int Rows, int RowChunks, int Threads>
ROOFLINE_DEVICE void copy_tile(int to, const void* matrix, int first, int rows, int head_dim) {
  constexpr int kRowsAtOnce = Threads / RowChunks;
  static_assert(Threads % RowChunks == 0 && Rows % kRowsAtOnce == 0, "whole passes");
  const int own = fresh(thread()), chunk = own % RowChunks, row = own / RowChunks;
  const char* from = static_cast<const char*>(matrix) + (std::int64_t{first + row} * head_dim + chunk * 8) * 2;
  const std::uint32_t base = shared_address(to);
#pragma unroll 4
  for (int r = 0; r < Rows; r += kRowsAtOnce) {
    const bool valid = first + row + r < rows && chunk * 8 < head_dim;
    copy_async(base + swizzled<RowChunks>(row + r, chunk), valid ? from + std::int64_t{2} * r * head_dim : matrix, valid);
  }
}

template <class T, class Shape>
ROOFLINE_DEVICE void tiled_attention(const TiledWork& work) {
  constexpr int kRowTiles = Shape::kRowTiles, kRowChunks = Shape::kRowChunks, kThreads = Shape::kThreads;
  constexpr int kBlockKv = Shape::kBlockKv, kKeyTiles = kBlockKv / 8, kDims = Shape::kHeadDim / 8;
  const int lane = thread() % 32, warp_row = thread() / 32 * 16 * kRowTiles;
  const QueryBlock at = query_block(work.tiling, block(), Shape::kBlockQ);
  const int unit = static_cast<int>(at.unit), row = static_cast<int>(at.row);
  const std::int64_t kv_bytes = std::int64_t{2} * work.seq_kv * work.head_dim;
  const std::int64_t unit_bytes = work.tiling.unit_rows * work.head_dim * 2;
  const char* k = static_cast<const char*>(work.k) + unit / static_cast<int>(work.tiling.units_per_kv) * kv_bytes;
  const char* v = static_cast<const char*>(work.v) + unit / static_cast<int>(work.tiling.units_per_kv) * kv_bytes;

  const int unit_rows = static_cast<int>(work.tiling.unit_rows), first_row = row + warp_row;
  const SeenKeys seen_keys = {unit_rows, work.seq_q, work.seq_kv, work.causal};
  const bool idle = first_row >= unit_rows;
  const int warp_keys = idle ? 0 : seen_keys.most(first_row, 16 * kRowTiles);
  const int whole_keys = idle ? 0 : seen_keys.fewest(first_row, 16 * kRowTiles);

  const int items = (seen_keys.most(row, Shape::kBlockQ) + kBlockKv - 1) / kBlockKv * 2;  // K and V of each tile
  constexpr int kTogether = Shape::kTogether;
  const auto fill = [&](int item, int slot) {
    if (item < items)
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        copy_tile<kBlockKv, kRowChunks, kThreads>(Shape::kQueryBytes + slot * Shape::kSlotBytes + i * Shape::kTileBytes,
                                                  (item + i) % 2 ? v : k, item / 2 * kBlockKv, work.seq_kv, work.head_dim);
    commit_copies();  // also where empty, so that groups are counted alike
  };
  copy_tile<Shape::kBlockQ, kRowChunks, kThreads>(0, static_cast<const char*>(work.q) + unit * unit_bytes, row, unit_rows,
                                                  work.head_dim);
  if constexpr (Shape::kKept > 0) commit_copies();  // else Q comes with the first tile
  for (int slot = 0; slot < work.slots - 1; ++slot) fill(slot * kTogether, slot);

  // Where a lane's rows begin: in Q, and in a slot of K or V.
  const Place across = right_then_down(lane), along = down_then_right(lane);
  const int q_start = swizzled<kRowChunks>(along.row, along.column);
  const int k_start = swizzled<kRowChunks>(across.row, across.column), v_start = q_start;
  const std::uint32_t q_address = shared_address(warp_row * kRowChunks * kChunkBytes);

  float sums[kRowTiles][kDims][4] = {};
  float row_less[kRowTiles][2], row_sum[kRowTiles][2];  // less: added to scaled scores, so that they are at most kSlack
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) row_less[m][half] = INFINITY, row_sum[m][half] = 0.f;

  [[maybe_unused]] std::uint32_t kept[Shape::kKept > 0 ? Shape::kKept : 1][kRowTiles][4] = {};
  if constexpr (Shape::kKept > 0) {
    wait_copies(work.slots - 1);
    synchronize();
#pragma unroll
    for (int step = 0; step < Shape::kKept; ++step)
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        load_matrices(kept[step][m], q_address + swizzled_from<kRowChunks>(q_start, 2 * m, step));
  }

  int slot = 0;
  const auto next = [&](int item) {  // waits for an item, and begins the one that takes the place of the item before it
    wait_copies(work.slots - 2);
    synchronize();
    fill(item + (work.slots - 1) * kTogether, (slot == 0 ? work.slots : slot) - 1);
    const int offset = Shape::kQueryBytes + slot * Shape::kSlotBytes;
    slot = slot + 1 == work.slots ? 0 : slot + 1;
    return shared_address(offset);
  };

  for (int item = 0; item < items; item += 2) {
    const int key = item / 2 * kBlockKv;
    const std::uint32_t keys = next(item);
    const bool seen = key < warp_keys;
    std::uint32_t p[kRowTiles][kKeyTiles / 2][4];
    if (seen) {
      const int q_now = fresh(q_start), k_now = fresh(k_start);
      float scores[kRowTiles][kKeyTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kRowChunks / 2; ++step) {
        std::uint32_t a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          if (step < Shape::kKept) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[m][i] = kept[step < Shape::kKept ? step : 0][m][i];
          } else {
            load_matrices(a[m], q_address + swizzled_from<kRowChunks>(q_now, 2 * m, step));
          }
        }
#pragma unroll
        for (int n = 0; n < kKeyTiles; n += 2) {
          std::uint32_t b[4];
          load_matrices(b, keys + swizzled_from<kRowChunks>(k_now, n, step));
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add(T{}, scores[m][n], a[m], b[0], b[1]);
            multiply_add(T{}, scores[m][n + 1], a[m], b[2], b[3]);
          }
        }
      }
      if (key + kBlockKv > whole_keys) {
        const int own = fresh(lane);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int left = seen_keys.of(first_row + 16 * m + c_place(own, 2 * half).row) - key;
#pragma unroll
            for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
              for (int i = 2 * half; i < 2 * half + 2; ++i)
                if (8 * n + c_place(own, i).column >= left) scores[m][n][i] = -INFINITY;
          }
      }
      float max[kRowTiles][2];
      bool grown = false;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          max[m][half] = -INFINITY;
#pragma unroll
          for (int n = 0; n < kKeyTiles; ++n)
            max[m][half] = larger_of(max[m][half], larger_of(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
          grown |= fused(max[m][half], work.scale, row_less[m][half]) > kSlack;
        }
      // Every row sees the first key, so that less is finite from the first tile on.
      if (any_lane(grown)) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float most = max[m][half];
            most = larger_of(most, from_lane_xor(most, 1));
            most = larger_of(most, from_lane_xor(most, 2));
            const float less = smaller_of(row_less[m][half], -most * work.scale);
            const float shrunk = exp2_of(less - row_less[m][half]);
            row_less[m][half] = less;
            row_sum[m][half] *= shrunk;
#pragma unroll
            for (int d = 0; d < kDims; ++d) sums[m][d][2 * half] *= shrunk, sums[m][d][2 * half + 1] *= shrunk;
          }
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sum[2] = {row_sum[m][half], 0.f};  // of this lane's columns so far
#pragma unroll
          for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              scores[m][n][i] = exp2_of(fused(scores[m][n][i], work.scale, row_less[m][half]));
              sum[i % 2] += scores[m][n][i];
            }
          row_sum[m][half] = sum[0] + sum[1];
#pragma unroll
          for (int n = 0; n < kKeyTiles; ++n)
            p[m][n / 2][n % 2 * 2 + half] = packed(T{}, scores[m][n][2 * half], scores[m][n][2 * half + 1]);
        }
    }
    const std::uint32_t values = kTogether == 2 ? keys + Shape::kTileBytes : next(item + 1);
    if (seen) {
      const int v_now = fresh(v_start);
#pragma unroll
      for (int step = 0; step < kBlockKv / 16; ++step)
#pragma unroll
        for (int d = 0; d < kDims; d += 2) {
          std::uint32_t b[4];
          load_matrices_transposed(b, values + swizzled_from<kRowChunks>(v_now, 2 * step, d / 2));
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add(T{}, sums[m][d], p[m][step], b[0], b[1]);
            multiply_add(T{}, sums[m][d + 1], p[m][step], b[2], b[3]);
          }
        }
    }
  }
  wait_copies<0>();

  // Through the warp's own rows of Q, so that whole rows of out are written.
  if (idle) return;
  const int rows_left = unit_rows - first_row;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = row_sum[m][half];
      sum += from_lane_xor(sum, 1);
      sum += from_lane_xor(sum, 2);
      const float inverse = 1.f / sum;
      const Place c = c_place(lane, 2 * half);
      const int at = warp_row + 16 * m + c.row;
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        *shared_at<std::uint32_t>(swizzled<kRowChunks>(at, d) + 2 * c.column) =
            packed(T{}, sums[m][d][2 * half] * inverse, sums[m][d][2 * half + 1] * inverse);
    }
  synchronize_warp();
  char* out = static_cast<char*>(work.out) + unit * unit_bytes + std::int64_t{2} * first_row * work.head_dim;
#pragma unroll 4
  for (int i = lane; i < 16 * kRowTiles * kRowChunks; i += 32) {
    const int at = i / kRowChunks, chunk = i % kRowChunks;
    if (at < rows_left && chunk * 8 < work.head_dim)
      *reinterpret_cast<Chunk*>(out + (std::int64_t{at} * work.head_dim + chunk * 8) * 2) =
          *shared_at<const Chunk>(swizzled<kRowChunks>(warp_row + at, chunk));
  }
}

}  // namespace roofline::cuda
