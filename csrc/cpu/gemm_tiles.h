// c = a b with b in strips as wide as two vectors. Few rows: a tile of c lies in the cache, and b is read in one or several address
// streams, with what they need next on its way. More rows: blocks of inner, so that a strip of b stays in the first cache and a packed
// block of a in the second, and a tile of c lies in registers (Goto and van de Geijn, 2008). Everything is internal to the file that
// includes it.
#pragma once

#include "cpu/gemm_multiply.h"

namespace roofline::cpu {
namespace {

// Bytes of b that `few` has on their way, and takes from one stream after the other: each gives its share.
constexpr Index kInFlight = 8192;
constexpr Index kShorter = 6656;  // the same of one stream, of which every line is fetched: no whole number of pages
ROOFLINE_INLINE Index in_flight(const PlainPart& part) { return kInFlight / part.streams.count; }

// Rows of a that meet b at a time.
ROOFLINE_INLINE Index rows_at_once(const PlainPart& part) {
  return part.row_words() % GemmKernelsOf<Number>::kPageWords ? kTileRows : least(kTileRows, GemmKernels::kPageRows);
}

// into[Rows][kWidth] += a[Rows][n] b[n][kWidth], while `multiply` fetches memory.
template <class B, int Apart, Index Later, bool ToL1, int Rows>
void add_product(const PlainPart& part, const Number* a, const char* b, Index n, Number* into, Index ahead, const char* next) {
  Vec sums[Rows][2];
  using Word = typename B::Sum::Of;
  multiply<B, Apart, Later, ToL1>(Plain<Word>{reinterpret_cast<const Word*>(a), part.row_words()}, b, n, sums, ahead, next);
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Number* const p = into + r * kWidth + half * kLanes;
      store(p, B::Sum::plus(load(p), sums[r][half]));
    }
}
// Bytes between lines that are fetched of a strip: all lines of it, or of one stream that is read for few rows one line in four.
template <class B>
constexpr int apart(bool sparse, int rows) {
  return sparse && rows * kNumberBytes * kWidth <= GemmKernels::kMostSparseRows * B::kRowBytes && 4 * B::kRowBytes >= 256 ? 256 : 64;
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

  const Number* before() const { return first ? begun : c; }  // one row, or rows c_stride apart, or null
};

// Whether one instruction narrows a vector.
template <class Element>
constexpr bool kNarrowsAtOnce = false;
#if !defined(ROOFLINE_DOUBLES)
template <>
constexpr bool kNarrowsAtOnce<Fp16> = sizeof(Vec) >= 32;
#if defined(__AVX512BF16__)
template <>
constexpr bool kNarrowsAtOnce<Bf16> = true;
#endif
#endif

// step(row, half) for all vectors of a tile, unrolled: an index that varies keeps sums in memory.
template <int Rows, int Halves, class Step>
ROOFLINE_INLINE void each_vector(Step step) {
#pragma GCC unroll 14
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < Halves; ++half) step(r, half);
}

// Stores n numbers in fp32, or fp64, as To.
template <class To>
void narrow_to(const Number* x, void* y, Index n) {
  auto* const to = static_cast<To*>(y);
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) put(to + i, kLanes, load(x + i));
  if (const int lanes = static_cast<int>(n - i); lanes > 0) put(to + i, lanes, get(x + i, lanes, zero()));
}

// Sums [rows][width] of a tile to a target whose rows are not whole or take several instructions to narrow: in a loop and out of line,
// for unrolled it would be the greater part of a tile's code.
template <class Sum>
[[gnu::noinline]] void put_sums(Number* sums, Index rows, Index width, const Target& target) {
  const Index columns = target.columns;
  const auto plus = [&](const Number* from, Index stride) __attribute__((always_inline)) {
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < columns; j += kLanes)
        store(sums + r * width + j, Sum::plus(load(sums + r * width + j),
                                              get(from + r * stride + j, static_cast<int>(least(kLanes, columns - j)), zero())));
  };
  if (const Number* const from = target.before()) plus(from, target.first ? 0 : target.c_stride);
  const auto put_rows = [&](auto* to, Index stride) __attribute__((always_inline)) {
    for (Index r = 0; r < rows; ++r) narrow_to<std::remove_pointer_t<decltype(to)>>(sums + r * width, to + r * stride, columns);
  };
  if (!kHalves || !target.to) return put_rows(target.c, target.c_stride);
  if constexpr (kHalves) {
    if (target.to_stored == Stored::bf16) return put_rows(static_cast<Bf16*>(target.to), target.to_stride);
    put_rows(static_cast<Fp16*>(target.to), target.to_stride);
  }
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
  const bool halves = kHalves && target.to, bf16 = target.to_stored == Stored::bf16;
  if (target.columns < Halves * kLanes || (halves && !(bf16 ? kNarrowsAtOnce<Bf16> : kNarrowsAtOnce<Fp16>))) {
    alignas(64) Number memory[Rows][Halves * kLanes];
    each_vector<Rows, Halves>([&](int r, int half) __attribute__((always_inline)) { store(memory[r] + half * kLanes, sums[r][half]); });
    return put_sums<Sum>(memory[0], Rows, Halves * kLanes, target);
  }
  const auto plus = [&](const Number* from, Index stride) __attribute__((always_inline)) {
    each_vector<Rows, Halves>([&](int r, int half) __attribute__((always_inline)) {
      sums[r][half] = Sum::plus(sums[r][half], load(from + r * stride + half * kLanes));
    });
  };
  if (const Number* const from = target.before()) plus(from, target.first ? 0 : target.c_stride);
  const auto put_all = [&](auto* to, Index stride) __attribute__((always_inline)) {
    each_vector<Rows, Halves>([&](int r, int half) __attribute__((always_inline)) {
      put(to + r * stride + half * kLanes, kLanes, sums[r][half]);
    });
  };
  if constexpr (kNarrowsAtOnce<Bf16>)
    if (halves && bf16) return put_all(static_cast<Bf16*>(target.to), target.to_stride);
  if constexpr (kNarrowsAtOnce<Fp16>)
    if (halves) return put_all(static_cast<Fp16*>(target.to), target.to_stride);
  put_all(target.c, target.c_stride);
}

// The function for each number of rows.
template <int... Rows>
struct Functions {
  template <class B, Index Later>
  static constexpr decltype(&add_product<B, 0, Later, false, 1>) kAdd[] = {add_product<B, 0, Later, false, Rows + 1>...};
  template <class B, bool Sparse, bool ToL1>
  static constexpr decltype(&add_product<B, 64, 0, ToL1, 1>) kAddAhead[] = {add_product<B, apart<B>(Sparse, Rows + 1), 0, ToL1, Rows + 1>...};
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

// The sums of all rows with a chunk of a strip in registers' format: sums[rows][kWidth] += a[rows][n] b[n][kWidth]. Ahead: the next
// chunk is fetched. Tiles that share a chunk share these requests, some bytes every four rows of b: a busy memory drops those to the
// second cache, and none to the first, which come later, for lines still missing.
template <class B, bool Ahead>
ROOFLINE_INLINE void add_rows(const PlainPart& part, const Number* a, const char* b, Index n, Number* sums) {
  const Index together = rows_at_once(part), tiles = (part.rows + together - 1) / together;
  const bool alone = tiles == 1, once = alone && part.streams.count == 1, sparse = once && part.streams.sparse, to_l1 = part.streams.to_l1;
  const char* next = b + n * B::kRowBytes;
  Index ahead = 0;
  const auto* add = OfRows::kAdd<B, Ahead ? 2 * kInFlight : 0>;
  if constexpr (Ahead) {
    if (alone) {
      add = sparse ? to_l1 ? OfRows::kAddAhead<B, true, true> : OfRows::kAddAhead<B, true, false>
                   : to_l1 ? OfRows::kAddAhead<B, false, true> : OfRows::kAddAhead<B, false, false>;
      // Without prefetches the lines asked for are those that are read anyway: an instruction each, and no code of its own.
      ahead = !once ? in_flight(part) : !part.streams.prefetch ? 0 : apart<B>(sparse, static_cast<int>(part.rows)) == 64 ? kShorter : kInFlight;
    } else {
      ahead = (4 * B::kRowBytes / tiles + 63) / 64 * 64;
    }
  }
  in_tiles(part.rows, [&](Index row, Index rows) {
    add[rows - 1](part, a + row * part.row_words(), b, n, sums + row * kWidth, ahead, next);
    next += n / 4 * ahead;
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

// Strips::at is where row k of a strip begins; `widen` converts rows to registers' format. UnpackedB: a strip of unpacked
// rows of b, or void, where b is always packed.
template <class Strips, class UnpackedB = void, class Part>
void block(const Part& part) {
  using B = typename Strips::B;
  using Wide = WideStrip<typename B::Sum>;
  const bool direct = part.as_stored || part.rows <= Strips::kMostDirect;
  const Index bytes = Strips::bytes(part);
  const auto* const b = static_cast<const char*>(part.b);
  Number* const wide = part.workspace;  // [inner_block, kWidth], where b is no fp32
  Number* const packed = wide + (B::kWide ? 0 : part.inner_block * kWidth);
  const Later *later = part.later, *const all_later = later + GemmPart::kLater;
  Index later_bytes = 0;
  for (const Later& one : part.later) later_bytes += one.bytes;
  Index ahead = 0;  // bytes of it that are on their way
  for (Index k = 0; k < part.inner; k += part.inner_block) {
    const Index n = least(part.inner_block, part.inner - k);
    const bool last = part.to && k + n == part.inner;
    const Number* const panels = part.panels ? part.panels + k * part.rows : packed;
    if (!part.panels && !part.lies) pack_panels<typename B::Sum>(part, k, n, packed);
    // Every four steps of a tile fetch two lines of what follows, or more where few tiles share it: evenly, as memory gives them.
    const Index together = part.lies ? rows_at_once(part) : kTileRows, tiles = (part.rows + together - 1) / together;
    const auto every_four = [&](Index all) { return most(128, (4 * all / (n * tiles) + 63) / 64 * 64); };
    const Index later_each = every_four(later_bytes * n / part.inner / (part.last - part.first));
    for (Index s = part.first; s < part.last; ++s) {
      const char* const strip = b + s * bytes;
      // What follows: the block of the next strip, or the next block of the first.
      const bool over = s + 1 == part.last;
      const Index from = Strips::at(part, k), after = Strips::at(part, k + n), next_bytes = over && k + n == part.inner ? 0 : after - from;
      const char* const next = over ? b + part.first * bytes + after : strip + bytes + from;
      const int columns = static_cast<int>(least(kWidth, part.columns - s * kWidth));
      const Index each = every_four(next_bytes);
      Index fetched = 0;
      in_tiles(part.rows, [&](Index row, Index rows) {
        // Then what later parts read.
        while (later != all_later && ahead >= later->bytes) ++later, ahead = 0;
        const bool own = fetched < next_bytes, others = later != all_later;
        const Index fetch = own ? each : others ? later_each : 0;
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
        if constexpr (!std::is_void_v<UnpackedB>)
          if (part.unpacked.from && !row)
            return meet(OfRows::kTile<UnpackedB, 2, true>[rows - 1], Source<UnpackedB>(part.unpacked), 0, n);
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
