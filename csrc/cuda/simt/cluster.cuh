// Blocks of a cluster, which share an address space of shared memory: PTX of sm_90 and later.
//
// On older architectures these do nothing, and no kernel that uses them is offered there. With ROOFLINE_EMULATED_GPU a cluster is
// one block.
#pragma once

#include <cstdint>

#include "cuda/simt/bulk.cuh"

namespace roofline::cuda {

#if defined(ROOFLINE_EMULATED_GPU)

inline int cluster_rank() { return 0; }
inline int cluster_size() { return 1; }
inline void send_to_block(float2* at, int, float2 pair, std::uint64_t* barrier) {
  *at = pair;
  emulated_barriers.at(barrier).expected -= 8;
}
inline void synchronize_cluster() { __syncthreads(); }

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ int cluster_size() {
  int size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return size;
}
// Two numbers into the shared memory of a block of the cluster, where this one has at and barrier: they are 8 of the bytes that
// the barrier there waits for.
__device__ __forceinline__ void send_to_block(float2* at, int rank, float2 pair, std::uint64_t* barrier) {
  asm volatile(
      "{\n .reg .u32 there, then;\n mapa.shared::cluster.u32 there, %0, %2;\n mapa.shared::cluster.u32 then, %1, %2;\n"
      " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [then];\n}" ::"r"(
          shared_address_of(at)),
      "r"(shared_address_of(barrier)), "r"(rank), "f"(pair.x), "f"(pair.y)
      : "memory");
}
// As __syncthreads() of all blocks: what each wrote before is seen by all behind it.
__device__ __forceinline__ void synchronize_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#else

__device__ __forceinline__ int cluster_rank() { return 0; }
__device__ __forceinline__ int cluster_size() { return 1; }
__device__ __forceinline__ void send_to_block(float2*, int, float2, std::uint64_t*) {}
__device__ __forceinline__ void synchronize_cluster() {}

#endif

}  // namespace roofline::cuda
