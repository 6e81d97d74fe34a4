// Matrix products of bf16 and fp8 by an instruction that adds two products of bf16 to a sum: for sets that have it beside those of
// gemm_kernels.cpp. A word of a strip, and of a row of a, is two numbers along inner. Both products are rounded once, to nearest even,
// and denormals count as 0.
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_plain.h"
#include "cpu/gemm_strips.h"
#include "cpu/simd/byte_pairs.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

struct Bf16Pairs {
  using Of = float;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add(a, b); }
};

// Words of fp8, in the order in which `widen_64` takes them. Crowded: tiles of more than 12 rows meet them.
template <class Element, bool Crowded = false>
struct Fp8Strip {
  static constexpr bool kWide = false;
  static constexpr Index kRowBytes = kWidth * 2;
  using Sum = Bf16Pairs;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    widen_64<Fp8Pair, Crowded>(_mm512_loadu_si512(b + (base + u) * kRowBytes), kBytesOfBf16<Element>, low, high);
  }
};

void pack_fp8(const void* from, void* packed, Index columns, Index inner, Index first, Index last) {
  pack_pairs<std::uint8_t>(from, packed, columns, inner, first, last);
  const Index words = (inner + 1) / 2;
  auto* const fours = static_cast<std::uint64_t*>(packed);  // columns of a row of words: the first 16 are every other four
  for (Index row = first * words; row < last * words; ++row) {
    std::uint64_t in_order[8];
    __builtin_memcpy(in_order, fours + row * 8, 64);
    for (int i = 0; i < 8; ++i) fours[row * 8 + i] = in_order[i % 2 * 4 + i / 2];
  }
}

// n words of what `Widen` makes of twice as many numbers.
template <auto Widen>
void widen_to_words(const void* x, float* y, Index n) {
  for (Index i = 0; i < n; i += kLanes) {
    const Index some = least(kLanes, n - i);
    float numbers[2 * kLanes];
    Widen(static_cast<const std::uint8_t*>(x) + 2 * i, numbers, 2 * some);
    pair_words(numbers, y + i, some);
  }
}

// Two rows of b, or the last one alone.
struct PairOfRows : Bf16Pairs {
  using Element = Bf16;
  static constexpr Index kNumbers = 2;
  template <int Vectors>
  ROOFLINE_INLINE void read(const Bf16* one, const Bf16* next, bool both, int lanes, Vec (&y)[Vectors]) {
    if constexpr (Vectors == 1)
      y[0] = row_pair(one, both ? next : nullptr, 0, lanes);
    else
#pragma GCC unroll 4
      for (int z = 0; z < Vectors; z += 2)
        pair_32(_mm512_loadu_si512(one + z * kLanes), both ? _mm512_loadu_si512(next + z * kLanes) : _mm512_setzero_si512(), y[z],
                y[z + 1]);
  }
};

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm_pairs) = {
    .width = kWidth,
    .tile_rows = kTileRows,
    .numbers = {0, 2, 0, 0, 2, 2},
    .multiple = 1,
    .pack = {nullptr, pack_pairs<std::uint16_t>, nullptr, nullptr, pack_fp8, pack_fp8},
    .few = {nullptr, few<Rows<WideStrip<Bf16Pairs>>>, nullptr, nullptr, few<Rows<Fp8Strip<Fp8E4m3>>>, few<Rows<Fp8Strip<Fp8E5m2>>>},
    .block = {nullptr, block<Rows<WideStrip<Bf16Pairs>>, UnpackedStrip<Bf16Pairs, PairOfRows>>, nullptr, nullptr,
              block<Rows<Fp8Strip<Fp8E4m3, true>>>, block<Rows<Fp8Strip<Fp8E5m2, true>>>},
    .pack_a = pack_panels<Bf16Pairs>,
    .pack_wide = {nullptr, pack_strips<1>},
    .plain = {nullptr, plain<PairOfRows>},
    .widen = {nullptr, copy_words, nullptr, nullptr, widen_to_words<widen_e4m3>, widen_to_words<widen<Fp8E5m2>>},
    .narrow = {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    .pair = pair_words,
    .pair_rows = pair_rows<kWidth>,
};

}  // namespace roofline::cpu
