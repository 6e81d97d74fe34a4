// Operators over tokens: rope, embedding, topk_softmax, topk_sigmoid.
#pragma once

#include <algorithm>

#include "core/arguments.h"

namespace roofline::ops {

// (x, y) becomes (x cos - y sin, y cos + x sin) for every pair of halves of a head, in place.
struct Rope {
  static constexpr const char* op = "rope";

  DType dtype, table_dtype;
  std::int64_t batch, seq_q, heads, kv_heads, head_dim;
  void* q = nullptr;          // [batch, seq_q, heads, head_dim], read and written
  void* k = nullptr;          // [batch, seq_q, kv_heads, head_dim], read and written
  const void* cos = nullptr;  // [batch, seq_q, head_dim / 2] in table_dtype
  const void* sin = nullptr;  // [batch, seq_q, head_dim / 2] in table_dtype

  std::int64_t tokens() const { return batch * seq_q; }

  static Rope from(const Arguments& arguments) {
    Rope problem{};
    problem.dtype = arguments.dtype();
    problem.table_dtype = dtype_named(arguments.text("table_dtype"));
    arguments.dimensions({{"batch", &problem.batch}, {"seq_q", &problem.seq_q}, {"heads", &problem.heads},
                          {"kv_heads", &problem.kv_heads}, {"head_dim", &problem.head_dim}});
    if (problem.head_dim % 2 != 0)
      throw Error("rope: head_dim must be even, since numbers are rotated in pairs, got " + std::to_string(problem.head_dim));
    const Shape table = {problem.batch, problem.seq_q, problem.head_dim / 2};
    product({problem.batch, problem.seq_q, std::max(problem.heads, problem.kv_heads), problem.head_dim, 4}, arguments.op());
    problem.q = arguments.tensor("q", problem.dtype, {problem.batch, problem.seq_q, problem.heads, problem.head_dim}).data;
    problem.k = arguments.tensor("k", problem.dtype, {problem.batch, problem.seq_q, problem.kv_heads, problem.head_dim}).data;
    problem.cos = arguments.tensor("cos", problem.table_dtype, table).data;
    problem.sin = arguments.tensor("sin", problem.table_dtype, table).data;
    return problem;
  }
};

// out[i] = table[ids[i]]. An id outside the vocabulary is the caller's error: ids are in the device's memory, and not checked.
struct Embedding {
  static constexpr const char* op = "embedding";

  DType dtype;
  std::int64_t tokens, vocabulary, d_model;
  const void* ids = nullptr;    // [tokens], int32, below vocabulary
  const void* table = nullptr;  // [vocabulary, d_model], constant
  void* out = nullptr;          // [tokens, d_model]

  static Embedding from(const Arguments& arguments) {
    Embedding problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"tokens", &problem.tokens}, {"vocabulary", &problem.vocabulary}, {"d_model", &problem.d_model}});
    product({std::max(problem.vocabulary, problem.tokens), problem.d_model, 4}, arguments.op());
    problem.ids = arguments.tensor("ids", DType::int32, {problem.tokens}).data;
    problem.table = arguments.tensor("table", problem.dtype, {problem.vocabulary, problem.d_model}).data;
    problem.out = arguments.tensor("out", problem.dtype, {problem.tokens, problem.d_model}).data;
    return problem;
  }
};

// The experts_per_token largest scores of each token, largest first and on a tie the lowest expert, and which experts they are.
struct Topk {
  DType dtype;
  std::int64_t tokens, experts, experts_per_token;
  bool renormalise;
  const void* logits = nullptr;  // [tokens, experts]
  void* weights = nullptr;       // [tokens, experts_per_token], fp32
  void* chosen = nullptr;        // [tokens, experts_per_token], int32

  static Topk shared(const Arguments& arguments) {
    Topk problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"tokens", &problem.tokens}, {"experts", &problem.experts},
                          {"experts_per_token", &problem.experts_per_token}});
    problem.renormalise = arguments.flag("renormalise");
    if (problem.experts_per_token > problem.experts)
      throw Error(arguments.op() + ": experts_per_token must be at most experts " + std::to_string(problem.experts) + ", got " +
                  std::to_string(problem.experts_per_token));
    product({problem.tokens, problem.experts, 4}, arguments.op());
    const Shape chosen = {problem.tokens, problem.experts_per_token};
    problem.logits = arguments.tensor("logits", problem.dtype, {problem.tokens, problem.experts}).data;
    problem.weights = arguments.tensor("weights", DType::fp32, chosen).data;
    problem.chosen = arguments.tensor("chosen", DType::int32, chosen).data;
    return problem;
  }
};

struct TopkSoftmax : Topk {
  static constexpr const char* op = "topk_softmax";

  static TopkSoftmax from(const Arguments& arguments) { return {shared(arguments)}; }
};

struct TopkSigmoid : Topk {
  static constexpr const char* op = "topk_sigmoid";

  const void* bias = nullptr;  // [experts], fp32, constant; null for none

  static TopkSigmoid from(const Arguments& arguments) {
    const Topk router = shared(arguments);
    return {router, arguments.flag("biased") ? arguments.tensor("bias", DType::fp32, {router.experts}).data : nullptr};
  }
};

}  // namespace roofline::ops
