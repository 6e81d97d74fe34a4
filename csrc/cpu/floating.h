// Operators with one kernel for each floating element: which of a table's, and the list of them.
#pragma once

#include <vector>

#include "core/kernel.h"
#include "cpu/elements.h"

namespace roofline::cpu {

class Device;

inline Element element_of(DType dtype, const char* op) {
  if (dtype == DType::fp32) return kFp32;
  if (dtype == DType::bf16) return kBf16;
  if (dtype == DType::fp16) return kFp16;
  throw Unsupported(std::string(op) + ": the CPU kernels take fp32, bf16 and fp16, not " + name(dtype));
}

template <class Problem>
std::vector<KernelEntry> floating_kernels(const char* variant, const char* summary, Bound (*bind)(const Problem&, Device&)) {
  std::vector<KernelEntry> all;
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    all.push_back(entry(Kernel<Problem, Device>{variant, dtype, "", summary, bind}));
  return all;
}

}  // namespace roofline::cpu
