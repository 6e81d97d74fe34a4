// Matrix products with all numbers in fp64.
#define ROOFLINE_DOUBLES
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_plain.h"
#include "cpu/gemm_strips.h"

namespace roofline::cpu {

extern const GemmKernelsOf<double> ROOFLINE_TABLE(gemm_doubles) = {
    .width = kWidth,
    .tile_rows = kTileRows,
    .numbers = {1},
    .multiple = 1,
    .pack = {pack_rows<double>},
    .few = {few<Rows<WideStrip<Floats>>>},
    .block = {block<Rows<WideStrip<Floats>>, UnpackedStrip<Floats, RowOf<double>>>},
    .pack_a = pack_panels<Floats>,
    .pack_wide = {pack_wide<double>},
    .plain = {plain<RowOf<double>>},
    .widen = {widen<double>},
    .narrow = {narrow_to<double>},
};

}  // namespace roofline::cpu
