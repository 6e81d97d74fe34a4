// mla_prefill: multi-head latent attention with the keys and values of every head; the rotated part of the keys is one for all.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct MlaPrefill {
  static constexpr const char* op = "mla_prefill";

  DType dtype;
  std::int64_t batch;
  std::int64_t heads;
  std::int64_t seq_q;
  std::int64_t seq_kv;
  std::int64_t qk_nope_head_dim;
  std::int64_t qk_rope_head_dim;
  std::int64_t v_head_dim;
  bool causal;                   // the last query is aligned with the last key
  const void* q = nullptr;       // [batch, heads, seq_q, qk_nope_head_dim + qk_rope_head_dim]
  const void* k_nope = nullptr;  // [batch, heads, seq_kv, qk_nope_head_dim]
  const void* k_rope = nullptr;  // [batch, seq_kv, qk_rope_head_dim]
  const void* v = nullptr;       // [batch, heads, seq_kv, v_head_dim]
  void* out = nullptr;           // [batch, heads, seq_q, v_head_dim]

  static MlaPrefill from(const Arguments& arguments) {
    MlaPrefill problem{};
    problem.dtype = arguments.dtype();
    const std::int64_t batch = problem.batch = arguments.dimension("batch");
    const std::int64_t heads = problem.heads = arguments.dimension("heads");
    const std::int64_t seq_q = problem.seq_q = arguments.dimension("seq_q");
    const std::int64_t seq_kv = problem.seq_kv = arguments.dimension("seq_kv");
    const std::int64_t nope = problem.qk_nope_head_dim = arguments.dimension("qk_nope_head_dim");
    const std::int64_t rope = problem.qk_rope_head_dim = arguments.dimension("qk_rope_head_dim");
    const std::int64_t values = problem.v_head_dim = arguments.dimension("v_head_dim");
    problem.causal = arguments.flag("causal");
    if (problem.causal && seq_q > seq_kv)
      throw Error("mla_prefill: causal with seq_q " + std::to_string(seq_q) + " > seq_kv " + std::to_string(seq_kv) +
                  ": the first queries would see no key; use seq_q <= seq_kv");
    product({batch, heads, seq_q, seq_kv, 8}, "mla_prefill: bytes of the scores");
    problem.q = arguments.tensor("q", problem.dtype, {batch, heads, seq_q, nope + rope}).data;
    problem.k_nope = arguments.tensor("k_nope", problem.dtype, {batch, heads, seq_kv, nope}).data;
    problem.k_rope = arguments.tensor("k_rope", problem.dtype, {batch, seq_kv, rope}).data;
    problem.v = arguments.tensor("v", problem.dtype, {batch, heads, seq_kv, values}).data;
    problem.out = arguments.tensor("out", problem.dtype, {batch, heads, seq_q, values}).data;
    return problem;
  }
};

}  // namespace roofline::ops
