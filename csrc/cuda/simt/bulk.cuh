// Bulk copies between global and shared memory and the barriers they complete: PTX of sm_90 and later, without tensor maps.
//
// A bulk copy is one instruction of one thread for any multiple of 16 bytes, done by the copy unit (TMA): loads tell a barrier in
// shared memory how many bytes have come, stores are counted in groups of the thread that issues them. On older architectures these
// do nothing, and no kernel that uses them is offered there. With ROOFLINE_EMULATED_GPU the same names come from a host emulation.
#pragma once

#include <cstdint>

#if defined(ROOFLINE_EMULATED_GPU)
#include "emulated_bulk.h"
#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define ROOFLINE_BULK(...) asm volatile(__VA_ARGS__)
#else
#define ROOFLINE_BULK(...) static_cast<void>(0)
#endif

namespace roofline::cuda {

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

__device__ __forceinline__ std::uint32_t shared_address_of(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// For `arrivals` arrivals a phase. The copy unit sees it after fence_barriers().
__device__ __forceinline__ void init_barrier(std::uint64_t* barrier, unsigned arrivals) {
  ROOFLINE_BULK("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address_of(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barriers() { ROOFLINE_BULK("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival, and so many bytes more until the phase is complete.
__device__ __forceinline__ void expect_bytes(std::uint64_t* barrier, std::uint32_t bytes) {
  ROOFLINE_BULK("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address_of(barrier)), "r"(bytes)
                : "memory");
}

// Until the phase of this parity (0 for the first) is complete.
__device__ __forceinline__ void wait_phase(std::uint64_t* barrier, unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address_of(barrier)), "r"(parity)
        : "memory");
#endif
}

__device__ __forceinline__ void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  ROOFLINE_BULK("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_address_of(to)),
                "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address_of(barrier))
                : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  ROOFLINE_BULK("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                "r"(shared_address_of(from)), "r"(bytes)
                : "memory");
}
__device__ __forceinline__ void commit_stores() { ROOFLINE_BULK("cp.async.bulk.commit_group;" ::: "memory"); }
// Until this thread's groups have read their shared memory.
__device__ __forceinline__ void wait_stores_read() { ROOFLINE_BULK("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

}  // namespace roofline::cuda

#undef ROOFLINE_BULK
#endif
