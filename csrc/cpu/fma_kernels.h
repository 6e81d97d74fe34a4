// The fma kernels of one instruction set: a block of `lanes` chains in registers, `steps` steps.
#pragma once

#include <cstdint>

namespace roofline::cpu {

struct FmaKernel {
  std::int64_t block;  // chains per call: registers x lanes; 0 where the set has no such kernel
  void (*run)(const void* start, void* result, std::int64_t steps);  // [block] each, 64-byte aligned
};

struct FmaKernels {
  FmaKernel fp64, fp32, bf16, int8;
};

#if defined(__x86_64__)
extern const FmaKernels fma_scalar, fma_avx2, fma_avx512, fma_avx512_bf16;
#else
extern const FmaKernels fma_scalar, fma_neon;
#endif

}  // namespace roofline::cpu
