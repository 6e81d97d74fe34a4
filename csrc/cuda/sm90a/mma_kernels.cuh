// The kernel of mma by wgmma, in the words that host tests can run too.
//
// A warpgroup has one tile at a time. It copies a, -a and b to its part of shared memory, once, in rows of 128 bytes as wgmma wants
// them swizzled; then every step is one group of four products, each of another 32 bytes of the inner dimension, and one group is
// always under way while the next is issued. The sums stay in registers, and are stored once. The units take turns between the
// block's two warpgroups.
#pragma once

#include "cuda/probes/mma_kernels.cuh"
#include "cuda/sm90a/wgmma.cuh"

namespace roofline::cuda {

constexpr MmaTile kWarpgroupTile = {64, 256, 128};
constexpr int kWarpgroups = 2;  // of a block; one block per SM
constexpr int kWgmmaThreads = 128 * kWarpgroups;
constexpr int kWgmmaABytes = kWarpgroupTile.rows * kWarpgroupTile.inner_bytes;
constexpr int kWgmmaBBytes = kWarpgroupTile.columns * kWarpgroupTile.inner_bytes;
constexpr int kWgmmaSharedBytes = kWarpgroups * (2 * kWgmmaABytes + kWgmmaBBytes);

// Rows of 128 bytes to shared memory, swizzled, by the 128 threads of a warpgroup.
ROOFLINE_DEVICE void copy_rows(int offset, const void* from, int rows) {
  for (int i = thread() % 128; i < rows * 8; i += 128)
    *shared_at<Chunk>(offset + swizzled<8>(i / 8, i % 8)) = static_cast<const Chunk*>(from)[i];
}

template <class In, class Sum>
ROOFLINE_DEVICE void mma_warpgroups(const MmaWork& work) {
  const int warpgroup = thread() / 128, warp = thread() / 32 % 4, lane = thread() % 32;
  const int first = warpgroup * (2 * kWgmmaABytes + kWgmmaBBytes);  // byte of shared memory
  const std::uint64_t a[2] = {row_descriptor(shared_address(first)), row_descriptor(shared_address(first + kWgmmaABytes))};
  const std::uint64_t b = row_descriptor(shared_address(first + 2 * kWgmmaABytes));
  for (std::int64_t next = block() * kWarpgroups; next < work.tiles; next += work.blocks * kWarpgroups) {
    // The last tile of an odd number is computed twice, so that both warpgroups meet at every barrier.
    const std::int64_t tile = next + warpgroup < work.tiles ? next + warpgroup : work.tiles - 1;
    synchronize();  // nobody reads the tile before
    for (int sign = 0; sign < 2; ++sign)
      copy_rows(first + sign * kWgmmaABytes, static_cast<const char*>(work.a) + (sign * work.tiles + tile) * kWgmmaABytes,
                kWarpgroupTile.rows);
    copy_rows(first + 2 * kWgmmaABytes, static_cast<const char*>(work.b) + tile * kWgmmaBBytes, kWarpgroupTile.columns);
    show_to_units();
    synchronize();

    Sum c[128] = {};
    in_turn(work.steps, [&](int sign) {
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_add_async(In{}, c, a[sign] + k * kNextInner, b + k * kNextInner);
      commit_products();
      wait_products<1>();
    });
    wait_products<0>();

    const std::int64_t row = tile * kWarpgroupTile.rows + 16 * warp + lane / 4;
    Sum* to = static_cast<Sum*>(work.c) + row * kWarpgroupTile.columns + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kWarpgroupTile.columns / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Sum* at = to + half * 8 * kWarpgroupTile.columns + 8 * n;
        at[0] = c[4 * n + 2 * half], at[1] = c[4 * n + 2 * half + 1];
      }
    }
  }
}

}  // namespace roofline::cuda
