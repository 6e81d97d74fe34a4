// Gradients of attention of bf16 by instructions that add two products to a sum, for sets that have them beside those of
// backward_kernels.cpp. P and dS are rounded to bf16; denormals count as 0.
#include "cpu/backward_blocks.h"
#include "cpu/simd/integers.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

struct PairProducts {
  static constexpr Index kNumbers = 2, kQueries = 2 * BackwardKernels::kQueries;
  static constexpr bool kSlow = true;

  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }

  static const float* sums(const Bf16* from, Index rows, Index head_dim, Index pitch, float* panel) {
    for (Index row = 0; row < rows; row += 2)
      pair_rows(from + row * head_dim, row + 1 < rows ? from + (row + 1) * head_dim : nullptr, head_dim, panel + row / 2 * pitch);
    return panel;
  }
  // Rows are read where they lie, but those that no whole words are, or no pairs of queries.
  static Operand operand(const Bf16* from, Index rows, Index head_dim, Index pitch, float* panel) {
    const float* const pairs = sums(from, rows, head_dim, pitch, panel);
    if (head_dim % 2 == 0 && rows % 2 == 0) return {reinterpret_cast<const float*>(from), head_dim / 2, pairs};
    float* const words = panel + kQueries / 2 * pitch;
    const Index each = pitch / 2;
    for (Index row = 0; row < rows + rows % 2; ++row) {
      __builtin_memset(words + row * each, 0, static_cast<std::size_t>(4 * each));
      if (row < rows) __builtin_memcpy(words + row * each, from + row * head_dim, static_cast<std::size_t>(2 * head_dim));
    }
    return {words, each, pairs};
  }
  static void columns(const Bf16* from, Index rows, Index head_dim, float* to) {
    transpose_words(from, rows, head_dim, to, kWidth, (head_dim + 1) / 2);
  }

  // Rows of P as words of two queries.
  template <int Rows>
  ROOFLINE_INLINE void put(const float* p, float* to, Index pitch) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i += 2)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; z += 2) {
        const float *const one = p + i * kWidth + z * kLanes, *const next = one + kWidth;
        pair_32(narrow_32(load(one), load(one + kLanes)), narrow_32(load(next), load(next + kLanes)), to + i / 2 * pitch + z * kLanes);
      }
  }
  // Those of dS, and its rows as words of two keys.
  template <int Rows>
  ROOFLINE_INLINE void put(const Vec (&ds)[Rows][kVectors], float* to, float* rows, Index pitch) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i += 2)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; z += 2) {
        const __m512i one = narrow_32(ds[i][z], ds[i][z + 1]), next = narrow_32(ds[i + 1][z], ds[i + 1][z + 1]);
        _mm512_storeu_si512(rows + i * (pitch / 2) + z / 2 * kLanes, one);
        _mm512_storeu_si512(rows + (i + 1) * (pitch / 2) + z / 2 * kLanes, next);
        pair_32(one, next, to + i / 2 * pitch + z * kLanes);
      }
  }
};

}  // namespace

extern const BackwardKernels ROOFLINE_TABLE(backward_pairs) = {
    kLanes,
    kWidth,
    PairProducts::kNumbers,
    workspace_floats<PairProducts>,
    {nullptr, deltas<Bf16>, nullptr},
    {nullptr, gradients<Bf16, PairProducts>, nullptr},
    {nullptr, sum<Bf16>, nullptr},
};

}  // namespace roofline::cpu
