// What the tensor-core kernels need of the machine, each a thin wrapper of one instruction: portable PTX of sm_80 and later.
//
// Elements of 16 bits are Fp16 or Bf16 by type and two to a 32-bit register. With ROOFLINE_CUDA_EMULATED the same names come from a
// host emulation instead, so that whole kernels run in tests without a GPU.
#pragma once

#include <cstdint>

#include "cuda/simt/tiles.h"

namespace roofline::cuda {

struct Fp16 {};
struct Bf16 {};

// 16 bytes, moved as one.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

struct alignas(8) TwoWords {
  std::uint32_t words[2];
};
struct alignas(8) TwoFloats {
  float x[2];
};
struct alignas(16) FourFloats {
  float x[4];
};

}  // namespace roofline::cuda

#if defined(ROOFLINE_CUDA_EMULATED)
#include "cuda_emulation.h"
#else

#define ROOFLINE_DEVICE __device__ __forceinline__

namespace roofline::cuda {

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

ROOFLINE_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
ROOFLINE_DEVICE std::int64_t block() { return blockIdx.x; }
ROOFLINE_DEVICE void synchronize() { __syncthreads(); }
ROOFLINE_DEVICE void synchronize_warp() { __syncwarp(); }

// A place in the block's dynamic shared memory: for instructions by address, for C++ by pointer.
ROOFLINE_DEVICE std::uint32_t shared_address(int offset) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(dynamic_shared)) + static_cast<std::uint32_t>(offset);
}
template <class T>
ROOFLINE_DEVICE T* shared_at(int offset) {
  return reinterpret_cast<T*>(dynamic_shared + offset);
}

// 16 bytes from global to shared memory, past L1; zeros where not valid, and then nothing is read.
ROOFLINE_DEVICE void copy_async(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
               : "memory");
}
// How L2 treats the data read: data read once give way first.
ROOFLINE_DEVICE std::uint64_t reading_policy(bool once) {
  std::uint64_t policy;
  if (once)
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
ROOFLINE_DEVICE void copy_async(std::uint32_t to, const void* from, bool valid, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}
// The same for 4 bytes, through L1.
ROOFLINE_DEVICE void copy_word_async(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(valid ? 4 : 0)
               : "memory");
}
ROOFLINE_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `Pending` of this thread's groups are under way.
template <int Pending>
ROOFLINE_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8.
ROOFLINE_DEVICE void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
ROOFLINE_DEVICE void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// The transpose of an 8 x 8 matrix held by a warp, two elements of a row to a lane.
ROOFLINE_DEVICE std::uint32_t transposed(std::uint32_t pair) {
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

// c += a b, 16 x 16 by 16 x 8, sums in fp32.
ROOFLINE_DEVICE void multiply_add(Fp16, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
ROOFLINE_DEVICE void multiply_add(Bf16, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to nearest even, the first in the lower half.
ROOFLINE_DEVICE std::uint32_t packed(Fp16, float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
ROOFLINE_DEVICE std::uint32_t packed(Bf16, float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
// Bytes of the pair (a, b), eight of them from a's lowest up, picked by four digits, the lowest first.
ROOFLINE_DEVICE std::uint32_t bytes_of(std::uint32_t a, std::uint32_t b, std::uint32_t digits) { return __byte_perm(a, b, digits); }
ROOFLINE_DEVICE float as_float(std::uint32_t bits) { return __uint_as_float(bits); }
ROOFLINE_DEVICE std::uint32_t bits_of(float x) { return __float_as_uint(x); }
// Products and sums of two pairs, rounded.
ROOFLINE_DEVICE std::uint32_t times(Fp16, std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
ROOFLINE_DEVICE std::uint32_t plus(Fp16, std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
// 2^x to 2 units in the last place; 0 of -infinity.
ROOFLINE_DEVICE float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ROOFLINE_DEVICE float log2_of(float x) { return __log2f(x); }
// The same number, which the compiler takes for another: what is worked out from it does not stay in registers from round to round.
ROOFLINE_DEVICE int fresh(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
template <class X>
ROOFLINE_DEVICE X from_lane_xor(X x, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, mask); }
ROOFLINE_DEVICE bool any_lane(bool is) { return __any_sync(0xFFFFFFFFu, is); }
ROOFLINE_DEVICE float larger_of(float a, float b) { return fmaxf(a, b); }
ROOFLINE_DEVICE float smaller_of(float a, float b) { return fminf(a, b); }
ROOFLINE_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }

// What other blocks wrote, from L2: L1 may hold what was there before.
ROOFLINE_DEVICE TwoFloats from_others(const TwoFloats* memory) {
  const float2 both = __ldcg(reinterpret_cast<const float2*>(memory));
  return {{both.x, both.y}};
}
ROOFLINE_DEVICE FourFloats from_others(const FourFloats* memory) {
  const float4 all = __ldcg(reinterpret_cast<const float4*>(memory));
  return {{all.x, all.y, all.z, all.w}};
}
// What this thread wrote, and what others had written before a synchronize() it has passed, is seen by every block that sees what
// it writes later.
ROOFLINE_DEVICE void publish() { __threadfence(); }
// The number of earlier arrivals at a counter that starts from 0 again after `arrivals` of them.
ROOFLINE_DEVICE unsigned arrive(unsigned* counter, unsigned arrivals) { return atomicInc(counter, arrivals - 1); }

}  // namespace roofline::cuda
#endif

namespace roofline::cuda {

// Four e4m3 numbers as two pairs in fp16.
ROOFLINE_DEVICE void from_e4m3(std::uint32_t (&pairs)[2], std::uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(pairs[0]), "=r"(pairs[1])
      : "r"(bytes));
#else
  // Sign, exponent and fraction at their places of the wider format, whose exponent is biased by 15, not 7: times 2^8.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t high = bytes_of(bytes, 0, i == 0 ? 0x1404u : 0x3424u);
    pairs[i] = times(Fp16{}, (high & 0x80008000u) | (high & 0x7F007F00u) >> 1, 0x5C005C00u);
  }
#endif
}

// As wait_copies, with a number that is not known to the compiler: 0 ... 6.
ROOFLINE_DEVICE void wait_copies(int pending) {
  switch (pending) {
    case 0: return wait_copies<0>();
    case 1: return wait_copies<1>();
    case 2: return wait_copies<2>();
    case 3: return wait_copies<3>();
    case 4: return wait_copies<4>();
    case 5: return wait_copies<5>();
    default: return wait_copies<6>();
  }
}

}  // namespace roofline::cuda
