// Small kernels the device itself needs. Each only enqueues; the caller checks for errors with ROOFLINE_CUDA_LAUNCHED.
#pragma once

#include <cstdint>

#include "core/dtype.h"

struct CUstream_st;

namespace roofline::cuda {

// Random elements, the same bits as on the CPU: element i of seed s is a function of both alone.
void launch_fill(CUstream_st* stream, void* memory, DType dtype, std::int64_t elements, std::uint64_t seed, int sms);

// Holds the stream until *open is not 0. Gives up after timeout_ns and then writes 1 to *timed_out, so that it can never hang.
void launch_gate(CUstream_st* stream, const volatile int* open, volatile int* timed_out, std::uint64_t timeout_ns);

// Writes the cycles and the nanoseconds that passed on one SM while it was busy for at least least_ns.
void launch_clock(CUstream_st* stream, volatile std::uint64_t* cycles, volatile std::uint64_t* nanoseconds, std::uint64_t least_ns);

// Both clocks of an SM at one moment, written as one.
struct alignas(16) ClockStamp {
  std::uint64_t cycles;
  std::uint64_t nanoseconds;
};
constexpr int kClockStamps = 512;  // SMs that are told apart, by their number

// Writes the clocks of every SM to stamps[its number].
void launch_stamp(CUstream_st* stream, volatile ClockStamp* stamps, int sms);

// to[i] = from[i]ᵀ. from: [matrices, rows, columns]; of 4 bits both even.
void launch_transpose(CUstream_st* stream, const void* from, void* to, DType dtype, std::int64_t matrices, std::int64_t rows,
                      std::int64_t columns);

// Scales of blocks of 8 bits in cuBLASLt's tiles (cuda/matmul/scale_layout.h). Strides: of `from`.
void launch_tile_scales(CUstream_st* stream, const void* from, void* to, std::int64_t rows, std::int64_t blocks,
                        std::int64_t row_stride, std::int64_t block_stride, int sms);

// Scales of 128 x 128 numbers in fp32, [blocks, columns], as cuBLASLt reads them.
void launch_square_scales(CUstream_st* stream, const void* from, void* to, std::int64_t blocks, std::int64_t columns, int sms);

// alpha_beta: *a times *b, and 0, in fp32.
void launch_product_factors(CUstream_st* stream, const void* a, const void* b, void* alpha_beta);

// size_bytes from one place to another, which may be memory of a peer.
void launch_copy(CUstream_st* stream, void* to, const void* from, std::int64_t size_bytes, int sms);

// Reads size_bytes (a multiple of 16) of zeros past L1: what L2 keeps of it, nobody has to write back.
void launch_flush(CUstream_st* stream, void* zeros, std::int64_t size_bytes, int sms);

// Nothing is computed and no memory is touched: by launch, or as a node of a graph.
void launch_empty(CUstream_st* stream);
void* empty_kernel_address();

// Loads the kernels above onto the current device, outside any gate: loading may wait for the stream that the gate holds.
void load_primitives();

}  // namespace roofline::cuda
