// c = a b for few rows of a and an unpacked b. The part of b read at a time is a class of its own: its Element, `kNumbers` rows that
// a word of a multiplies, and how they become vectors. Everything is internal to the file that includes it.
#pragma once

#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

// One row, in registers' format.
template <class T>
struct RowOf : Floats {
  using Element = T;
  static constexpr Index kNumbers = 1;
  template <int Vectors>
  ROOFLINE_INLINE void read(const T* b, const T*, bool, int lanes, Vec (&y)[Vectors]) {
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) y[z] = Vectors > 1 ? load(b + z * kLanes) : get(b, lanes, zero());
  }
};

// The part of b read later, in the order in which memory has it, whatever the order in which it is multiplied: rows [row_bytes],
// stride_bytes apart.
struct Ahead {
  const char* at;  // or null
  const char* row_end;
  Index row_bytes, stride_bytes;

  template <Index Bytes>
  [[gnu::always_inline]] void fetch() {
#pragma GCC unroll 16
    for (Index i = 0; i < Bytes; i += 64) __builtin_prefetch(at + i);
    at += Bytes;
    if (at >= row_end) at += stride_bytes - row_bytes, row_end += stride_bytes;
  }
};

// c (+)= a b for some rows of a, and a block of b.
template <class Read>
struct Unpacked {
  using Element = typename Read::Element;
  const Number* a;  // words
  Index a_stride;
  const Element* b;
  Index stride;
  Ahead ahead;  // as much as this block has
  Number* c;
  Index c_stride;
  Index columns, inner;
  bool first;  // c holds nothing yet
};

// Vectors of columns whose sums stay in registers: few, so that b is read in the order of memory, but enough for whole lines of it
// and to hide the latency of a multiply-add, which is longer where it adds pairs.
constexpr int kUnpackedRows = kManyRegisters ? 14 : 6;
template <class Read>
constexpr int most_vectors(int rows) {
  constexpr bool wide = sizeof(Vec) == 64, halves = sizeof(typename Read::Element) == 2;
  return rows == 1 && !wide ? 8 : rows <= 2 || (rows <= 6 && kManyRegisters && (!wide || halves)) ? 4 : 2;
}

// Columns [j, j + Vectors kLanes) of c; of a single vector the first `lanes`.
template <int Rows, int Vectors, class Read>
ROOFLINE_INLINE void add_strip(const Unpacked<Read>& x, Index j, int lanes, Ahead& ahead) {
  constexpr Index kNumbers = Read::kNumbers, kTogether = Vectors > 1 ? 2 : 1;
  Vec sums[Rows][Vectors];
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Number* const c = x.c + r * x.c_stride + j + z * kLanes;
      sums[r][z] = x.first ? zero() : Vectors > 1 ? load(c) : get(c, lanes, zero());
    }
  // Three rows of a share an address: one for each would take more registers than there are.
  const Number* a[(Rows + 2) / 3];
#pragma GCC unroll 5
  for (Index i = 0; i < (Rows + 2) / 3; ++i) {
    a[i] = x.a + 3 * i * x.a_stride;
    asm("" : "+r"(a[i]));  // else the compiler computes it from another
  }
  const auto* b = x.b + j;
  const auto step = [&](bool whole, int u) __attribute__((always_inline)) {
    if (ahead.at) ahead.fetch<kNumbers * Vectors * kLanes * Index{sizeof *x.b}>();
    Vec y[Vectors];
    Read::read(b, b + x.stride, whole, lanes, y);
    Index stride = x.a_stride;
    asm("" : "+r"(stride));  // else it keeps multiples of it in registers
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r) {
      const Vec of_a = set1(a[r / 3][r % 3 * stride + u]);
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) sums[r][z] = Read::multiply_add(of_a, y[z], sums[r][z]);
    }
    b += kNumbers * x.stride;
  };
  Index k = 0;
  for (; k + kTogether * kNumbers <= x.inner; k += kTogether * kNumbers) {
#pragma GCC unroll 2
    for (int u = 0; u < kTogether; ++u) step(true, u);
    for (auto& row : a) row += kTogether;
  }
  for (; k < x.inner; k += kNumbers) {
    step(k + kNumbers <= x.inner, 0);
    for (auto& row : a) ++row;
  }
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      Number* const c = x.c + r * x.c_stride + j + z * kLanes;
      Vectors > 1 ? store(c, sums[r][z]) : put(c, lanes, sums[r][z]);
    }
}

// Out of line: within `plain` the compiler runs out of registers.
template <int Rows, int Vectors, class Read>
[[gnu::noinline]] void add_strips(const Unpacked<Read>& x, Index j, Ahead ahead) {
  for (; j + Vectors * kLanes <= x.columns; j += Vectors * kLanes) add_strip<Rows, Vectors>(x, j, kLanes, ahead);
  const int left = static_cast<int>(x.columns - j);
  if (left < 1) return;
  if constexpr (Vectors > 1)
    add_strips<Rows, Vectors / 2>(x, j, ahead);
  else if constexpr (kLanes > 1)
    add_strip<Rows, 1>(x, j, left, ahead);
}

template <int Rows = kUnpackedRows, class Read>
void add_rows_of(const Unpacked<Read>& x, Index rows) {
  if constexpr (Rows > 1)
    if (rows < Rows) return add_rows_of<Rows - 1>(x, rows);
  add_strips<Rows, most_vectors<Read>(Rows)>(x, 0, x.ahead);
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
      Read::read(b + half * kLanes, b + half * kLanes + from.stride, true, kLanes, words[half]);
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

// Blocks of b are whole rows where sums fit half a small L2, so that memory is read as one stream. A block has enough rows that sums
// are seldom loaded and stored. Where b comes from memory it has few enough that L1 holds most of the lines that are prefetched
// meanwhile: those of the next block, and after the last one those of the next product, whose b follows. Where the second cache holds
// b, and its rows are short, a block is all of it, and nothing is prefetched. Rows of a wide c map to the same sets of L1, so their
// sums lie together, each row a line longer than its sums, until they are complete.
template <class Read>
void plain(const Number* a, const void* from, Index stride, void* c, Index c_stride, Index rows, Index columns, Index inner,
           Stored c_stored, Held held) {
  using Element = typename Read::Element;
  constexpr Index kSize = sizeof(Element), kNumbers = Read::kNumbers, kSumsOfLine = kNumberBytes / (kNumbers * kSize);
  constexpr Index kColumns = 64, kLine = 64 / kNumberBytes, kSums = (64 << 10) / kNumberBytes, kFurther = 1536;
  const Index most_columns = kSums / rows / kColumns * kColumns;
  const auto* const b = static_cast<const Element*>(from);
  const Index words = (inner + kNumbers - 1) / kNumbers;
  const Index c_bytes = c_stored == Stored::fp32 ? kNumberBytes : 2;
  const bool cached = held != Held::nowhere, near = held == Held::in_second && stride * kSize <= (rows > 1 ? 2048 : 1024);
  const bool apart = columns > 4 * kColumns || c_stored != Stored::fp32;
  alignas(64) Number memory[kSums + GemmKernels::kMostFewRows * kLine];
  for (Index j = 0; j < columns; j += most_columns) {
    const Index together = least(most_columns, columns - j), row_bytes = together * kSize;
    const Index run = together == stride ? Index{1} << 40 : row_bytes;  // bytes that follow each other
    const Index least_steps = cached                       ? (3 * rows + 1) / 2
                              : rows > 6                   ? (3 * rows + 3) / 4
                              : 2 * rows * together > kSums ? 2 * rows
                                                            : (rows + 1) / 2;
    const Index steps = least_steps * kSumsOfLine * kSumsOfLine;
    const Index words_of_block = most(((row_bytes > 512 ? 8 << 10 : 16 << 10) / row_bytes + kNumbers - 1) / kNumbers, steps);
    const Index block = near ? inner : words_of_block * kNumbers;
    const Index sums_stride = apart ? (together + kLine - 1) / kLine * kLine + kLine : c_stride;
    Number* const sums = apart ? memory : static_cast<Number*>(c) + j;
    for (Index k = 0; k < inner; k += block) {
      const Index n = least(block, inner - k);
      const Index far = (k + block) * row_bytes + kFurther, row = far / run;
      const Element* const next = row < inner                  ? b + row * stride + j
                                  : j + most_columns < columns ? b + (row - inner) * stride + j + most_columns
                                                               : b + inner * stride;
      const char* const begin = reinterpret_cast<const char*>(next);
      const Ahead ahead{begin + far % run, begin + run, run, stride * kSize};
      if (apart && !near && k + n == inner)  // stores to lines that no cache holds would wait for one after the other
        for (Index r = 0; r < rows; ++r)
          for (Index i = 0; i < together * c_bytes; i += 64) fetch_to_write(static_cast<char*>(c) + (r * c_stride + j) * c_bytes + i);
      in_tiles(rows, [&](Index row, Index some) {
        add_rows_of(Unpacked<Read>{a + row * words + k / kNumbers, words, b + k * stride + j, stride, row || near ? Ahead{} : ahead,
                                   sums + row * sums_stride, sums_stride, together, n, k == 0}, some);
      }, kUnpackedRows);
    }
    for (Index row = 0; apart && row < rows; ++row) put_row(sums + row * sums_stride, c, row * c_stride + j, together, c_stored);
  }
}

}  // namespace
}  // namespace roofline::cpu
