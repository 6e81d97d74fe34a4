// All CUDA kernels, one list.
#pragma once

#include <vector>

#include "core/kernel.h"

namespace roofline::cuda {

// Every operator with kernels: square_kernels() returns the variants of X(square), slowest first.
#define ROOFLINE_CUDA_OPERATORS(X) \
  X(stream) X(fma) X(fork_join) X(pointer_chase) X(mixed_intensity) X(host_copy) X(peer_copy) X(attention) X(softmax) X(rms_norm) \
  X(residual_rms_norm) X(layer_norm) X(bias_relu) X(relu) X(gelu) X(silu_mul) X(convert) X(adam) X(rope) X(embedding) \
  X(topk_softmax) X(topk_sigmoid) X(cached_attention) X(mla_decode) X(matmul) X(bmm) X(ffn) X(grouped_matmul) X(all_reduce) \
  X(all_gather) X(reduce_scatter) X(all_to_all) X(mma)

// Parts of the lists of attention, grouped_matmul and stream, in files of their own.
#define ROOFLINE_CUDA_PARTS(X) \
  X(attention_library) X(attention_tiled) X(attention_split) X(grouped_matmul_library) X(stream_bulk) X(stream_driver)

#define ROOFLINE_KERNELS(name) std::vector<KernelEntry> name##_kernels();
ROOFLINE_CUDA_OPERATORS(ROOFLINE_KERNELS)
ROOFLINE_CUDA_PARTS(ROOFLINE_KERNELS)
#undef ROOFLINE_KERNELS

inline std::vector<KernelEntry> all_kernels() {
#define ROOFLINE_KERNELS(name) name##_kernels(),
  return joined({ROOFLINE_CUDA_OPERATORS(ROOFLINE_KERNELS)});
#undef ROOFLINE_KERNELS
}

}  // namespace roofline::cuda
