// Attention by blocks of queries that walk over their keys, of one instruction set.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// Consecutive queries of the heads that share one KV head. A key has head_dim columns and rope_dim more; row i of k, v and rope is
// key i, unless pages say otherwise.
struct AttentionBlock {
  const void* q;             // [rows, head_dim + rope_dim]
  const void* k;             // [.., head_dim]
  const void* rope;          // [.., rope_dim]; null where rope_dim is 0
  const void* v;             // [.., value_dim]
  void* out;                 // [rows, value_dim]
  float* logsumexp;          // [rows], of the scores; null: it is not written
  const float* sinks;        // of each seq_q rows of the group a score of no key, or null
  const std::int32_t* pages;  // page of every page_size keys, or null
  std::int64_t page_size;
  std::int64_t page_rows;    // rows of k from a page to the next
  void* workspace;           // words [workspace_words(query_block, ...)], 64-byte aligned
  std::int64_t rows;         // at most kMaxQueryBlock
  std::int64_t first_row;    // of the KV head's group: row r is query r mod seq_q
  std::int64_t seq_q;
  std::int64_t seq_kv;
  std::int64_t head_dim;
  std::int64_t rope_dim;
  std::int64_t value_dim;
  std::int64_t kv_block;
  std::int64_t window;       // keys that a query sees at most
  Cached::Element element;   // of k, rope and v
  bool key_panel;            // keys, and values, are gathered; others lie as the kernel's words, and are read where they lie
  bool value_panel;
  bool causal;
  double scale;              // of scores, times log2(e) and the unit
  double unit;               // what an element of k and v counts
  double softcap;            // in units of log2; 0: none
  std::int64_t first = 0;    // a range of the keys: others are not seen
  std::int64_t last = INT64_MAX;
  // [rows], if not null: out is fp32 and not divided by the sum, both relative to 2^top. -infinity and 0 where a row sees no key.
  float* top = nullptr;
  float* sum = nullptr;
  const void* next_q = nullptr;  // what the thread meets next, of as many rows, is prefetched
  const void* next_k = nullptr;
};

struct AttentionTiledKernels {
  static constexpr int kMaxQueryBlock = 256;

  int lanes;       // queries of one vector: a query block is a multiple of it
  int tile_rows;   // keys, or columns of V, of a register tile
  int tile_width;  // queries of a register tile, or columns of V
  int numbers;     // of K, V, Q and P in a word: 1 of fp32 or fp64, 2 of bf16
  int columns;     // words of a key come in multiples of it
  void (*of[kElements])(const AttentionBlock&);  // by the element of q and out; of fp64 the first
  int word_bytes = 4;
  bool trims = true;  // each vector of queries meets the keys that it sees, else those that its register tile does
  // Whether queries lie in rows: as few as half a vector are then computed at full rate. Null: they never do.
  bool (*in_rows)(std::int64_t rows, std::int64_t head_dim, std::int64_t rope_dim, std::int64_t value_dim, bool pages) = nullptr;

  // Queries that the kernel computes together when `rows` of a block remain: whole vectors, and the last ones computed for nothing.
  std::int64_t chunk(std::int64_t rows) const { return rows <= lanes ? lanes : rows <= 2 * lanes ? 2 * lanes : tile_width; }

  // Whether keys are gathered: they are not where they lie in one piece and as the words that the kernel reads.
  bool gathers_keys(Cached::Element cache, std::int64_t key_dim, std::int64_t rope_dim, bool pages) const {
    const bool words = numbers == 1 ? cache == Cached::fp32 : columns == 1 && key_dim % numbers == 0 && rope_dim % numbers == 0;
    return !words || pages;
  }
  // Whether values are: they are not where they lie in one piece, as the kernel's numbers and in whole vectors.
  bool gathers_values(Cached::Element cache, std::int64_t value_dim, bool pages) const {
    return numbers > 1 || cache != Cached::fp32 || pages || value_dim % lanes != 0;
  }
  // key_panel, value_panel: whether keys, and values, are gathered.
  std::int64_t workspace_words(std::int64_t query_block, std::int64_t kv_block, std::int64_t key_dim, std::int64_t value_dim,
                                bool key_panel, bool value_panel) const {
    const std::int64_t width = query_block < tile_width ? query_block : tile_width;
    const std::int64_t key_words = words(key_dim, numbers, columns), value_columns = words(value_dim, 1, lanes);
    const std::int64_t scores = kv_block * (width + 64 / word_bytes);
    return query_block * (key_words + value_columns + 5) + scores + (columns > 1 ? scores / numbers : 0) +  // and weights
           (key_panel ? panel_words(kv_block, key_words) : 0) +
           (value_panel ? panel_words((kv_block + numbers - 1) / numbers, value_columns + (numbers > 1 ? tile_width : 0)) : 0);
  }
  // Words that hold n numbers, rounded up to a multiple of `columns`.
  // Inlined where the sanitizers redefine always_inline, too: these are shared by sets of instructions.
  [[gnu::__always_inline__]] static std::int64_t words(std::int64_t n, std::int64_t numbers, std::int64_t columns) {
    return ((n + numbers - 1) / numbers + columns - 1) / columns * columns;
  }
  // K or V of a block of keys in words; a multiple of a cache line.
  [[gnu::__always_inline__]] static std::int64_t panel_words(std::int64_t kv_block, std::int64_t columns) {
    return (kv_block * columns + 15) / 16 * 16;
  }
};

ROOFLINE_DECLARE_TABLES(AttentionTiledKernels, attention_tiled);
ROOFLINE_DECLARE_TABLES(AttentionTiledKernels, attention_doubles);
// Products of bf16 pairs, for queries and a cache of bf16.
extern const AttentionTiledKernels attention_pairs_avx512_bf16;
extern const AttentionTiledKernels attention_amx;

}  // namespace roofline::cpu
