// Passes over elements that other operators have among their steps: each binds one step, as the operator of its name does.
#pragma once

#include "cuda/device.h"
#include "ops/rows.h"

namespace roofline::cuda {

Bound bind_relu(const ops::Relu& problem, Device& device);
Bound bind_gelu(const ops::Gelu& problem, Device& device);

// pitch: elements from one row of gate and up to the next; y's rows follow each other.
Bound bind_silu_mul(const ops::SiluMul& problem, std::int64_t pitch, Device& device);

// Binds an operator's activation of up, and with swiglu of gate, both [rows, columns]. tanh: use the tanh form of gelu.
template <class Activation>
Bound bind_activation(Activation activation, bool tanh, DType dtype, std::int64_t rows, std::int64_t columns, const void* gate,
                      const void* up, void* activated, Device& device) {
  if (activation == Activation::swiglu) return bind_silu_mul({dtype, rows, columns, gate, up, activated}, columns, device);
  if (activation == Activation::relu) return bind_relu({dtype, rows * columns, up, activated}, device);
  return bind_gelu({{dtype, rows * columns, up, activated}, tanh}, device);
}

}  // namespace roofline::cuda
