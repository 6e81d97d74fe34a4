// The attention kernels of one instruction set, fp32.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

// Naive: consecutive queries of one head, whose rows of the score matrix are theirs alone.
struct AttentionRows {
  const float* q;        // [rows, head_dim]
  const float* k;        // [seq_kv, head_dim]
  const float* v;        // [seq_kv, head_dim]
  float* scores;         // [rows, seq_kv]
  float* panel;          // [head_dim, tile_width], of the thread
  float* out;            // [rows, head_dim]
  std::int64_t rows;
  std::int64_t seq_kv;
  std::int64_t head_dim;
  std::int64_t visible;  // keys that the first query sees
  std::int64_t growth;   // how many more each next query sees: 1 if causal, else 0
  float scale;           // 1 / sqrt(head_dim)
};

// Tiled: consecutive queries of the heads that share one KV head.
struct AttentionBlock {
  const float* q;          // [rows, head_dim]
  const float* k;          // [seq_kv, head_dim]
  const float* v;          // [seq_kv, head_dim]
  float* out;              // [rows, head_dim]
  float* workspace;        // [workspace_floats(query_block, kv_block, head_dim)], 64-byte aligned
  std::int64_t rows;       // at most kMaxQueryBlock
  std::int64_t first_row;  // of the KV head's group: row r is query r mod seq_q
  std::int64_t seq_q;
  std::int64_t seq_kv;
  std::int64_t head_dim;
  std::int64_t kv_block;
  float scale;  // log2(e) / sqrt(head_dim)
  bool causal;
};

struct AttentionKernels {
  static constexpr int kMaxQueryBlock = 64;

  int lanes;       // queries of one vector: a query block is a multiple of it
  int tile_rows;   // keys, or columns of V, of a register tile
  int tile_width;  // queries of a register tile
  void (*scores)(const AttentionRows&);   // q·kᵀ
  void (*softmax)(const AttentionRows&);
  void (*values)(const AttentionRows&);   // p·v
  void (*tiled)(const AttentionBlock&);

  std::int64_t workspace_floats(std::int64_t query_block, std::int64_t kv_block, std::int64_t head_dim) const {
    const std::int64_t width = query_block < tile_width ? query_block : tile_width;
    return query_block * (2 * head_dim + 3) + kv_block * width;
  }
};

ROOFLINE_DECLARE_TABLES(AttentionKernels, attention);

}  // namespace roofline::cpu
