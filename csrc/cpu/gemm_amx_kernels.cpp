// Matrix products of bf16 and int8 by the tiles of AMX: 32 x 32 of c in four of them, two of rows of a and two of columns of b beside
// them. A tile is 16 rows of 16 words, a word two numbers of bf16 or four of int8 along inner; words beyond the last number are 0.
#include "cpu/gemm_kernels.h"

#include "cpu/amx_tiles.h"
#include "cpu/gemm_strips.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

constexpr Index kRows = 2 * kTile;           // of a square of tiles
constexpr Index kColumns = 2 * kTile;        // of it, and of a strip
constexpr Index kRowOfB = 4 * kColumns;      // bytes of a row of words of a strip
constexpr Index kStepOfB = kTile * kRowOfB;  // of the rows that a product of tiles takes

// The columns of a strip from row `b` on.
ROOFLINE_INLINE TileOperand columns_at(const char* b) {
  const auto* const words = reinterpret_cast<const float*>(b);
  return {words, words + kTile, kRowOfB, kStepOfB / 4};
}

constexpr Index kSquare = kRows * kColumns;  // sums

// rows x columns of c from `column` of its part on, from a square of sums.
void put_square(const GemmPart& part, Index row, Index rows, Index column, const float* square) {
  const Index columns = least(kColumns, part.columns - column);
  for (Index r = 0; r < rows; ++r)
    __builtin_memcpy(part.c + (row + r) * part.c_stride + column, square + r * kColumns, static_cast<std::size_t>(columns) * 4);
}

// Two strips at a time: two address streams, which up to 16 rows of c leave tiles for.
template <bool Integers>
ROOFLINE_INLINE void two_strips(const GemmPart& part, Index one, Index other) {
  const auto* const a = static_cast<const char*>(part.a);
  const auto b_of = [&](Index strip) { return static_cast<const char*>(part.b) + strip * part.inner * kRowOfB; };
  const char *const b = b_of(one), *const next = b_of(other);
  Square<true, true>::clear();
  for (Index k = 0; k < part.inner; k += kTile) {
    const auto half = [&](const char* of, Index which) __attribute__((always_inline)) {
      fetch(of + k * kRowOfB + kInFlight / 2 + which * kStepOfB / 2, kStepOfB / 2);
    };
    half(b, 0);
    _tile_loadd(4, a + 4 * k, 4 * part.row_words());
    _tile_loadd(6, b + k * kRowOfB, kRowOfB);
    _tile_loadd(7, b + k * kRowOfB + kTileBytes, kRowOfB);
    ROOFLINE_ADD_PRODUCT(Integers, 0, 4, 6);
    half(next, 0);
    ROOFLINE_ADD_PRODUCT(Integers, 1, 4, 7);
    half(b, 1);
    _tile_loadd(6, next + k * kRowOfB, kRowOfB);
    _tile_loadd(7, next + k * kRowOfB + kTileBytes, kRowOfB);
    ROOFLINE_ADD_PRODUCT(Integers, 2, 4, 6);
    half(next, 1);
    ROOFLINE_ADD_PRODUCT(Integers, 3, 4, 7);
  }
  alignas(64) float squares[kSquare];
  Square<true, true>::store(squares, kRowOfB);
  barrier();
  put_square(part, 0, part.rows, one * kColumns, squares);
  put_square(part, 0, part.rows, other * kColumns, squares + kTileWords * 2);
}

template <bool Integers>
void few_tiles(const GemmPart& part) {
  const int rows = static_cast<int>(part.rows);
  if (rows > kTile) {
    using Tiles = Square<true, true, Integers>;
    const auto* const a = static_cast<const float*>(part.a);
    const Index row_words = part.row_words();
    configure(kTile, rows - kTile);
    for (Index s = part.first; s < part.last; ++s) {
      const char* const b = static_cast<const char*>(part.b) + s * part.inner * kRowOfB;
      Tiles::clear();
      Tiles::add({a, a + kTile * row_words, 4 * row_words, kTile}, columns_at(b), part.inner / kTile,
                 [&](Index step, Index quarter) __attribute__((always_inline)) {
                   fetch_quarter(b + step * kStepOfB + kInFlight, kStepOfB / 64, quarter);
                 });
      alignas(64) float square[kSquare];
      Tiles::store(square, kRowOfB);
      barrier();
      put_square(part, 0, rows, s * kColumns, square);
    }
  } else {
    configure(rows, rows);
    const Index each = (part.last - part.first) / 2;
    for (Index i = 0; i < each; ++i) two_strips<Integers>(part, part.first + i, part.first + each + i);
    if (part.first + 2 * each < part.last) two_strips<Integers>(part, part.last - 1, part.last - 1);
  }
  _tile_release();
}

// Rows of a block in tiles: [row tile][step of 16 words][16 rows][16 words], rows beyond the last 0. Side by side, since rows that lie
// a multiple of 4 KiB apart would meet in few places of the first cache.
void pack_tiles(const GemmPart& part, Index k, Index n, float* to) {
  const auto* const a = static_cast<const float*>(part.a) + k;
  for (Index row = 0; row < (part.rows + kTile - 1) / kTile * kTile; ++row)
    for (Index j = 0; j < n; j += kTile) {
      float* const into = to + (row / kTile * n + j) * kTile + row % kTile * kTile;
      if (row < part.rows)
        __builtin_memcpy(into, a + row * part.inner + j, kTileBytes);
      else
        __builtin_memset(into, 0, kTileBytes);
    }
}

// Lines to prefetch beside every step, a quarter after each product.
struct Prefetch {
  const char* from = nullptr;
  Index lines = 0, apart = 64, step = 0;  // of a step; bytes from line to line, and from step to step

  ROOFLINE_INLINE void beside(const Prefetch& p, Index step, Index quarter) {
    fetch_quarter(p.from + step * p.step, p.lines, quarter, p.apart);
  }
};

// So many bytes in so many steps.
Prefetch spread(const void* from, Index bytes, Index steps) {
  const Index lines = (bytes / steps + 63) / 64;
  return {static_cast<const char*>(from), lines, 64, 64 * lines};
}

// 32 x 32 sums, or 16 x 32, = those in a square, or 0 where it is null, + the product of n words along inner.
template <bool Rows, bool Integers>
void square_product(const TileOperand& a, Index n, const char* b, const float* begun, float* sums, Index stride,
                    const Prefetch& of_a, const Prefetch& of_b) {
  using Tiles = Square<Rows, true, Integers>;
  begun ? Tiles::load(begun, kRowOfB) : Tiles::clear();
  Tiles::add(a, columns_at(b), n / kTile, [&](Index step, Index quarter) __attribute__((always_inline)) {
    Prefetch::beside(of_a, step, quarter);
    Prefetch::beside(of_b, step, quarter);
  });
  Tiles::store(sums, 4 * stride);
  barrier();
}

// part.to[row ..][column ..] = a square of sums.
template <class Half>
void narrow_square(const GemmPart& part, Index row, Index rows, Index column, const float* square) {
  const Index columns = least(kColumns, part.columns - column);
  Half* to = static_cast<Half*>(part.to) + row * part.to_stride + column;
  for (Index r = 0; r < rows; ++r, to += part.to_stride)
    for (Index at = 0; at < columns; at += kLanes) {
      const int lanes = static_cast<int>(least(kLanes, columns - at));
      put(to + at, lanes, get(square + r * kColumns + at, lanes, zero()));
    }
}

// Between blocks of inner, sums are squares one after the other: rows of c that lie a multiple of 4 KiB apart would meet in few places
// of both caches. Whole squares of a are read in place where `lies` says so.
template <bool Integers>
void block_of_tiles(const GemmPart& part) {
  const auto b_of = [&](Index s, Index k) { return static_cast<const char*>(part.b) + (s * part.inner + k) * kRowOfB; };
  GemmPart packed = part;
  const Index in_place = part.lies ? part.rows / kRows * kRows : 0;
  packed.a = static_cast<const float*>(part.a) + in_place * part.inner, packed.rows -= in_place;
  const Index squares = (part.rows + kRows - 1) / kRows, panel_rows = (packed.rows + kTile - 1) / kTile * kTile;
  const Index strips = part.last - part.first;
  float* const all_sums = part.workspace + (part.panels ? 0 : panel_rows * part.inner_block);
  configure(kTile, kTile);
  for (Index k = 0; k < part.inner; k += part.inner_block) {
    const Index n = least(part.inner_block, part.inner - k), left = part.inner - k - n, steps = n / kTile;
    const float* const panels = part.panels ? part.panels + k * panel_rows : part.workspace;
    if (!part.panels) pack_tiles(packed, k, n, part.workspace);
    barrier();
    // The next block of a, or the first one, which the next strips may meet.
    const Index next_words = part.panels && !part.near && n < part.inner ? least(part.inner_block, left ? left : part.inner) : 0;
    Prefetch of_a = spread(left ? panels + n * panel_rows : part.panels, next_words * panel_rows * 4, strips * squares * steps);
    for (Index s = part.first; s < part.last; ++s) {
      const char* const b = b_of(s, k);
      const bool wraps = s + 1 == part.last, ends = wraps && !left;
      const Later next = ends        ? part.later[0]
                         : part.near ? Later{}
                                     : Later{wraps ? b_of(part.first, k + n) : b_of(s + 1, k), n * kRowOfB};
      if (ends) fetch(part.later[1].from, part.later[1].bytes);
      Prefetch of_b = spread(next.from, next.bytes, squares * steps);
      for (Index row = 0; row < part.rows; row += kRows) {
        const Index rows = least(kRows, part.rows - row), column = s * kColumns;
        const bool whole = !part.to && part.columns - column >= kColumns && rows % kTile == 0;
        float* const kept = all_sums + ((s - part.first) * squares + row / kRows) * kSquare;
        alignas(64) float square[kSquare];
        float* const sums = left ? kept : whole ? part.c + row * part.c_stride + column : square;
        const float* const tiles = panels + (row - in_place) * n;
        TileOperand a{tiles, tiles + n * kTile, kTileBytes, kTileWords};
        if (row < in_place) {
          const float* const rows_of_a = static_cast<const float*>(part.a) + row * part.inner + k;
          a = {rows_of_a, rows_of_a + kTile * part.inner, 4 * part.inner, kTile};
          // Each strip prefetches its share of the rows, of their next block.
          const Index first = kRows * (s - part.first) / strips, end = kRows * (s - part.first + 1) / strips;
          const auto* const next_block = reinterpret_cast<const char*>(rows_of_a + first * part.inner + n);
          of_a = {next_block, left && !part.near ? end - first : 0, 4 * part.inner, kTileBytes};
        }
        const auto product = rows > kTile ? square_product<true, Integers> : square_product<false, Integers>;
        product(a, n, b, k ? kept : nullptr, sums, !left && whole ? part.c_stride : kColumns, of_a, of_b);
        of_a.from += steps * of_a.step, of_b.from += steps * of_b.step;
        if (left || whole) continue;
        const auto put = !part.to ? put_square : part.to_stored == Stored::bf16 ? narrow_square<Bf16> : narrow_square<Fp16>;
        put(part, row, rows, column, square);
      }
    }
  }
  _tile_release();
}

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm) = {
    .width = kColumns,
    .tile_rows = kRows,
    .numbers = {0, 2, 0, 4},
    .multiple = kTile,
    .pack = {nullptr, pack_rows_of_words<std::uint16_t, 2, kColumns, kTile>, nullptr,
             pack_rows_of_words<std::int8_t, 4, kColumns, kTile>},
    .few = {nullptr, few_tiles<false>, nullptr, few_tiles<true>},
    .block = {nullptr, block_of_tiles<false>, nullptr, block_of_tiles<true>},
    .pack_a = pack_tiles,
    .panel_multiple = kTile,
    .pack_wide = {nullptr, pack_strips<kTile>},
    .widen = {nullptr, copy_words, nullptr, copy_words},
    .narrow = {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    .pair = pair_words,
    .pair_rows = pair_rows<kColumns>,
    .own_sums = true,
};

}  // namespace roofline::cpu
