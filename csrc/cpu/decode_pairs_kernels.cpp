// Attention of few queries in bf16 by instructions that add two products to a sum: of two columns of a query and a key, and of two
// values. Bytes are widened to bf16, which holds each. Weights are rounded to it, and its denormal numbers count as 0.
#define ROOFLINE_PAIRS
#include "cpu/decode_walk.h"

namespace roofline::cpu {

extern const DecodeKernels<float> ROOFLINE_TABLE(decode_pairs) = {
    {nullptr, take<Bf16Pair>},
    {nullptr, attend<Bf16Pair>, nullptr, attend<Int8Pair>, attend<Fp8Pair>, attend<Fp8Pair>},
    {nullptr, combine<Bf16>},
    kNumbers<Bf16Pair>,
    in_whole_rows<Bf16Pair>,
};

}  // namespace roofline::cpu
