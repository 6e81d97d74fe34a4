// ffn: the feed-forward block of a transformer layer, out = activation(x w_up) w_down, with silu(x w_gate) * (x w_up) for swiglu.
// gelu is the exact one, with erf.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Ffn {
  static constexpr const char* op = "ffn";

  enum class Activation { relu, gelu, gelu_tanh, swiglu };

  Activation activation;
  DType dtype;
  std::int64_t batch, seq_q, d_model, d_ff;
  const void* x = nullptr;       // [batch, seq_q, d_model]
  const void* w_up = nullptr;    // [d_model, d_ff], constant
  const void* w_gate = nullptr;  // [d_model, d_ff], constant; swiglu only
  const void* w_down = nullptr;  // [d_ff, d_model], constant
  void* out = nullptr;           // [batch, seq_q, d_model]

  std::int64_t rows() const { return batch * seq_q; }
  bool gated() const { return activation == Activation::swiglu; }

  static Ffn from(const Arguments& arguments) {
    Ffn problem{};
    problem.activation = arguments.choice<Activation>("activation", {"relu", "gelu", "gelu_tanh", "swiglu"});
    problem.dtype = arguments.dtype();
    problem.batch = arguments.dimension("batch");
    problem.seq_q = arguments.dimension("seq_q");
    problem.d_model = arguments.dimension("d_model");
    problem.d_ff = arguments.dimension("d_ff");
    product({problem.batch, problem.seq_q, problem.d_ff, roofline::size_bytes(problem.dtype)}, "ffn: the hidden activations");
    const Shape tokens = {problem.batch, problem.seq_q, problem.d_model};
    problem.x = arguments.tensor("x", problem.dtype, tokens).data;
    problem.w_up = arguments.tensor("w_up", problem.dtype, {problem.d_model, problem.d_ff}).data;
    if (problem.gated()) problem.w_gate = arguments.tensor("w_gate", problem.dtype, {problem.d_model, problem.d_ff}).data;
    problem.w_down = arguments.tensor("w_down", problem.dtype, {problem.d_ff, problem.d_model}).data;
    problem.out = arguments.tensor("out", problem.dtype, tokens).data;
    return problem;
  }
};

}  // namespace roofline::ops
