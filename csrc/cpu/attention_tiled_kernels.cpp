// Attention by blocks of queries, with products in fp32.
#include "cpu/attention_blocks.h"

namespace roofline::cpu {

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_tiled) = {
    kLanes, kRows, kWidth, 1, 1, {tiled<float, PlainProducts>, tiled<Bf16, PlainProducts>, tiled<Fp16, PlainProducts>}};

}  // namespace roofline::cpu
