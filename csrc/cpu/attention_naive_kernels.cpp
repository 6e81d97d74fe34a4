// Attention in three passes, with scores in fp32.
#include "cpu/attention_naive.h"

namespace roofline::cpu {

extern const AttentionNaiveKernels ROOFLINE_TABLE(attention_naive) = {
    kWidth, {scores<float>, scores<Bf16>, scores<Fp16>}, softmax, {values<float>, values<Bf16>, values<Fp16>}, sizeof(float)};

}  // namespace roofline::cpu
