// Attention in three passes through a score matrix, of one instruction set.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// Consecutive queries of one head, whose rows of the score matrix are theirs alone.
struct AttentionRows {
  const void* q;         // [rows, head_dim]
  const void* k;         // [seq_kv, head_dim]
  const void* v;         // [seq_kv, head_dim]
  void* scores;          // numbers [rows, seq_kv]
  void* workspace;       // numbers [workspace_numbers(rows, head_dim)], of the thread
  void* out;             // [rows, head_dim]
  float* logsumexp;      // [rows], or null
  std::int64_t rows;
  std::int64_t seq_kv;
  std::int64_t head_dim;
  std::int64_t visible;  // keys that the first query sees
  std::int64_t growth;   // how many more each next query sees: 1 if causal, else 0
  double scale;          // 1 / sqrt(head_dim)
};

struct AttentionNaiveKernels {
  static constexpr int kMaxLanes = 16;

  int tile_width;  // keys of a register tile
  void (*scores[kElements])(const AttentionRows&);  // q·kᵀ; of fp64 the first alone
  void (*softmax)(const AttentionRows&);
  void (*values[kElements])(const AttentionRows&);  // p·v
  int number_bytes;  // of a score

  // q or out of a block, in whole vectors, and a register tile's width of keys.
  std::int64_t workspace_numbers(std::int64_t rows, std::int64_t head_dim) const {
    return rows * head_dim + kMaxLanes + head_dim * tile_width;
  }
};

ROOFLINE_DECLARE_TABLES(AttentionNaiveKernels, attention_naive);
ROOFLINE_DECLARE_TABLES(AttentionNaiveKernels, attention_naive_doubles);

}  // namespace roofline::cpu
