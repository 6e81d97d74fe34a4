// Products of a warpgroup for attention, 64 rows by N columns and 16 deep, sums in fp32: thin wrappers of wgmma, for sm_90a alone.
//
// A lane's sums: c[4 i + j] is of rows lane / 4 (j < 2) or lane / 4 + 8 and of column 8 i + lane % 4 * 2 + j % 2, the warp's rows
// being 16 * warp and on: c_place of each eight columns. So the sums of one product, packed two by two, are operand a of the next.
#pragma once

#include <cstdint>

#include "cuda/sm90a/wgmma.cuh"

#if !defined(ROOFLINE_CUDA_EMULATED)

namespace roofline::cuda {

#define ROOFLINE_WGMMA(type, N, add_name, operands)                                                                         \
  "{ .reg .pred p; setp.ne.b32 p, " add_name ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " " operands \
  "; }"

// c = a bᵀ, or with `add` c += a bᵀ, enqueued: both in shared memory, the inner dimension contiguous.
#define ROOFLINE_PRODUCT_OF_ROWS(In, type, N, count, operands, add_name)                                      \
  ROOFLINE_DEVICE void multiply_async(In, float (&c)[count], std::uint64_t a, std::uint64_t b, int add) {     \
    asm volatile(ROOFLINE_WGMMA(type, N, add_name, "{" ROOFLINE_NAMES_##count "}, " operands ", p, 1, 1, 0, 0") \
                 : ROOFLINE_SUMS_##count("+f")                                                                \
                 : "l"(a), "l"(b), "r"(add));                                                                 \
  }
// c = a b, or c += a b, enqueued: a in registers, as mma.sync wants it; b in shared memory, its columns contiguous.
#define ROOFLINE_PRODUCT_OF_COLUMNS(In, type, N, count, operands, add_name)                                                   \
  ROOFLINE_DEVICE void multiply_async(In, float (&c)[count], const std::uint32_t (&a)[4], std::uint64_t b, int add) {         \
    asm volatile(ROOFLINE_WGMMA(type, N, add_name, "{" ROOFLINE_NAMES_##count "}, " operands ", p, 1, 1, 1")                  \
                 : ROOFLINE_SUMS_##count("+f")                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                             \
  }
#define ROOFLINE_PRODUCTS(In, type)                                                    \
  ROOFLINE_PRODUCT_OF_ROWS(In, type, 64, 32, "%32, %33", "%34")                        \
  ROOFLINE_PRODUCT_OF_ROWS(In, type, 128, 64, "%64, %65", "%66")                       \
  ROOFLINE_PRODUCT_OF_COLUMNS(In, type, 64, 32, "{%32, %33, %34, %35}, %36", "%37")    \
  ROOFLINE_PRODUCT_OF_COLUMNS(In, type, 128, 64, "{%64, %65, %66, %67}, %68", "%69")   \
  ROOFLINE_PRODUCT_OF_COLUMNS(In, type, 192, 96, "{%96, %97, %98, %99}, %100", "%101") \
  ROOFLINE_PRODUCT_OF_COLUMNS(In, type, 256, 128, "{%128, %129, %130, %131}, %132", "%133")
ROOFLINE_PRODUCTS(Fp16, "f16")
ROOFLINE_PRODUCTS(Bf16, "bf16")

#undef ROOFLINE_PRODUCTS
#undef ROOFLINE_PRODUCT_OF_COLUMNS
#undef ROOFLINE_PRODUCT_OF_ROWS
#undef ROOFLINE_WGMMA

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

namespace roofline::cuda {

// -- a lane's scores, of one of its two rows (half) ----------------------------------------------------------------------------

// What does not count: columns from `left` on, after the lane's first.
template <int Count>
ROOFLINE_DEVICE void mask(float (&scores)[Count], int half, int left) {
#pragma unroll
  for (int n = 0; n < Count / 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (8 * n + i >= left) scores[4 * n + 2 * half + i] = -INFINITY;
}

template <int Count>
ROOFLINE_DEVICE float largest(const float (&scores)[Count], int half) {
  float max[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) max[i] = scores[4 * (i / 2) + 2 * half + i % 2];
#pragma unroll
  for (int n = 2; n < Count / 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) max[n % 2 * 2 + i] = larger_of(max[n % 2 * 2 + i], scores[4 * n + 2 * half + i]);
  return larger_of(larger_of(max[0], max[1]), larger_of(max[2], max[3]));
}

// They become powers of two of scale * score + less; returns their sum.
template <int Count>
ROOFLINE_DEVICE float exponentiate(float (&scores)[Count], int half, float scale, float less) {
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int n = 0; n < Count / 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& score = scores[4 * n + 2 * half + i];
      score = exp2_of(fused(score, scale, less));
      sum[n % 2 * 2 + i] += score;
    }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Over the four lanes of a row.
ROOFLINE_DEVICE float largest_of_row(float x) {
  x = larger_of(x, from_lane_xor(x, 1));
  return larger_of(x, from_lane_xor(x, 2));
}
ROOFLINE_DEVICE float sum_of_row(float x) {
  x += from_lane_xor(x, 1);
  return x + from_lane_xor(x, 2);
}

}  // namespace roofline::cuda
