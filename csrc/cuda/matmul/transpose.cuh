// A batch of matrices, transposed.
#pragma once

#include "cuda/plan.h"
#include "cuda/simt/vector.cuh"

namespace roofline::cuda {

constexpr int kTransposeSide = 64;
constexpr int kTransposeThreads = 256;

// Tiles of 64 x 64 go through shared memory, so that both sides are walked along their rows.
template <class T>
__global__ void __launch_bounds__(kTransposeThreads) transpose_kernel(const T* __restrict__ from,  // [matrices, rows, columns]
                                                                      T* __restrict__ to,          // [matrices, columns, rows]
                                                                      TileGrid tiles, std::int64_t rows, std::int64_t columns) {
  __shared__ T tile[kTransposeSide][kTransposeSide + (3 + sizeof(T)) / sizeof(T)];
  const int x = static_cast<int>(threadIdx.x) % kTransposeSide, y = static_cast<int>(threadIdx.x) / kTransposeSide;
  for (std::int64_t index = blockIdx.x; index < tiles.rows * tiles.columns * tiles.matrices; index += gridDim.x) {
    const std::int64_t matrix = index / (tiles.rows * tiles.columns) * rows * columns;
    const std::int64_t row = index / tiles.columns % tiles.rows * kTransposeSide, column = index % tiles.columns * kTransposeSide;
    for (int i = y; i < kTransposeSide; i += kTransposeThreads / kTransposeSide)
      if (row + i < rows && column + x < columns) tile[i][x] = from[matrix + (row + i) * columns + column + x];
    __syncthreads();
    for (int i = y; i < kTransposeSide; i += kTransposeThreads / kTransposeSide)
      if (column + i < columns && row + x < rows) to[matrix + (column + i) * rows + row + x] = tile[x][i];
    __syncthreads();
  }
}

// The same of elements of 4 bits, two to a byte along a row: rows and columns are even. 64 x 32 bytes of `from` become as many of
// `to`; a thread puts together both elements of a byte.
__global__ void __launch_bounds__(kTransposeThreads) transpose_nibbles_kernel(const std::uint8_t* __restrict__ from,
                                                                              std::uint8_t* __restrict__ to, TileGrid tiles,
                                                                              std::int64_t rows, std::int64_t columns) {
  constexpr int kBytes = kTransposeSide / 2;
  __shared__ std::uint8_t tile[kTransposeSide][kBytes + 4];
  const int x = static_cast<int>(threadIdx.x) % kBytes, y = static_cast<int>(threadIdx.x) / kBytes;
  for (std::int64_t index = blockIdx.x; index < tiles.rows * tiles.columns * tiles.matrices; index += gridDim.x) {
    const std::int64_t matrix = index / (tiles.rows * tiles.columns) * rows * columns / 2;
    const std::int64_t row = index / tiles.columns % tiles.rows * kTransposeSide, column = index % tiles.columns * kTransposeSide;
    for (int i = y; i < kTransposeSide; i += kTransposeThreads / kBytes)
      if (row + i < rows && column + 2 * x < columns) tile[i][x] = from[matrix + ((row + i) * columns + column) / 2 + x];
    __syncthreads();
    for (int i = y; i < kTransposeSide; i += kTransposeThreads / kBytes)
      if (column + i < columns && row + 2 * x < rows) {
        const int low = tile[2 * x][i / 2] >> i % 2 * 4, high = tile[2 * x + 1][i / 2] >> i % 2 * 4;
        to[matrix + ((column + i) * rows + row) / 2 + x] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
      }
    __syncthreads();
  }
}

}  // namespace roofline::cuda
