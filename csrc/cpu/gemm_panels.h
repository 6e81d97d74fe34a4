// Rows of a as a tile of c reads them: packed in panels, or as they lie. Everything is internal to the file that includes it.
#pragma once

#include <cstdint>

#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

// Rows of a, packed: its columns one after the other.
template <int Rows>
struct Panel {
  const Number* a;
  ROOFLINE_INLINE Number at(const Panel& p, int row, Index k) { return p.a[k * Rows + row]; }
  // What four steps read a page after those from k on, in the next panel too: it may be no nearer than the last cache, and hardware
  // begins to fetch anew at each page.
  template <int>
  ROOFLINE_INLINE void fetch(const Panel& p, Index k) {
    const auto* const later = reinterpret_cast<const char*>(p.a + k * Rows) + 4096;
#pragma GCC unroll 8
    for (int line = 0; line < 4 * Rows * static_cast<int>(sizeof(Number)); line += 64) __builtin_prefetch(later + line);
  }
};

template <class Word>
struct Plain {
  const Word* a;
  Index stride;
  ROOFLINE_INLINE Word at(const Plain& p, int row, Index k) { return p.a[row * p.stride + k]; }
  // A cache line of a row holds sixteen steps, of fp64 eight; every four steps prefetch the lines of a quarter of the rows, or of half.
  template <int Rows>
  ROOFLINE_INLINE void fetch(const Plain& p, Index k) {
    constexpr Index kAhead = 512 / sizeof(Word), kTurns = 16 / sizeof(Word), kRows = (Rows + kTurns - 1) / kTurns;
    const Word* const later = p.a + k / 4 % kTurns * kRows * p.stride + k + kAhead;
#pragma GCC unroll 8
    for (Index r = 0; r < kRows; ++r) __builtin_prefetch(later + r * p.stride);
  }
};

// A line that is written later, as this core's own: else it would come from another core's cache twice.
ROOFLINE_INLINE void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// [rows, n] of a, its columns one after the other. The columns written after the next ones are fetched, for stores cross lines.
template <class Element>
ROOFLINE_INLINE void pack_panel(const Element* a, Index stride, Index rows, Index n, Number* panel) {
  for (Index row = 0; row < rows; row += kLanes) {
    const int lanes = static_cast<int>(least(kLanes, rows - row));
    for (Index k = 0; k < n; k += kLanes) {
      const int columns = static_cast<int>(least(kLanes, n - k));
      for (Index at = 0; at < kLanes * rows; at += 64 / Index{sizeof(Number)}) fetch_to_write(panel + (k + 2 * kLanes) * rows + at);
      Vec block[kLanes];
      for (int i = 0; i < kLanes; ++i) block[i] = i < lanes ? get(a + (row + i) * stride + k, columns, zero()) : zero();
      transpose(block);
      // What a whole vector writes too much, the next one overwrites.
      for (int i = 0; i < columns; ++i) {
        const Index at = (k + i) * rows + row;
        put(panel + at, rows <= kLanes && at + kLanes <= n * rows ? kLanes : lanes, block[i]);
      }
    }
  }
}

}  // namespace
}  // namespace roofline::cpu
