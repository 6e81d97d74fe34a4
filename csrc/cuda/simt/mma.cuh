// Products of fragments for the dtypes that cuda/simt/warp.cuh does not need: thin wrappers of mma.sync, each of a whole warp.
//
// Operands of 4 to 32 bits lie alike: a row of a, and a column of b, is eight words of 32 bits, and lane = 4 * group + pair holds
// words `pair` and `pair + 4` of rows `group` and `group + 8` (a) or of column `group` (b).
#pragma once

#include "cuda/simt/warp.cuh"

namespace roofline::cuda {

struct Tf32 {};
struct Fp8E4m3 {};
struct Int8 {};
struct Int4 {};

constexpr int kRowWords = 8;  // of a fragment's row of a, and of its column of b

// The four words of a, and the two of b, that a lane holds: rows (columns) and words of them.
ROOFLINE_HOST_DEVICE constexpr Place a_word(int lane, int i) { return {lane / 4 + i % 2 * 8, lane % 4 + i / 2 * 4}; }
ROOFLINE_HOST_DEVICE constexpr Place b_word(int lane, int i) { return {lane / 4, lane % 4 + i * 4}; }

}  // namespace roofline::cuda

#if defined(ROOFLINE_CUDA_EMULATED)
#include "mma_emulation.h"
#else

namespace roofline::cuda {

#define ROOFLINE_FRAGMENTS "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#define ROOFLINE_PACKED_FRAGMENTS "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
#define ROOFLINE_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)

ROOFLINE_DEVICE void multiply_add(Tf32, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " ROOFLINE_FRAGMENTS
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : ROOFLINE_OPERANDS);
}
ROOFLINE_DEVICE void multiply_add(Int8, std::int32_t (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 " ROOFLINE_FRAGMENTS
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : ROOFLINE_OPERANDS);
}
// On sm_80 to sm_89. Later ones have no int4, and ptxas makes int8 products of it: the plan refuses it there.
ROOFLINE_DEVICE void multiply_add(Int4, std::int32_t (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#if __CUDA_ARCH__ < 900
  asm volatile("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 " ROOFLINE_FRAGMENTS
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : ROOFLINE_OPERANDS);
#endif
}
// Sums in fp16, two to a register.
ROOFLINE_DEVICE void multiply_add(Fp16, std::uint32_t (&c)[2], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 " ROOFLINE_PACKED_FRAGMENTS
               : "+r"(c[0]), "+r"(c[1])
               : ROOFLINE_OPERANDS);
}
// On sm_89 and sm_120. Elsewhere ptxas widens to fp16 (sm_90, sm_100) or has none: the plan refuses it there.
ROOFLINE_DEVICE void multiply_add(Fp8E4m3, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#if __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 " ROOFLINE_FRAGMENTS
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : ROOFLINE_OPERANDS);
#endif
}
ROOFLINE_DEVICE void multiply_add(Fp8E4m3, std::uint32_t (&c)[2], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#if __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 " ROOFLINE_PACKED_FRAGMENTS
               : "+r"(c[0]), "+r"(c[1])
               : ROOFLINE_OPERANDS);
#endif
}

#undef ROOFLINE_FRAGMENTS
#undef ROOFLINE_PACKED_FRAGMENTS
#undef ROOFLINE_OPERANDS

// 8 x 4 by 4 x 8: one element of a and of b to a lane, two neighbouring sums.
ROOFLINE_DEVICE void multiply_add(double (&c)[2], double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
}
// 16 x 16 by 16 x 8, from sm_90 on.
ROOFLINE_DEVICE void multiply_add(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),  //
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
}

}  // namespace roofline::cuda
#endif
