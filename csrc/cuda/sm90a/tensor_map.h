// Tensors as the copy unit (TMA) knows them.
#pragma once

#include <cuda.h>

#include "core/dtype.h"

namespace roofline::cuda {

// A tensor [matrices, rows, columns] of 16-bit elements, in boxes of box_rows rows and 64 columns that are swizzled in shared
// memory. It begins at a multiple of 16 bytes, and so do its rows. what: who asks, for messages.
CUtensorMap tensor_map(const char* what, const void* data, DType dtype, std::int64_t matrices, std::int64_t rows,
                       std::int64_t columns, int box_rows);

}  // namespace roofline::cuda
