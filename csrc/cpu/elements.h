// What memory holds: cache lines, and elements of 16 bits, which registers hold in fp32 and cpu/simd/simd.h loads and stores.
#pragma once

#include <cstdint>

namespace roofline::cpu {

constexpr std::int64_t kLineBytes = 64;  // a cache line

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

// Where a table has a kernel for each floating element: [kFp32] for float, and so on.
enum Element : int { kFp32, kBf16, kFp16, kElements };

// Elements of a KV cache: the same, and of 8 bits.
struct Cached {
  enum Element : int { fp32, bf16, fp16, int8, fp8_e4m3, fp8_e5m2, elements };

  static constexpr int bytes(Element element) { return element == fp32 ? 4 : element == bf16 || element == fp16 ? 2 : 1; }
  // The value of an element over what it is widened to: fp8_e4m3 goes through fp16, whose exponents are 8 lower. Queries and results
  // are scaled by it instead.
  static constexpr float unit(Element element) { return element == fp8_e4m3 ? 256.0f : 1.0f; }
};

}  // namespace roofline::cpu
