// Products in fp32, bf16, fp16, int8 and fp8: what their strips of b hold, and how they are packed.
#include <limits>
#include <type_traits>

#include "cpu/gemm_kernels.h"

#include "cpu/gemm_plain.h"
#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

struct Bf16Strip {
  static constexpr bool kWide = false;
  static constexpr Index kRowBytes = kWidth * 2;
  using Sum = Floats;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    widen_pairs(reinterpret_cast<const std::uint32_t*>(b) + (base + u) * kLanes, low, high);
  }
};

struct Fp16Strip {
  static constexpr bool kWide = false;
  static constexpr Index kRowBytes = kWidth * 2;
  using Sum = Floats;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* const p = reinterpret_cast<const Fp16*>(b) + (base + u) * kWidth;
    low = load(p), high = load(p + kLanes);
  }
};

template <class Element>
struct Fp8Strip {
  static constexpr bool kWide = false;
  static constexpr Index kRowBytes = kWidth;
  using Sum = Floats;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    load_two(reinterpret_cast<const Element*>(b) + (base + u) * kWidth, low, high);
  }
};

// Sums of columns that hold a NaN begin with one: a test of each number takes longer. The scalar set tests numbers: its rows have
// too few bytes to keep fp32 behind them aligned.
constexpr bool kFinite = kLanes > 1;
using E4m3Rows = Rows<Fp8Strip<std::conditional_t<kFinite, FiniteE4m3, Fp8E4m3>>, kFinite>;
[[maybe_unused]] void pack_e4m3(const void* from, void* to, Index columns, Index inner, Index first, Index last) {
  pack_rows<Fp8E4m3, kNumberBytes>(from, to, columns, inner, first, last);
  for (Index s = first; s < last; ++s) {
    auto* const strip = static_cast<std::uint8_t*>(to) + s * (inner + kNumberBytes) * kWidth;
    bool none[kWidth] = {};
    for (Index k = 0; k < inner; ++k)
      for (Index j = 0; j < kWidth; ++j) none[j] |= (strip[k * kWidth + j] & 0x7F) == 0x7F;
    auto* const begun = reinterpret_cast<float*>(strip + inner * kWidth);
    for (Index j = 0; j < kWidth; ++j) begun[j] = none[j] ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
}

void pack_bf16(const void* from, void* to, Index columns, Index inner, Index first, Index last) {
  const auto* const b = static_cast<const std::uint16_t*>(from);
  const auto at = [&](Index k, Index column) -> std::uint32_t { return column < columns ? b[k * columns + column] : 0; };
  for (Index s = first; s < last; ++s)
    for (Index k = 0; k < inner; ++k)
      for (Index j = 0; j < kLanes; ++j)
        static_cast<std::uint32_t*>(to)[(s * inner + k) * kLanes + j] = at(k, s * kWidth + j) | at(k, s * kWidth + kLanes + j) << 16;
}

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm) = {
    .width = kWidth,
    .tile_rows = kTileRows,
    .numbers = {1, 1, 1, 2, 1, 1},
    .multiple = 1,
    .pack = {pack_rows<float>, pack_bf16, pack_rows<Fp16>, pack_pairs<std::int8_t>,
             kFinite ? pack_e4m3 : pack_rows<Fp8E4m3>, pack_rows<Fp8E5m2>},
    .few = {few<Rows<WideStrip<Floats>>>, few<Rows<Bf16Strip>>, few<Rows<Fp16Strip>>, few<Rows<Int8Strip>>,
            few<E4m3Rows>, few<Rows<Fp8Strip<Fp8E5m2>>>},
    .block = {block<Rows<WideStrip<Floats>>, UnpackedStrip<Floats, RowOf<float>>>, block<Rows<Bf16Strip>>, block<Rows<Fp16Strip>>,
              block<Rows<Int8Strip>>, block<E4m3Rows>, block<Rows<Fp8Strip<Fp8E5m2>>>},
    .pack_a = pack_panels<Floats>,
    .begun = {false, false, false, false, kFinite},
    .pack_wide = {pack_wide<float>, pack_wide<Bf16>, pack_wide<Fp16>},
    .plain = {plain<RowOf<float>>, plain<RowOf<Bf16>>, plain<RowOf<Fp16>>},
    .widen = {widen<float>, widen<Bf16>, widen<Fp16>, widen_int8, widen_e4m3, widen<Fp8E5m2>},
    .narrow = {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
};

}  // namespace roofline::cpu
