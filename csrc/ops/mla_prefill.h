// mla_prefill: multi-head latent attention with the keys and values of every head; the rotated part of the keys is one for all.
#pragma once

#include "ops/attention.h"

namespace roofline::ops {

struct MlaPrefill {
  static constexpr const char* op = "mla_prefill";

  DType dtype;
  std::int64_t batch, heads, seq_q, seq_kv, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
  bool causal;                   // the last query is aligned with the last key
  const void* q = nullptr;       // [batch, heads, seq_q, qk_nope_head_dim + qk_rope_head_dim]
  const void* k_nope = nullptr;  // [batch, heads, seq_kv, qk_nope_head_dim]
  const void* k_rope = nullptr;  // [batch, seq_kv, qk_rope_head_dim]
  const void* v = nullptr;       // [batch, heads, seq_kv, v_head_dim]
  void* out = nullptr;           // [batch, heads, seq_q, v_head_dim]

  static MlaPrefill from(const Arguments& arguments) {
    MlaPrefill problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"batch", &problem.batch}, {"heads", &problem.heads}, {"seq_q", &problem.seq_q},
                          {"seq_kv", &problem.seq_kv}, {"qk_nope_head_dim", &problem.qk_nope_head_dim},
                          {"qk_rope_head_dim", &problem.qk_rope_head_dim}, {"v_head_dim", &problem.v_head_dim}});
    const std::int64_t batch = problem.batch, heads = problem.heads, seq_q = problem.seq_q, seq_kv = problem.seq_kv;
    const std::int64_t nope = problem.qk_nope_head_dim, rope = problem.qk_rope_head_dim;
    problem.causal = arguments.flag("causal");
    if (problem.causal) require_keys("mla_prefill: causal with", seq_q, seq_kv);
    product({batch, heads, seq_q, seq_kv, 8}, "mla_prefill: bytes of the scores");
    problem.q = arguments.tensor("q", problem.dtype, {batch, heads, seq_q, nope + rope}).data;
    problem.k_nope = arguments.tensor("k_nope", problem.dtype, {batch, heads, seq_kv, nope}).data;
    problem.k_rope = arguments.tensor("k_rope", problem.dtype, {batch, seq_kv, rope}).data;
    problem.v = arguments.tensor("v", problem.dtype, {batch, heads, seq_kv, problem.v_head_dim}).data;
    problem.out = arguments.tensor("out", problem.dtype, {batch, heads, seq_q, problem.v_head_dim}).data;
    return problem;
  }
};

}  // namespace roofline::ops
