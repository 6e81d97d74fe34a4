// Attention of few queries, with all numbers in fp64.
#define ROOFLINE_DOUBLES
#include "cpu/decode_walk.h"

namespace roofline::cpu {

extern const DecodeKernels<double> ROOFLINE_TABLE(decode_doubles) = {{take<double>}, {attend<double>}, {combine<double>}};

}  // namespace roofline::cpu
