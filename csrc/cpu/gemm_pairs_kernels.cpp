// Matrix products of bf16 and int8 by instructions that add two products to a sum: for sets that have them beside those of
// gemm_kernels.cpp. A word of a strip, and of a row of a, is two numbers along inner. bf16: both products are rounded once, to nearest
// even, and denormals count as 0. int8: the two are 16 bits each in registers, exact.
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

struct Bf16Pairs {
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add(a, b); }
};

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm_pairs) = {
    kWidth,
    kTileRows,
    {0, 2, 0, 2},
    1,
    {nullptr, pack_pairs<std::uint16_t>, nullptr, pack_pairs<std::int8_t>},
    {nullptr, few<Rows<WideStrip<Bf16Pairs>>>, nullptr, few<Rows<Int8Strip>>},
    {nullptr, block<Rows<WideStrip<Bf16Pairs>>>, nullptr, block<Rows<Int8Strip>>},
    {nullptr, pack_bf16_words<kWidth, 1>},
    {},
    {nullptr, copy_words, nullptr, widen_int8},
    {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    pair_words,
};

}  // namespace roofline::cpu
