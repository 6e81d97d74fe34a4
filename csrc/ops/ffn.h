// ffn: the feed-forward block of a transformer layer, out = activation(x w_up) w_down, with silu(x w_gate) * (x w_up) for swiglu.
// gelu is the exact one, with erf. int8: up = (x w_up) x_scale w_up_scale and gate alike; hidden activations are divided by
// hidden_scale and rounded to int8; out = (hidden w_down) hidden_scale w_down_scale.
#pragma once

#include <algorithm>

#include "core/arguments.h"

namespace roofline::ops {

struct Ffn {
  static constexpr const char* op = "ffn";

  // 2^17 products of -128 by -128 leave an int32.
  static constexpr std::int64_t kMostInnerInt8 = (1 << 17) - 1;

  enum class Activation { relu, gelu, gelu_tanh, swiglu };

  Activation activation;
  DType dtype;
  std::int64_t batch, seq_q, d_model, d_ff;
  const void* x = nullptr;       // [batch, seq_q, d_model]
  const void* w_up = nullptr;    // [d_model, d_ff], constant
  const void* w_gate = nullptr;  // [d_model, d_ff], constant; swiglu only
  const void* w_down = nullptr;  // [d_ff, d_model], constant
  void* out = nullptr;           // [batch, seq_q, d_model]; of int8 fp32

  // For int8, constant and in fp32.
  const float* x_scale = nullptr;       // [1]
  const float* w_up_scale = nullptr;    // [d_ff]
  const float* w_gate_scale = nullptr;  // [d_ff]; swiglu only
  const float* hidden_scale = nullptr;  // [1]
  const float* w_down_scale = nullptr;  // [d_model]

  std::int64_t rows() const { return batch * seq_q; }
  bool gated() const { return activation == Activation::swiglu; }
  bool quantized() const { return dtype == DType::int8; }

  static Ffn from(const Arguments& arguments) {
    Ffn problem{};
    problem.activation = arguments.choice<Activation>("activation", {"relu", "gelu", "gelu_tanh", "swiglu"});
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"batch", &problem.batch}, {"seq_q", &problem.seq_q}, {"d_model", &problem.d_model},
                          {"d_ff", &problem.d_ff}});
    product({problem.batch, problem.seq_q, problem.d_ff, roofline::size_bytes(problem.dtype)}, "ffn: the hidden activations");
    const Shape tokens = {problem.batch, problem.seq_q, problem.d_model};
    problem.x = arguments.tensor("x", problem.dtype, tokens).data;
    problem.w_up = arguments.tensor("w_up", problem.dtype, {problem.d_model, problem.d_ff}).data;
    if (problem.gated()) problem.w_gate = arguments.tensor("w_gate", problem.dtype, {problem.d_model, problem.d_ff}).data;
    problem.w_down = arguments.tensor("w_down", problem.dtype, {problem.d_ff, problem.d_model}).data;
    problem.out = arguments.tensor("out", problem.quantized() ? DType::fp32 : problem.dtype, tokens).data;
    if (!problem.quantized()) return problem;
    if (std::max(problem.d_model, problem.d_ff) > kMostInnerInt8)
      throw Error("ffn: d_model and d_ff must be below 2^17 for int8, so that sums fit in int32, got " +
                  std::to_string(problem.d_model) + " and " + std::to_string(problem.d_ff));
    const auto scale = [&](const char* name, std::int64_t n) {
      return static_cast<const float*>(arguments.tensor(name, DType::fp32, {n}).data);
    };
    problem.x_scale = scale("x_scale", 1);
    problem.w_up_scale = scale("w_up_scale", problem.d_ff);
    if (problem.gated()) problem.w_gate_scale = scale("w_gate_scale", problem.d_ff);
    problem.hidden_scale = scale("hidden_scale", 1);
    problem.w_down_scale = scale("w_down_scale", problem.d_model);
    return problem;
  }
};

}  // namespace roofline::ops
