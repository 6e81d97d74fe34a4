// The fma kernels of one instruction set: a block of chains in registers, `steps` steps.
#pragma once

#include <cstdint>

#include "cpu/isa.h"

namespace roofline::cpu {

// Operands of tile instructions in memory, of one thread: pairs of tiles, walked in a circle.
struct FmaOperands {
  static constexpr std::int64_t kPairBytes = 2048;

  char* left;  // [left_pairs][kPairBytes], 64-byte aligned
  char* right;
  std::int64_t left_pairs, right_pairs;
};

using FmaRun = void (*)(const void* start, void* result, std::int64_t steps, const FmaOperands* operands);

// The loop of a kernel with a chain of dependent integer instructions inside, of known latency: `steps` steps last at least
// `cycles` cycles, so that steps / seconds gives a lower bound of the clock. It is the clock where the chain is what takes longest.
struct FmaClock {
  FmaRun run = nullptr;  // computes the same
  std::int64_t steps = 1;
  double cycles = 0;
};

struct FmaKernel {
  std::int64_t block;  // chains per call: registers x lanes; 0 where the set has no such kernel
  FmaRun run;          // start, result: [block] each, 64-byte aligned
  void (*begin)() = nullptr;  // by each thread around its blocks, where the registers have to be set up
  void (*end)() = nullptr;
  FmaClock clocks[2] = {};  // a little longer than the loop at its full rate, and at half of it
  void (*fill)(const FmaOperands& operands) = nullptr;  // of kernels that have some
};

struct FmaKernels {
  FmaKernel fp64, fp32, fp16, bf16, int8;
  FmaKernel fp64_add, fp32_add;  // pattern fma_add
  FmaKernel int16 = {0, nullptr};
};

// Multiply-adds whose operands come from memory with every instruction.
struct FmaOperandKernels {
  FmaKernel bf16, int8;
};

constexpr std::int64_t kWidestFmaBlockBytes = 4096;  // AMX: four tiles of 1024 bytes

ROOFLINE_DECLARE_TABLES(FmaKernels, fma);
extern const FmaKernels fma_avx512_vnni, fma_avx512_bf16, fma_avx512_fp16, fma_amx, fma_neon_dotprod_fp16, fma_neon_bf16_i8mm;
extern const FmaOperandKernels fma_operands_amx;

#if !defined(ROOFLINE_ISA)
// Those of this build, the widest first.
const std::vector<std::pair<Isa, const FmaKernels*>>& fma_tables();
#endif

}  // namespace roofline::cpu
