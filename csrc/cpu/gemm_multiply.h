// c = a b with b in strips as wide as two vectors: what strips hold, and the sums of a few rows of a with a part of a strip.
//
// What a strip holds is a class of its own: `Sum` (the arithmetic, whose `Of` is how a word of a lies), `kWide` (fp32 or fp64 already),
// kRowBytes, and `read` of row base + u, where base is a multiple of 4 and u below 4; `Source` is what `read` takes instead of the
// strip's address. Everything is internal to the file that includes it.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/gemm_kernels.h"
#include "cpu/gemm_panels.h"
#include "cpu/isa.h"
#include "cpu/simd/simd.h"
#if !defined(ROOFLINE_DOUBLES)
#include "cpu/simd/integers.h"
#endif

namespace roofline::cpu {
namespace {

constexpr int kWidth = 2 * kLanes;
constexpr Index kNumberBytes = sizeof(Number);
constexpr bool kHalves = std::is_same_v<Number, float>;  // a and c may be in 16 bits
using PlainPart = GemmPartOf<Number>;
// Two vectors of b, one of a, and as many accumulators as are left of 16 or 32 registers.
constexpr int kTileRows = sizeof(Vec) == 64 ? 14 : sizeof(Vec) == 32 ? 6 : sizeof(Vec) == 16 ? 12 : 4;

struct Floats {
  using Of = Number;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__FMA__) && !defined(ROOFLINE_SIMDE) && !defined(ROOFLINE_SCALAR)
    // From an intrinsic the compiler moves the sums of a whole tile between registers, and a third of them to the stack.
    if constexpr (kHalves)
      asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    else
      asm("vfmadd231pd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
#else
    return fma(a, b, c);
#endif
  }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add(a, b); }
};

#if !defined(ROOFLINE_DOUBLES)
// Sums of words of two 16-bit numbers. Exact.
struct Integers {
  using Of = float;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_pairs(a, b, c); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add_words(a, b); }
};
#endif

// The contents of registers: fp32 or fp64, or the words of int8.
template <class Arithmetic>
struct WideStrip {
  static constexpr bool kWide = true;
  static constexpr Index kRowBytes = kWidth * kNumberBytes;
  using Sum = Arithmetic;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const Number* const p = reinterpret_cast<const Number*>(b) + (base + u) * kWidth;
    low = load(p), high = load(p + kLanes);
  }
};

template <class B, class = void>
struct SourceOf {
  using Type = const char*;
};
template <class B>
struct SourceOf<B, std::void_t<typename B::Source>> {
  using Type = typename B::Source;
};
template <class B>
using Source = typename SourceOf<B>::Type;

// A row of a strip of c: a store that crosses lines waits for each of them.
ROOFLINE_INLINE void fetch_row(const char* c) {
  for (Index line = 0; line < kNumberBytes * kWidth; line += 64) fetch_to_write(c + line);
  fetch_to_write(c + kNumberBytes * kWidth - 1);
}

// sums[Rows][Halves] of a[Rows][n] b[n][Halves kLanes], while memory is fetched: a line every Apart bytes, `ahead` bytes further
// in b; where Apart is 0, `ahead` bytes at `next` every four steps, and every eight, or every four of few, a row of c, which is
// written later. All rows at once would fill the queue of what the first cache misses, and unfetched ones hold up the stores.
// The line Later bytes behind `next` goes to the second cache, and no row of a is fetched then. Few rows add up in several
// phases: a multiply-add waits four cycles for the one before. Three and four rows of wide strips have one, as memory takes
// longer than they wait.
template <class B, int Apart, Index Later = 0, bool ToL1 = false, int Rows, int Halves, class A>
ROOFLINE_INLINE void multiply(const A& a, const Source<B>& b, Index n, Vec (&sums)[Rows][Halves], Index ahead = 0,
                              const char* next = nullptr, const char* c = nullptr, Index c_row_bytes = 0) {
  using Sum = typename B::Sum;
  constexpr bool kNarrow = !B::kWide && Rows <= 4 && 2 * Rows <= kTileRows;
  constexpr int kPhases = Rows == 1 ? 4 : Rows == 2 || kNarrow ? 2 : 1;
  Vec acc[kPhases][Rows][Halves];
#pragma GCC unroll 4
  for (auto& phase : acc)
#pragma GCC unroll 14
    for (auto& row : phase)
#pragma GCC unroll 2
      for (Vec& half : row) half = zero();
  const auto step = [&](Vec (&into)[Rows][Halves], Index base, int u) __attribute__((always_inline)) {
    Vec low, high;
    if constexpr (Apart > 0)
      for (Index line = 0; u * B::kRowBytes % Apart == 0 && line < B::kRowBytes; line += Apart)
        __builtin_prefetch(b + (base + u) * B::kRowBytes + line + ahead, 0, ToL1 ? 3 : 2);
    B::read(b, base, u, low, high);
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r) {
      const Vec x = set1(A::at(a, r, base + u));
      into[r][0] = Sum::multiply_add(x, low, into[r][0]);
      if constexpr (Halves > 1) into[r][1] = Sum::multiply_add(x, high, into[r][1]);
    }
  };
  Index k = 0;
  const char* const end = c + Rows * c_row_bytes;
  const Index mask = n < 8 * Rows ? 3 : 7;  // of the steps from a row of c to the next
  for (; k + 4 <= n; k += 4) {
    if (Apart == 0 && Later == 0) A::template fetch<Rows>(a, k);
    if (Apart == 0)
      for (const char* const to = next + ahead; next < to; next += 64) {
        __builtin_prefetch(next);
        if (Later > 0) __builtin_prefetch(next + Later, 0, 2);
      }
    if (Apart == 0 && (k & mask) == 0 && c < end) {
      fetch_row(c);
      c += c_row_bytes;
    }
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) step(acc[u % kPhases], k, u);
  }
  for (int u = 0; k + u < n; ++u) step(acc[0], k, u);
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < Halves; ++half) {
      sums[r][half] = acc[0][r][half];
#pragma GCC unroll 4
      for (int phase = 1; phase < kPhases; ++phase) sums[r][half] = Sum::plus(sums[r][half], acc[phase][r][half]);
    }
}

}  // namespace
}  // namespace roofline::cpu
