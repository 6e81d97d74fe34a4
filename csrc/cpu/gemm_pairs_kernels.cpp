// Matrix products of bf16 and int8 by instructions that add two or four products to a sum: for sets that have them beside those of
// gemm_kernels.cpp. A word of a strip, and of a row of a, is so many numbers along inner. bf16: both products are rounded once, to
// nearest even, and denormals count as 0. int8: exact; the instruction takes unsigned numbers of a, which are 128 more here.
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_strips.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

struct Bf16Pairs {
  static constexpr bool kBegun = false;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add(a, b); }
};

struct ByteQuads {
  static constexpr bool kBegun = true;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return in_order(add_byte_quads(a, b, c)); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add_words(a, b); }
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

// As pack_panels, or of int8 as it lies.
void pack_words_of_a(const GemmPart& part, Index k, Index n, float* panels) {
  (part.a_stored == Stored::int8 ? pack_panels_of<Int8Quad> : pack_panels)(part, k, n, panels);
}

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm_pairs) = {
    kWidth,
    kTileRows,
    {0, 2, 0, 4},
    1,
    {nullptr, pack_pairs<std::uint16_t>, nullptr, pack_quads},
    {nullptr, few<Rows<WideStrip<Bf16Pairs>>>, nullptr, few<Rows<WideStrip<ByteQuads>>>},
    {nullptr, block<Rows<WideStrip<Bf16Pairs>>>, nullptr, block<Rows<WideStrip<ByteQuads>>>},
    pack_words_of_a,
    1,
    1,
    {nullptr, pack_by_permutes},
    {},
    {nullptr, copy_words, nullptr, offset_words},
    {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    pair_words,
};

}  // namespace roofline::cpu
