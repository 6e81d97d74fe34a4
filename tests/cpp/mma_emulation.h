// Products of fragments on the host: the instructions of cuda/simt/mma.cuh by the element tables of the PTX ISA (mma.m16n8k8 to
// k64, and m8n8k4), not from the kernels' headers. Included by cuda/simt/mma.cuh under ROOFLINE_CUDA_EMULATED.
#pragma once

#include <cstring>

#include "cuda_emulation.h"

namespace roofline::cuda {

inline double element(Tf32, const void* bytes, int index) {
  std::uint32_t bits;
  std::memcpy(&bits, static_cast<const char*>(bytes) + 4 * index, 4);
  return as_float(bits & 0xFFFFE000u);  // the unit reads 19 bits
}
inline double element(Int8, const void* bytes, int index) { return static_cast<const std::int8_t*>(bytes)[index]; }
inline double element(Int4, const void* bytes, int index) {
  const int code = static_cast<const std::uint8_t*>(bytes)[index / 2] >> index % 2 * 4 & 15;
  return code < 8 ? code : code - 16;
}
inline double element(Fp8E4m3, const void* bytes, int index) {
  const int bits = static_cast<const std::uint8_t*>(bytes)[index], exponent = bits >> 3 & 15, fraction = bits & 7;
  const double size = (bits & 127) == 127 ? NAN : exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
  return bits & 128 ? -size : size;
}
template <>
inline constexpr int kBitsOf<Int4> = 4;
template <>
inline constexpr int kBitsOf<Tf32> = 32;

// Sums in fp16, two to a register.
template <class In>
void multiply_add(In, std::uint32_t (&c)[2], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  warp_product<In>(c, a, b0, b1, [](auto& sums, auto product) {
    for (int i = 0; i < 2; ++i)
      sums[i] = packed(Fp16{}, static_cast<float>(static_cast<double>(number(Fp16{}, sums[i] & 0xFFFF)) + product(2 * i)),
                       static_cast<float>(static_cast<double>(number(Fp16{}, sums[i] >> 16)) + product(2 * i + 1)));
  });
}

inline void multiply_add(double (&c)[2], double a, double b) {
  struct Lane {
    double a, b, c[2];
  };
  const Lane mine = {a, b, {c[0], c[1]}};
  const Lane done = EmulatedBlock::current->together<Lane, Lane>("mma.m8n8k4", mine, [&](auto in, auto out) {
    ++EmulatedBlock::products;
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 2; ++i) {
        double sum = in[lane]->c[i];
        for (int k = 0; k < 4; ++k) sum += in[lane / 4 * 4 + k]->a * in[(lane % 4 * 2 + i) * 4 + k]->b;
        out[lane]->c[i] = sum;
      }
  });
  c[0] = done.c[0], c[1] = done.c[1];
}
inline void multiply_add(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
  struct Lane {
    double a[8], b[4], c[4];
  };
  Lane mine;
  std::memcpy(mine.a, a, sizeof a), std::memcpy(mine.b, b, sizeof b), std::memcpy(mine.c, c, sizeof c);
  const Lane done = EmulatedBlock::current->together<Lane, Lane>("mma.m16n8k16.f64", mine, [&](auto in, auto out) {
    ++EmulatedBlock::products;
    double left[16][16], right[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane >> 2, in_group = lane & 3;
      for (int i = 0; i < 8; ++i)
        left[i % 2 == 0 ? group : group + 8][i % 2 == 0 ? i * 2 + in_group : i * 2 - 2 + in_group] = in[lane]->a[i];
      for (int i = 0; i < 4; ++i) right[i * 4 + in_group][group] = in[lane]->b[i];
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        double sum = in[lane]->c[i];
        for (int k = 0; k < 16; ++k) sum += left[i < 2 ? lane >> 2 : (lane >> 2) + 8][k] * right[k][(lane & 3) * 2 + (i & 1)];
        out[lane]->c[i] = sum;
      }
  });
  std::memcpy(c, done.c, sizeof c);
}

}  // namespace roofline::cuda
