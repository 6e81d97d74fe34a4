// cached_attention: causal attention over a KV cache, of another dtype, within a window, with sinks, in pages, with capped scores,
// of sequences of several lengths.
#pragma once

#include <algorithm>

#include "ops/attention.h"

namespace roofline::ops {

struct CachedAttention {
  static constexpr const char* op = "cached_attention";

  DType dtype;
  DType kv_dtype;
  std::int64_t batch, heads, kv_heads, seq_q;
  std::int64_t keys;       // that some query sees; the last of seq_kv
  std::int64_t head_dim;
  std::int64_t window;     // keys that a query sees at most; 0: all
  std::int64_t page_size;  // tokens of a page; 0: the cache lies in one piece
  std::int64_t seq_kv;     // tokens of the longest sequence
  std::int64_t shortest;   // tokens of the shortest one, from which lengths are spread evenly up to seq_kv; 0: all are as long
  double softcap;          // scores become softcap tanh(score / softcap); 0: they stay
  const void* q = nullptr;           // [batch, heads, seq_q, head_dim]
  const void* k = nullptr;           // [batch, kv_heads, keys, head_dim], or [pages, kv_heads, page_size, head_dim]
  const void* v = nullptr;           // as k
  const float* sinks = nullptr;      // [heads], or null
  const void* page_table = nullptr;  // int32 [batch, ceil(keys / page_size)], or null: the page of every page_size keys
  const void* lengths = nullptr;     // int32 [batch], or null: tokens of each sequence, whose last keys come first in the cache
  void* out = nullptr;               // [batch, heads, seq_q, head_dim]

  std::int64_t group() const { return heads / kv_heads; }

  // Keys that a sequence is planned to have in the cache.
  std::int64_t planned_keys(std::int64_t sequence) const {
    if (shortest == 0 || batch == 1) return keys;
    return std::min(keys, shortest + (seq_kv - shortest) * sequence / (batch - 1));
  }

  // For kernels without them.
  void refuse_softcap_and_lengths(const char* variant) const {
    if (softcap == 0 && !lengths) return;
    throw Unsupported(std::string("cached_attention: ") + variant + " of this device " +
                      (lengths ? "takes sequences of one length; use shortest=0" : "does not cap scores; use softcap=0") +
                      ", or the CPU");
  }

  static CachedAttention from(const Arguments& arguments) {
    CachedAttention problem{};
    problem.dtype = arguments.dtype();
    problem.kv_dtype = dtype_named(arguments.text("kv_dtype"));
    arguments.dimensions({{"batch", &problem.batch}, {"heads", &problem.heads}, {"kv_heads", &problem.kv_heads},
                          {"seq_q", &problem.seq_q}, {"seq_kv", &problem.seq_kv}, {"head_dim", &problem.head_dim}});
    const std::int64_t seq_kv = problem.seq_kv;
    problem.window = arguments.integer("window");
    problem.page_size = arguments.integer("page_size");
    problem.shortest = arguments.integer("shortest");
    problem.softcap = arguments.number("softcap");
    if (!(problem.softcap >= 0))
      throw Error("cached_attention: softcap must be at least 0, got " + std::to_string(problem.softcap));
    if (problem.window < 0 || problem.page_size < 0)
      throw Error("cached_attention: window and page_size must be at least 0, got " + std::to_string(problem.window) + " and " +
                  std::to_string(problem.page_size));
    require_groups(op, problem.heads, problem.kv_heads);
    require_keys("cached_attention:", problem.seq_q, seq_kv);
    if (problem.shortest != 0 && (problem.shortest < problem.seq_q || problem.shortest > seq_kv))
      throw Error("cached_attention: shortest must be 0 or from seq_q " + std::to_string(problem.seq_q) + " to seq_kv " +
                  std::to_string(seq_kv) + ", got " + std::to_string(problem.shortest));
    const std::int64_t most = problem.window > 0 ? std::min(problem.window, seq_kv) : seq_kv;
    problem.keys = std::min(seq_kv, most + problem.seq_q - 1);
    const Shape queries = {problem.batch, problem.heads, problem.seq_q, problem.head_dim};
    Shape cache = {problem.batch, problem.kv_heads, problem.keys, problem.head_dim};
    if (problem.page_size > 0) {
      const std::int64_t each = (problem.keys + problem.page_size - 1) / problem.page_size;
      cache = {problem.batch * each, problem.kv_heads, problem.page_size, problem.head_dim};
      problem.page_table = arguments.tensor("page_table", DType::int32, {problem.batch, each}).data;
    }
    problem.q = arguments.tensor("q", problem.dtype, queries).data;
    problem.k = arguments.tensor("k", problem.kv_dtype, cache).data;
    problem.v = arguments.tensor("v", problem.kv_dtype, cache).data;
    if (problem.shortest > 0) problem.lengths = arguments.tensor("lengths", DType::int32, {problem.batch}).data;
    if (arguments.flag("sinks")) problem.sinks = arguments.tensor("sinks", DType::fp32, {problem.heads}).as<const float>();
    problem.out = arguments.tensor("out", problem.dtype, queries).data;
    return problem;
  }
};

}  // namespace roofline::ops
