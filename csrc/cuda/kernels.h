// All CUDA kernels, one list.
#pragma once

#include <vector>

#include "core/kernel.h"

namespace roofline::cuda {

// One function per operator file; each returns its variants, slowest first.
std::vector<KernelEntry> stream_kernels();
std::vector<KernelEntry> fma_kernels();
std::vector<KernelEntry> fork_join_kernels();
std::vector<KernelEntry> attention_kernels();  // with those below
std::vector<KernelEntry> attention_tiled_kernels();

inline std::vector<KernelEntry> all_kernels() {
  std::vector<KernelEntry> all;
  for (const auto& list : {stream_kernels(), fma_kernels(), fork_join_kernels(), attention_kernels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace roofline::cuda
