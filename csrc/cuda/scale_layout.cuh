// Scales of blocks as cuBLASLt reads them ("Scaling factors layouts" of its reference), from operands' own order.
#pragma once

#include "cuda/plan.h"
#include "cuda/vector.cuh"

namespace roofline::cuda {

constexpr int kScaleThreads = 256;

// Of 8 bits: tiles of 128 rows by 4 blocks along inner, in 512 bytes. Sixteen bytes hold the four blocks of rows r, r + 32, r + 64
// and r + 96. Tiles follow each other along inner first. What is past the last row or block is zero.
constexpr int kScaleTileRows = 128, kScaleTileBlocks = 4, kScaleTileBytes = kScaleTileRows * kScaleTileBlocks;

constexpr std::int64_t tiled_scale_bytes(std::int64_t rows, std::int64_t blocks) {
  return ceil_div(rows, kScaleTileRows) * ceil_div(blocks, kScaleTileBlocks) * kScaleTileBytes;
}

// One thread per byte of `to`. row_stride, block_stride: of `from`.
__global__ void __launch_bounds__(kScaleThreads) tile_scales_kernel(const std::uint8_t* __restrict__ from,
                                                                    std::uint8_t* __restrict__ to, std::int64_t rows,
                                                                    std::int64_t blocks, std::int64_t row_stride,
                                                                    std::int64_t block_stride) {
  const std::int64_t across = ceil_div(blocks, kScaleTileBlocks), size = tiled_scale_bytes(rows, blocks);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kScaleThreads + threadIdx.x; i < size; i += std::int64_t{gridDim.x} * kScaleThreads) {
    const std::int64_t tile = i / kScaleTileBytes, in_tile = i % kScaleTileBytes;
    const std::int64_t row = tile / across * kScaleTileRows + in_tile % 16 / 4 * 32 + in_tile / 16;
    const std::int64_t block = tile % across * kScaleTileBlocks + in_tile % 4;
    to[i] = row < rows && block < blocks ? from[row * row_stride + block * block_stride] : std::uint8_t{0};
  }
}

// Of 128 x 128 numbers in fp32: for each 128 columns those along inner, padded with zeros to a multiple of four.
constexpr std::int64_t square_scale_pitch(std::int64_t blocks) { return ceil_div(blocks, 4) * 4; }

__global__ void __launch_bounds__(kScaleThreads) square_scales_kernel(const float* __restrict__ from,  // [blocks, columns]
                                                                      float* __restrict__ to,          // [columns, pitch]
                                                                      std::int64_t blocks, std::int64_t columns) {
  const std::int64_t pitch = square_scale_pitch(blocks), size = columns * pitch;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kScaleThreads + threadIdx.x; i < size; i += std::int64_t{gridDim.x} * kScaleThreads)
    to[i] = i % pitch < blocks ? from[i % pitch * columns + i / pitch] : 0.f;
}

// The factors of a product whose operands have a scale each: alpha, and beta, which is 0. One thread.
__global__ void product_factors_kernel(const float* a, const float* b, float* alpha_beta) {
  alpha_beta[0] = *a * *b;
  alpha_beta[1] = 0;
}

}  // namespace roofline::cuda
