// All CPU kernels, one list.
#pragma once

#include <vector>

#include "core/kernel.h"

namespace roofline::cpu {

class Device;

// One function per operator file; each returns its variants, slowest first.
std::vector<KernelEntry> stream_kernels();
std::vector<KernelEntry> fma_kernels();
std::vector<KernelEntry> fork_join_kernels();
std::vector<KernelEntry> pointer_chase_kernels();
std::vector<KernelEntry> core_to_core_kernels();
std::vector<KernelEntry> matmul_kernels();
std::vector<KernelEntry> bmm_kernels();
std::vector<KernelEntry> quantized_matmul_kernels();
std::vector<KernelEntry> grouped_matmul_kernels();
std::vector<KernelEntry> attention_kernels();
std::vector<KernelEntry> ffn_kernels();
std::vector<KernelEntry> softmax_kernels();
std::vector<KernelEntry> rms_norm_kernels();
std::vector<KernelEntry> layer_norm_kernels();
std::vector<KernelEntry> relu_kernels();
std::vector<KernelEntry> bias_relu_kernels();
std::vector<KernelEntry> exp_kernels();
std::vector<KernelEntry> mixed_intensity_kernels();

inline std::vector<KernelEntry> all_kernels() {
  std::vector<KernelEntry> all;
  for (auto list : {stream_kernels(), fma_kernels(), fork_join_kernels(), pointer_chase_kernels(), core_to_core_kernels(),
                    matmul_kernels(), bmm_kernels(), quantized_matmul_kernels(), grouped_matmul_kernels(), attention_kernels(),
                    ffn_kernels(), softmax_kernels(), rms_norm_kernels(),
                    layer_norm_kernels(), relu_kernels(), bias_relu_kernels(), exp_kernels(), mixed_intensity_kernels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace roofline::cpu
