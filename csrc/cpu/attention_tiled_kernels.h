// Attention by blocks of queries that walk over their keys, of one instruction set.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// Consecutive queries of the heads that share one KV head.
struct AttentionBlock {
  const void* q;           // [rows, head_dim]
  const void* k;           // [seq_kv, head_dim]
  const void* v;           // [seq_kv, head_dim]
  void* out;               // [rows, head_dim]
  float* workspace;        // [workspace_floats(query_block, kv_block, head_dim, element)], 64-byte aligned
  std::int64_t rows;       // at most kMaxQueryBlock
  std::int64_t first_row;  // of the KV head's group: row r is query r mod seq_q
  std::int64_t seq_q;
  std::int64_t seq_kv;
  std::int64_t head_dim;
  std::int64_t kv_block;
  float scale;  // log2(e) / sqrt(head_dim)
  bool causal;
};

struct AttentionTiledKernels {
  static constexpr int kMaxQueryBlock = 128;

  int lanes;       // queries of one vector: a query block is a multiple of it
  int tile_rows;   // keys, or columns of V, of a register tile
  int tile_width;  // queries of a register tile
  void (*of[kElements])(const AttentionBlock&);

  // Queries that the kernel computes together when `rows` of a block remain: whole vectors, and the last ones computed for nothing.
  std::int64_t chunk(std::int64_t rows) const { return rows <= lanes ? lanes : rows <= 2 * lanes ? 2 * lanes : tile_width; }

  std::int64_t workspace_floats(std::int64_t query_block, std::int64_t kv_block, std::int64_t head_dim, Element element) const {
    const std::int64_t width = query_block < tile_width ? query_block : tile_width;
    const std::int64_t panels = element == kFp32 ? 0 : 2 * panel_floats(kv_block, head_dim);
    return query_block * (2 * head_dim + 3) + kv_block * width + panels;
  }
  // K or V of a block of keys in fp32; a multiple of a cache line.
  static std::int64_t panel_floats(std::int64_t kv_block, std::int64_t head_dim) { return (kv_block * head_dim + 15) / 16 * 16; }
};

ROOFLINE_DECLARE_TABLES(AttentionTiledKernels, attention_tiled);

}  // namespace roofline::cpu
