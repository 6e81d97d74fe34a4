// Matrix products of bf16 by an instruction that adds two products to a sum: for sets that have it beside those of gemm_kernels.cpp.
// A word of a strip, and of a row of a, is two numbers along inner. Both products are rounded once, to nearest even, and denormals
// count as 0.
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_plain.h"
#include "cpu/gemm_strips.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

struct Bf16Pairs {
  static constexpr bool kBegun = false;
  using Of = float;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add(a, b); }
};

// Two rows of b.
struct PairOfRows : Bf16Pairs {
  using Element = Bf16;
  static constexpr Index kNumbers = 2;
  template <int Vectors>
  ROOFLINE_INLINE void read(const Bf16* one, const Bf16* next, int lanes, Vec (&y)[Vectors]) {
    if constexpr (Vectors == 1)
      y[0] = row_pair(one, next, 0, lanes);
    else
#pragma GCC unroll 4
      for (int z = 0; z < Vectors; z += 2)
        pair_32(_mm512_loadu_si512(one + z * kLanes), next ? _mm512_loadu_si512(next + z * kLanes) : _mm512_setzero_si512(), y[z],
                y[z + 1]);
  }
};

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm_pairs) = {
    kWidth,
    kTileRows,
    {0, 2},
    1,
    {nullptr, pack_pairs<std::uint16_t>},
    {nullptr, few<Rows<WideStrip<Bf16Pairs>>>},
    {nullptr, block<Rows<WideStrip<Bf16Pairs>>>},
    pack_panels<Bf16Pairs>,
    1,
    0,
    {nullptr, pack_strips<1>},
    {nullptr, plain<PairOfRows>},
    {nullptr, copy_words},
    {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    pair_words,
    pair_rows<kWidth>,
};

}  // namespace roofline::cpu
