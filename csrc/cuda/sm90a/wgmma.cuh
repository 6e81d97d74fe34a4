// Products of warpgroups, 64 x 256 and 32 bytes deep, both operands in shared memory: thin wrappers of wgmma, for sm_90a alone.
#pragma once

#include "cuda/simt/mma.cuh"
#include "cuda/sm90a/descriptor.h"

#if defined(ROOFLINE_CUDA_EMULATED)
#include "wgmma_emulation.h"
#else

namespace roofline::cuda {

// What threads wrote to shared memory is seen by wgmma, which reads it on another way; before a barrier.
ROOFLINE_DEVICE void show_to_units() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Before a group of products whose registers were used otherwise since the last one.
ROOFLINE_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ROOFLINE_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `Pending` groups of this warpgroup are under way.
template <int Pending>
ROOFLINE_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// The names of the first so many registers in a product's text, and the sums that these are.
#define ROOFLINE_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ROOFLINE_NAMES_64 \
  ROOFLINE_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ROOFLINE_NAMES_96 \
  ROOFLINE_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define ROOFLINE_NAMES_128 \
  ROOFLINE_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ROOFLINE_8(how, i) \
  how(c[i]), how(c[i + 1]), how(c[i + 2]), how(c[i + 3]), how(c[i + 4]), how(c[i + 5]), how(c[i + 6]), how(c[i + 7])
#define ROOFLINE_32(how, i) ROOFLINE_8(how, i), ROOFLINE_8(how, i + 8), ROOFLINE_8(how, i + 16), ROOFLINE_8(how, i + 24)
#define ROOFLINE_SUMS_32(how) ROOFLINE_32(how, 0)
#define ROOFLINE_SUMS_64(how) ROOFLINE_SUMS_32(how), ROOFLINE_32(how, 32)
#define ROOFLINE_SUMS_96(how) ROOFLINE_SUMS_64(how), ROOFLINE_32(how, 64)
#define ROOFLINE_SUMS_128(how) ROOFLINE_SUMS_96(how), ROOFLINE_32(how, 96)

// c += a bᵀ, enqueued. The text names the types, and what follows the descriptors: the predicate that c is added to, the factors of
// a and b, and of 16-bit types that neither is transposed.
#define ROOFLINE_WGMMA(In, Sum, how, types, more)                                                 \
  ROOFLINE_DEVICE void multiply_add_async(In, Sum (&c)[128], std::uint64_t a, std::uint64_t b) {  \
    asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n256" types\
                 " {" ROOFLINE_NAMES_128 "}, %128, %129, p" more "; }"                            \
                 : ROOFLINE_SUMS_128(how)                                                         \
                 : "l"(a), "l"(b));                                                               \
  }
ROOFLINE_WGMMA(Fp16, float, "+f", "k16.f32.f16.f16", ", 1, 1, 0, 0")
ROOFLINE_WGMMA(Bf16, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0, 0")
ROOFLINE_WGMMA(Tf32, float, "+f", "k8.f32.tf32.tf32", ", 1, 1")
ROOFLINE_WGMMA(Fp8E4m3, float, "+f", "k32.f32.e4m3.e4m3", ", 1, 1")
ROOFLINE_WGMMA(Int8, std::int32_t, "+r", "k32.s32.s8.s8", "")
#undef ROOFLINE_WGMMA

}  // namespace roofline::cuda
#endif
