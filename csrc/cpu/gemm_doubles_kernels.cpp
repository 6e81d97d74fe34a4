// Matrix products with all numbers in fp64.
#define ROOFLINE_DOUBLES
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_plain.h"
#include "cpu/gemm_strips.h"

namespace roofline::cpu {

extern const GemmKernelsOf<double> ROOFLINE_TABLE(gemm_doubles) = {
    kWidth,
    kTileRows,
    {1},
    1,
    {pack_rows<double>},
    {few<Rows<WideStrip<Floats>>>},
    {block<Rows<WideStrip<Floats>>, RowOf<double>>},
    pack_panels<Floats>,
    1,
    0,
    {pack_wide<double>},
    {plain<RowOf<double>>},
    {widen<double>},
    {narrow_to<double>},
    nullptr,
    nullptr,
};

}  // namespace roofline::cpu
