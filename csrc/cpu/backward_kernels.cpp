// Gradients of attention, with products in fp32.
#include "cpu/backward_blocks.h"

namespace roofline::cpu {
namespace {

struct Fp32Products : Fma {
  static constexpr Index kNumbers = 1, kQueries = BackwardKernels::kQueries;

  // Rows in fp32, of pitch: where they lie, or in a panel.
  template <class T>
  static const float* sums(const T* from, Index rows, Index head_dim, Index pitch, float* panel) {
    if constexpr (sizeof(T) == sizeof(float))
      if (pitch == head_dim) return from;
    for (Index row = 0; row < rows; ++row) widen(from + row * head_dim, head_dim, panel + row * pitch);
    return panel;
  }
  template <class T>
  static Operand operand(const T* from, Index rows, Index head_dim, Index pitch, float* panel) {
    const float* const all = sums(from, rows, head_dim, pitch, panel);
    return {all, pitch, all};
  }
  template <class T>
  static void columns(const T* from, Index rows, Index head_dim, float* to) {
    transpose_scaled(from, rows, head_dim, set1(1), to, kWidth);
  }
  template <int Rows>
  ROOFLINE_INLINE void put(const float*, float*, Index) {}  // they lie there already
  template <int Rows>
  ROOFLINE_INLINE void put(const Vec (&ds)[Rows][kVectors], float* to, float*, Index pitch) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) store(to + i * pitch + z * kLanes, ds[i][z]);
  }
};

}  // namespace

extern const BackwardKernels ROOFLINE_TABLE(backward) = {
    kLanes,
    kWidth,
    1,
    workspace_floats<Fp32Products>,
    {deltas<float>, deltas<Bf16>, deltas<Fp16>},
    {gradients<float, Fp32Products>, gradients<Bf16, Fp32Products>, gradients<Fp16, Fp32Products>},
    {sum<float>, sum<Bf16>, sum<Fp16>},
};

}  // namespace roofline::cpu
