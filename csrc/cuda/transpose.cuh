// A batch of matrices, transposed.
#pragma once

#include "cuda/plan.h"
#include "cuda/vector.cuh"

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

}  // namespace roofline::cuda
