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

// As pack_bf16_words. So many columns at a time that memory gives them fast and few strips are written in turn.
void pack_by_permutes(const void* from, Index stride, float* packed, Index columns, Index inner) {
  constexpr Index kTogether = 8 * kWidth;
  const Index words = (inner + 1) / 2;
  for (Index first = 0; first < columns; first += kTogether)
    for (Index word = 0; word < words; ++word)
      for (Index column = first; column < least(first + kTogether, columns); column += kWidth) {
        const Bf16* const one = static_cast<const Bf16*>(from) + 2 * word * stride + column;
        const Bf16* const next = 2 * word + 1 < inner ? one + stride : nullptr;
        float* const to = packed + column * words + word * kWidth;
        if (next && column + kWidth <= columns)
          pair_32(_mm512_loadu_si512(one), _mm512_loadu_si512(next), to);
        else
          for (Index half = 0; half < kWidth; half += kLanes) store(to + half, row_pair(one, next, half, columns - column));
      }
}

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
    {nullptr, pack_by_permutes},
    {nullptr, plain<PairOfRows>},
    {nullptr, copy_words},
    {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    pair_words,
    pair_rows<kWidth>,
};

}  // namespace roofline::cpu
