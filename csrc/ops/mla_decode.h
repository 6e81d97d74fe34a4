// mla_decode: attention of every head over one compressed cache, which is key and value at once.
#pragma once

#include "ops/attention.h"

namespace roofline::ops {

struct MlaDecode {
  static constexpr const char* op = "mla_decode";

  DType dtype;
  DType cache_dtype;
  DType rope_dtype;
  std::int64_t batch, heads, seq_q, seq_kv, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim;
  std::int64_t scale_block;  // numbers of c to a scale; 0: none
  bool causal;               // the last query is aligned with the last key
  const void* q_latent = nullptr;  // [batch, heads, seq_q, kv_lora_rank]
  const void* q_rope = nullptr;    // [batch, heads, seq_q, qk_rope_head_dim]
  const void* c = nullptr;         // [batch, seq_kv, kv_lora_rank]
  const void* k_rope = nullptr;    // [batch, seq_kv, qk_rope_head_dim]
  void* out = nullptr;             // [batch, heads, seq_q, kv_lora_rank]

  static MlaDecode from(const Arguments& arguments) {
    MlaDecode problem{};
    problem.dtype = arguments.dtype();
    problem.cache_dtype = dtype_named(arguments.text("cache_dtype"));
    problem.rope_dtype = dtype_named(arguments.text("rope_dtype"));
    arguments.dimensions({{"batch", &problem.batch}, {"heads", &problem.heads}, {"seq_q", &problem.seq_q},
                          {"seq_kv", &problem.seq_kv}, {"kv_lora_rank", &problem.kv_lora_rank},
                          {"qk_nope_head_dim", &problem.qk_nope_head_dim}, {"qk_rope_head_dim", &problem.qk_rope_head_dim}});
    problem.scale_block = arguments.integer("scale_block");
    problem.causal = arguments.flag("causal");
    if (problem.causal) require_keys("mla_decode: causal with", problem.seq_q, problem.seq_kv);
    const std::int64_t rank = problem.kv_lora_rank, rope = problem.qk_rope_head_dim;
    problem.q_latent = arguments.tensor("q_latent", problem.dtype, {problem.batch, problem.heads, problem.seq_q, rank}).data;
    problem.q_rope = arguments.tensor("q_rope", problem.dtype, {problem.batch, problem.heads, problem.seq_q, rope}).data;
    problem.c = arguments.tensor("c", problem.cache_dtype, {problem.batch, problem.seq_kv, rank}).data;
    problem.k_rope = arguments.tensor("k_rope", problem.rope_dtype, {problem.batch, problem.seq_kv, rope}).data;
    problem.out = arguments.tensor("out", problem.dtype, {problem.batch, problem.heads, problem.seq_q, rank}).data;
    return problem;
  }
};

}  // namespace roofline::ops
