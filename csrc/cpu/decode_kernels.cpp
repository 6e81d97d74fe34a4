// Attention of few queries, with arithmetic in fp32.
#include "cpu/decode_walk.h"

namespace roofline::cpu {

extern const DecodeKernels<float> ROOFLINE_TABLE(decode) = {
    {take<float>, take<Bf16>, take<Fp16>},
    {attend<float>, attend<Bf16>, attend<Fp16>, attend<Int8>, attend<Fp8E4m3>, attend<Fp8E5m2>},
    {combine<float>, combine<Bf16>, combine<Fp16>},
};

}  // namespace roofline::cpu
