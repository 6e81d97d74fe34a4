#include "cuda/matmul/scales.h"

#include "cuda/check.h"
#include "cuda/device_kernels.h"
#include "cuda/matmul/scale_layout.h"

namespace roofline::cuda {
namespace {

constexpr std::int64_t kBlock = 128, kMxBlock = 32, kNvBlock = 16;

Scaling scaling_of(const ops::Scales& scales, DType dtype) {
  using Kind = ops::Scales::Kind;
  if (scales.kind == Kind::none) return Scaling::none;
  if (scales.kind == Kind::tensor) return Scaling::tensor;
  if (scales.kind == Kind::row) return Scaling::row;
  if (dtype == DType::nvfp4 && scales.dtype == DType::fp8_e4m3 && scales.block == kNvBlock && scales.columns == 1)
    return Scaling::blocks_of_16;
  if (scales.kind == Kind::block && scales.dtype == DType::fp8_e8m0 && scales.block == kMxBlock && scales.columns == 1)
    return Scaling::blocks_of_32;
  if (scales.kind == Kind::block && scales.dtype == DType::fp32 && scales.block == kBlock) {
    if (scales.columns == 1) return Scaling::blocks_of_128;
    if (scales.columns == kBlock) return Scaling::squares;
  }
  throw Unsupported(
      "cuBLASLt takes scales of blocks of 128 in fp32 (scale_columns 1 or 128) or of 32 in 8 bits of fp8_e4m3, and of "
      "16 in 8 bits of nvfp4, there alone in two levels; got scale_block " +
      std::to_string(scales.block) + ", scale_columns " + std::to_string(scales.columns) + ", scale_bits " +
      std::to_string(bits(scales.dtype)) + (scales.kind == Kind::two_level ? " in two levels" : "") + " of " + name(dtype));
}

}  // namespace

std::vector<Step> lay_out(const ops::Scales& scales, GemmProblem& gemm, Device& device, std::int64_t& laid_out_bytes) {
  gemm.scaling = scaling_of(scales, gemm.dtype);
  gemm.a_scale = scales.a, gemm.b_scale = scales.b;
  std::vector<Step> steps;
  const int sms = device.properties().sms;
  // launch(stream, memory): what fills the memory, whose address is returned.
  const auto step = [&](const char* name, std::int64_t size, auto launch) -> const void* {
    const std::shared_ptr<void> to = workspace(device, size);
    laid_out_bytes += size;
    steps.push_back({name, [to, launch](Queue& queue) {
                       launch(stream(queue), to.get());
                       ROOFLINE_CUDA_LAUNCHED("a kernel that lays out scales");
                     }});
    return to.get();
  };
  const std::int64_t rows = gemm.rows, columns = gemm.columns, blocks = scales.blocks;
  const auto transpose_a = [&] {
    const std::int64_t batch = gemm.batch, size = product({batch, rows, blocks, 4}, "a_scale");
    gemm.a_scale = step("transpose a_scale", size, [=, from = scales.a](CUstream_st* on, void* to) {
      launch_transpose(on, from, to, DType::fp32, batch, rows, blocks);
    });
  };
  switch (gemm.scaling) {
    case Scaling::none:
    case Scaling::tensor:
    case Scaling::row:
      break;
    case Scaling::blocks_of_128:
      transpose_a();
      break;
    case Scaling::squares: {
      transpose_a();
      const std::int64_t across = scales.column_blocks, size = product({across, square_scale_pitch(blocks), 4}, "b_scale");
      gemm.b_scale = step("lay out b_scale", size, [=, from = scales.b](CUstream_st* on, void* to) {
        launch_square_scales(on, from, to, blocks, across, sms);
      });
      break;
    }
    case Scaling::blocks_of_32:
    case Scaling::blocks_of_16:
      gemm.a_scale = step("lay out a_scale", tiled_scale_bytes(rows, blocks), [=, from = scales.a](CUstream_st* on, void* to) {
        launch_tile_scales(on, from, to, rows, blocks, blocks, 1, sms);
      });
      gemm.b_scale = step("lay out b_scale", tiled_scale_bytes(columns, blocks), [=, from = scales.b](CUstream_st* on, void* to) {
        launch_tile_scales(on, from, to, columns, blocks, 1, columns, sms);
      });
      break;
  }
  if (scales.kind == ops::Scales::Kind::two_level)
    gemm.alpha_beta =
        step("scales of tensors", 2 * sizeof(float),
             [=, a = scales.a_whole, b = scales.b_whole](CUstream_st* on, void* to) { launch_product_factors(on, a, b, to); });
  return steps;
}

}  // namespace roofline::cuda
