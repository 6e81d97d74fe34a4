// c = a b with b in strips as wide as two vectors. Few rows: a tile of c lies in the cache, and b is read in eight address
// streams, since a core that reads one keeps too few lines on their way. More rows: blocks of inner, so that a strip of b stays in
// the first cache and a packed block of a in the second, and a tile of c lies in registers (Goto and van de Geijn, 2008).
#include "cpu/gemm_kernels.h"

#include <utility>

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

constexpr int kWidth = 2 * kLanes;
// Two vectors of b, one of a, and as many accumulators as are left of 16 or 32 registers.
constexpr int kTileRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : kLanes == 4 ? 12 : 4;

// A row of a strip. kWide: it is stored in fp32.
struct Fp32Strip {
  static constexpr bool kWide = true;
  using Word = float;
  static constexpr int kWords = kWidth;
  ROOFLINE_INLINE void read(const Word* p, Vec& low, Vec& high) { low = load(p), high = load(p + kLanes); }
};

struct Bf16Strip {
  static constexpr bool kWide = false;
  using Word = std::uint32_t;
  static constexpr int kWords = kLanes;
  ROOFLINE_INLINE void read(const Word* p, Vec& low, Vec& high) { widen_pairs(p, low, high); }
};

// Rows of a, packed: its columns one after the other.
template <int Rows>
struct Panel {
  const float* a;
  ROOFLINE_INLINE float at(const Panel& p, int row, Index k) { return p.a[k * Rows + row]; }
};

struct Plain {
  const float* a;
  Index stride;
  ROOFLINE_INLINE float at(const Plain& p, int row, Index k) { return p.a[row * p.stride + k]; }
};

// Bytes in [first, last), on their way to the second cache.
ROOFLINE_INLINE void fetch(const void* from, Index first, Index last) {
  for (Index at = first; at < last; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

// sums[Rows][2] of a[Rows][n] b[n][kWidth], while rows of b `Ahead` further are fetched. Few rows add up in several phases: a
// multiply-add waits four cycles for the one before.
template <class B, int Ahead, int Rows, class A>
ROOFLINE_INLINE void multiply(const A& a, const typename B::Word* b, Index n, Vec (&sums)[Rows][2]) {
  constexpr int kPhases = Rows >= 4 ? 1 : Rows >= 2 ? 2 : 4;
  Vec acc[kPhases][Rows][2];
#pragma GCC unroll 4
  for (auto& phase : acc)
#pragma GCC unroll 14
    for (auto& row : phase) row[0] = row[1] = zero();
  const auto step = [&](Vec (&into)[Rows][2], Index k) __attribute__((always_inline)) {
    Vec low, high;
    if constexpr (Ahead > 0) __builtin_prefetch(b + (k + Ahead) * B::kWords);
    B::read(b + k * B::kWords, low, high);
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r) {
      const Vec x = set1(A::at(a, r, k));
      into[r][0] = fma(x, low, into[r][0]);
      into[r][1] = fma(x, high, into[r][1]);
    }
  };
  Index k = 0;
  for (; k + 4 <= n; k += 4) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) step(acc[u % kPhases], k + u);
  }
  for (; k < n; ++k) step(acc[0], k);
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      sums[r][half] = acc[0][r][half];
#pragma GCC unroll 4
      for (int phase = 1; phase < kPhases; ++phase) sums[r][half] = add(sums[r][half], acc[phase][r][half]);
    }
}

// Rows of b that `few` takes from one place at a time: 1 KiB.
template <class B>
constexpr int kChunk = 1024 / (B::kWords * static_cast<int>(sizeof(typename B::Word)));

// into[Rows][kWidth] += a[Rows][n] b[n][kWidth]
template <class B, int Ahead, int Rows>
void add_product(const float* a, Index stride, const void* b, Index n, float* into) {
  Vec sums[Rows][2];
  multiply<B, Ahead>(Plain{a, stride}, static_cast<const typename B::Word*>(b), n, sums);
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      float* const p = into + r * kWidth + half * kLanes;
      store(p, add(load(p), sums[r][half]));
    }
}

// c[Rows][columns] = or += a[Rows][n] b[n][columns], up to kWidth columns.
template <int Rows>
void tile(const float* a, const float* b, Index n, float* c, Index stride, int columns, bool first) {
  Vec sums[Rows][2];
  multiply<Fp32Strip, 0>(Panel<Rows>{a}, b, n, sums);
  if (columns == kWidth) {
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* const p = c + r * stride + half * kLanes;
        store(p, first ? sums[r][half] : add(load(p), sums[r][half]));
      }
    return;
  }
  for (int r = 0; r < Rows; ++r)
    for (int half = 0; half < 2; ++half) {
      const int lanes = static_cast<int>(least(columns - half * kLanes, kLanes));
      if (lanes <= 0) continue;
      float* const p = c + r * stride + half * kLanes;
      put(p, lanes, first ? sums[r][half] : add(get(p, lanes, zero()), sums[r][half]));
    }
}

// The function for each number of rows.
template <int... Rows>
struct Functions {
  template <class B, int Ahead>
  static constexpr decltype(&add_product<B, Ahead, 1>) kAdd[] = {add_product<B, Ahead, Rows + 1>...};
  static constexpr decltype(&tile<1>) kTile[] = {tile<Rows + 1>...};
};

template <int... Rows>
Functions<Rows...> functions(std::integer_sequence<int, Rows...>);
using OfRows = decltype(functions(std::make_integer_sequence<int, kTileRows>()));

// Rows in parts of nearly one size, none more than a tile: part(begin, rows).
template <class Part>
ROOFLINE_INLINE void in_tiles(Index rows, Part part) {
  const Index tiles = (rows + kTileRows - 1) / kTileRows;
  for (Index i = 0, begin = 0; i < tiles; ++i) {
    const Index n = rows / tiles + (i < rows % tiles);
    part(begin, n);
    begin += n;
  }
}

// n rows of a strip in fp32, while the bytes after them are fetched.
ROOFLINE_INLINE void widen_strip(const std::uint32_t* b, Index n, float* wide) {
  for (Index k = 0; k < n; ++k) {
    Vec low, high;
    if (k % (64 / sizeof(std::uint32_t) / kLanes) == 0) __builtin_prefetch(b + (k + n) * kLanes);
    widen_pairs(b + k * kLanes, low, high);
    store(wide + k * kWidth, low);
    store(wide + k * kWidth + kLanes, high);
  }
}

// sums[rows][kWidth] += a[rows][n] b[n][kWidth]. What one tile of rows computes hides nothing of the reading of b; while several
// do, the next chunk arrives.
template <class B>
ROOFLINE_INLINE void add_chunk(const GemmPart& part, const float* a, const typename B::Word* b, Index n, float* sums) {
  const auto each = [&](const auto& add, const auto* from) __attribute__((always_inline)) {
    in_tiles(part.rows, [&](Index row, Index rows) {
      add[rows - 1](a + row * part.inner, part.inner, from, n, sums + row * kWidth);
    });
  };
  if (part.rows <= kTileRows) return each(OfRows::kAdd<B, 0>, b);
  if constexpr (B::kWide) {
    each(OfRows::kAdd<B, kChunk<B>>, b);
  } else {
    alignas(64) float wide[kChunk<B> * kWidth];
    widen_strip(b, n, wide);
    each(OfRows::kAdd<Fp32Strip, 0>, wide);
  }
}

template <class B>
void few(const GemmPart& part) {
  using Word = typename B::Word;
  constexpr int kStreams = GemmKernels::kStreams;
  const Index strip = part.inner * B::kWords, sums = part.rows * kWidth;  // words of a strip, floats of its sums
  const auto* const b = static_cast<const Word*>(part.b);
  const auto strips = [&](Index first, Index step, Index n) {  // n of them at once
    for (Index i = 0; i < n * sums; i += kLanes) store(part.workspace + i, zero());
    for (Index k = 0; k < part.inner; k += kChunk<B>)
      for (Index i = 0; i < n; ++i)
        add_chunk<B>(part, part.a + k, b + (first + i * step) * strip + k * B::kWords, least(kChunk<B>, part.inner - k),
                     part.workspace + i * sums);
    for (Index i = 0; i < n; ++i) {
      const Index column = (first + i * step) * kWidth;
      for (Index row = 0; row < part.rows; ++row)
        for (Index at = 0; at < kWidth && column + at < part.columns; at += kLanes)
          put(part.c + row * part.columns + column + at, static_cast<int>(least(kLanes, part.columns - column - at)),
              load(part.workspace + i * sums + row * kWidth + at));
    }
  };
  const Index each = (part.last - part.first) / kStreams;
  for (Index i = 0; i < each; ++i) strips(part.first + i, each, kStreams);
  if (const Index rest = part.first + kStreams * each; rest < part.last) strips(rest, 1, part.last - rest);
}

// [rows, n] of a, its columns one after the other. It writes up to a vector past the end.
ROOFLINE_INLINE void pack_panel(const float* a, Index stride, Index rows, Index n, float* panel) {
  for (Index row = 0; row < rows; row += kLanes) {
    const int lanes = static_cast<int>(least(kLanes, rows - row));
    for (Index k = 0; k < n; k += kLanes) {
      const int columns = static_cast<int>(least(kLanes, n - k));
      Vec block[kLanes];
      for (int i = 0; i < kLanes; ++i) block[i] = i < lanes ? get(a + (row + i) * stride + k, columns, zero()) : zero();
      transpose(block);
      // What a whole vector writes too much, the next one overwrites.
      for (int i = 0; i < columns; ++i) put(panel + (k + i) * rows + row, rows <= kLanes ? kLanes : lanes, block[i]);
    }
  }
}

template <class B>
void block(const GemmPart& part) {
  using Word = typename B::Word;
  const Index strip = part.inner * B::kWords;
  const auto* const b = static_cast<const Word*>(part.b);
  float* const wide = part.workspace;  // [inner_block, kWidth], where b is no fp32
  float* const panels = wide + (B::kWide ? 0 : part.inner_block * kWidth);
  for (Index k = 0; k < part.inner; k += part.inner_block) {
    const Index n = least(part.inner_block, part.inner - k);
    in_tiles(part.rows, [&](Index row, Index rows) {
      pack_panel(part.a + row * part.inner + k, part.inner, rows, n, panels + row * n);
    });
    for (Index s = part.first; s < part.last; ++s) {
      const Word* const at = b + s * strip + k * B::kWords;
      const Word* const next = s + 1 < part.last ? at + strip : at;
      const Index next_bytes = n * B::kWords * static_cast<Index>(sizeof(Word));
      const float* from = wide;
      if constexpr (B::kWide)
        from = at;
      else
        widen_strip(at, n, wide);
      const int columns = static_cast<int>(least(kWidth, part.columns - s * kWidth));
      in_tiles(part.rows, [&](Index row, Index rows) {
        fetch(next, next_bytes * row / part.rows, next_bytes * (row + rows) / part.rows);
        OfRows::kTile[rows - 1](panels + row * n, from, n, part.c + row * part.columns + s * kWidth, part.columns, columns, k == 0);
      });
    }
  }
}

void pack_fp32(const void* from, void* to, Index columns, Index inner, Index first, Index last) {
  const auto* const b = static_cast<const float*>(from);
  for (Index s = first; s < last; ++s)
    for (Index k = 0; k < inner; ++k)
      for (Index half = 0; half < 2; ++half) {
        const Index column = s * kWidth + half * kLanes;
        const int lanes = static_cast<int>(most(least(kLanes, columns - column), 0));
        store(static_cast<float*>(to) + (s * inner + k) * kWidth + half * kLanes,
              lanes ? get(b + k * columns + column, lanes, zero()) : zero());
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

void widen(const std::uint16_t* x, float* y, Index n) {
  for (Index i = 0; i < n; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x[i]) << 16;
    __builtin_memcpy(y + i, &bits, sizeof bits);
  }
}

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm) = {
    kWidth, kTileRows, {pack_fp32, pack_bf16}, {few<Fp32Strip>, few<Bf16Strip>}, {block<Fp32Strip>, block<Bf16Strip>}, widen,
};

}  // namespace roofline::cpu
