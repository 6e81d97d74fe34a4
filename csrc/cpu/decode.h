// Attention of few queries on a CPU, for every operator that is one.
#pragma once

#include "core/kernel.h"
#include "ops/attention.h"

namespace roofline::cpu {

class Device;

// What these operators ask for. Queries that share a KV head are its rows: group x seq_q.
struct Decode {
  std::string name;  // of operator and variant, for what they refuse
  DType dtype;       // of q and out
  DType kv_dtype;    // of k, v and rope
  std::int64_t batch;
  std::int64_t kv_heads;
  std::int64_t rows;
  std::int64_t seq_q;
  std::int64_t keys;
  std::int64_t head_dim;
  std::int64_t rope_dim = 0;            // more columns of queries and keys
  bool causal;
  std::int64_t window = 0;              // keys that a query sees at most; 0: all
  std::int64_t page_size = 0;           // tokens of a page; 0: the cache lies in one piece
  double scale;                         // of scores
  const void* q;                        // [batch, kv_heads, rows, head_dim]
  const void* q_rope = nullptr;         // [batch, kv_heads, rows, rope_dim]
  const void* k;                        // [batch, kv_heads, keys, head_dim], or [pages, kv_heads, page_size, head_dim]
  const void* v;                        // as k
  const void* rope = nullptr;           // [batch, kv_heads, keys, rope_dim]
  const float* sinks = nullptr;         // [kv_heads, rows / seq_q], or null
  const std::int32_t* pages = nullptr;  // [batch, ceil(keys / page_size)], or null
  void* out;                            // as q
};

// A thread takes a range of the keys of one KV head, read once; who ends the last range adds up. Throws Unsupported for many
// queries and for elements that the kernels do not read.
Bound decode(const Decode& problem, Device& device);

Bound split_kv(const ops::Attention& problem, Device& device);

}  // namespace roofline::cpu
