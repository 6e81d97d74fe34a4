// The body of multi-head latent attention over its compressed cache: all heads read one latent, which is key and value at once.
//
// A block of eight warps takes 16 * RowTiles rows (heads times queries of a batch entry) over its share of the keys (KvSplit),
// 16 * KeyTiles at a time. Queries, latent part and rotated part side by side, stay in shared memory; latents and rotated keys come
// as rows of the same form through a ring. The warps share out the scores, over rows, keys and where warps are left over the depth,
// and put them into shared memory; rows are then normalised by a few threads each, and every warp adds p c for its own 64 columns.
// Parts of a unit that blocks share are added up by the last block to arrive.
#pragma once

#include <type_traits>

#include "cuda/attention/parts.cuh"

namespace roofline::cuda {

struct MlaWork : PartsWork {  // parts: of a unit's rows, 512 wide
  const void* q_latent = nullptr;  // [batch, rows, rank]
  const void* q_rope = nullptr;    // [batch, rows, rope_dim]
  const void* c = nullptr;         // [batch, keys, rank]
  const void* k_rope = nullptr;    // [batch, keys, rope_dim]
  void* out = nullptr;             // [batch, rows, rank]
  int row_chunks = 0;  // units per batch entry
  int rows = 0;        // heads * seq_q
  int seq_q = 0;
  int keys = 0;
  int rank = 0;        // at most 512, a multiple of 8; the rest is zeros
  int rope_dim = 0;    // at most 64, a multiple of 8; the rest is zeros
  int slots = 0;
  bool causal = false;
  float scale = 0;     // of scores, with log2(e)
};

template <int RowTileCount, int KeyTileCount>
struct MlaShape {
  static constexpr int kRank = 512, kRope = 64, kRowChunks = (kRank + kRope) / 8, kRankChunks = kRank / 8;
  static constexpr int kRowTiles = RowTileCount, kKeyTiles = KeyTileCount;  // of 16
  static constexpr int kRows = 16 * RowTileCount, kStepKeys = 16 * KeyTileCount;
  static constexpr int kLeastSteps = 256 / kStepKeys;  // of a block
  static constexpr const char* kArithmetic = "mma";
  static constexpr int kBusy = kBusyComputing;
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  // Scores: a warp has half of the rows and 16 keys, so that what it reads of the keys serves several rows; warps that are left
  // share out the depth.
  static constexpr int kWarpRows = RowTileCount / 2;  // of 16
  static constexpr int kDepthParts = kWarps / (2 * KeyTileCount);
  static constexpr int kRowThreads = kThreads / kRows;  // that normalise a row
  static constexpr int kDims = kRank / kWarps / 8;      // tiles of 8 columns of a warp
  static constexpr int kScorePitch = kStepKeys + 4;
  static constexpr int kSlotBytes = kStepKeys * kRowChunks * kChunkBytes;
  static constexpr int kQueries = 0;
  static constexpr int kScores = kQueries + kRows * kRowChunks * kChunkBytes;     // [kDepthParts][kRows][kScorePitch]
  // p in 16 bits takes the place of its row's scores; a row is an odd number of chunks, and ldmatrix is free of bank conflicts.
  ROOFLINE_HOST_DEVICE static constexpr int weights(int row, int chunk) {
    return kScores + row * kScorePitch * 4 + chunk * kChunkBytes;
  }
  static constexpr int kStats = kScores + kDepthParts * kRows * kScorePitch * 4;  // [kRows][2]: factor of older sums; sum
  static constexpr int kFlag = kStats + kRows * 2 * 4;
  static constexpr int kFixedBytes = (kFlag + 4 + 1023) / 1024 * 1024;
  static_assert(RowTileCount % 2 == 0 && 2 * KeyTileCount * kDepthParts == kWarps, "work for every warp");
  static_assert(kRowChunks / 2 % kDepthParts == 0, "equal parts of the depth");
  static_assert(kScorePitch / 4 % 2 == 1 && 32 % kRowThreads == 0, "p where the scores were");
};

template <int Value>
using Count = std::integral_constant<int, Value>;

template <class T, class Shape>
ROOFLINE_DEVICE void mla_attention(const MlaWork& work) {
  constexpr int kRowTiles = Shape::kRowTiles, kRows = Shape::kRows, kStepKeys = Shape::kStepKeys, kRowChunks = Shape::kRowChunks;
  constexpr int kThreads = Shape::kThreads, kDims = Shape::kDims;
  const int lane = thread() % 32, warp = thread() / 32;
  const int begin = work.split.begin(static_cast<int>(block())), end = work.split.begin(static_cast<int>(block()) + 1);
  const int unit_steps = work.split.unit_steps;
  int unit = begin / unit_steps, step = begin % unit_steps;

  // Rows [first, first + count) of two matrices side by side, 512 and 64 columns, zeros where there is nothing. A warp takes whole
  // rows of the wide one, two chunks to a lane, and four rows of the narrow one at a time.
  const auto copy_rows = [&](int to, auto count, const void* wide, const void* narrow, std::int64_t before, int first, int rows) {
    constexpr int kEach = decltype(count)::value / Shape::kWarps;
    const std::uint32_t base = shared_address(to);
    const int row = warp * kEach, column = lane * 8, narrow_row = lane / 8, narrow_column = lane % 8 * 8;
    const std::uint16_t* from = static_cast<const std::uint16_t*>(wide) + (before + first + row) * work.rank + column;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const bool valid = first + row + r < rows;
      copy_async(base + swizzled<kRowChunks>(row + r, lane), from + r * work.rank, valid && column < work.rank);
      copy_async(base + swizzled<kRowChunks>(row + r, lane + 32), from + r * work.rank + 256, valid && column + 256 < work.rank);
    }
#pragma unroll
    for (int r = 0; r < kEach; r += 4)
      if (r + narrow_row < kEach) {
        const int its = row + r + narrow_row;
        const std::uint16_t* at =
            static_cast<const std::uint16_t*>(narrow) + (before + first + its) * work.rope_dim + narrow_column;
        copy_async(base + swizzled<kRowChunks>(its, Shape::kRankChunks + lane % 8), at,
                   first + its < rows && narrow_column < work.rope_dim);
      }
  };
  int fill_unit = unit, fill_step = step, fill_slot = 0, fill_left = end - begin;
  const auto fill = [&] {
    if (fill_left > 0) {
      copy_rows(Shape::kFixedBytes + fill_slot * Shape::kSlotBytes, Count<kStepKeys>{}, work.c, work.k_rope,
                std::int64_t{fill_unit / work.row_chunks} * work.keys, fill_step * kStepKeys, work.keys);
      --fill_left;
      if (++fill_step == unit_steps) fill_step = 0, ++fill_unit;
    }
    commit_copies();  // also where empty, so that groups are counted alike
    fill_slot = fill_slot + 1 == work.slots ? 0 : fill_slot + 1;
  };
  const auto past_key = [&](int row) { return work.causal ? row % work.seq_q + work.keys - work.seq_q + 1 : work.keys; };

  const Place along = down_then_right(lane), across = right_then_down(lane);
  constexpr int kWarpRows = Shape::kWarpRows;
  const int row_tile = warp % 2 * kWarpRows, key_tile = warp / 2 % Shape::kKeyTiles, part = warp / 2 / Shape::kKeyTiles;
  constexpr int kPartSteps = kRowChunks / 2 / Shape::kDepthParts;
  float* const all_scores = shared_at<float>(Shape::kScores);
  float* const stats = shared_at<float>(Shape::kStats);
  // The thread's row of the softmax, and its share of the row's keys: pairs, side by side with those of the row's other threads.
  const int own_row = thread() / Shape::kRowThreads, own_thread = thread() % Shape::kRowThreads;
  constexpr int kOwnKeys = kStepKeys / Shape::kRowThreads;
  const auto own_key = [&](int i) { return (i / 2 * Shape::kRowThreads + own_thread) * 2 + i % 2; };

  int slot = 0;
  for (int left = end - begin, first_fill = 1; left > 0; step = 0, ++unit) {
    const int first_row = unit % work.row_chunks * kRows;
    const std::int64_t entry = unit / work.row_chunks;
    synchronize();  // the unit before has read the queries
    copy_rows(Shape::kQueries, Count<kRows>{}, work.q_latent, work.q_rope, entry * work.rows, first_row, work.rows);
    commit_copies();
    if (first_fill)
      for (int i = 0; i < work.slots - 1; ++i) fill();
    else
      wait_copies<0>();  // the queries are the youngest group
    first_fill = 0;

    float sums[kRowTiles][kDims][4] = {};
    float row_less = INFINITY, row_sum = 0.f;  // less: added to scaled scores, so that they are at most about 0

    for (; step < unit_steps && left > 0; ++step, --left) {
      wait_copies(work.slots - 2);
      synchronize();
      fill();
      const std::uint32_t tile = shared_address(Shape::kFixedBytes + slot * Shape::kSlotBytes);
      slot = slot + 1 == work.slots ? 0 : slot + 1;

      float scores[kWarpRows][2][4] = {};
#pragma unroll 3
      for (int s = part * kPartSteps; s < (part + 1) * kPartSteps; ++s) {
        std::uint32_t b[4];
        load_matrices(b, tile + swizzled<kRowChunks>(16 * key_tile + across.row, 2 * s + across.column));
#pragma unroll
        for (int m = 0; m < kWarpRows; ++m) {
          const int row = 16 * (row_tile + m) + along.row;
          std::uint32_t a[4];
          load_matrices(a, shared_address(Shape::kQueries) + swizzled<kRowChunks>(row, 2 * s + along.column));
          multiply_add(T{}, scores[m][0], a, b[0], b[1]);
          multiply_add(T{}, scores[m][1], a, b[2], b[3]);
        }
      }
#pragma unroll
      for (int m = 0; m < kWarpRows; ++m)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const Place c = c_place(lane, i);
            const int row = part * kRows + 16 * (row_tile + m) + c.row;
            all_scores[row * Shape::kScorePitch + 16 * key_tile + 8 * n + c.column] = scores[m][n][i];
          }
      synchronize();

      float p[kOwnKeys];
      float most = -INFINITY;
      const int seen = past_key(first_row + own_row) - step * kStepKeys;
#pragma unroll
      for (int i = 0; i < kOwnKeys; ++i) {
        p[i] = 0.f;
#pragma unroll
        for (int other = 0; other < Shape::kDepthParts; ++other)
          p[i] += all_scores[(other * kRows + own_row) * Shape::kScorePitch + own_key(i)];
        if (own_key(i) >= seen) p[i] = -INFINITY;
        most = larger_of(most, p[i]);
      }
#pragma unroll
      for (int mask = 1; mask < Shape::kRowThreads; mask *= 2) most = larger_of(most, from_lane_xor(most, mask));
      // A block whose share begins late may see no key of an early query: less stays infinite, and sums 0.
      const float before = row_less;
      if (fused(most, work.scale, before) > kSlack) row_less = smaller_of(before, -most * work.scale);
      const float less = row_less == INFINITY ? 0.f : row_less, shrunk = row_less == before ? 1.f : exp2_of(row_less - before);
      row_sum *= shrunk;
#pragma unroll
      for (int i = 0; i < kOwnKeys; ++i) row_sum += p[i] = exp2_of(fused(p[i], work.scale, less));
#pragma unroll
      for (int i = 0; i < kOwnKeys; i += 2)
        *shared_at<std::uint32_t>(Shape::weights(own_row, 0) + own_key(i) * 2) = packed(T{}, p[i], p[i + 1]);
      if (own_thread == 0) stats[2 * own_row] = shrunk;
      synchronize();

      float factors[kRowTiles][2];
      bool grown = false;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          factors[m][half] = stats[2 * (16 * m + c_place(lane, 2 * half).row)];
          grown |= factors[m][half] != 1.f;
        }
      if (any_lane(grown)) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
          for (int d = 0; d < kDims; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][d][i] *= factors[m][i / 2];
      }
#pragma unroll
      for (int s = 0; s < Shape::kKeyTiles; ++s) {
        std::uint32_t a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
          load_matrices(a[m], shared_address(Shape::weights(16 * m + along.row, 2 * s + along.column)));
#pragma unroll
        for (int d = 0; d < kDims; d += 2) {
          std::uint32_t b[4];
          load_matrices_transposed(b, tile + swizzled<kRowChunks>(16 * s + along.row, warp * kDims + d + along.column));
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add(T{}, sums[m][d], a[m], b[0], b[1]);
            multiply_add(T{}, sums[m][d + 1], a[m], b[2], b[3]);
          }
        }
      }
    }

    // Sums of whole rows, then out or this block's part.
#pragma unroll
    for (int mask = 1; mask < Shape::kRowThreads; mask *= 2) row_sum += from_lane_xor(row_sum, mask);
    const int first = work.split.first_block(unit), last = work.split.last_block(unit);
    const std::int64_t place = std::int64_t{work.split.scratch(static_cast<int>(block()), unit)} * kRows;
    if (own_thread == 0) {
      stats[2 * own_row + 1] = row_sum;
      if (first != last) reinterpret_cast<TwoFloats*>(work.stats)[place + own_row] = {{-row_less, row_sum}};
    }
    synchronize();
    std::uint16_t* out = static_cast<std::uint16_t*>(work.out) + (entry * work.rows + first_row) * work.rank;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + c_place(lane, 2 * half).row;
        const float inverse = 1.f / stats[2 * row + 1];
#pragma unroll
        for (int d = 0; d < kDims; ++d) {
          const int column = (warp * kDims + d) * 8 + c_place(lane, 0).column;
          const float x = sums[m][d][2 * half], y = sums[m][d][2 * half + 1];
          if (first != last) {
            float* at = work.parts + (place + row) * Shape::kRank + column;
            at[0] = x, at[1] = y;
          } else if (first_row + row < work.rows && column < work.rank) {
            *reinterpret_cast<std::uint32_t*>(out + std::int64_t{row} * work.rank + column) = packed(T{}, x * inverse, y * inverse);
          }
        }
      }
    if (first == last || !last_to_arrive(work, unit, first, last, Shape::kFlag)) continue;
    for (int i = thread(); i < kRows * Shape::kRankChunks; i += kThreads) {
      const int row = i / Shape::kRankChunks, column = i % Shape::kRankChunks * 8;
      if (first_row + row >= work.rows || column >= work.rank) continue;
      store_added<T, kRows, Shape::kRank>(work, unit, first, last, row, column, out + std::int64_t{row} * work.rank + column);
    }
  }
  wait_copies<0>();
}

}  // namespace roofline::cuda
