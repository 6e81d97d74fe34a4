// How wgmma is told where an operand lies in shared memory (PTX ISA, "Matrix-descriptor format"), as functions that kernels and
// host tests share.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace roofline::cuda {

// Chunks of 16 bytes of a row are exchanged by the row's number, over this many bytes.
enum class Swizzle : std::uint8_t { none = 0, bytes_128 = 1, bytes_64 = 2, bytes_32 = 3 };

// Addresses and distances are in units of 16 bytes, in 14 bits: 256 KB.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t descriptor_field(std::uint32_t size_bytes) { return (size_bytes & 0x3FFFF) >> 4; }

// stride_bytes: from eight rows to the next eight. leading_bytes: along the inner dimension; not used where rows are swizzled.
// The operand begins at a multiple of 1024 bytes, so that the base offset is 0.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t operand_descriptor(std::uint32_t address, std::uint32_t leading_bytes,
                                                                std::uint32_t stride_bytes, Swizzle swizzle) {
  return descriptor_field(address) | descriptor_field(leading_bytes) << 16 | descriptor_field(stride_bytes) << 32 |
         static_cast<std::uint64_t>(swizzle) << 62;
}

// Rows of 128 bytes, swizzled as a whole: eight of them are 1024 bytes.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t row_descriptor(std::uint32_t address) {
  return operand_descriptor(address, 16, 1024, Swizzle::bytes_128);
}

// Columns of an operand whose inner dimension is not the contiguous one: slabs of 64 columns of 2 bytes, 128 bytes for each step of
// the inner dimension, swizzled as above; from one slab to the next slab_bytes.
ROOFLINE_HOST_DEVICE constexpr std::uint64_t column_descriptor(std::uint32_t address, std::uint32_t slab_bytes) {
  return operand_descriptor(address, slab_bytes, 1024, Swizzle::bytes_128);
}

// The next 32 bytes of the inner dimension, what one instruction takes: the swizzle is of the address, so the start just moves on.
constexpr std::uint64_t kNextInner = descriptor_field(32);
// The next 16 steps of it, of columns.
constexpr std::uint64_t kNextRows = descriptor_field(16 * 128);

}  // namespace roofline::cuda
