// Products of a warpgroup for attention, 64 rows by N columns and 16 deep, sums in fp32: thin wrappers of wgmma, for sm_90a alone.
//
// A lane's sums: c[4 i + j] is of rows lane / 4 (j < 2) or lane / 4 + 8 and of column 8 i + lane % 4 * 2 + j % 2, the warp's rows
// being 16 * warp and on: c_place of each eight columns. So the sums of one product, packed two by two, are operand a of the next.
#pragma once

#include <cstdint>

#include "cuda/sm90a/wgmma.cuh"

#if !defined(ROOFLINE_CUDA_EMULATED)

namespace roofline::cuda {

#define ROOFLINE_NAMES_32                                                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define ROOFLINE_NAMES_64                                                                                                  \
  ROOFLINE_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
                    "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ROOFLINE_8(i) \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define ROOFLINE_SUMS_32 ROOFLINE_8(0), ROOFLINE_8(8), ROOFLINE_8(16), ROOFLINE_8(24)
#define ROOFLINE_SUMS_64 ROOFLINE_SUMS_32, ROOFLINE_8(32), ROOFLINE_8(40), ROOFLINE_8(48), ROOFLINE_8(56)
#define ROOFLINE_WGMMA(type, N, add_name, operands)                                                                         \
  "{ .reg .pred p; setp.ne.b32 p, " add_name ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " " operands \
  "; }"

// c = a bᵀ, or with `add` c += a bᵀ, enqueued: both in shared memory, the inner dimension contiguous.
#define ROOFLINE_PRODUCT_OF_ROWS(In, type, N, count, operands, add_name)                                      \
  ROOFLINE_DEVICE void multiply_async(In, float (&c)[count], std::uint64_t a, std::uint64_t b, int add) {     \
    asm volatile(ROOFLINE_WGMMA(type, N, add_name, "{" ROOFLINE_NAMES_##count "}, " operands ", p, 1, 1, 0, 0") \
                 : ROOFLINE_SUMS_##count                                                                      \
                 : "l"(a), "l"(b), "r"(add));                                                                 \
  }
// c = a b, or c += a b, enqueued: a in registers, as mma.sync wants it; b in shared memory, its columns contiguous.
#define ROOFLINE_PRODUCT_OF_COLUMNS(In, type, N, count, operands, add_name)                                                   \
  ROOFLINE_DEVICE void multiply_async(In, float (&c)[count], const std::uint32_t (&a)[4], std::uint64_t b, int add) {         \
    asm volatile(ROOFLINE_WGMMA(type, N, add_name, "{" ROOFLINE_NAMES_##count "}, " operands ", p, 1, 1, 1")                  \
                 : ROOFLINE_SUMS_##count                                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                             \
  }
#define ROOFLINE_PRODUCTS(In, type)                                                                   \
  ROOFLINE_PRODUCT_OF_ROWS(In, type, 64, 32, "%32, %33", "%34")                                       \
  ROOFLINE_PRODUCT_OF_ROWS(In, type, 128, 64, "%64, %65", "%66")                                      \
  ROOFLINE_PRODUCT_OF_COLUMNS(In, type, 64, 32, "{%32, %33, %34, %35}, %36", "%37")                   \
  ROOFLINE_PRODUCT_OF_COLUMNS(In, type, 128, 64, "{%64, %65, %66, %67}, %68", "%69")
ROOFLINE_PRODUCTS(Fp16, "f16")
ROOFLINE_PRODUCTS(Bf16, "bf16")

#undef ROOFLINE_PRODUCTS
#undef ROOFLINE_PRODUCT_OF_COLUMNS
#undef ROOFLINE_PRODUCT_OF_ROWS
#undef ROOFLINE_WGMMA
#undef ROOFLINE_SUMS_64
#undef ROOFLINE_SUMS_32
#undef ROOFLINE_8
#undef ROOFLINE_NAMES_64
#undef ROOFLINE_NAMES_32

// Nothing that reads or writes these registers is moved across this place: products that were enqueued earlier have them until the
// wait before it.
template <int Count>
ROOFLINE_DEVICE void hold(float (&c)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
template <int Count>
ROOFLINE_DEVICE void hold(std::uint32_t (&a)[Count][4]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

}  // namespace roofline::cuda
#endif
