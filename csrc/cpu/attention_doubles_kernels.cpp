// Attention by blocks of queries, with all numbers in fp64.
#define ROOFLINE_DOUBLES
#include "cpu/attention_blocks.h"

namespace roofline::cpu {

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_doubles) = {
    kLanes, kRows, kWidth, 1, 1, {tiled<double, PlainProducts>, nullptr, nullptr}, sizeof(double)};

}  // namespace roofline::cpu
