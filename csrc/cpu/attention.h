// Attention on a CPU, for every operator that is one: what it asks for, and the two ways that take all of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/kernel.h"
#include "cpu/attention_tiled_kernels.h"
#include "cpu/elements.h"

namespace roofline::cpu {

class Device;

// Queries that share a KV head are its rows: group x seq_q. A key has head_dim columns and rope_dim more.
struct AttentionTask {
  std::string op;
  DType dtype;     // of q and out
  DType kv_dtype;  // of k, v and rope
  std::int64_t batch;
  std::int64_t kv_heads;
  std::int64_t rows;
  std::int64_t seq_q;
  std::int64_t keys;
  std::vector<std::int64_t> planned = {};  // keys that each sequence is planned to have; empty: all have `keys`
  std::int64_t head_dim;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim;               // columns of v and out
  bool causal = true;
  std::int64_t window = 0;              // keys that a query sees at most; 0: all
  std::int64_t page_size = 0;           // tokens of a page; 0: the cache lies in one piece
  double scale;                         // of scores
  double softcap = 0;                   // scores become softcap tanh(score / softcap); 0: they stay
  const void* q = nullptr;              // [batch, kv_heads, rows, head_dim], or with q_rope null [.., head_dim + rope_dim]
  const void* q_rope = nullptr;         // [batch, kv_heads, rows, rope_dim]
  const void* k = nullptr;              // [batch, kv_heads, keys, head_dim], or [pages, kv_heads, page_size, head_dim]
  const void* v = nullptr;              // as k, of value_dim columns
  const void* rope = nullptr;           // [batch, keys, rope_dim]: one for all KV heads
  const float* sinks = nullptr;         // [kv_heads, rows / seq_q], or null
  const std::int32_t* pages = nullptr;  // [batch, ceil(keys / page_size)], or null
  const std::int32_t* lengths = nullptr;  // [batch]: keys of each sequence, the first of its `keys`; null: all have `keys`
  void* out = nullptr;                  // as q, of value_dim columns
  float* logsumexp = nullptr;           // [batch, kv_heads, rows], or null

  std::int64_t group() const { return rows / seq_q; }
  std::int64_t pages_each() const { return page_size ? (keys + page_size - 1) / page_size : 0; }
  std::int64_t keys_of(std::int64_t sequence) const {
    return lengths ? std::clamp<std::int64_t>(lengths[sequence], seq_q, keys) : keys;  // whatever it holds, in bounds
  }
  std::int64_t planned_keys(std::int64_t sequence) const { return planned.empty() ? keys : planned[sequence]; }
  // The row of the cache where a KV head (of batch x kv_heads) begins; with pages, within each page.
  std::int64_t first_key(std::int64_t head) const { return pages ? head % kv_heads * page_size : head * keys; }
};

// What every operator of attention says alike: `keys` keys and values of `columns` columns, and scores over the root of `scaled`.
template <class Problem>
AttentionTask common_task(const Problem& problem, std::int64_t kv_heads, std::int64_t keys, std::int64_t columns,
                          std::int64_t scaled) {
  return {.op = Problem::op, .dtype = problem.dtype, .kv_dtype = problem.dtype, .batch = problem.batch, .kv_heads = kv_heads,
          .rows = problem.heads / kv_heads * problem.seq_q, .seq_q = problem.seq_q, .keys = keys, .head_dim = columns,
          .value_dim = columns, .scale = 1 / std::sqrt(static_cast<double>(scaled)), .out = problem.out};
}

// A thread takes a range of the keys of one KV head, read once; who ends the last range adds up. Throws Unsupported for many
// queries and for elements that the kernels do not read.
Bound split_kv(const AttentionTask& task, Device& device);

// A thread takes a block of queries of one KV head over all its keys. Throws Unsupported for elements that the kernels do not read.
// kv_block: keys that meet all queries of a block at a time; 0: as many as are quickest.
Bound tiled(const AttentionTask& task, Device& device, std::int64_t kv_block = 0);

// A task of the same dtypes and columns on memory of its own, for trials: one KV head a thread, each with `rows` queries and `keys`
// keys, without a mask.
struct TrialTask {
  AttentionTask task;
  std::vector<std::shared_ptr<void>> memory;
};
TrialTask trial_task(const AttentionTask& task, std::int64_t rows, std::int64_t keys, Device& device);

// The fastest kernels of `tiled` for these elements.
Choice<AttentionTiledKernels> choose_tiled(DType dtype, Element queries, Cached::Element cache);
// Keys that they take at a time, without remainder tiles: at most 256, as many as half of L2 holds of K, V and scores, and as many
// weights as two thirds of L1 hold, unless those are fewer than 128: then weights pass through L1, and long blocks cost less.
std::int64_t kv_block_of(const AttentionTask& task, const AttentionTiledKernels& table, const Device& device);

// common_block: what all blocks of queries share, and how `table` reads keys and values. block_of: the same with the keys and
// values of one KV head, of batch x kv_heads.
AttentionBlock common_block(const AttentionTask& task, const AttentionTiledKernels& table, Cached::Element cache,
                            std::int64_t kv_block);
AttentionBlock block_of(const AttentionBlock& common, const AttentionTask& task, std::int64_t head);

// The elements of a task, of fp64 the first. Throw Unsupported for others.
Element queries_of(const AttentionTask& task);
Cached::Element cache_of(const AttentionTask& task);

// `bytes` into memory; null stays null.
inline const void* at(const void* memory, std::int64_t bytes) {
  return memory ? static_cast<const char*>(memory) + bytes : nullptr;
}
inline void* at(void* memory, std::int64_t bytes) { return memory ? static_cast<char*>(memory) + bytes : nullptr; }

}  // namespace roofline::cpu
