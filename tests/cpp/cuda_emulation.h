// Instructions of a GPU on the host, as far as the kernels of cuda/simt/warp.cuh use them, so that whole kernels are compared with
// a reference where there is no GPU. Included by cuda/simt/warp.cuh under ROOFLINE_CUDA_EMULATED. Fragments are those of the PTX
// ISA (sections on mma.m16n8k16, ldmatrix and movmatrix), written from its tables and not from cuda/tiles.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>

#include "emulated_block.h"

#define ROOFLINE_DEVICE inline

namespace roofline::cuda {

// -- numbers ------------------------------------------------------------------------------------------------------------------

inline float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float number(Bf16, std::uint32_t bits) { return as_float(bits << 16); }
inline float number(Fp16, std::uint32_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -size : size;
}
inline std::uint32_t rounded(Bf16, float x) {
  const std::uint32_t bits = bits_of(x);
  if (std::isnan(x)) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline std::uint32_t rounded(Fp16, float x) {
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return 0x7FFF;
  if (size >= 65520) return sign | 0x7C00;
  if (size < 0x1p-14) return sign | static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24));
  const int exponent = std::ilogb(size);
  return sign + static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent))) + ((exponent + 14) << 10);
}
template <class T>
std::uint32_t packed(T type, float low, float high) {
  return rounded(type, low) | rounded(type, high) << 16;
}
template <class T>
std::uint32_t times(T type, std::uint32_t a, std::uint32_t b) {
  return packed(type, number(type, a & 0xFFFF) * number(type, b & 0xFFFF), number(type, a >> 16) * number(type, b >> 16));
}
template <class T>
std::uint32_t plus(T type, std::uint32_t a, std::uint32_t b) {
  return packed(type, number(type, a & 0xFFFF) + number(type, b & 0xFFFF), number(type, a >> 16) + number(type, b >> 16));
}
inline std::uint32_t bytes_of(std::uint32_t a, std::uint32_t b, std::uint32_t digits) {
  const std::uint64_t all = a | static_cast<std::uint64_t>(b) << 32;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<std::uint32_t>(all >> 8 * (digits >> 4 * i & 7) & 255) << 8 * i;
  return out;
}
inline float exp2_of(float x) { return std::exp2(x); }
inline float log2_of(float x) { return std::log2(x); }
inline float larger_of(float a, float b) { return std::fmax(a, b); }
inline float smaller_of(float a, float b) { return std::fmin(a, b); }
inline int fresh(int x) { return x; }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }

// -- instructions -------------------------------------------------------------------------------------------------------------

inline int thread() { return EmulatedBlock::current->thread(); }
inline std::int64_t block() { return EmulatedBlock::current->block(); }
inline void synchronize() { EmulatedBlock::current->synchronize(); }
inline std::uint32_t shared_address(int offset) { return static_cast<std::uint32_t>(offset); }
template <class T>
T* shared_at(int offset) {
  EmulatedBlock::expect(offset % alignof(T) == 0, "an aligned place in shared memory");
  return reinterpret_cast<T*>(EmulatedBlock::current->shared(offset, sizeof(T)));
}
inline void copy_async(std::uint32_t to, const void* from, bool valid) { EmulatedBlock::current->copy(to, from, 16, valid); }
inline std::uint64_t reading_policy(bool once) { return once; }
inline void copy_async(std::uint32_t to, const void* from, bool valid, std::uint64_t) { copy_async(to, from, valid); }
inline void copy_word_async(std::uint32_t to, const void* from, bool valid) { EmulatedBlock::current->copy(to, from, 4, valid); }
inline void commit_copies() { EmulatedBlock::current->commit(); }
template <int Pending>
void wait_copies() {
  EmulatedBlock::current->wait_groups(Pending);
}

struct Nothing {};
inline void synchronize_warp() {
  EmulatedBlock::current->together<Nothing, Nothing>("__syncwarp", {}, [](auto, auto) {});
}
template <class X>
X from_lane_xor(X x, int mask) {
  return EmulatedBlock::current->from_lane_xor(x, mask);
}
inline bool any_lane(bool is) { return EmulatedBlock::current->any_lane(is); }

struct Four {
  std::uint32_t r[4];
};
inline void load_matrices_as(std::uint32_t (&r)[4], std::uint32_t address, bool transpose) {
  const char* what = transpose ? "ldmatrix.x4.trans" : "ldmatrix.x4";
  const Four loaded = EmulatedBlock::current->together<std::uint32_t, Four>(what, address, [&](auto in, auto out) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t elements[8][8];
      std::set<std::uint32_t> banks;
      for (int row = 0; row < 8; ++row) {
        const std::uint32_t at = *in[8 * matrix + row];
        EmulatedBlock::expect(at % 16 == 0, "rows of ldmatrix aligned to 16 bytes");
        std::memcpy(elements[row], EmulatedBlock::current->shared(at, 16), 16);
        banks.insert(at / 16 % 8);
      }
      ++EmulatedBlock::matrix_rows;
      EmulatedBlock::bank_conflicts += banks.size() != 8;
      for (int lane = 0; lane < 32; ++lane) {
        const int row = lane / 4, column = lane % 4 * 2;
        const std::uint32_t low = transpose ? elements[column][row] : elements[row][column];
        const std::uint32_t high = transpose ? elements[column + 1][row] : elements[row][column + 1];
        out[lane]->r[matrix] = low | high << 16;
      }
    }
  });
  std::memcpy(r, loaded.r, sizeof r);
}
inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) { load_matrices_as(r, address, false); }
inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) { load_matrices_as(r, address, true); }

inline std::uint32_t transposed(std::uint32_t pair) {
  return EmulatedBlock::current->together<std::uint32_t, std::uint32_t>("movmatrix", pair, [](auto in, auto out) {
    const auto element = [&](int row, int column) { return *in[4 * row + column / 2] >> 16 * (column % 2) & 0xFFFF; };
    for (int lane = 0; lane < 32; ++lane)
      *out[lane] = element(lane % 4 * 2, lane / 4) | element(lane % 4 * 2 + 1, lane / 4) << 16;
  });
}

// -- products of fragments ----------------------------------------------------------------------------------------------------

// An element of an operand as a number: index counts elements from the start of `bytes`.
template <class T>
double element(T type, const void* bytes, int index) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(bytes) + 2 * index, 2);
  return number(type, bits);
}
template <class In>
constexpr int kBitsOf = std::is_same_v<In, Fp16> || std::is_same_v<In, Bf16> ? 16 : 8;

inline float added(float c, double products) { return static_cast<float>(static_cast<double>(c) + products); }
inline std::int32_t added(std::int32_t c, double products) { return c + static_cast<std::int32_t>(products); }

// Row and first element of the register i of a lane, and of b its column: by the tables for elements of 32, 16, 8 and 4 bits, which
// differ in how many a register holds.
template <class In>
Place a_table(int lane, int i) {
  return {(lane >> 2) + (i == 0 || i == 2 ? 0 : 8), ((lane & 3) + (i < 2 ? 0 : 4)) * (32 / kBitsOf<In>)};
}
template <class In>
Place b_table(int lane, int i) {
  return {lane >> 2, ((lane & 3) + 4 * i) * (32 / kBitsOf<In>)};
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
void warp_product(C& c, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Add add) {
  struct Lane {
    std::uint32_t a[4], b[2];
    C c;
  };
  Lane mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {}};
  std::memcpy(&mine.c, &c, sizeof c);
  const Lane done = EmulatedBlock::current->together<Lane, Lane>("mma", mine, [&](auto in, auto out) {
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
void multiply_add(In, Sum (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  warp_product<In>(c, a, b0, b1, [](auto& sums, auto product) {
    for (int i = 0; i < 4; ++i) sums[i] = added(sums[i], product(i));
  });
}

// -- memory of others ---------------------------------------------------------------------------------------------------------

// Blocks run one after the other, so that memory needs no care.
template <class T>
T from_others(const T* memory) {
  return *memory;
}
inline void publish() {}
inline unsigned arrive(unsigned* counter, unsigned arrivals) {
  const unsigned before = *counter;
  *counter = before >= arrivals - 1 ? 0 : before + 1;
  return before;
}

}  // namespace roofline::cuda
