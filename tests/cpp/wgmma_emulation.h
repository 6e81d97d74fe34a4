// wgmma on the host: descriptors and register fragments by the tables of the PTX ISA. A warp's part of a product, 16 rows, needs
// nothing of the other three warps, and is done when it is issued. Included by cuda/sm90a/wgmma.cuh under ROOFLINE_CUDA_EMULATED.
#pragma once

#include "mma_emulation.h"

namespace roofline::cuda {

inline bool shown_to_units = false;  // of the block: that a fence came before the first product
inline void show_to_units() { shown_to_units = true; }
inline void begin_products() {}
inline void commit_products() {}
template <int Pending>
void wait_products() {}

// Byte `inner` of row `row` of an operand whose inner dimension is contiguous.
inline const unsigned char* operand_byte(std::uint64_t descriptor, int row, int inner) {
  const auto field = [&](int from) { return static_cast<std::int64_t>(descriptor >> from & 0x3FFF) * 16; };
  const int swizzle = static_cast<int>(descriptor >> 62), base = static_cast<int>(descriptor >> 49 & 7);
  EmulatedBlock::expect(swizzle == 1 && base == 0, "a swizzle over 128 bytes from an aligned base");
  std::int64_t at = field(0) + row / 8 * field(32) + row % 8 * 128 + inner;
  at ^= (at >> 7 & 7) << 4;  // bits 4 to 6 of the address, by bits 7 to 9
  return EmulatedBlock::current->shared(at, 1);
}

template <class In, class Sum>
void multiply_add_async(In, Sum (&c)[128], std::uint64_t a, std::uint64_t b) {
  EmulatedBlock::expect(shown_to_units, "a proxy fence before wgmma reads what threads wrote");
  struct Lane {
    std::uint64_t a, b;
    Sum c[128];
  };
  Lane mine;
  mine.a = a, mine.b = b;
  std::memcpy(mine.c, c, sizeof c);
  const int warp = EmulatedBlock::current->thread() / 32 % 4;
  const Lane done = EmulatedBlock::current->together<Lane, Lane>("wgmma", mine, [&](auto in, auto out) {
    constexpr int kBytes = kBitsOf<In> / 8, kDepth = 32 / kBytes;
    ++EmulatedBlock::products;
    static double left[16][kDepth], right[256][kDepth];
    const auto read = [&](std::uint64_t descriptor, int row, int k) {
      unsigned char bytes[4];
      for (int i = 0; i < kBytes; ++i) bytes[i] = *operand_byte(descriptor, row, k * kBytes + i);
      return element(In{}, bytes, 0);
    };
    for (int k = 0; k < kDepth; ++k) {
      for (int row = 0; row < 16; ++row) left[row][k] = read(in[0]->a, 16 * warp + row, k);
      for (int column = 0; column < 256; ++column) right[column][k] = read(in[0]->b, column, k);
    }
    for (int lane = 0; lane < 32; ++lane) {
      EmulatedBlock::expect(in[lane]->a == in[0]->a && in[lane]->b == in[0]->b, "one descriptor in all lanes");
      for (int i = 0; i < 128; ++i) {
        const int row = lane / 4 + (i / 2 % 2) * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        double sum = 0;
        for (int k = 0; k < kDepth; ++k) sum += left[row][k] * right[column][k];
        out[lane]->c[i] = added(in[lane]->c[i], sum);
      }
    }
  });
  std::memcpy(c, done.c, sizeof c);
}

}  // namespace roofline::cuda
