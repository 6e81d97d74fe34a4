// The arithmetic of split_kv attention in 16 bits, on tensor cores.
//
// Keys are the rows of the products and queries the columns, so that 8 of them fill a tile: scores are k qᵀ, and transposed by
// movmatrix they are the second operand of vᵀ pᵀ. Caches of one byte a number are read as they are: pairs of bytes through
// ldmatrix, in an order that queries and results follow, and widened to fp16. Queries in bf16 then become fp16 too, each scaled by
// a power of two that its scores get back.
#pragma once

#include <type_traits>

#include "cuda/attention/split_ring.cuh"

namespace roofline::cuda {

enum class Cache : std::uint8_t { same, fp8_e4m3, int8 };  // what K and V hold: numbers as of q, or one byte each

// Tiles of 16 keys that a warp takes in a step: two where a row is short, as far as registers go.
constexpr int mma_key_tiles(Cache kind, int head, int head_tiles) {
  return head * (kind == Cache::same ? 2 : 1) <= 128 && head * head_tiles <= 256 ? 2 : 1;
}

template <Cache Kind, int Head, int HeadTileCount, int Warps = HeadTileCount == 1 && Head <= 128 ? 8 : 4>
struct SplitShape : SplitLayout<Head, 8 * HeadTileCount, 16 * mma_key_tiles(Kind, Head, HeadTileCount),
                                Kind == Cache::same ? 2 : 1, 2, Kind == Cache::same ? 0 : 32 * HeadTileCount, Warps> {
  static constexpr Cache kCache = Kind;
  static constexpr const char* kArithmetic = "mma";
  static constexpr int kHeadTiles = HeadTileCount;  // of 8 queries
  static constexpr int kKeyTiles = mma_key_tiles(Kind, Head, HeadTileCount);
  static constexpr bool kLean = HeadTileCount > 1;  // sums fill the registers: what follows from the lane is worked out anew
  ROOFLINE_HOST_DEVICE static constexpr int chunk_at(int row, int chunk) { return swizzled<SplitShape::kRowChunks>(row, chunk); }
};

// Four numbers of one byte each as pairs in fp16, which holds them all: 0 1 | 2 3, or where they alternate 0 2 | 1 3.
template <Cache Kind, bool Alternate>
ROOFLINE_DEVICE void widen(std::uint32_t (&pairs)[2], std::uint32_t bytes) {
  if constexpr (Kind == Cache::int8) {  // 1024 + 128 + x, whose lowest byte is 128 + x
    pairs[0] = plus(Fp16{}, bytes_of(bytes ^ 0x80808080u, 0x64646464u, Alternate ? 0x4240u : 0x4140u), 0xE480E480u);
    pairs[1] = plus(Fp16{}, bytes_of(bytes ^ 0x80808080u, 0x64646464u, Alternate ? 0x4341u : 0x4342u), 0xE480E480u);
  } else {
    from_e4m3(pairs, Alternate ? bytes_of(bytes, 0, 0x3120u) : bytes);
  }
}

template <class T, class ShapeOf>
struct SplitMma {
  using Shape = ShapeOf;
  using Result = T;
  static constexpr int kHeadTiles = Shape::kHeadTiles, kKeyTiles = Shape::kKeyTiles, kRowChunks = Shape::kRowChunks;
  static constexpr int kDimTiles = Shape::kHeadDim / 16, kRows = Shape::kRows, kQueryChunks = Shape::kHeadDim / 8;
  static constexpr bool kBytes = Shape::kCache != Cache::same, kScaled = kBytes && std::is_same_v<T, Bf16>;
  using Multiplied = std::conditional_t<kBytes, Fp16, T>;

  // Whether the queries' operands stay in registers, and the next unit's are asked for early: as far as registers go.
  static constexpr bool kKept = kHeadTiles == 1 && kDimTiles <= 8, kEarly = kHeadTiles == 1;
  static constexpr int kQueryItems = (kRows * kDimTiles + Shape::kThreads - 1) / Shape::kThreads;

  const SplitWork& work;
  int lane, warp;
  float sums[kDimTiles][kHeadTiles][4];
  float less[kHeadTiles][2], sum[kHeadTiles][2];  // less: added to scaled scores, so that they are at most about 0
  std::uint32_t kept[kKept ? kDimTiles : 1][kHeadTiles][2];
  Chunk early[kQueryItems][2];  // this thread's part of the next unit's queries

  ROOFLINE_DEVICE explicit SplitMma(const SplitWork& given) : work(given), lane(thread() % 32), warp(thread() / 32) {}

  ROOFLINE_DEVICE int own_lane() const { return Shape::kLean ? fresh(lane) : lane; }

  // Queries of a unit, zeros beyond its rows. Asked for while the unit before is being finished, stored when that has been.
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
  ROOFLINE_DEVICE void store_queries(int unit) {
    if constexpr (!kEarly) ask_for_queries(unit);
#pragma unroll
    for (int n = 0; n < kQueryItems; ++n) {
      const int i = thread() + n * Shape::kThreads, row = i / kDimTiles, tile = i % kDimTiles;
      if (row >= kRows) break;
      Chunk chunks[2] = {early[n][0], early[n][1]};
      if constexpr (kScaled) {
        float most = 0.f;
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          const std::uint32_t pair = chunks[w / 4].words[w % 4];
          most = larger_of(most, larger_of(as_float(pair << 16 & 0x7FFFFFFFu), as_float(pair & 0x7FFF0000u)));
        }
#pragma unroll
        for (int mask = 1; mask < kDimTiles; mask *= 2) most = larger_of(most, from_lane_xor(most, mask));
        // The largest gets the exponent 14: what lies below fp16's range is then nothing beside it.
        const std::uint32_t exponent = bits_of(most) >> 23, by = exponent < 15 ? 253 : 268 - exponent;
        const float factor = as_float(by << 23);
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          std::uint32_t& pair = chunks[w / 4].words[w % 4];
          pair = packed(Fp16{}, as_float(pair << 16) * factor, as_float(pair & 0xFFFF0000u) * factor);
        }
        if (tile == 0) shared_at<float>(Shape::kOwn)[row] = as_float((254 - by) << 23);
      }
      if constexpr (kBytes) {  // pairs: 0 2 4 6 | 1 3 5 7
        const Chunk a = chunks[0], b = chunks[1];
        chunks[0] = {{a.words[0], a.words[2], b.words[0], b.words[2]}};
        chunks[1] = {{a.words[1], a.words[3], b.words[1], b.words[3]}};
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) *shared_at<Chunk>(Shape::kQueries + swizzled<kQueryChunks>(row, 2 * tile + c)) = chunks[c];
    }
  }

  ROOFLINE_DEVICE void begin_unit() {
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
            std::uint32_t above[2], below[2];  // keys 0 ... 7 and 8 ... 15
            widen<Shape::kCache, false>(above, r[2 * half]);
            widen<Shape::kCache, false>(below, r[2 * half + 1]);
            const std::uint32_t a[4] = {above[0], below[0], above[1], below[1]};
#pragma unroll
            for (int h = 0; h < kHeadTiles; ++h) multiply_add(Multiplied{}, scores[m][h], a, b[half][h][0], b[half][h][1]);
          }
        } else {
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h) multiply_add(Multiplied{}, scores[m][h], r, b[0][h][0], b[0][h][1]);
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
            std::uint32_t left[2], right[2];  // keys 0 ... 7 and 8 ... 15
            widen<Shape::kCache, true>(left, r[2 * half]);
            widen<Shape::kCache, true>(right, r[2 * half + 1]);
            const std::uint32_t a[4] = {left[0], left[1], right[0], right[1]};
#pragma unroll
            for (int h = 0; h < kHeadTiles; ++h) multiply_add(Multiplied{}, sums[tile + half][h], a, p[m][h][0], p[m][h][1]);
          }
        } else {
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h) multiply_add(Multiplied{}, sums[tile][h], r, p[m][h][0], p[m][h][1]);
        }
      }
  }

  ROOFLINE_DEVICE float scale_of(int h, int j) const {
    if constexpr (!kScaled) return work.scale;
    return work.scale * shared_at<const float>(Shape::kOwn)[8 * h + c_place(lane, j).column];
  }

  ROOFLINE_DEVICE void softmax(float (&scores)[kKeyTiles][kHeadTiles][4], std::uint32_t (&p)[kKeyTiles][kHeadTiles][2], int unit,
                               int key) {
    if (!work.all_seen(key, Shape::kWarpKeys)) {
      const int first_row = fresh(unit) % work.row_chunks * kRows;
#pragma unroll
      for (int h = 0; h < kHeadTiles; ++h)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int row = first_row + 8 * h + c_place(lane, j).column;
          const int first = work.first_key(row), past = work.past_key(row);
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
        grown |= fused(most[j], scale_of(h, j), less[h][j]) > kSlack;
      }
      if (any_lane(grown)) {
        float shrunk[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int mask = 4; mask < 32; mask *= 2) most[j] = larger_of(most[j], from_lane_xor(most[j], mask));
          // Until a warp has seen a key of this query, its sums are 0, and less stays infinite.
          const float now = smaller_of(less[h][j], -most[j] * scale_of(h, j));
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
            sum[h][j] += scores[m][h][i] = exp2_of(fused(scores[m][h][i], scale_of(h, j), now));  // of this lane's keys so far
      }
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          p[m][h][half] = transposed(packed(Multiplied{}, scores[m][h][2 * half], scores[m][h][2 * half + 1]));
    }
  }

  ROOFLINE_DEVICE void step(SplitRing<Shape>& ring, int unit, int key) {
    const std::uint32_t keys = shared_address(ring.next());
    float scores[kKeyTiles][kHeadTiles][4] = {};
    add_scores(scores, keys);
    std::uint32_t p[kKeyTiles][kHeadTiles][2];
    softmax(scores, p, unit, key);
    add_values(p, shared_address(ring.next()));
  }

  // Writes the maximum and the sum of each query, as this warp has seen them.
  ROOFLINE_DEVICE void leave_stats(TwoFloats* stats) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float all = sum[h][j];
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) all += from_lane_xor(all, mask);
        if (lane < 4) stats[8 * h + c_place(lane, j).column] = {{-less[h][j], all}};
      }
  }
  // Writes the sums of the tiles from `first` on.
  ROOFLINE_DEVICE void leave_sums(float* mine, int first) {
    const int its_lane = own_lane();
#pragma unroll
    for (int t = 0; t < Shape::kMergedTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place c = c_place(its_lane, i);
        const int row = kBytes ? byte_row(c.row) : c.row;
        const float (&tile)[kHeadTiles][4] = sums[(first + t) / kHeadTiles];
        mine[t * Shape::kTileFloats + c.column * Shape::kPitch + row] = tile[(first + t) % kHeadTiles][i];
      }
    }
  }
};

}  // namespace roofline::cuda
