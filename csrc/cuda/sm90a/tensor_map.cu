#include "cuda/sm90a/tensor_map.h"

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"
#include "cuda/check.h"

namespace roofline::cuda {
namespace {

// The driver's function, which the CUDA runtime hands out: nothing is linked with the driver.
auto encoder(const char* what) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  ROOFLINE_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
#else
  ROOFLINE_CUDA(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || !found)
    throw Unsupported(std::string(what) + " needs tensor maps, which this driver lacks; use a driver of CUDA 12 or newer");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

}  // namespace

CUtensorMap tensor_map(const char* what, const void* data, DType dtype, std::int64_t matrices, std::int64_t rows,
                       std::int64_t columns, int box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[] = {2 * sizes[0], 2 * sizes[0] * sizes[1]};  // in bytes, of rows and matrices
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1}, every[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encoder(what)(
      &map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(data),
      sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Error(std::string(what) + ": cuTensorMapEncodeTiled failed with CUDA driver error " +
                std::to_string(static_cast<int>(result)));
  return map;
}

}  // namespace roofline::cuda
