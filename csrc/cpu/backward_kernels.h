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
  static constexpr int kQueries = 64;  // words of them that meet a key block together

  int lanes;
  int tile_width;
  int numbers;  // in a word: 1 of fp32, 2 of bf16
  std::int64_t (*workspace_floats)(std::int64_t key_block, std::int64_t head_dim);
  // delta[rows] = sum of out · dout over head_dim
  void (*deltas[kElements])(const void* out, const void* dout, std::int64_t rows, std::int64_t head_dim, float* delta);
  void (*gradients[kElements])(const BackwardPart&);
  // dq[rows, head_dim] = scale times the sum of parts[parts][rows, pitch], a part every `step` floats.
  void (*sum[kElements])(const float* parts, std::int64_t count, std::int64_t step, std::int64_t rows, std::int64_t head_dim,
                         float scale, void* dq);

  std::int64_t pitch(std::int64_t head_dim) const { return (head_dim + lanes - 1) / lanes * lanes; }
};

ROOFLINE_DECLARE_TABLES(BackwardKernels, backward);
// Products of bf16 pairs, for bf16.
extern const BackwardKernels backward_pairs_avx512_bf16;
extern const BackwardKernels backward_amx;

}  // namespace roofline::cpu
