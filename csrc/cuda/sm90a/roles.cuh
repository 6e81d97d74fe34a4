// What warpgroups of a block with roles of their own need: barriers that one of them waits at, registers that go from one to
// another, and copies of boxes of a tensor by the copy unit (TMA). Thin wrappers of PTX, for sm_90a alone.
#pragma once

#include <cstdint>

#include "cuda/simt/warp.cuh"

#if defined(ROOFLINE_CUDA_EMULATED)
#include "roles_emulation.h"
#else
#include <cuda.h>

#include "cuda/simt/bulk.cuh"

namespace roofline::cuda {

using TensorMap = CUtensorMap;

// One arrival at a barrier of cuda/simt/bulk.cuh.
ROOFLINE_DEVICE void arrive_at(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address_of(barrier)) : "memory");
}

// A box of a tensor of three dimensions, and its first element. Past the tensor's edges zeros are loaded.
ROOFLINE_DEVICE void load_box(void* to, const TensorMap* map, int column, int row, int matrix, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          shared_address_of(to)),
      "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(shared_address_of(barrier))
      : "memory");
}

// The 128 bytes that hold this one, to L2.
ROOFLINE_DEVICE void prefetch(const void* memory) { asm volatile("prefetch.global.L2 [%0];" ::"l"(memory)); }

// setmaxnreg: every thread of this warpgroup keeps so many registers, or waits until other warpgroups gave enough to have so many.
template <int Registers>
ROOFLINE_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
ROOFLINE_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// At one of the block's barriers 1 ... 15: wait there for `Threads` threads, or be counted and go on.
template <int Threads>
ROOFLINE_DEVICE void meet(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}
template <int Threads>
ROOFLINE_DEVICE void announce(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}

// The first lane's value, in all lanes of a warp.
ROOFLINE_DEVICE int of_first_lane(int x) { return __shfl_sync(0xFFFFFFFFu, x, 0); }

}  // namespace roofline::cuda
#endif
