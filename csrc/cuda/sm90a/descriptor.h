// How wgmma is told where an operand lies in shared memory (PTX ISA, "Matrix-descriptor format"), as functions that kernels and
// host tests share.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace roofline::cuda {

// Addresses and distances are in units of 16 bytes, in 14 bits: 256 KB.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t descriptor_field(std::uint32_t size_bytes) { return (size_bytes & 0x3FFFF) >> 4; }

// Columns of an operand whose inner dimension is not the contiguous one: slabs of 64 columns of 2 bytes, 128 bytes for each step of
// the inner dimension, eight of them 1024 bytes, whose chunks of 16 bytes are exchanged by the step's number (swizzle 1, in bits 62
// and 63); from one slab to the next slab_bytes. It begins at a multiple of 1024 bytes, so that the base offset is 0.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t column_descriptor(std::uint32_t address, std::uint32_t slab_bytes) {
  return descriptor_field(address) | descriptor_field(slab_bytes) << 16 | descriptor_field(1024) << 32 | std::uint64_t{1} << 62;
}

// Rows of 128 bytes, swizzled alike. The instruction does not use the distance between slabs.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t row_descriptor(std::uint32_t address) { return column_descriptor(address, 16); }

// The next 32 bytes of the inner dimension, what one instruction takes: the swizzle is of the address, so the start just moves on.
constexpr std::uint64_t kNextInner = descriptor_field(32);
// The next 16 steps of it, of columns.
constexpr std::uint64_t kNextRows = descriptor_field(16 * 128);

}  // namespace roofline::cuda
