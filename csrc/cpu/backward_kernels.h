// Gradients of attention of one instruction set: a range of the keys of one KV head against all queries that see them.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// The query heads of one KV head, and its key blocks number first_block, first_block + blocks_step, ...
struct BackwardPart {
  const void* q;           // [group seq_q, head_dim]
  const void* k;           // [seq_kv, head_dim]
  const void* v;           // as k
  const void* dout;        // as q
  const float* logsumexp;  // [group seq_q]
  const float* delta;      // [group seq_q]; out · dout
  void* dk;                // as k
  void* dv;                // as k
  float* dq;               // [group seq_q, pitch], what these keys add; not scaled
  float* workspace;        // [workspace_floats(key_block, head_dim)], of the thread, 64-byte aligned
  std::int64_t group;
  std::int64_t seq_q;
  std::int64_t seq_kv;
  std::int64_t head_dim;
  std::int64_t key_block;  // a multiple of tile_width
  std::int64_t first_block;
  std::int64_t blocks_step;
  float scale;  // 1 / sqrt(head_dim)
  bool causal;
};

struct BackwardKernels {
  static constexpr int kQueries = 64;  // that meet a key block together

  int lanes;
  int tile_width;
  // delta[rows] = sum of out · dout over head_dim
  void (*deltas[kElements])(const void* out, const void* dout, std::int64_t rows, std::int64_t head_dim, float* delta);
  void (*gradients[kElements])(const BackwardPart&);
  // dq[rows, head_dim] = scale times the sum of parts[parts][rows, pitch], a part every `step` floats.
  void (*sum[kElements])(const float* parts, std::int64_t count, std::int64_t step, std::int64_t rows, std::int64_t head_dim,
                         float scale, void* dq);

  std::int64_t pitch(std::int64_t head_dim) const { return (head_dim + lanes - 1) / lanes * lanes; }
  // K and V transposed, K, dk and dv; queries and dout; two matrices of scores.
  std::int64_t workspace_floats(std::int64_t key_block, std::int64_t head_dim) const {
    return key_block * (2 * head_dim + 3 * pitch(head_dim) + 2 * kQueries) + 2 * kQueries * pitch(head_dim);
  }
};

ROOFLINE_DECLARE_TABLES(BackwardKernels, backward);

}  // namespace roofline::cpu
