// All CPU kernels, one list.
#pragma once

#include <vector>

#include "core/kernel.h"

namespace roofline::cpu {

class Device;

// Every operator with kernels: square_kernels() returns the variants of X(square), slowest first.
#define ROOFLINE_CPU_OPERATORS(X) \
  X(stream) X(fma) X(fork_join) X(pointer_chase) X(core_to_core) X(matmul) X(attention) X(ffn) X(softmax) \
  X(rms_norm) X(residual_rms_norm) X(layer_norm) X(relu) X(gelu) X(silu_mul) X(bias_relu) X(exp) X(convert) \
  X(mixed_intensity) X(rope) X(embedding) X(topk_softmax) X(topk_sigmoid) X(adam) X(lm_head) \
  X(cached_attention) X(mla_decode) X(mla_prefill) X(bmm) X(quantized_matmul) X(grouped_matmul) X(attention_backward)

#define ROOFLINE_KERNELS(name) std::vector<KernelEntry> name##_kernels();
ROOFLINE_CPU_OPERATORS(ROOFLINE_KERNELS)
#undef ROOFLINE_KERNELS

inline std::vector<KernelEntry> all_kernels() {
#define ROOFLINE_KERNELS(name) name##_kernels(),
  return joined({ROOFLINE_CPU_OPERATORS(ROOFLINE_KERNELS)});
#undef ROOFLINE_KERNELS
}

}  // namespace roofline::cpu
