// Products in fp32, bf16, fp16, int8 and fp8: what their strips of b hold, how they are packed, and products with b as it lies.
#include "cpu/gemm_kernels.h"

#include "cpu/gemm_strips.h"
#include "cpu/simd/bytes.h"

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

struct Fp8Strip {
  static constexpr bool kWide = false;
  static constexpr Index kRowBytes = kWidth;
  using Sum = Floats;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    load_two(reinterpret_cast<const Fp8E4m3*>(b) + (base + u) * kWidth, low, high);
  }
};

void widen_fp8(const void* x, float* y, Index n) {
  for (Index i = 0; i < n; i += kLanes) {
    const int lanes = static_cast<int>(least(kLanes, n - i));
    put(y + i, lanes, mul(get(static_cast<const Fp8E4m3*>(x) + i, lanes, zero()), set1(0x1p16f)));
  }
}

// to[inner][kWidth] of columns from `column` on; what is beyond the last is 0.
template <class From, class To>
ROOFLINE_INLINE void pack_strip(const From* b, Index stride, To* to, Index columns, Index inner, Index column) {
  for (Index k = 0; k < inner; ++k)
    for (Index half = 0; half < 2; ++half) {
      const int lanes = static_cast<int>(most(least(kLanes, columns - column - half * kLanes), 0));
      store(to + k * kWidth + half * kLanes, lanes ? get(b + k * stride + column + half * kLanes, lanes, zero()) : zero());
    }
}

// fp32 and fp16: the numbers as they are.
template <class Element>
void pack_rows(const void* from, void* to, Index columns, Index inner, Index first, Index last) {
  for (Index s = first; s < last; ++s) {
    auto* const strip = static_cast<Element*>(to) + s * inner * kWidth;
    const Index n = least(kWidth, columns - s * kWidth);
    for (Index k = 0; k < inner; ++k) {
      __builtin_memcpy(strip + k * kWidth, static_cast<const Element*>(from) + k * columns + s * kWidth,
                       static_cast<std::size_t>(n) * sizeof(Element));
      __builtin_memset(strip + k * kWidth + n, 0, static_cast<std::size_t>(kWidth - n) * sizeof(Element));
    }
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

template <class Element>
void pack_wide(const void* b, Index stride, float* packed, Index columns, Index inner) {
  for (Index column = 0; column < columns; column += kWidth, packed += inner * kWidth)
    pack_strip(static_cast<const Element*>(b), stride, packed, columns, inner, column);
}

// Some rows of a meet some of b as it lies, and add to c.
template <class Element>
struct Lying {
  const float* a;
  Index a_stride;
  const Element* b;
  Index stride;
  const Element* ahead;  // rows of b that are met next, or null
  float* c;
  Index c_stride;
  Index columns, inner;
  bool first;  // c holds nothing yet
};

// Vectors of columns whose sums stay in registers: at least as many sums as hide the latency of a multiply-add.
constexpr int kLyingRows = kManyRegisters ? 8 : 6;
constexpr int most_vectors(int rows) { return rows == 1 ? 8 : rows <= (kManyRegisters ? 6 : 2) ? 4 : 2; }

// The columns from j on, or of one vector so many of them.
template <int Rows, int Vectors, class Element>
void add_strip(const Lying<Element>& x, Index j, int lanes) {
  const auto lines = [&](const Element* p) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (Index at = 0; at < Vectors * kLanes * Index{sizeof(Element)}; at += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(p) + at);
  };
  Vec sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const float* const c = x.c + r * x.c_stride + j + z * kLanes;
      sums[r][z] = x.first ? zero() : Vectors > 1 ? load(c) : get(c, lanes, zero());
    }
  for (Index k = 0; k < x.inner; ++k) {
    const Element* const b = x.b + k * x.stride + j;
    if (x.ahead) lines(x.ahead + k * x.stride + j);
    Vec y[Vectors];
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) y[z] = Vectors > 1 ? load(b + z * kLanes) : get(b, lanes, zero());
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vec of_a = set1(x.a[r * x.a_stride + k]);
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) sums[r][z] = fma(of_a, y[z], sums[r][z]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      float* const c = x.c + r * x.c_stride + j + z * kLanes;
      Vectors > 1 ? store(c, sums[r][z]) : put(c, lanes, sums[r][z]);
    }
}

template <int Rows, int Vectors, class Element>
void add_strips(const Lying<Element>& x, Index j) {
  for (; j + Vectors * kLanes <= x.columns; j += Vectors * kLanes) add_strip<Rows, Vectors>(x, j, kLanes);
  if constexpr (Vectors > 1)
    add_strips<Rows, Vectors / 2>(x, j);
  else if (j < x.columns)
    add_strip<Rows, 1>(x, j, static_cast<int>(x.columns - j));
}

template <class Element, int Rows = kLyingRows>
void add_rows_of(const Lying<Element>& x, Index rows) {
  if constexpr (Rows > 1)
    if (rows < Rows) return add_rows_of<Element, Rows - 1>(x, rows);
  add_strips<Rows, most_vectors(Rows)>(x, 0);
}

// Blocks of b that stay in the first cache beside rows of c until all rows of a met them. What is met next is fetched meanwhile:
// after the last block the first of the next product, whose b follows.
template <class Element>
void plain(const float* a, const void* from, Index stride, float* c, Index c_stride, Index rows, Index columns, Index inner) {
  constexpr Index kColumns = 256, kBytes = 8 << 10;
  const auto* const b = static_cast<const Element*>(from);
  const Index block = kBytes / (least(kColumns, columns) * Index{sizeof(Element)});
  for (Index j = 0; j < columns; j += kColumns)
    for (Index k = 0; k < inner; k += block) {
      const Element* const next = k + block < inner         ? b + (k + block) * stride + j
                                  : j + kColumns < columns ? b + j + kColumns
                                                           : b + inner * stride;
      in_tiles(rows, [&](Index row, Index some) {
        add_rows_of<Element>({a + row * inner + k, inner, b + k * stride + j, stride, row ? nullptr : next, c + row * c_stride + j,
                              c_stride, least(kColumns, columns - j), least(block, inner - k), k == 0}, some);
      }, kLyingRows);
    }
}

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm) = {
    kWidth,
    kTileRows,
    {1, 1, 1, 2, 1},
    1,
    {pack_rows<float>, pack_bf16, pack_rows<Fp16>, pack_pairs<std::int8_t>, pack_rows<Fp8E4m3>},
    {few<Rows<WideStrip<Floats>>>, few<Rows<Bf16Strip>>, few<Rows<Fp16Strip>>, few<Rows<Int8Strip>>, few<Rows<Fp8Strip>>},
    {block<Rows<WideStrip<Floats>>>, block<Rows<Bf16Strip>>, block<Rows<Fp16Strip>>, block<Rows<Int8Strip>>,
     block<Rows<Fp8Strip>>},
    pack_panels<Floats>,
    1,
    0,
    {pack_wide<float>, pack_wide<Bf16>, pack_wide<Fp16>},
    {plain<float>, plain<Bf16>, plain<Fp16>},
    {widen<float>, widen<Bf16>, widen<Fp16>, widen_int8, widen_fp8},
    {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    nullptr,
    nullptr,
};

}  // namespace roofline::cpu
