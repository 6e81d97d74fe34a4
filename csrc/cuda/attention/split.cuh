// The body of split_kv attention: few queries over many keys, bound by reading K and V.
//
// All steps over the keys of all units (a KV head of a batch entry with a shape's rows of its queries) stand in one line, and each
// block takes an equal share (KvSplit). Each warp takes its own keys of a step: it copies them into a ring of its own
// (SplitRing), slots - 1 items ahead and across units, and waits for nobody until a unit ends. What it does with them is the
// arithmetic's (SplitMma, SplitFma). At a unit's end the warps add up through shared memory. A unit that several blocks share goes
// to memory in parts, and the last block to arrive adds them up; the counter it used is then 0 again.
#pragma once

#include "cuda/attention/split_fma.cuh"
#include "cuda/attention/split_mma.cuh"

namespace roofline::cuda {

// Four numbers from element `at` on, a multiple of 4.
ROOFLINE_DEVICE void store_four(float, void* to, std::int64_t at, float a, float b, float c, float d) {
  *reinterpret_cast<FourFloats*>(static_cast<float*>(to) + at) = {{a, b, c, d}};
}
template <class T>
ROOFLINE_DEVICE void store_four(T type, void* to, std::int64_t at, float a, float b, float c, float d) {
  TwoWords words = {{packed(type, a, b), packed(type, c, d)}};
  *reinterpret_cast<TwoWords*>(static_cast<std::uint16_t*>(to) + at) = words;
}

template <class Arithmetic>
struct SplitAttention {
  using Shape = typename Arithmetic::Shape;
  using Result = typename Arithmetic::Result;
  static constexpr int kRows = Shape::kRows, kHeadDim = Shape::kHeadDim, kRowTiles = (kRows + 7) / 8;

  const SplitWork& work;
  Arithmetic own;

  ROOFLINE_DEVICE explicit SplitAttention(const SplitWork& given) : work(given), own(given) {}

  // Four neighbouring results of one query.
  ROOFLINE_DEVICE void write(int unit, int row, int dim, const float* x, float total_max, float total) {
    if (dim >= work.head_dim) return;
    const int kv_head = unit / work.row_chunks, at = unit % work.row_chunks * kRows + row;
    float factor = 1.f / total;
    if (work.sinks != nullptr) {
      const int heads = work.rows / work.seq_q;
      const float sink = work.sinks[kv_head % work.kv_heads * heads + at / work.seq_q] * 1.4426950408889634f;
      const float most = larger_of(total_max, sink), shrunk = exp2_of(total_max - most);
      factor = shrunk / fused(total, shrunk, exp2_of(sink - most));
    }
    store_four(Result{}, work.out, (std::int64_t{kv_head} * work.rows + at) * work.head_dim + dim, x[0] * factor, x[1] * factor,
               x[2] * factor, x[3] * factor);
  }

  // The warps' sums of a unit, added up: to out, or where other blocks have the rest, to memory. As add_parts, this runs seldom.
  ROOFLINE_DEVICE void finish(int unit) {
    const int first = work.split.first_block(unit), last = work.split.last_block(unit);
    const int place = work.split.scratch(static_cast<int>(block()), unit);
    const int rows_left = work.rows - unit % work.row_chunks * kRows, rows = rows_left < kRows ? rows_left : kRows;
    TwoFloats* stats = shared_at<TwoFloats>(Shape::kStats);  // maximum and sum
    own.leave_stats(stats + own.warp * kRows);
    constexpr int kTiles = kHeadDim / 16 * kRowTiles, kAtOnce = Shape::kMergedTiles;
#pragma unroll
    for (int round = 0; round < kTiles; round += kAtOnce) {
      if (round > 0) synchronize();  // the round before has been read
      own.leave_sums(shared_at<float>(Shape::kMerge) + own.warp * Shape::kMergeFloats, round);
      synchronize();
      const int own_thread = Shape::kLean ? fresh(thread()) : thread();
      const int t = own_thread / 32, column = own_thread / 4 % 8, quarter = own_thread % 4;
      const int row = (round + t) % kRowTiles * 8 + column, dim = (round + t) / kRowTiles * 16 + quarter * 4;
      if (t >= kAtOnce || row >= rows) continue;
      float most = -INFINITY, total = 0.f;
      FourFloats x = {};
#pragma unroll
      for (int w = 0; w < Shape::kWarps; ++w) most = larger_of(most, stats[w * kRows + row].x[0]);
#pragma unroll Shape::kLean ? 1 : Shape::kWarps
      for (int w = 0; w < Shape::kWarps; ++w) {
        const TwoFloats its = stats[w * kRows + row];
        const float weight = most == -INFINITY ? 0.f : exp2_of(its.x[0] - most);
        total = fused(its.x[1], weight, total);
        const FourFloats its_x =
            *shared_at<const FourFloats>(Shape::kMerge + 4 * (w * Shape::kMergeFloats + t * Shape::kTileFloats +
                                                              column * Shape::kPitch + quarter * 4));
#pragma unroll
        for (int i = 0; i < 4; ++i) x.x[i] = fused(its_x.x[i], weight, x.x[i]);
      }
      if (first == last) {
        write(unit, row, dim, x.x, most, total);
      } else {
        const std::int64_t at = std::int64_t{place} * kRows + row;
        *reinterpret_cast<FourFloats*>(work.parts + at * kHeadDim + dim) = x;
        if (dim == 0) reinterpret_cast<TwoFloats*>(work.stats)[at] = {{most, total}};
      }
    }
    if (first == last || !last_to_arrive(work, unit, first, last, Shape::kFlag)) return;
    constexpr int kColumns = kRows > 8 ? 8 : 4, kParts = kRows > 8 ? 8 : 18;
#pragma unroll 1
    for (int i = thread(); i < rows * (kHeadDim / kColumns); i += Shape::kThreads) {
      const int row = i / (kHeadDim / kColumns), dim = i % (kHeadDim / kColumns) * kColumns;
      const auto added = add_parts<kRows, kHeadDim, kColumns, kParts>(work, unit, first, last, row, dim);
#pragma unroll
      for (int four = 0; four < kColumns; four += 4) write(unit, row, dim + four, added.x + four, added.most, added.total);
    }
  }

  ROOFLINE_DEVICE void run(int unit, int step, int left) {
    SplitRing<Shape> ring(work, unit, step, left);
    if constexpr (Arithmetic::kEarly) own.ask_for_queries(unit);  // before all that the ring asks for
    ring.begin();
    const int unit_steps = work.split.unit_steps;
    while (left > 0) {
      synchronize();  // the unit before has been written
      own.store_queries(unit);
      synchronize();
      own.begin_unit();
      for (; step < unit_steps && left > 0; ++step, --left)
        own.step(ring, unit, step * Shape::kStepKeys + own.warp * Shape::kWarpKeys);
      if constexpr (Arithmetic::kEarly)
        if (left > 0) own.ask_for_queries(unit + 1);
      finish(unit);
      step = 0, ++unit;
    }
    wait_copies<0>();
  }
};

template <class Arithmetic>
ROOFLINE_DEVICE void split_attention(const SplitWork& work) {
  const int begin = work.split.begin(static_cast<int>(block())), count = work.split.begin(static_cast<int>(block()) + 1) - begin;
  const int unit = begin / work.split.unit_steps, step = begin % work.split.unit_steps;
  SplitAttention<Arithmetic>(work).run(unit, step, count);
}

}  // namespace roofline::cuda
