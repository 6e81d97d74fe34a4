// All CUDA kernels, one list.
#pragma once

#include <vector>

#include "core/kernel.h"

namespace roofline::cuda {

class Device;

// The same variant for the three dtypes whose arithmetic is in fp32.
template <class Problem>
std::vector<KernelEntry> floating_kernels(const char* variant, const char* summary, Bound (*fp32)(const Problem&, Device&),
                                          Bound (*fp16)(const Problem&, Device&), Bound (*bf16)(const Problem&, Device&)) {
  using K = Kernel<Problem, Device>;
  return {entry(K{variant, DType::fp32, "", summary, fp32}), entry(K{variant, DType::fp16, "", summary, fp16}),
          entry(K{variant, DType::bf16, "", summary, bf16})};
}

// One function per operator file; each returns its variants, slowest first.
std::vector<KernelEntry> stream_kernels();  // with those below
std::vector<KernelEntry> stream_bulk_kernels();
std::vector<KernelEntry> fma_kernels();
std::vector<KernelEntry> mma_kernels();
std::vector<KernelEntry> fork_join_kernels();
std::vector<KernelEntry> pointer_chase_kernels();
std::vector<KernelEntry> mixed_intensity_kernels();
std::vector<KernelEntry> host_copy_kernels();
std::vector<KernelEntry> peer_copy_kernels();
std::vector<KernelEntry> attention_kernels();  // with those below
std::vector<KernelEntry> attention_library_kernels();
std::vector<KernelEntry> attention_tiled_kernels();
std::vector<KernelEntry> attention_split_kernels();
std::vector<KernelEntry> cached_attention_kernels();
std::vector<KernelEntry> mla_decode_kernels();
std::vector<KernelEntry> softmax_kernels();
std::vector<KernelEntry> rms_norm_kernels();
std::vector<KernelEntry> residual_rms_norm_kernels();
std::vector<KernelEntry> layer_norm_kernels();
std::vector<KernelEntry> bias_relu_kernels();
std::vector<KernelEntry> relu_kernels();
std::vector<KernelEntry> gelu_kernels();
std::vector<KernelEntry> silu_mul_kernels();
std::vector<KernelEntry> convert_kernels();
std::vector<KernelEntry> adam_kernels();
std::vector<KernelEntry> rope_kernels();
std::vector<KernelEntry> embedding_kernels();
std::vector<KernelEntry> topk_softmax_kernels();
std::vector<KernelEntry> topk_sigmoid_kernels();
std::vector<KernelEntry> matmul_kernels();
std::vector<KernelEntry> bmm_kernels();
std::vector<KernelEntry> all_reduce_kernels();
std::vector<KernelEntry> all_gather_kernels();
std::vector<KernelEntry> reduce_scatter_kernels();
std::vector<KernelEntry> all_to_all_kernels();
std::vector<KernelEntry> ffn_kernels();
std::vector<KernelEntry> grouped_matmul_kernels();  // with that below
std::vector<KernelEntry> grouped_matmul_library_kernels();

inline std::vector<KernelEntry> all_kernels() {
  std::vector<KernelEntry> all;
  for (const auto& list :
       {stream_kernels(), fma_kernels(), fork_join_kernels(), pointer_chase_kernels(), mixed_intensity_kernels(),
        host_copy_kernels(), peer_copy_kernels(), attention_kernels(), softmax_kernels(), rms_norm_kernels(),
        residual_rms_norm_kernels(), layer_norm_kernels(), bias_relu_kernels(), relu_kernels(), gelu_kernels(), silu_mul_kernels(),
        convert_kernels(), adam_kernels(), rope_kernels(), embedding_kernels(), topk_softmax_kernels(), topk_sigmoid_kernels(),
        cached_attention_kernels(), mla_decode_kernels(), matmul_kernels(), bmm_kernels(), ffn_kernels(),
        grouped_matmul_kernels(), all_reduce_kernels(), all_gather_kernels(), reduce_scatter_kernels(), all_to_all_kernels(),
        mma_kernels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace roofline::cuda
