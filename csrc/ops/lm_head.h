// lm_head: logits = x w, a matrix product with as many columns as the vocabulary has tokens.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct LmHead {
  static constexpr const char* op = "lm_head";

  DType dtype, weight_dtype, out_dtype;
  std::int64_t tokens, d_model, vocabulary;
  const void* x = nullptr;  // [tokens, d_model] in dtype
  const void* w = nullptr;  // [d_model, vocabulary] in weight_dtype, constant
  void* logits = nullptr;   // [tokens, vocabulary] in out_dtype

  static LmHead from(const Arguments& arguments) {
    LmHead problem{};
    problem.dtype = arguments.dtype();
    problem.weight_dtype = dtype_named(arguments.text("weight_dtype"));
    problem.out_dtype = dtype_named(arguments.text("out_dtype"));
    arguments.dimensions({{"tokens", &problem.tokens}, {"d_model", &problem.d_model}, {"vocabulary", &problem.vocabulary}});
    problem.x = arguments.tensor("x", problem.dtype, {problem.tokens, problem.d_model}).data;
    problem.w = arguments.tensor("w", problem.weight_dtype, {problem.d_model, problem.vocabulary}).data;
    problem.logits = arguments.tensor("logits", problem.out_dtype, {problem.tokens, problem.vocabulary}).data;
    return problem;
  }
};

}  // namespace roofline::ops
