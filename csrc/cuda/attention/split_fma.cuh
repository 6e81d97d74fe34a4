// The arithmetic of split_kv attention in fp32, on the CUDA cores: tf32 keeps 11 bits of a factor (see fp32.cuh).
//
// A key's scores: `kLanes` lanes share its dimensions, and with them the queries' in registers; each lane sums kLanes values (those
// of all rows, for as many keys as that makes), which are then added up over the lanes so that each ends with one of them. The
// probabilities pass through shared memory to lanes that each own four dimensions of the sums, or eight.
#pragma once

#include "cuda/attention/split_ring.cuh"

namespace roofline::cuda {

// Rows: 4 or 8. An item is 4 KB.
template <int Head, int Rows, int Warps = 8>
struct FmaShape : SplitLayout<Head, Rows, 1024 / Head, 4, 4, Warps * (1024 / Head) * Rows * 4, Warps> {
  static constexpr bool kLean = false;
  static constexpr const char* kArithmetic = "fma";
  static constexpr int kLanes = Head == 256 ? 32 : 8;  // of a key's scores
  static constexpr int kTogether = kLanes / Rows;      // keys of a lane at a time
  static constexpr int kRoundKeys = 32 / Rows;         // of a warp at a time
  static_assert(FmaShape::kWarpKeys % kRoundKeys == 0, "whole rounds");
  // Lanes read rows in order, eight of them 128 bytes at a time.
  ROOFLINE_HOST_DEVICE static constexpr int chunk_at(int row, int chunk) {
    return (row * FmaShape::kRowChunks + chunk) * kChunkBytes;
  }
};

// The sums over Count neighbouring lanes: lane i of them gets that of x[i], in x[0].
template <int Count>
ROOFLINE_DEVICE void add_lanes(float* x, int lane) {
  constexpr int kHalf = Count / 2;
  const bool upper = (lane & kHalf) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float given = upper ? x[i] : x[i + kHalf], kept = upper ? x[i + kHalf] : x[i];
    x[i] = kept + from_lane_xor(given, kHalf);
  }
  if constexpr (kHalf > 1) add_lanes<kHalf>(x, lane);
}

template <class ShapeOf>
struct SplitFma {
  using Shape = ShapeOf;
  using Result = float;
  static constexpr int kRows = Shape::kRows, kLanes = Shape::kLanes, kTogether = Shape::kTogether;
  static constexpr int kScores = Shape::kWarpKeys / Shape::kRoundKeys;         // of a lane and step
  static constexpr int kQueryVectors = Shape::kHeadDim / 4 / kLanes;           // of four dimensions
  static constexpr int kVectors = Shape::kHeadDim / 4 < 32 ? 1 : Shape::kHeadDim / 4 / 32;
  static constexpr int kSumLanes = Shape::kHeadDim / 4 / kVectors, kKeysAtOnce = 32 / kSumLanes;  // of the sums
  // Whether the next unit's queries are asked for early: as far as registers go.
  static constexpr bool kEarly = kRows * Shape::kHeadDim <= 1024;
  static constexpr int kQueryItems = (kRows * Shape::kRowChunks + Shape::kThreads - 1) / Shape::kThreads;

  const SplitWork& work;
  int lane, warp;
  FourFloats queries[kQueryVectors][kRows];
  FourFloats sums[kVectors][kRows];
  FourFloats early[kQueryItems];  // this thread's part of the next unit's queries
  float less, sum;  // of this lane's row, lane % kRows; less: added to scaled scores, so that they are at most about 0

  ROOFLINE_DEVICE explicit SplitFma(const SplitWork& given) : work(given), lane(thread() % 32), warp(thread() / 32) {}

  // Queries of a unit, zeros beyond its rows.
  ROOFLINE_DEVICE void ask_for_queries(int unit) {
    const int first = unit % work.row_chunks * kRows;
    const float* q = static_cast<const float*>(work.q) + (std::int64_t{unit / work.row_chunks} * work.rows + first) * work.head_dim;
#pragma unroll
    for (int n = 0; n < kQueryItems; ++n) {
      const int i = thread() + n * Shape::kThreads, row = i / Shape::kRowChunks, dim = i % Shape::kRowChunks * 4;
      early[n] = {};
      if (row < kRows && first + row < work.rows && dim < work.head_dim)
        early[n] = *reinterpret_cast<const FourFloats*>(q + std::int64_t{row} * work.head_dim + dim);
    }
  }
  ROOFLINE_DEVICE void store_queries(int unit) {
    if constexpr (!kEarly) ask_for_queries(unit);
#pragma unroll
    for (int n = 0; n < kQueryItems; ++n) {
      const int i = thread() + n * Shape::kThreads, row = i / Shape::kRowChunks;
      if (row < kRows) *shared_at<FourFloats>(Shape::kQueries + Shape::chunk_at(row, i % Shape::kRowChunks)) = early[n];
    }
  }
  ROOFLINE_DEVICE void begin_unit() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kQueryVectors; ++c)
        queries[c][r] = *shared_at<const FourFloats>(Shape::kQueries + Shape::chunk_at(r, c * kLanes + lane % kLanes));
#pragma unroll
      for (int c = 0; c < kVectors; ++c) sums[c][r] = {};
    }
    less = INFINITY, sum = 0.f;
  }

  // Where this warp's probabilities are, [kWarpKeys][kRows].
  ROOFLINE_DEVICE float* probabilities() { return shared_at<float>(Shape::kOwn) + warp * Shape::kWarpKeys * kRows; }
  // The key of a lane's score i, within the step's.
  ROOFLINE_DEVICE int key_of(int i) const {
    return i * Shape::kRoundKeys + lane % kLanes / kRows * (32 / kLanes) + lane / kLanes;
  }

  ROOFLINE_DEVICE void find_scores(float (&scores)[kScores], int keys) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      float partial[kLanes] = {};
#pragma unroll
      for (int t = 0; t < kTogether; ++t)
#pragma unroll
        for (int c = 0; c < kQueryVectors; ++c) {
          const int key = i * Shape::kRoundKeys + t * (32 / kLanes) + lane / kLanes;
          const FourFloats k = *shared_at<const FourFloats>(keys + Shape::chunk_at(key, c * kLanes + lane % kLanes));
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int d = 0; d < 4; ++d)
              partial[t * kRows + r] = fused(k.x[d], queries[c][r].x[d], partial[t * kRows + r]);
        }
      add_lanes<kLanes>(partial, lane);
      scores[i] = partial[0];
    }
  }

  ROOFLINE_DEVICE void softmax(float (&scores)[kScores], int unit, int key) {
    if (!work.all_seen(key, Shape::kWarpKeys)) {
      const int row = unit % work.row_chunks * kRows + lane % kRows, first = work.first_key(row), past = work.past_key(row);
#pragma unroll
      for (int i = 0; i < kScores; ++i)
        if (key + key_of(i) < first || key + key_of(i) >= past) scores[i] = -INFINITY;
    }
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < kScores; ++i) most = larger_of(most, scores[i]);
    if (any_lane(fused(most, work.scale, less) > kSlack)) {
#pragma unroll
      for (int mask = kRows; mask < 32; mask *= 2) most = larger_of(most, from_lane_xor(most, mask));
      // Until a warp has seen a key of this query, its sums are 0, and less stays infinite.
      const float now = smaller_of(less, -most * work.scale), shrunk = now == INFINITY ? 1.f : exp2_of(now - less);
      less = now;
      sum *= shrunk;
      if (lane < kRows) probabilities()[lane] = shrunk;
      synchronize_warp();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float its = probabilities()[r];
#pragma unroll
        for (int c = 0; c < kVectors; ++c)
#pragma unroll
          for (int d = 0; d < 4; ++d) sums[c][r].x[d] *= its;
      }
      synchronize_warp();
    }
    const float now = less == INFINITY ? 0.f : less;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float p = exp2_of(fused(scores[i], work.scale, now));
      sum += p;
      probabilities()[key_of(i) * kRows + lane % kRows] = p;
    }
  }

  ROOFLINE_DEVICE void add_values(int values) {
#pragma unroll
    for (int n = 0; n < Shape::kWarpKeys; n += kKeysAtOnce) {
      const int key = n + lane / kSumLanes;
      FourFloats p[kRows / 4], v[kVectors];
#pragma unroll
      for (int r = 0; r < kRows / 4; ++r) p[r] = *reinterpret_cast<const FourFloats*>(probabilities() + key * kRows + 4 * r);
#pragma unroll
      for (int c = 0; c < kVectors; ++c)
        v[c] = *shared_at<const FourFloats>(values + Shape::chunk_at(key, c * kSumLanes + lane % kSumLanes));
#pragma unroll
      for (int c = 0; c < kVectors; ++c)
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int d = 0; d < 4; ++d) sums[c][r].x[d] = fused(v[c].x[d], p[r / 4].x[r % 4], sums[c][r].x[d]);
    }
  }

  ROOFLINE_DEVICE void step(SplitRing<Shape>& ring, int unit, int key) {
    float scores[kScores];
    find_scores(scores, ring.next());
    softmax(scores, unit, key);
    add_values(ring.next());  // which waits for all lanes' probabilities too
  }

  ROOFLINE_DEVICE void leave_stats(TwoFloats* stats) {
#pragma unroll
    for (int mask = kRows; mask < 32; mask *= 2) sum += from_lane_xor(sum, mask);
    if (lane < kRows) stats[lane] = {{-less, sum}};
#pragma unroll
    for (int mask = kSumLanes; mask < 32; mask *= 2)
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int d = 0; d < 4; ++d) sums[0][r].x[d] += from_lane_xor(sums[0][r].x[d], mask);
  }
  // Writes the sums of the tiles from `first` on.
  ROOFLINE_DEVICE void leave_sums(float* mine, int first) {
#pragma unroll
    for (int c = 0; c < kVectors; ++c) {
      const int tile = c * 8 + lane % kSumLanes / 4 - first;
      if (tile >= 0 && tile < Shape::kMergedTiles && lane < kSumLanes)
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          *reinterpret_cast<FourFloats*>(mine + tile * Shape::kTileFloats + r * Shape::kPitch + lane % 4 * 4) = sums[c][r];
    }
  }
};

}  // namespace roofline::cuda
