// Scales of blocks, from the order of their operands to cuBLASLt's (cuda/matmul/scale_layout.h).
#pragma once

#include "cuda/matmul/scale_layout.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

constexpr int kScaleThreads = 256;

// One thread per byte of `to`. row_stride, block_stride: of `from`.
__global__ void __launch_bounds__(kScaleThreads) tile_scales_kernel(const std::uint8_t* __restrict__ from,
                                                                    std::uint8_t* __restrict__ to, std::int64_t rows,
                                                                    std::int64_t blocks, std::int64_t row_stride,
                                                                    std::int64_t block_stride) {
  const std::int64_t across = tiles_across(blocks), size = tiled_scale_bytes(rows, blocks);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kScaleThreads + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * kScaleThreads) {
    const std::int64_t tile = i / kScaleTileBytes, in_tile = i % kScaleTileBytes;
    const std::int64_t row = tile / across * kScaleTileRows + in_tile % 16 / 4 * 32 + in_tile / 16;
    const std::int64_t block = tile % across * kScaleTileBlocks + in_tile % 4;
    to[i] = row < rows && block < blocks ? from[row * row_stride + block * block_stride] : std::uint8_t{0};
  }
}

// One thread per number of `to`.
__global__ void __launch_bounds__(kScaleThreads) square_scales_kernel(const float* __restrict__ from,  // [blocks, columns]
                                                                      float* __restrict__ to,          // [columns, pitch]
                                                                      std::int64_t blocks, std::int64_t columns) {
  const std::int64_t pitch = square_scale_pitch(blocks), size = columns * pitch;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kScaleThreads + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * kScaleThreads)
    to[i] = i % pitch < blocks ? from[i % pitch * columns + i / pitch] : 0.f;
}

// The factors of a product whose operands have a scale each: alpha, and beta, which is 0. One thread.
__global__ void product_factors_kernel(const float* a, const float* b, float* alpha_beta) {
  alpha_beta[0] = *a * *b;
  alpha_beta[1] = 0;
}

}  // namespace roofline::cuda
