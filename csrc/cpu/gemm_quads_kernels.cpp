// Matrix products of int8 by an instruction that adds four products to a sum: for sets that have it beside those of gemm_kernels.cpp.
// A word of a strip, and of a row of a, is four numbers along inner. Sums are exact. The instruction takes unsigned numbers of a,
// which are 128 more here.
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

struct ByteQuads {
  using Of = Int8Quad;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return in_order(add_byte_quads(a, b, c)); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add_words(a, b); }
};

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm_quads) = {
    .width = kWidth,
    .tile_rows = kTileRows,
    .numbers = {0, 0, 0, 4},
    .multiple = 1,
    .pack = {nullptr, nullptr, nullptr, pack_quads},
    .few = {nullptr, nullptr, nullptr, few<Rows<WideStrip<ByteQuads>, true>>},
    .block = {nullptr, nullptr, nullptr, block<Rows<WideStrip<ByteQuads>, true>>},
    .pack_a = pack_panels<ByteQuads>,
    .begun = {false, false, false, true},
    .widen = {nullptr, nullptr, nullptr, copy_words},
    .narrow = {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
};

}  // namespace roofline::cpu
