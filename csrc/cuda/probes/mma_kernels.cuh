// The kernels of mma by mma.sync, in the words that host tests can run too.
//
// A warp has one tile at a time: it loads a, -a and b once, multiplies them from registers for all steps, and stores every sum
// once. No two of its accumulators have the same pair of fragments, so that none can stand in for another; one is used again only
// after all others, which hides the latency of the unit.
#pragma once

#include "cuda/probes/mma_plan.h"
#include "cuda/simt/mma.cuh"

namespace roofline::cuda {

constexpr int kMmaThreads = 128;
constexpr int kMmaWarps = kMmaThreads / 32;
constexpr int kMmaBlocks = 3;        // per SM: 12 warps, three for each unit; with four, sm_90 spills
constexpr int kMmaDoubleBlocks = 2;  // fp64: twice the registers

constexpr MmaTile kWarpTile = {32, 64, 4 * kRowWords};
constexpr MmaTile kWarpDoubleTile = {32, 32, 16 * 8};  // of fp64

struct MmaWork {
  const void* a;  // [2, tiles, rows, inner]
  const void* b;  // [tiles, columns, inner]
  void* c;        // [tiles, rows, columns]
  std::int64_t tiles, steps, blocks;
};

// Runs step(sign) with the signs in turn; two a round, so that which operand it takes is known to the compiler.
template <class Step>
ROOFLINE_DEVICE void in_turn(std::int64_t steps, Step step) {
#pragma unroll 1
  for (std::int64_t pair = 0; pair < steps / 2; ++pair) {
    step(0);
    step(1);
  }
  if (steps % 2) step(0);
}

struct Half {};

// The sums of one fragment in a lane's registers, and where they go: rows group and group + 8, columns 2 pair and the next.
template <class Sum>
struct Sums {
  Sum x[4] = {};
  ROOFLINE_DEVICE void store(void* tile, int columns, int row, int column) const {
    Sum* at = static_cast<Sum*>(tile) + row * columns + column;
    at[0] = x[0], at[1] = x[1];
    at += 8 * columns;
    at[0] = x[2], at[1] = x[3];
  }
  static constexpr int kBytes = sizeof(Sum);
};
template <>
struct Sums<Half> {
  std::uint32_t x[2] = {};
  ROOFLINE_DEVICE void store(void* tile, int columns, int row, int column) const {
    std::uint32_t* at = static_cast<std::uint32_t*>(tile) + (row * columns + column) / 2;
    at[0] = x[0], at[4 * columns] = x[1];
  }
  static constexpr int kBytes = 2;
};

// In: what the words hold (Fp16, Bf16, Tf32, Fp8E4m3, Int8, Int4). Sum: float, std::int32_t or Half.
template <class In, class Sum>
ROOFLINE_DEVICE void mma_words(const MmaWork& work) {
  constexpr int kM = kWarpTile.rows / 16, kN = kWarpTile.columns / 8;
  const int lane = thread() % 32;
  for (std::int64_t tile = block() * kMmaWarps + thread() / 32; tile < work.tiles; tile += work.blocks * kMmaWarps) {
    std::uint32_t a[2][kM][4], b[kN][2];
#pragma unroll
    for (int sign = 0; sign < 2; ++sign) {
      const auto* from = static_cast<const std::uint32_t*>(work.a) + (sign * work.tiles + tile) * kWarpTile.rows * kRowWords;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = a_word(lane, i);
          a[sign][m][i] = from[(16 * m + place.row) * kRowWords + place.column];
        }
      }
    }
    const auto* from = static_cast<const std::uint32_t*>(work.b) + tile * kWarpTile.columns * kRowWords;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Place place = b_word(lane, i);
        b[n][i] = from[(8 * n + place.row) * kRowWords + place.column];
      }
    }
    Sums<Sum> c[kM][kN];
    in_turn(work.steps, [&](int sign) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int m = 0; m < kM; ++m) multiply_add(In{}, c[m][n].x, a[sign][m], b[n][0], b[n][1]);
      }
    });
    char* to = static_cast<char*>(work.c) + tile * kWarpTile.rows * kWarpTile.columns * Sums<Sum>::kBytes;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) c[m][n].store(to, kWarpTile.columns, 16 * m + lane / 4, 8 * n + lane % 4 * 2);
    }
  }
}

// fp64. Large: by m16n8k16 (sm_90 and later), else by m8n8k4, four of them for the same inner dimension. Both hold the same
// elements: of rows and columns the lane's group, of the inner dimension every fourth.
template <bool Large>
ROOFLINE_DEVICE void mma_doubles(const MmaWork& work) {
  constexpr int kInner = kWarpDoubleTile.inner_bytes / 8, kK = kInner / 4;
  constexpr int kM = kWarpDoubleTile.rows / 16, kN = kWarpDoubleTile.columns / 8;
  const int lane = thread() % 32, group = lane / 4, pair = lane % 4;
  for (std::int64_t tile = block() * kMmaWarps + thread() / 32; tile < work.tiles; tile += work.blocks * kMmaWarps) {
    double a[2][kM][2 * kK], b[kN][kK];  // of a rows group and group + 8 in turn
#pragma unroll
    for (int sign = 0; sign < 2; ++sign) {
      const double* from = static_cast<const double*>(work.a) + (sign * work.tiles + tile) * kWarpDoubleTile.rows * kInner;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int i = 0; i < 2 * kK; ++i) a[sign][m][i] = from[(16 * m + group + i % 2 * 8) * kInner + i / 2 * 4 + pair];
      }
    }
    const double* from = static_cast<const double*>(work.b) + tile * kWarpDoubleTile.columns * kInner;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int k = 0; k < kK; ++k) b[n][k] = from[(8 * n + group) * kInner + 4 * k + pair];
    }
    Sums<double> c[kM][kN];
    in_turn(work.steps, [&](int sign) {
      if constexpr (Large) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int m = 0; m < kM; ++m) multiply_add(c[m][n].x, a[sign][m], b[n]);
        }
      } else {
#pragma unroll
        for (int k = 0; k < kK; ++k) {
#pragma unroll
          for (int n = 0; n < kN; ++n) {
#pragma unroll
            for (int m = 0; m < 2 * kM; ++m) {
              // The two halves of four sums are the sums of the upper and of the lower eight rows.
              auto& half = reinterpret_cast<double(&)[2]>(c[m / 2][n].x[m % 2 * 2]);
              multiply_add(half, a[sign][m / 2][2 * k + m % 2], b[n][k]);
            }
          }
        }
      }
    });
    auto* to = static_cast<double*>(work.c) + tile * kWarpDoubleTile.rows * kWarpDoubleTile.columns;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) c[m][n].store(to, kWarpDoubleTile.columns, 16 * m + group, 8 * n + 2 * pair);
    }
  }
}

}  // namespace roofline::cuda
