// The body of tiled attention in fp32, on the CUDA cores.
//
// Not on tensor cores: one tf32 product keeps 11 bits of a factor, and three of them per product (3xTF32) are slower than fused
// multiply-adds where tf32 runs at the rate of fp32 (sm_86, 89, 120) and gain at most a factor of two elsewhere, at another
// rounding. A block of 256 threads takes 128 queries over all keys they see, `Keys` at a time: each thread keeps 8 x Keys / 16
// scores and 8 x HeadDim / 16 sums in registers; Q and K, 16 dimensions at a time, and V, 16 or 8 keys at a time, pass through two
// buffers in shared memory, one of them filled while the other is used; probabilities stay there. Any head_dim up to HeadDim.
#pragma once

#include "cuda/attention/tiled.cuh"

namespace roofline::cuda {

template <int Head, int Keys>
struct Fp32Shape {
  static constexpr int kHeadDim = Head;
  static constexpr int kSide = 16;  // threads along rows and along columns
  static constexpr int kThreads = kSide * kSide;
  static constexpr int kBlockQ = 128;
  static constexpr int kBlockKv = Keys;
  static constexpr int kDepth = Head == 256 ? 8 : 16;  // keys of V per step; of Q and K 16 dimensions
  // Rows padded by four floats: reads of 16 bytes stay aligned, and writes spread over the banks.
  static constexpr int kRowPitch = kBlockQ + 4, kKeyPitch = kBlockKv + 4, kDimPitch = Head + 4;
  static constexpr int kProbabilities = 0;                           // [kBlockKv][kRowPitch]
  static constexpr int kBuffers = kBlockKv * kRowPitch * 4;          // two of
  static constexpr int kRight = 16 * kRowPitch * 4;  // Q [16][kRowPitch], then K [16][kKeyPitch]; or V [kDepth][kDimPitch]
  static constexpr int kBufferBytes = kRight + 16 * kKeyPitch * 4;
  static constexpr int kSharedBytes = kBuffers + 2 * kBufferBytes;
  static_assert(kDepth * kDimPitch * 4 <= kBufferBytes, "V fits where Q and K were");
};

// Where number i of a thread lies along its side of a tile: groups of four neighbours, 64 apart.
ROOFLINE_HOST_DEVICE constexpr int fp32_place(int i, int at) { return i / 4 * 64 + at * 4 + i % 4; }

// sums += left right, over `Depth` rows of tiles in shared memory: left [Depth][LeftPitch], right [Depth][RightPitch].
template <int Depth, int LeftPitch, int RightPitch, int Rows, int Columns>
ROOFLINE_DEVICE void multiply_shared(float (&sums)[Rows][Columns], int left_at, int right_at, int row, int column) {
  const float* left = shared_at<const float>(left_at) + row * 4;
  const float* right = shared_at<const float>(right_at) + column * 4;
#pragma unroll 4
  for (int depth = 0; depth < Depth; ++depth) {
    FourFloats a[Rows / 4], b[Columns / 4];
#pragma unroll
    for (int r = 0; r < Rows / 4; ++r) a[r] = *reinterpret_cast<const FourFloats*>(left + depth * LeftPitch + 64 * r);
#pragma unroll
    for (int c = 0; c < Columns / 4; ++c) b[c] = *reinterpret_cast<const FourFloats*>(right + depth * RightPitch + 64 * c);
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int c = 0; c < Columns; ++c) sums[r][c] = fused(a[r / 4].x[r % 4], b[c / 4].x[c % 4], sums[r][c]);
  }
}

template <class Shape>
ROOFLINE_DEVICE void fp32_attention(const TiledWork& work) {
  constexpr int kThreads = Shape::kThreads, kBlockQ = Shape::kBlockQ, kBlockKv = Shape::kBlockKv, kColumns = Shape::kHeadDim / 16;
  constexpr int kKeys = kBlockKv / 16;  // of a thread
  const int row = thread() / Shape::kSide, column = thread() % Shape::kSide;
  const QueryBlock at = query_block(work.tiling, block(), kBlockQ);
  const int first = static_cast<int>(at.row), unit_rows = static_cast<int>(work.tiling.unit_rows), dims = work.head_dim;
  const std::int64_t kv_elements = std::int64_t{work.seq_kv} * dims;
  const float* q = static_cast<const float*>(work.q) + at.unit * unit_rows * dims;
  const float* k = static_cast<const float*>(work.k) + at.unit / work.tiling.units_per_kv * kv_elements;
  const float* v = static_cast<const float*>(work.v) + at.unit / work.tiling.units_per_kv * kv_elements;
  const SeenKeys seen = {unit_rows, work.seq_q, work.seq_kv, work.causal};
  const int keys = seen.most(first, kBlockQ), whole_keys = seen.fewest(first, kBlockQ);

  // Items follow each other through the buffers: the steps of q kᵀ, then those of p v, for every tile of keys.
  const int score_steps = (dims + 15) / 16;
  constexpr int kValueSteps = kBlockKv / Shape::kDepth;
  const auto fill = [&](int key, int step, int buffer) {
    if (key < keys) {
      const std::uint32_t to = shared_address(Shape::kBuffers + buffer * Shape::kBufferBytes);
      if (step < score_steps) {
        const int d = thread() % 16, dim = 16 * step + d;
#pragma unroll 4
        for (int r = thread() / 16; r < kBlockQ; r += kThreads / 16) {
          const bool valid = first + r < unit_rows && dim < dims;
          copy_word_async(to + 4 * (d * Shape::kRowPitch + r), valid ? q + std::int64_t{first + r} * dims + dim : q, valid);
        }
#pragma unroll 4
        for (int c = thread() / 16; c < kBlockKv; c += kThreads / 16) {
          const bool valid = key + c < work.seq_kv && dim < dims;
          copy_word_async(to + Shape::kRight + 4 * (d * Shape::kKeyPitch + c), valid ? k + std::int64_t{key + c} * dims + dim : k,
                          valid);
        }
      } else {
#pragma unroll 4
        for (int i = thread(); i < Shape::kDepth * Shape::kHeadDim; i += kThreads) {
          const int j = i / Shape::kHeadDim, d = i % Shape::kHeadDim, from = key + (step - score_steps) * Shape::kDepth + j;
          const bool valid = from < work.seq_kv && d < dims;
          copy_word_async(to + 4 * (j * Shape::kDimPitch + d), valid ? v + std::int64_t{from} * dims + d : v, valid);
        }
      }
    }
    commit_copies();
  };
  int buffer = 0;
  const auto next = [&](int key, int step) {  // waits for an item, and begins the one after it
    wait_copies<0>();
    synchronize();
    const bool ends = step + 1 == score_steps + kValueSteps;
    fill(ends ? key + kBlockKv : key, ends ? 0 : step + 1, 1 - buffer);
    buffer = 1 - buffer;
    return Shape::kBuffers + (1 - buffer) * Shape::kBufferBytes;
  };
  fill(0, 0, 0);

  float sums[8][kColumns] = {};
  float row_max[8], row_sum[8];
#pragma unroll
  for (int r = 0; r < 8; ++r) row_max[r] = -INFINITY, row_sum[r] = 0.f;

  for (int key = 0; key < keys; key += kBlockKv) {
    float scores[8][kKeys] = {};
    for (int step = 0; step < score_steps; ++step) {
      const int at_step = next(key, step);
      multiply_shared<16, Shape::kRowPitch, Shape::kKeyPitch>(scores, at_step, at_step + Shape::kRight, row, column);
    }
    if (key + kBlockKv > whole_keys) {
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        const int left = seen.of(first + fp32_place(r, row)) - key;
#pragma unroll
        for (int c = 0; c < kKeys; ++c)
          if (fp32_place(c, column) >= left) scores[r][c] = -INFINITY;
      }
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      float max = row_max[r];
#pragma unroll
      for (int c = 0; c < kKeys; ++c) max = larger_of(max, scores[r][c]);
#pragma unroll
      for (int half = 8; half > 0; half /= 2) max = larger_of(max, from_lane_xor(max, half));  // 16 lanes share a row
      // Every row sees the first key, so that max is finite from the first tile on.
      const float shrunk = exp2_of((row_max[r] - max) * work.scale);
      row_max[r] = max;
      row_sum[r] *= shrunk;
#pragma unroll
      for (int c = 0; c < kKeys; ++c) {
        scores[r][c] = exp2_of((scores[r][c] - max) * work.scale);
        row_sum[r] += scores[r][c];
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[r][c] *= shrunk;
    }
#pragma unroll
    for (int c = 0; c < kKeys; ++c)
#pragma unroll
      for (int r = 0; r < 8; r += 4)
        *reinterpret_cast<FourFloats*>(shared_at<float>(Shape::kProbabilities) + fp32_place(c, column) * Shape::kRowPitch +
                                       fp32_place(r, row)) = {{scores[r][c], scores[r + 1][c], scores[r + 2][c], scores[r + 3][c]}};
    for (int step = 0; step < kValueSteps; ++step) {
      const int at_step = next(key, score_steps + step);
      multiply_shared<Shape::kDepth, Shape::kRowPitch, Shape::kDimPitch>(
          sums, Shape::kProbabilities + step * Shape::kDepth * Shape::kRowPitch * 4, at_step, row, column);
    }
  }
  wait_copies<0>();

  float* out = static_cast<float*>(work.out) + at.unit * unit_rows * dims;
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    float sum = row_sum[r];
#pragma unroll
    for (int half = 8; half > 0; half /= 2) sum += from_lane_xor(sum, half);
    const int i = first + fp32_place(r, row);
    if (i >= unit_rows) continue;
    const float inverse = 1.f / sum;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = fp32_place(c, column);
      if (d < dims) out[std::int64_t{i} * dims + d] = sums[r][c] * inverse;
    }
  }
}

}  // namespace roofline::cuda
