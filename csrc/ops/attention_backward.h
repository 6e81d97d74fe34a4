// attention_backward: dq, dk and dv of attention, from its result and the logsumexp of each query's scaled scores.
#pragma once

#include "ops/attention.h"

namespace roofline::ops {

struct AttentionBackward : Attention {  // out and logsumexp are read here
  static constexpr const char* op = "attention_backward";

  const void* dout = nullptr;        // as q
  void* dq = nullptr;                // as q
  void* dk = nullptr;                // as k
  void* dv = nullptr;                // as k

  static AttentionBackward from(const Arguments& arguments) {
    AttentionBackward problem{Attention::read(arguments, op)};
    const Shape queries = {problem.batch, problem.heads, problem.seq_q, problem.head_dim};
    const Shape keys = {problem.batch, problem.kv_heads, problem.seq_kv, problem.head_dim};
    problem.dout = arguments.tensor("dout", problem.dtype, queries).data;
    problem.logsumexp = problem.sums_of(arguments);
    problem.dq = arguments.tensor("dq", problem.dtype, queries).data;
    problem.dk = arguments.tensor("dk", problem.dtype, keys).data;
    problem.dv = arguments.tensor("dv", problem.dtype, keys).data;
    return problem;
  }
};

}  // namespace roofline::ops
