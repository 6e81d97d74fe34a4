// Products of fragments on the host: the instructions of cuda/simt/mma.cuh by the element tables of the PTX ISA (mma.m16n8k8 to
// k64, and m8n8k4), not from the kernels' headers. Included by cuda/simt/mma.cuh under ROOFLINE_CUDA_EMULATED.
#pragma once

#include <cstring>

#include "cuda_emulation.h"

namespace roofline::cuda {

// An element of an operand as a number: index counts elements from the start of `bytes`.
template <class T>
double element(T type, const void* bytes, int index) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(bytes) + 2 * index, 2);
  return number(type, bits);
}
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
template <class In>
constexpr int kBitsOf = 8;
template <>
inline constexpr int kBitsOf<Int4> = 4;
template <>
inline constexpr int kBitsOf<Fp16> = 16;
template <>
inline constexpr int kBitsOf<Bf16> = 16;
template <>
inline constexpr int kBitsOf<Tf32> = 32;

inline float added(float c, double products) { return static_cast<float>(static_cast<double>(c) + products); }
inline std::int32_t added(std::int32_t c, double products) { return c + static_cast<std::int32_t>(products); }
inline double added(double c, double products) { return c + products; }

// Row and first element of the register i of a lane, by the tables for elements of 32, 16, 8 and 4 bits.
template <class In>
Place a_table(int lane, int i) {
  const int group = lane >> 2, in_group = lane & 3, row = i == 0 || i == 2 ? group : group + 8;
  if constexpr (kBitsOf<In> == 32) return {row, i < 2 ? in_group : in_group + 4};
  if constexpr (kBitsOf<In> == 16) return {row, in_group * 2 + (i < 2 ? 0 : 8)};
  if constexpr (kBitsOf<In> == 4) return {row, in_group * 8 + (i < 2 ? 0 : 32)};
  return {row, in_group * 4 + (i < 2 ? 0 : 16)};
}
template <class In>
Place b_table(int lane, int i) {  // column and first row
  const int group = lane >> 2, in_group = lane & 3;
  if constexpr (kBitsOf<In> == 32) return {group, in_group + 4 * i};
  if constexpr (kBitsOf<In> == 16) return {group, in_group * 2 + 8 * i};
  if constexpr (kBitsOf<In> == 4) return {group, in_group * 8 + 32 * i};
  return {group, in_group * 4 + 16 * i};
}

template <class In>
struct WarpOperands {
  static constexpr int kDepth = 256 / kBitsOf<In>;
  double a[16][kDepth], b[8][kDepth];  // b by columns
  double product(int row, int column) const {
    double sum = 0;
    for (int k = 0; k < kDepth; ++k) sum += a[row][k] * b[column][k];
    return sum;
  }
};

template <class In, class C, class Add>
void warp_product(const char* what, C& c, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Add add) {
  struct Lane {
    std::uint32_t a[4], b[2];
    C c;
  };
  Lane mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {}};
  std::memcpy(&mine.c, &c, sizeof c);
  const Lane done = EmulatedBlock::current->together<Lane, Lane>(what, mine, [&](auto in, auto out) {
    ++EmulatedBlock::products;
    WarpOperands<In> operands;
    for (int lane = 0; lane < 32; ++lane) {
      for (int j = 0; j < 32 / kBitsOf<In>; ++j) {
        for (int i = 0; i < 4; ++i) {
          const Place at = a_table<In>(lane, i);
          operands.a[at.row][at.column + j] = element(In{}, &in[lane]->a[i], j);
        }
        for (int i = 0; i < 2; ++i) {
          const Place at = b_table<In>(lane, i);
          operands.b[at.row][at.column + j] = element(In{}, &in[lane]->b[i], j);
        }
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      std::memcpy(&out[lane]->c, &in[lane]->c, sizeof c);
      add(out[lane]->c, [&](int i) { return operands.product(i < 2 ? lane >> 2 : (lane >> 2) + 8, (lane & 3) * 2 + (i & 1)); });
    }
  });
  std::memcpy(&c, &done.c, sizeof c);
}

template <class In, class Sum>
void multiply_add_all(Sum (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  warp_product<In>("mma", c, a, b0, b1, [](auto& sums, auto product) {
    for (int i = 0; i < 4; ++i) sums[i] = added(sums[i], product(i));
  });
}
template <class In>
void multiply_add_all(std::uint32_t (&c)[2], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  warp_product<In>("mma", c, a, b0, b1, [](auto& sums, auto product) {
    for (int i = 0; i < 2; ++i)
      sums[i] = packed(Fp16{}, static_cast<float>(static_cast<double>(number(Fp16{}, sums[i] & 0xFFFF)) + product(2 * i)),
                       static_cast<float>(static_cast<double>(number(Fp16{}, sums[i] >> 16)) + product(2 * i + 1)));
  });
}
#define ROOFLINE_EMULATED_PRODUCT(In, Sum, count)                                                                  \
  inline void multiply_add(In, Sum (&c)[count], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) { \
    multiply_add_all<In>(c, a, b0, b1);                                                                            \
  }
ROOFLINE_EMULATED_PRODUCT(Tf32, float, 4)
ROOFLINE_EMULATED_PRODUCT(Int8, std::int32_t, 4)
ROOFLINE_EMULATED_PRODUCT(Int4, std::int32_t, 4)
ROOFLINE_EMULATED_PRODUCT(Fp8E4m3, float, 4)
ROOFLINE_EMULATED_PRODUCT(Fp8E4m3, std::uint32_t, 2)
ROOFLINE_EMULATED_PRODUCT(Fp16, std::uint32_t, 2)
#undef ROOFLINE_EMULATED_PRODUCT

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
