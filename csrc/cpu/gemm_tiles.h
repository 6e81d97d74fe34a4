// c = a b with b in strips as wide as two vectors. Few rows: a tile of c lies in the cache, and b is read in one or several address
// streams, with what they need next on its way. More rows: blocks of inner, so that a strip of b stays in the first cache and a packed
// block of a in the second, and a tile of c lies in registers (Goto and van de Geijn, 2008).
//
// What a strip holds is a class of its own: `Sum` (the arithmetic, whose `Of` is how a word of a lies), `kWide` (fp32 or fp64 already),
// kRowBytes, and `read` of row base + u, where base is a multiple of 4 and u below 4; with `kBegun` sums begin with the row behind
// the last; `Source` is what `read` takes instead of the strip's address. Everything is internal to the file that includes it.
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
  static constexpr bool kBegun = false;
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
// Of words of two 16-bit numbers. Exact.
struct Integers {
  static constexpr bool kBegun = false;
  using Of = float;
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_pairs(a, b, c); }
  ROOFLINE_INLINE Vec plus(Vec a, Vec b) { return add_words(a, b); }
};
#endif

// What is in registers: fp32 or fp64, or the words of int8.
template <class Arithmetic>
struct WideStrip {
  static constexpr bool kWide = true, kBegun = Arithmetic::kBegun;
  static constexpr Index kRowBytes = kWidth * kNumberBytes;
  using Sum = Arithmetic;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const Number* const p = reinterpret_cast<const Number*>(b) + (base + u) * kWidth;
    low = load(p), high = load(p + kLanes);
  }
};

// A full strip of unpacked b; `read` also stores what it reads as a packed strip. `Read` (gemm_plain.h) converts rows to words.
template <class Arithmetic, class Read>
struct UnpackedStrip : WideStrip<Arithmetic> {
  struct Source {
    const typename Read::Element* b;  // rows `stride` apart
    Index stride;
    Number* packed;
  };
  ROOFLINE_INLINE void read(const Source& from, Index base, int u, Vec& low, Vec& high) {
    const auto* const b = from.b + (base + u) * Read::kNumbers * from.stride;
    Vec words[2][1];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Read::read(b + half * kLanes, b + half * kLanes + from.stride, kLanes, words[half]);
      store(from.packed + (base + u) * kWidth + half * kLanes, words[half][0]);
    }
    low = words[0][0], high = words[1][0];
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
// in b; where Apart is 0, `ahead` bytes at `next` every four steps, and every eight a row of c, which is written later. All rows
// at once would fill the queue of what the first cache misses, and unfetched ones hold up the stores. What is Later bytes behind
// `next` goes to the second cache, and no row of a is fetched then. Few rows add up in several phases: a multiply-add waits four
// cycles for the one before. Three and four rows of wide strips have one, as memory takes longer than they wait.
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
  for (; k + 4 <= n; k += 4) {
    if (Apart == 0 && Later == 0) A::template fetch<Rows>(a, k);
    if (Apart == 0)
      for (const char* const to = next + ahead; next < to; next += 64) {
        __builtin_prefetch(next);
        if (Later > 0) __builtin_prefetch(next + Later, 0, 2);
      }
    if (Apart == 0 && k % 8 == 0 && c < end) {
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

// Bytes of b that `few` has on their way, and takes from one stream after the other: each gives its share.
constexpr Index kInFlight = 8192;
constexpr Index kShorter = 6656;  // the same of one stream, of which every line is fetched: no whole number of pages
ROOFLINE_INLINE Index in_flight(const PlainPart& part) { return kInFlight / part.streams.count; }

// Rows of a that meet b at a time.
ROOFLINE_INLINE Index rows_at_once(const PlainPart& part) {
  return part.row_words() % GemmKernelsOf<Number>::kPageWords ? kTileRows : least(kTileRows, GemmKernels::kPageRows);
}
ROOFLINE_INLINE bool is_read_once(const PlainPart& part) { return part.streams.count == 1 && part.rows <= rows_at_once(part); }

// into[Rows][kWidth] += a[Rows][n] b[n][kWidth]. Tiles that share a chunk share the requests for the next one, `fetch` bytes from `next`
// on every four rows of b. A busy memory drops those to the second cache, and none to the first: these come later, for what is still
// missing.
template <class B, bool Ahead, bool ToL1, int Rows>
void add_product(const PlainPart& part, const Number* a, const char* b, Index n, Number* into, const char* next, Index fetch) {
  constexpr bool kSparse = Rows * kNumberBytes * kWidth <= GemmKernels::kMostSparseRows * B::kRowBytes && 4 * B::kRowBytes >= 256;
  Vec sums[Rows][2];
  using Word = typename B::Sum::Of;
  const Plain<Word> words{reinterpret_cast<const Word*>(a), part.row_words()};
  const bool once = is_read_once(part);
  if (Ahead && kSparse && once && part.streams.sparse)
    multiply<B, 256, 0, ToL1>(words, b, n, sums, kInFlight);
  else if (Ahead && !fetch)
    multiply<B, 64, 0, ToL1>(words, b, n, sums, once ? kShorter : in_flight(part));
  else
    multiply<B, 0, Ahead ? 2 * kInFlight : 0>(words, b, n, sums, fetch, next);
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Number* const p = into + r * kWidth + half * kLanes;
      store(p, B::Sum::plus(load(p), sums[r][half]));
    }
}

// Where the sums of a tile end. c holds those of earlier blocks of inner, and of this one where `to` is null.
struct Target {
  Number* c;
  Index c_stride;
  void* to;  // in 16 bits, rows `to_stride` apart
  Index to_stride;
  Stored to_stored;
  int columns;          // up to kWidth
  bool first;           // c holds nothing yet
  const Number* begun;  // of the first: what sums begin with, or null
};

// step(row, half, lanes) for all vectors of a tile that `columns` reaches, unrolled: an index that varies keeps sums in memory.
template <int Rows, int Halves, class Step>
ROOFLINE_INLINE void each_vector(int columns, Step step) {
  if (Halves == 2 && columns == kWidth) {
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r) step(r, 0, kLanes), step(r, 1, kLanes);
    return;
  }
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r) {
    step(r, 0, static_cast<int>(least(columns, kLanes)));
    if (Halves == 2 && columns > kLanes) step(r, 1, columns - kLanes);
  }
}

template <class Element, int Rows, int Halves>
ROOFLINE_INLINE void put_sums(const Vec (&sums)[Rows][Halves], Element* to, Index stride, int columns) {
  each_vector<Rows, Halves>(columns, [&](int r, int half, int lanes) __attribute__((always_inline)) {
    put(to + r * stride + half * kLanes, lanes, sums[r][half]);
  });
}

// a[Rows][n] b[n][columns] to its target. Halves: 1 where the first vector of a strip holds all columns. Lies: a is no panel, but
// rows of words `stride` apart.
template <class B, int Halves, bool Lies, int Rows>
void tile(const Number* a, [[maybe_unused]] Index stride, Source<B> b, Index n, const Target& target, const char* next,
          Index fetch) {
  using Sum = typename B::Sum;
  Vec sums[Rows][Halves];
  const auto* const written = static_cast<const char*>(target.to ? target.to : target.c);
  const Index row_bytes = target.to ? 2 * target.to_stride : kNumberBytes * target.c_stride;
  if constexpr (Lies)
    multiply<B, 0>(Plain<typename Sum::Of>{reinterpret_cast<const typename Sum::Of*>(a), stride}, b, n, sums, fetch, next, written,
                       row_bytes);
  else
    multiply<B, 0>(Panel<Rows>{a}, b, n, sums, fetch, next, written, row_bytes);
  const auto plus = [&](const Number* from, Index stride, int columns) __attribute__((always_inline)) {
    each_vector<Rows, Halves>(columns, [&](int r, int half, int lanes) __attribute__((always_inline)) {
      sums[r][half] = Sum::plus(sums[r][half], get(from + r * stride + half * kLanes, lanes, zero()));
    });
  };
  const int columns = target.columns;
  if (Sum::kBegun && target.begun) plus(target.begun, 0, Halves * kLanes);
  if (!target.first) plus(target.c, target.c_stride, columns);
  if (!kHalves || !target.to) return put_sums(sums, target.c, target.c_stride, columns);
  if constexpr (kHalves) {
    if (target.to_stored == Stored::bf16) return put_sums(sums, static_cast<Bf16*>(target.to), target.to_stride, columns);
    put_sums(sums, static_cast<Fp16*>(target.to), target.to_stride, columns);
  }
}

// The function for each number of rows.
template <int... Rows>
struct Functions {
  template <class B, bool Ahead, bool ToL1>
  static constexpr decltype(&add_product<B, Ahead, ToL1, 1>) kAdd[] = {add_product<B, Ahead, ToL1, Rows + 1>...};
  template <class B, int Halves, bool Lies>
  static constexpr decltype(&tile<B, Halves, Lies, 1>) kTile[] = {tile<B, Halves, Lies, Rows + 1>...};
};

template <int... Rows>
Functions<Rows...> functions(std::integer_sequence<int, Rows...>);
using OfRows = decltype(functions(std::make_integer_sequence<int, kTileRows>()));

// Rows in parts of nearly one size, none more than a tile: part(begin, rows).
template <class Part>
ROOFLINE_INLINE void in_tiles(Index rows, Part part, Index most = kTileRows) {
  const Index tiles = (rows + most - 1) / most;
  for (Index i = 0, begin = 0; i < tiles; ++i) {
    const Index n = rows / tiles + (i < rows % tiles);
    part(begin, n);
    begin += n;
  }
}

// The sums of all rows with a chunk of a strip in registers' format: sums[rows][kWidth] += a[rows][n] b[n][kWidth].
template <class B, bool Ahead>
ROOFLINE_INLINE void add_rows(const PlainPart& part, const Number* a, const char* b, Index n, Number* sums) {
  const Index together = rows_at_once(part), tiles = (part.rows + together - 1) / together;
  const Index fetch = Ahead && tiles > 1 ? (4 * B::kRowBytes / tiles + 63) / 64 * 64 : 0;
  const char* next = b + n * B::kRowBytes;
  const auto& add = Ahead && part.streams.to_l1 ? OfRows::kAdd<B, Ahead, Ahead> : OfRows::kAdd<B, Ahead, false>;
  in_tiles(part.rows, [&](Index row, Index rows) {
    add[rows - 1](part, a + row * part.row_words(), b, n, sums + row * kWidth, next, fetch);
    next += n / 4 * fetch;
  }, together);
}

// Few rows. Strips says how a strip is stored: `bytes` of one, `after` a row of b the next chunk's first one, and
// `add` the product with n rows of a strip from row k on to sums[rows][kWidth].
template <class Strips, class Part>
void few(const Part& part) {
  const Index bytes = Strips::bytes(part), sums = part.rows * kWidth;  // of a strip, floats of its sums
  const Index streams = part.streams.count;
  const auto* const b = static_cast<const char*>(part.b);
  const auto strips = [&](Index first, Index step, Index n) {  // n of them at once
    for (Index i = 0; i < n; ++i) {
      const Number* const begun = Strips::begun(part, b + (first + i * step) * bytes);
      for (Index at = 0; at < sums; at += kLanes) store(part.workspace + i * sums + at, begun ? load(begun + at % kWidth) : zero());
    }
    for (Index k = 0, end; k < part.inner; k = end) {
      end = Strips::after(part, k);
      for (Index i = 0; i < n; ++i)
        Strips::add(part, b + (first + i * step) * bytes, k, end - k, part.workspace + i * sums);
    }
    for (Index i = 0; i < n; ++i) {
      const Index column = (first + i * step) * kWidth;
      for (Index row = 0; row < part.rows; ++row)
        for (Index at = 0; at < kWidth && column + at < part.columns; at += kLanes)
          put(part.c + row * part.c_stride + column + at, static_cast<int>(least(kLanes, part.columns - column - at)),
              load(part.workspace + i * sums + row * kWidth + at));
    }
  };
  const Index each = (part.last - part.first) / streams;
  for (Index i = 0; i < each; ++i) strips(part.first + i, each, streams);
  if (const Index rest = part.first + streams * each; rest < part.last) strips(rest, 1, part.last - rest);
}

// [part.rows, n] of a from column k on, in panels of tiles.
template <class Element>
void pack_panels_of(const PlainPart& part, Index k, Index n, Number* panels) {
  const auto* const a = static_cast<const Element*>(part.a) + k;
  in_tiles(part.rows, [&](Index row, Index rows) { pack_panel(a + row * part.inner, part.inner, rows, n, panels + row * n); });
}
template <class Sum>
void pack_panels(const PlainPart& part, Index k, Index n, Number* panels) {
  if constexpr (kHalves) {
    if (part.a_stored == Stored::bf16) return pack_panels_of<Bf16>(part, k, n, panels);
    if (part.a_stored == Stored::fp16) return pack_panels_of<Fp16>(part, k, n, panels);
  }
  pack_panels_of<typename Sum::Of>(part, k, n, panels);
}

// Rows of b whose stores are in flight together; of narrower strips, which the first cache holds, more.
constexpr Index kWidened = kLanes == 16 ? 32 : 128;

// Strips::at is where row k of a strip begins; `widen` converts rows to registers' format. Read reads unpacked rows of b; void: b is
// always packed.
template <class Strips, class Read = void, class Part>
void block(const Part& part) {
  using B = typename Strips::B;
  using Wide = WideStrip<typename B::Sum>;
  const bool direct = part.rows <= Strips::kMostDirect;
  const Index bytes = Strips::bytes(part);
  const auto* const b = static_cast<const char*>(part.b);
  Number* const wide = part.workspace;  // [inner_block, kWidth], where b is no fp32
  Number* const packed = wide + (B::kWide ? 0 : part.inner_block * kWidth);
  const Later *later = part.later, *const all_later = later + GemmPart::kLater;
  Index ahead = 0;  // bytes of it that are on their way
  for (Index k = 0; k < part.inner; k += part.inner_block) {
    const Index n = least(part.inner_block, part.inner - k);
    const bool last = part.to && k + n == part.inner;
    const Number* const panels = part.panels ? part.panels + k * part.rows : packed;
    if (!part.panels && !part.lies) pack_panels<typename B::Sum>(part, k, n, packed);
    for (Index s = part.first; s < part.last; ++s) {
      const char* const strip = b + s * bytes;
      // What follows: the block of the next strip, or the next block of the first.
      const bool over = s + 1 == part.last;
      const Index from = Strips::at(part, k), after = Strips::at(part, k + n), next_bytes = over && k + n == part.inner ? 0 : after - from;
      const char* const next = over ? b + part.first * bytes + after : strip + bytes + from;
      const int columns = static_cast<int>(least(kWidth, part.columns - s * kWidth));
      // Every four steps of a tile fetch two lines of it, or more where so few tiles share them: evenly, as memory gives them.
      const Index together = part.lies ? rows_at_once(part) : kTileRows, tiles = (part.rows + together - 1) / together;
      const Index each = most(128, (4 * next_bytes / (n * tiles) + 63) / 64 * 64);
      Index fetched = 0;
      in_tiles(part.rows, [&](Index row, Index rows) {
        // Then what later parts read.
        while (later != all_later && ahead >= later->bytes) ++later, ahead = 0;
        const bool own = fetched < next_bytes, others = later != all_later;
        const Index fetch = own ? each : others ? 128 : 0;
        const char* const from_next = own ? next + fetched : others ? later->from + ahead : nullptr;
        (own ? fetched : ahead) += n / 4 * fetch;
        char* const to = last ? static_cast<char*>(part.to) + (row * part.to_stride + s * kWidth) * 2 : nullptr;
        const auto meet = [&](auto tile, const auto& rows_of_b, Index i, Index some) __attribute__((always_inline)) {
          const Number* const a = part.lies ? static_cast<const Number*>(part.a) + row * part.inner + k : panels + row * n;
          tile(a + i * (part.lies ? 1 : rows), part.inner, rows_of_b, some,
               {part.c + row * part.c_stride + s * kWidth, part.c_stride, i + some == n ? to : nullptr, part.to_stride, part.to_stored,
                columns, k + i == 0, k + i == 0 ? Strips::begun(part, strip) : nullptr},
               from_next ? from_next + i / 4 * fetch : nullptr, fetch);
        };
        const auto tiles_of = [&](auto strips) {
          using Strip = decltype(strips);
          const auto functions = [&](auto lies) {
            return (columns <= kLanes ? OfRows::kTile<Strip, 1, lies()> : OfRows::kTile<Strip, 2, lies()>)[rows - 1];
          };
          if constexpr (B::kWide)
            if (part.lies) return functions(std::true_type());
          return functions(std::false_type());
        };
        if constexpr (!std::is_void_v<Read>)
          if (part.unpacked.from && !row) {
            using Strip = UnpackedStrip<typename B::Sum, Read>;
            const auto* const rows_of_b = static_cast<const typename Read::Element*>(part.unpacked.from);
            return meet(OfRows::kTile<Strip, 2, true>[rows - 1], Source<Strip>{rows_of_b, part.unpacked.stride, part.unpacked.to}, 0, n);
          }
        if constexpr (Strips::kMostDirect > 0)
          if (direct) return meet(tiles_of(B{}), strip + from, 0, n);
        // The first rows meet b while it is widened, some rows of it at a time: the stores take longer than all else of that, and
        // have the time of the multiply-adds to drain.
        if constexpr (!B::kWide)
          for (Index i = 0, some; i < n; i += some) {
            some = least(row ? n : kWidened, n - i);
            if (!row) Strips::widen(part, strip, k + i, some, wide + i * kWidth);
            meet(tiles_of(Wide{}), reinterpret_cast<const char*>(wide + i * kWidth), i, some);
          }
      }, together);
    }
  }
}

}  // namespace
}  // namespace roofline::cpu
