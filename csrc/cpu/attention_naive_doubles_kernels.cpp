// Attention in three passes, with all numbers in fp64.
#define ROOFLINE_DOUBLES
#include "cpu/attention_naive.h"

namespace roofline::cpu {

extern const AttentionNaiveKernels ROOFLINE_TABLE(attention_naive_doubles) = {
    kWidth, {scores<double>}, softmax, {values<double>}, sizeof(double)};

}  // namespace roofline::cpu
