// The kernel of a table with one for each floating element.
#pragma once

#include "core/kernel.h"
#include "cpu/elements.h"

namespace roofline::cpu {

inline Element element_of(DType dtype, const char* op) {
  if (dtype == DType::fp32) return kFp32;
  if (dtype == DType::bf16) return kBf16;
  if (dtype == DType::fp16) return kFp16;
  throw Unsupported(std::string(op) + ": the CPU kernels take fp32, bf16 and fp16, not " + name(dtype));
}

}  // namespace roofline::cpu
