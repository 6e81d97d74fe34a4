// grouped_matmul: out = sum over a token's experts of gate · (activation(x w_up) w_down), each expert with weights of its own.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct GroupedMatmul {
  static constexpr const char* op = "grouped_matmul";

  enum class Activation { relu, gelu, swiglu };

  Activation activation;
  DType dtype;
  std::int64_t tokens, experts, experts_per_token, shared_experts, d_model, d_ff;
  const void* x = nullptr;               // [tokens, d_model]
  const std::int32_t* chosen = nullptr;  // [tokens, experts_per_token], each below experts; a token's are different ones
  const float* gates = nullptr;          // [tokens, experts_per_token]
  const void* w_up = nullptr;            // [all_experts(), d_model, d_ff], constant; the shared ones last
  const void* w_gate = nullptr;          // [all_experts(), d_model, d_ff], constant; swiglu only
  const void* w_down = nullptr;          // [all_experts(), d_ff, d_model], constant
  void* out = nullptr;                   // [tokens, d_model]

  std::int64_t all_experts() const { return experts + shared_experts; }
  std::int64_t per_token() const { return experts_per_token + shared_experts; }
  bool gated() const { return activation == Activation::swiglu; }

  static GroupedMatmul from(const Arguments& arguments) {
    GroupedMatmul problem{};
    problem.activation = arguments.choice<Activation>("activation", {"relu", "gelu", "swiglu"});
    const DType dtype = problem.dtype = arguments.dtype();
    if (arguments.integer("ranks") != 1)
      throw Unsupported("grouped_matmul: what reaches one of several ranks is an expectation, with costs alone; use ranks 1");
    const std::int64_t bits = 8 * size_bytes(dtype);
    if (arguments.number("weight_bits") != static_cast<double>(bits) || arguments.text("out_dtype") != name(dtype))
      throw Unsupported("grouped_matmul: kernels take weights and results in the dtype of x, " + name(dtype) +
                        "; use weight_bits " + std::to_string(bits) + " and out_dtype " + name(dtype));
    arguments.dimensions({{"tokens", &problem.tokens}, {"experts", &problem.experts},
                          {"experts_per_token", &problem.experts_per_token}});
    problem.shared_experts = arguments.integer("shared_experts");
    arguments.dimensions({{"d_model", &problem.d_model}, {"d_ff", &problem.d_ff}});
    const Shape tokens = {problem.tokens, problem.d_model}, routes = {problem.tokens, problem.experts_per_token};
    const Shape wide = {problem.all_experts(), problem.d_model, problem.d_ff};
    if (product({problem.tokens, problem.per_token()}, "grouped_matmul: rows") > 0x7FFFFFFF)
      throw Unsupported("grouped_matmul: kernels number the rows of all experts with 31 bits; use fewer tokens");
    problem.x = arguments.tensor("x", dtype, tokens).data;
    problem.chosen = arguments.tensor("chosen", DType::int32, routes).as<std::int32_t>();
    problem.gates = arguments.tensor("gates", DType::fp32, routes).as<float>();
    problem.w_up = arguments.tensor("w_up", dtype, wide).data;
    if (problem.gated()) problem.w_gate = arguments.tensor("w_gate", dtype, wide).data;
    problem.w_down = arguments.tensor("w_down", dtype, {problem.all_experts(), problem.d_ff, problem.d_model}).data;
    problem.out = arguments.tensor("out", dtype, tokens).data;
    return problem;
  }
};

}  // namespace roofline::ops
