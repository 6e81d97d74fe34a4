#include "cuda/device_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/random.h"
#include "cuda/check.h"
#include "cuda/matmul/scale_kernels.cuh"
#include "cuda/matmul/transpose.cuh"
#include "cuda/plan.h"
#include "cuda/probes/copy_kernel.cuh"
#include "cuda/simt/ptx.cuh"

namespace roofline::cuda {
namespace {

constexpr int kFillThreads = 256;

// Halves come from fp32 and not from fp64: the CPU rounds twice, and so must this.
template <DType dtype>
__device__ auto random_value(std::uint64_t seed, std::uint64_t i) {
  if constexpr (dtype == DType::fp64) return random_uniform(seed, i);
  else if constexpr (dtype == DType::fp32) return static_cast<float>(random_uniform(seed, i));
  else if constexpr (dtype == DType::fp16) return __float2half_rn(static_cast<float>(random_uniform(seed, i)));
  else if constexpr (dtype == DType::bf16) return __float2bfloat16_rn(static_cast<float>(random_uniform(seed, i)));
  else if constexpr (dtype == DType::fp8_e4m3) return to_fp8_e4m3(random_uniform(seed, i));
  else if constexpr (dtype == DType::fp8_e5m2) return to_fp8_e5m2(random_uniform(seed, i));
  else if constexpr (dtype == DType::fp8_e8m0) return random_fp8_e8m0(seed, i);
  else if constexpr (dtype == DType::int32) return static_cast<std::int32_t>(random_bits(seed, i));
  else if constexpr (dtype == DType::int16) return static_cast<std::int16_t>(random_bits(seed, i));
  else return static_cast<std::int8_t>(random_bits(seed, i));
}

// One thread, one element at a time, a grid apart.
template <DType dtype, class T>
__global__ void __launch_bounds__(kFillThreads) fill_kernel(T* out, std::int64_t elements, std::uint64_t seed) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kFillThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFillThreads + threadIdx.x; i < elements; i += stride)
    out[i] = random_value<dtype>(seed, static_cast<std::uint64_t>(i));
}

template <DType dtype>
void fill(cudaStream_t stream, void* memory, std::int64_t elements, std::uint64_t seed, int sms) {
  const std::int64_t blocks = persistent_grid(ceil_div(elements, kFillThreads), sms, 8);
  auto* const out = static_cast<decltype(random_value<dtype>(0, 0))*>(memory);
  fill_kernel<dtype><<<static_cast<unsigned>(blocks), kFillThreads, 0, stream>>>(out, elements, seed);
}

// One thread polls host memory.
__global__ void gate_kernel(const volatile int* open, volatile int* timed_out, std::uint64_t timeout_ns) {
  const std::uint64_t begin = global_timer_ns();
  while (*open == 0) {
    if (global_timer_ns() - begin > timeout_ns) {
      *timed_out = 1;
      return;
    }
  }
}

__global__ void empty_kernel() {}

__global__ void __launch_bounds__(kFillThreads) flush_kernel(uint4* zeros, std::int64_t vectors) {
  uint4 all = {};
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFillThreads + threadIdx.x; i < vectors; i += gridDim.x * kFillThreads) {
    const uint4 x = __ldcg(zeros + i);
    all.x |= x.x, all.y |= x.y, all.z |= x.z, all.w |= x.w;
  }
  if ((all.x | all.y | all.z | all.w) != 0) *zeros = all;  // never; the compiler cannot know that
}

// One thread reads both clocks on an edge of the coarser one, works for a while, and does so again.
__global__ void clock_kernel(volatile std::uint64_t* cycles, volatile std::uint64_t* nanoseconds, std::uint64_t least_ns) {
  const auto edge = [] {
    const std::uint64_t before = global_timer_ns();
    std::uint64_t now = before;
    while (now == before) now = global_timer_ns();
    return now;
  };
  const std::uint64_t begin_ns = edge();
  const long long begin = clock64();
  while (global_timer_ns() - begin_ns < least_ns) {
  }
  const std::uint64_t end_ns = edge();
  const long long end = clock64();
  *cycles = static_cast<std::uint64_t>(end - begin);
  *nanoseconds = end_ns - begin_ns;
}

// So many threads that two blocks fill an SM: as many blocks reach every one. One thread of each writes, both clocks in one store:
// those read later are the two of one block.
constexpr int kStampThreads = 1024;
__global__ void __launch_bounds__(kStampThreads) stamp_kernel(volatile ClockStamp* stamps) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x != 0 || sm >= kClockStamps) return;
  const auto cycles = static_cast<std::uint64_t>(clock64());
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(stamps + sm), "l"(cycles), "l"(global_timer_ns()) : "memory");
}

}  // namespace

void launch_fill(cudaStream_t stream, void* memory, DType dtype, std::int64_t elements, std::uint64_t seed, int sms) {
  switch (dtype) {
    case DType::fp64: return fill<DType::fp64>(stream, memory, elements, seed, sms);
    case DType::tf32:
    case DType::fp32: return fill<DType::fp32>(stream, memory, elements, seed, sms);
    case DType::fp16: return fill<DType::fp16>(stream, memory, elements, seed, sms);
    case DType::bf16: return fill<DType::bf16>(stream, memory, elements, seed, sms);
    case DType::int32: return fill<DType::int32>(stream, memory, elements, seed, sms);
    case DType::int16: return fill<DType::int16>(stream, memory, elements, seed, sms);
    case DType::int8: return fill<DType::int8>(stream, memory, elements, seed, sms);
    case DType::int4:
    case DType::nvfp4: return fill<DType::int8>(stream, memory, size_bytes(dtype, elements), seed, sms);
    case DType::fp8_e4m3: return fill<DType::fp8_e4m3>(stream, memory, elements, seed, sms);
    case DType::fp8_e5m2: return fill<DType::fp8_e5m2>(stream, memory, elements, seed, sms);
    case DType::fp8_e8m0: return fill<DType::fp8_e8m0>(stream, memory, elements, seed, sms);
  }
}

void launch_transpose(cudaStream_t stream, const void* from, void* to, DType dtype, std::int64_t matrices, std::int64_t rows,
                      std::int64_t columns) {
  const TileGrid tiles = tile_grid(matrices, rows, columns, kTransposeSide, kTransposeSide);
  const auto launch = [&](auto* kernel, auto word) {
    using T = decltype(word);
    kernel<<<static_cast<unsigned>(passing_grid(tiles.tiles())), kTransposeThreads, 0, stream>>>(
        static_cast<const T*>(from), static_cast<T*>(to), tiles, rows, columns);
  };
  if (bits(dtype) == 4) return launch(transpose_nibbles_kernel, std::uint8_t{});
  switch (size_bytes(dtype)) {
    case 1: return launch(transpose_kernel<std::uint8_t>, std::uint8_t{});
    case 2: return launch(transpose_kernel<std::uint16_t>, std::uint16_t{});
    case 4: return launch(transpose_kernel<std::uint32_t>, std::uint32_t{});
    default: return launch(transpose_kernel<std::uint64_t>, std::uint64_t{});
  }
}

void launch_tile_scales(cudaStream_t stream, const void* from, void* to, std::int64_t rows, std::int64_t blocks,
                        std::int64_t row_stride, std::int64_t block_stride, int sms) {
  const std::int64_t grid = persistent_grid(ceil_div(tiled_scale_bytes(rows, blocks), kScaleThreads), sms, 8);
  tile_scales_kernel<<<static_cast<unsigned>(grid), kScaleThreads, 0, stream>>>(
      static_cast<const std::uint8_t*>(from), static_cast<std::uint8_t*>(to), rows, blocks, row_stride, block_stride);
}

void launch_square_scales(cudaStream_t stream, const void* from, void* to, std::int64_t blocks, std::int64_t columns, int sms) {
  const std::int64_t grid = persistent_grid(ceil_div(square_scale_pitch(blocks) * columns, kScaleThreads), sms, 8);
  square_scales_kernel<<<static_cast<unsigned>(grid), kScaleThreads, 0, stream>>>(static_cast<const float*>(from),
                                                                                 static_cast<float*>(to), blocks, columns);
}

void launch_product_factors(cudaStream_t stream, const void* a, const void* b, void* alpha_beta) {
  product_factors_kernel<<<1, 1, 0, stream>>>(static_cast<const float*>(a), static_cast<const float*>(b),
                                              static_cast<float*>(alpha_beta));
}

void launch_gate(cudaStream_t stream, const volatile int* open, volatile int* timed_out, std::uint64_t timeout_ns) {
  gate_kernel<<<1, 1, 0, stream>>>(open, timed_out, timeout_ns);
}

void launch_clock(cudaStream_t stream, volatile std::uint64_t* cycles, volatile std::uint64_t* nanoseconds,
                  std::uint64_t least_ns) {
  clock_kernel<<<1, 1, 0, stream>>>(cycles, nanoseconds, least_ns);
}

void launch_copy(cudaStream_t stream, void* to, const void* from, std::int64_t size_bytes, int sms) {
  const std::int64_t tiles = ceil_div(size_bytes, 16 * kCopyThreads * kCopyVectors);
  copy_kernel<<<static_cast<unsigned>(persistent_grid(tiles, sms, 4)), kCopyThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), size_bytes);
}

void launch_flush(cudaStream_t stream, void* zeros, std::int64_t size_bytes, int sms) {
  flush_kernel<<<static_cast<unsigned>(8 * sms), kFillThreads, 0, stream>>>(static_cast<uint4*>(zeros), size_bytes / 16);
}

void launch_empty(cudaStream_t stream) { empty_kernel<<<1, 1, 0, stream>>>(); }

void* empty_kernel_address() { return reinterpret_cast<void*>(empty_kernel); }

void launch_stamp(cudaStream_t stream, volatile ClockStamp* stamps, int sms) {
  stamp_kernel<<<static_cast<unsigned>(2 * sms), kStampThreads, 0, stream>>>(stamps);
}

void load_primitives() {
  cudaFuncAttributes attributes;
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, stamp_kernel));
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, gate_kernel));
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, clock_kernel));
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, copy_kernel));
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, flush_kernel));
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, empty_kernel));
}

}  // namespace roofline::cuda
