// c = a b for few rows of a and an unpacked b. What is read of b at a time is a class of its own: its Element, `kNumbers` rows that
// a word of a multiplies, and how they become vectors. Everything is internal to the file that includes it.
#pragma once

#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

// One row, in registers' format.
template <class T>
struct RowOf {
  using Element = T;
  static constexpr Index kNumbers = 1;
  template <int Vectors>
  ROOFLINE_INLINE void read(const T* b, const T*, int lanes, Vec (&y)[Vectors]) {
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) y[z] = Vectors > 1 ? load(b + z * kLanes) : get(b, lanes, zero());
  }
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return fma(a, b, c); }
};

// c (+)= a b for some rows of a, and a block of b.
template <class Read>
struct Unpacked {
  using Element = typename Read::Element;
  const Number* a;  // words
  Index a_stride;
  const Element* b;
  Index stride;
  const Element* ahead;  // the block of b that is read next, or null
  Number* c;
  Index c_stride;
  Index columns, inner;
  bool first;  // c holds nothing yet
};

// Vectors of columns whose sums stay in registers: at least as many sums as hide the latency of a multiply-add.
constexpr int kUnpackedRows = kManyRegisters ? 8 : 6;
constexpr int most_vectors(int rows) { return rows == 1 ? 8 : rows <= (kManyRegisters ? 6 : 2) ? 4 : 2; }

// Columns [j, j + Vectors kLanes) of c; of a single vector the first `lanes`.
template <int Rows, int Vectors, class Read>
void add_strip(const Unpacked<Read>& x, Index j, int lanes) {
  Vec sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Number* const c = x.c + r * x.c_stride + j + z * kLanes;
      sums[r][z] = x.first ? zero() : Vectors > 1 ? load(c) : get(c, lanes, zero());
    }
  for (Index k = 0; k < x.inner; k += Read::kNumbers) {
    const Index at = k * x.stride + j;
    if (x.ahead)
#pragma GCC unroll 2
      for (Index row = 0; row < Read::kNumbers; ++row)
#pragma GCC unroll 8
        for (Index i = 0; i < Vectors * kLanes; i += 64 / Index{sizeof *x.b}) __builtin_prefetch(x.ahead + at + row * x.stride + i);
    const auto* const b = x.b + at;
    Vec y[Vectors];
    Read::read(b, k + 1 < x.inner ? b + x.stride : nullptr, lanes, y);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vec of_a = set1(x.a[r * x.a_stride + k / Read::kNumbers]);
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) sums[r][z] = Read::multiply_add(of_a, y[z], sums[r][z]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      Number* const c = x.c + r * x.c_stride + j + z * kLanes;
      Vectors > 1 ? store(c, sums[r][z]) : put(c, lanes, sums[r][z]);
    }
}

template <int Rows, int Vectors, class Read>
void add_strips(const Unpacked<Read>& x, Index j) {
  for (; j + Vectors * kLanes <= x.columns; j += Vectors * kLanes) add_strip<Rows, Vectors>(x, j, kLanes);
  if constexpr (Vectors > 1)
    add_strips<Rows, Vectors / 2>(x, j);
  else if (j < x.columns)
    add_strip<Rows, 1>(x, j, static_cast<int>(x.columns - j));
}

template <int Rows = kUnpackedRows, class Read>
void add_rows_of(const Unpacked<Read>& x, Index rows) {
  if constexpr (Rows > 1)
    if (rows < Rows) return add_rows_of<Rows - 1>(x, rows);
  add_strips<Rows, most_vectors(Rows)>(x, 0);
}

// A full strip of unpacked b; `read` also stores what it reads as a packed strip. `Read` converts rows to words.
template <class Arithmetic, class Read>
struct UnpackedStrip : WideStrip<Arithmetic> {
  using Source = decltype(PlainPart::unpacked);
  ROOFLINE_INLINE void read(const Source& from, Index base, int u, Vec& low, Vec& high) {
    const auto* const b = static_cast<const typename Read::Element*>(from.from) + (base + u) * Read::kNumbers * from.stride;
    Vec words[2][1];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Read::read(b + half * kLanes, b + half * kLanes + from.stride, kLanes, words[half]);
      store(from.to + (base + u) * kWidth + half * kLanes, words[half][0]);
    }
    low = words[0][0], high = words[1][0];
  }
};

// Stores n sums in c, from element `at` on.
ROOFLINE_INLINE void put_row(const Number* sums, void* c, Index at, Index n, [[maybe_unused]] Stored c_stored) {
  if constexpr (kHalves) {
    if (c_stored == Stored::bf16) return narrow_to<Bf16>(sums, static_cast<Bf16*>(c) + at, n);
    if (c_stored == Stored::fp16) return narrow_to<Fp16>(sums, static_cast<Fp16*>(c) + at, n);
  }
  narrow_to<Number>(sums, static_cast<Number*>(c) + at, n);
}

// Blocks of b that stay in L1 beside sums until they are multiplied by all rows of a. The next block is prefetched meanwhile: after
// the last one, the first of the next product, whose b follows. Rows of a wide c map to the same sets of L1, so their sums are
// contiguous until they are complete.
template <class Read>
void plain(const Number* a, const void* from, Index stride, void* c, Index c_stride, Index rows, Index columns, Index inner,
           Stored c_stored) {
  using Element = typename Read::Element;
  constexpr Index kLeastColumns = 64, kBytes = 8 << 10, kNumbers = Read::kNumbers;
  // Rows whole pages apart share sets of L1: a block has as few of them as these have ways.
  constexpr Index kColumns = 256, kPageColumns = kBytes / GemmKernels::kPageRows / Index{sizeof(Element)};
  constexpr Index kMostColumns = kPageColumns > kColumns ? kPageColumns : kColumns;
  const Index limit = stride * Index{sizeof(Element)} % 4096 ? kColumns : kPageColumns;
  // Where rows take several passes, a block has half as many columns and twice as many rows of b: sums are loaded and stored less often.
  const Index parts = rows > kUnpackedRows && columns > kLeastColumns ? 2 : 1;
  const Index most_columns = least(limit, (columns / parts + kLeastColumns - 1) / kLeastColumns * kLeastColumns);
  const auto* const b = static_cast<const Element*>(from);
  const Index words = (inner + kNumbers - 1) / kNumbers;
  const Index block = kBytes / (least(most_columns, columns) * Index{sizeof(Element)}) / kNumbers * kNumbers;
  const bool apart = columns > limit || c_stored != Stored::fp32;
  alignas(64) Number memory[GemmKernels::kMostFewRows * kMostColumns];
  const Index sums_stride = apart ? limit : c_stride;
  for (Index j = 0; j < columns; j += most_columns) {
    const Index together = least(most_columns, columns - j);
    Number* const sums = apart ? memory : static_cast<Number*>(c) + j;
    for (Index k = 0; k < inner; k += block) {
      const Element* const next = k + block < inner            ? b + (k + block) * stride + j
                                  : j + most_columns < columns ? b + j + most_columns
                                                               : b + inner * stride;
      const Index n = least(block, inner - k);
      in_tiles(rows, [&](Index row, Index some) {
        add_rows_of(Unpacked<Read>{a + row * words + k / kNumbers, words, b + k * stride + j, stride, row ? nullptr : next,
                                   sums + row * sums_stride, sums_stride, together, n, k == 0}, some);
      }, kUnpackedRows);
    }
    for (Index row = 0; apart && row < rows; ++row) put_row(sums + row * sums_stride, c, row * c_stride + j, together, c_stored);
  }
}

}  // namespace
}  // namespace roofline::cpu
