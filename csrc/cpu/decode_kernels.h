// Attention of few queries over many keys, fp32, of one instruction set: what a thread does with its range of keys.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

// A range of the keys of one KV head, and all queries of the heads that share it.
struct DecodePart {
  const float* q;            // [rows, head_dim]
  const float* k;            // [seq_kv, head_dim]
  const float* v;            // [seq_kv, head_dim]
  float* workspace;          // [workspace_floats(rows, head_dim)], of the thread
  float* out;                // [rows, head_dim]; not divided by the sum
  float* top;                // [rows]; highest score, in units of log2; -infinity where a row sees no key of the range
  float* sum;                // [rows]; of 2^(score - top)
  std::int64_t rows;
  std::int64_t head_dim;
  std::int64_t first, last;  // of the range
  std::int64_t seq_q;        // row r is query r mod seq_q
  std::int64_t visible;      // keys that the first query sees
  std::int64_t growth;       // how many more each next query sees: 1 if causal, else 0
  float scale;               // log2(e) / sqrt(head_dim)
};

// The results of all ranges of one KV head: parts lie one after the other.
struct DecodeParts {
  const float* out;  // [parts, rows, head_dim]
  const float* top;  // [parts, rows]
  const float* sum;  // [parts, rows]
  float* to;         // [rows, head_dim]
  std::int64_t parts;
  std::int64_t rows;
  std::int64_t head_dim;
};

struct DecodeKernels {
  static constexpr int kKeys = 128;  // of a block: its keys and values stay in the cache for all rows

  void (*attend)(const DecodePart&);
  void (*combine)(const DecodeParts&);

  static std::int64_t workspace_floats(std::int64_t rows, std::int64_t head_dim) { return rows * (head_dim + kKeys); }
};

ROOFLINE_DECLARE_TABLES(DecodeKernels, decode);

}  // namespace roofline::cpu
