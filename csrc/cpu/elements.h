// Elements of 16 bits as they lie in memory; registers hold them in fp32. cpu/simd/simd.h loads and stores them.
#pragma once

#include <cstdint>

namespace roofline::cpu {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

// Where a table has a kernel for each floating element: [kFp32] for float, and so on.
enum Element : int { kFp32, kBf16, kFp16, kElements };

}  // namespace roofline::cpu
