// attention: out = softmax(q kᵀ / sqrt(head_dim)) v, each head by itself, and the logarithms of the softmax's sums where they are
// asked for. Query heads share K and V in groups of heads / kv_heads.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

inline void require_groups(const std::string& op, std::int64_t heads, std::int64_t kv_heads) {
  if (heads % kv_heads != 0)
    throw Error(op + ": heads must be a multiple of kv_heads, got heads " + std::to_string(heads) + " and kv_heads " +
                std::to_string(kv_heads));
}

// The last query is aligned with the last key. where: how the error begins.
inline void require_keys(const std::string& where, std::int64_t seq_q, std::int64_t seq_kv) {
  if (seq_q > seq_kv)
    throw Error(where + " seq_q " + std::to_string(seq_q) + " > seq_kv " + std::to_string(seq_kv) +
                ": the first queries would see no key; use seq_q <= seq_kv");
}

struct Attention {
  static constexpr const char* op = "attention";

  DType dtype;
  std::int64_t batch, heads, kv_heads, seq_q, seq_kv, head_dim;
  bool causal;                // the last query is aligned with the last key: query i sees keys j <= i + seq_kv - seq_q
  const void* q = nullptr;    // [batch, heads, seq_q, head_dim]
  const void* k = nullptr;    // [batch, kv_heads, seq_kv, head_dim]
  const void* v = nullptr;    // [batch, kv_heads, seq_kv, head_dim]
  void* out = nullptr;        // [batch, heads, seq_q, head_dim]
  float* logsumexp = nullptr;  // [batch, heads, seq_q], of the scaled scores, or null

  std::int64_t group() const { return heads / kv_heads; }  // query heads of one KV head; they lie side by side

  // Keys that a query sees.
  std::int64_t visible(std::int64_t query) const { return causal ? query + seq_kv - seq_q + 1 : seq_kv; }

  // Pairs of a query and a key it sees, over all heads.
  std::int64_t pairs() const {
    const std::int64_t masked = causal ? seq_q * (seq_q - 1) / 2 : 0;
    return batch * heads * (seq_q * seq_kv - masked);
  }

  float* sums_of(const Arguments& arguments) const {
    return arguments.tensor("logsumexp", DType::fp32, {batch, heads, seq_q}).as<float>();
  }

  // For kernels that write out alone.
  void refuse_logsumexp(const char* variant) const {
    if (logsumexp)
      throw Unsupported(std::string("attention: ") + variant +
                        " of this device writes no logsumexp; use logsumexp=False, or the CPU");
  }

  // All but logsumexp, for an operator of that name.
  static Attention read(const Arguments& arguments, const std::string& name) {
    Attention problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"batch", &problem.batch}, {"heads", &problem.heads}, {"kv_heads", &problem.kv_heads},
                          {"seq_q", &problem.seq_q}, {"seq_kv", &problem.seq_kv}, {"head_dim", &problem.head_dim}});
    problem.causal = arguments.flag("causal");
    require_groups(name, problem.heads, problem.kv_heads);
    if (problem.causal) require_keys(name + ": causal with", problem.seq_q, problem.seq_kv);
    const Shape queries = {problem.batch, problem.heads, problem.seq_q, problem.head_dim};
    const Shape keys = {problem.batch, problem.kv_heads, problem.seq_kv, problem.head_dim};
    product({problem.batch, problem.heads, problem.seq_q, problem.seq_kv, 8}, name + ": bytes of the scores");
    problem.q = arguments.tensor("q", problem.dtype, queries).data;
    problem.k = arguments.tensor("k", problem.dtype, keys).data;
    problem.v = arguments.tensor("v", problem.dtype, keys).data;
    problem.out = arguments.tensor("out", problem.dtype, queries).data;
    return problem;
  }

  static Attention from(const Arguments& arguments) {
    Attention problem = read(arguments, op);
    if (arguments.flag("logsumexp")) problem.logsumexp = problem.sums_of(arguments);
    return problem;
  }
};

}  // namespace roofline::ops
