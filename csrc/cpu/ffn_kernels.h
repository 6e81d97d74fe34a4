// What becomes of the sums of products in a feed-forward block, of one instruction set: n numbers of a row, on one thread.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

// Sums of int8 are int32 in the memory of fp32; each has its own scale.
struct FfnKernels {
  void (*scale)(float* c, const float* scale, std::int64_t n);  // c = c scale in fp32, in place
  // y = activation(x scale) times, rounded to nearest even and kept within int8: relu, gelu, gelu_tanh, and silu(gate gate_scale) x
  // scale, which alone reads a gate. Activations err by up to 2^-16 of |x|.
  void (*quantize[4])(const float* x, const float* scale, const float* gate, const float* gate_scale, float times, std::int8_t* y,
                      std::int64_t n);
  // y = activation(x), rounded to bf16: the same ones. Sums are fp32.
  void (*activate[4])(const float* x, const float* gate, void* y, std::int64_t n);
};

ROOFLINE_DECLARE_TABLES(FfnKernels, ffn);

}  // namespace roofline::cpu
