// Matrix products of bf16 and int8 by the tiles of AMX: 32 x 32 of c in four of them, two of rows of a and two of columns of b beside
// them. A tile is 16 rows of 16 words, a word two numbers of bf16 or four of int8 along inner; words beyond the last number are 0.
#include "cpu/gemm_kernels.h"

#include "cpu/amx_tiles.h"
#include "cpu/gemm_strips.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

constexpr Index kColumns = 2 * kTile;       // of a strip
constexpr Index kRowOfB = 4 * kColumns;     // bytes of a row of words of a strip
constexpr Index kStepOfB = kTile * kRowOfB;  // of the rows that a product of tiles takes

// The columns of a strip from row `b` on.
ROOFLINE_INLINE TileOperand columns_at(const char* b) {
  const auto* const words = reinterpret_cast<const float*>(b);
  return {words, words + kTile, kRowOfB, kStepOfB / 4};
}

// rows x columns of c from, and to, 32 x 32 numbers side by side.
void copy_c(float* c, Index stride, Index rows, Index columns, float (*square)[kColumns], bool out) {
  for (Index r = 0; r < rows; ++r)
    __builtin_memcpy(out ? c + r * stride : square[r], out ? square[r] : c + r * stride, static_cast<std::size_t>(columns) * 4);
}
void put_strip(const GemmPart& part, Index strip, Index rows, float (*from)[kColumns]) {
  copy_c(part.c + strip * kColumns, part.c_stride, rows, least(kColumns, part.columns - strip * kColumns), from, true);
}

// Two strips at a time: two address streams, which up to 16 rows of c leave tiles for.
template <bool Integers>
ROOFLINE_INLINE void two_strips(const GemmPart& part, Index one, Index other) {
  const auto* const a = static_cast<const char*>(part.a);
  const auto b_of = [&](Index strip) { return static_cast<const char*>(part.b) + strip * part.inner * kRowOfB; };
  const char *const b = b_of(one), *const next = b_of(other);
  Square<true, true>::clear();
  for (Index k = 0; k < part.inner; k += kTile) {
    fetch(b + k * kRowOfB + kInFlight / 2, kStepOfB);
    fetch(next + k * kRowOfB + kInFlight / 2, kStepOfB);
    _tile_loadd(4, a + 4 * k, 4 * part.row_words());
    _tile_loadd(6, b + k * kRowOfB, kRowOfB);
    _tile_loadd(7, b + k * kRowOfB + kTileBytes, kRowOfB);
    ROOFLINE_ADD_PRODUCT(Integers, 0, 4, 6);
    ROOFLINE_ADD_PRODUCT(Integers, 1, 4, 7);
    _tile_loadd(6, next + k * kRowOfB, kRowOfB);
    _tile_loadd(7, next + k * kRowOfB + kTileBytes, kRowOfB);
    ROOFLINE_ADD_PRODUCT(Integers, 2, 4, 6);
    ROOFLINE_ADD_PRODUCT(Integers, 3, 4, 7);
  }
  alignas(64) float square[2 * kTile][kColumns];
  Square<true, true>::store(square[0], kRowOfB);
  barrier();
  put_strip(part, one, part.rows, square);
  put_strip(part, other, part.rows, square + kTile);
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
                 [&](Index step) __attribute__((always_inline)) { fetch(b + step * kStepOfB + kInFlight, kStepOfB); });
      alignas(64) float square[2 * kTile][kColumns];
      Tiles::store(square[0], kRowOfB);
      barrier();
      put_strip(part, s, rows, square);
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

// 32 x 32 sums of c, or 16 x 32, = or += the product of n words along inner; fetches `each` bytes from `next` on at every step.
template <bool Rows, bool Integers>
void square_product(const float* a, Index n, const char* b, float* c, Index stride, bool first, const char* next, Index each) {
  using Tiles = Square<Rows, true, Integers>;
  first ? Tiles::clear() : Tiles::load(c, 4 * stride);
  Tiles::add({a, a + n * kTile, kTileBytes, kTileWords}, columns_at(b), n / kTile,
             [&](Index step) __attribute__((always_inline)) { fetch(next + step * each, each); });
  Tiles::store(c, 4 * stride);
  barrier();
}

// part.to[row ..][column ..] = the sums of `columns` columns.
template <class Half>
void narrow_sums(const GemmPart& part, const float* sums, Index stride, Index row, Index rows, Index column, Index columns) {
  Half* to = static_cast<Half*>(part.to) + row * part.to_stride + column;
  for (Index r = 0; r < rows; ++r, to += part.to_stride)
    for (Index at = 0; at < columns; at += kLanes) {
      const int lanes = static_cast<int>(least(kLanes, columns - at));
      put(to + at, lanes, get(sums + r * stride + at, lanes, zero()));
    }
}
void narrow_tile(const GemmPart& part, const float* sums, Index stride, Index row, Index rows, Index column, Index columns) {
  part.to_stored == Stored::bf16 ? narrow_sums<Bf16>(part, sums, stride, row, rows, column, columns)
                                 : narrow_sums<Fp16>(part, sums, stride, row, rows, column, columns);
}

template <bool Integers>
void block_of_tiles(const GemmPart& part) {
  const auto b_of = [&](Index s, Index k) { return static_cast<const char*>(part.b) + (s * part.inner + k) * kRowOfB; };
  const Index squares = (part.rows + 2 * kTile - 1) / (2 * kTile);
  configure(kTile, kTile);
  for (Index k = 0; k < part.inner; k += part.inner_block) {
    const Index n = least(part.inner_block, part.inner - k);
    const float* const tiles = part.panels ? part.panels + k * ((part.rows + kTile - 1) / kTile * kTile) : part.workspace;
    if (!part.panels) pack_tiles(part, k, n, part.workspace);
    barrier();
    for (Index s = part.first; s < part.last; ++s) {
      const char* const b = b_of(s, k);
      const Index columns = least(kColumns, part.columns - s * kColumns);
      const bool wraps = s + 1 == part.last, ends = wraps && k + n == part.inner;
      Later next = ends ? part.later[0] : Later{wraps ? b_of(part.first, k + n) : b_of(s + 1, k), n * kRowOfB};
      if (ends) fetch(part.later[1].from, part.later[1].bytes);
      const Index each = (next.bytes * kTile / (squares * n) + 63) / 64 * 64;
      for (Index row = 0; row < part.rows; row += 2 * kTile) {
        const Index rows = least(2 * kTile, part.rows - row);
        const bool last = part.to && k + n == part.inner, alone = last && k == 0;  // then c is not needed
        const bool whole = columns == kColumns && rows % kTile == 0 && !alone;
        float* const c = part.c + row * part.c_stride + s * kColumns;
        alignas(64) float square[2 * kTile][kColumns];
        if (!whole && k > 0) copy_c(c, part.c_stride, rows, columns, square, false), barrier();
        const auto product = rows > kTile ? square_product<true, Integers> : square_product<false, Integers>;
        product(tiles + row * n, n, b, whole ? c : square[0], whole ? part.c_stride : kColumns, k == 0, next.from, each);
        next.from += n / kTile * each;
        if (!whole && !alone) copy_c(c, part.c_stride, rows, columns, square, true);
        if (last) narrow_tile(part, alone ? square[0] : c, alone ? kColumns : part.c_stride, row, rows, s * kColumns, columns);
      }
    }
  }
  _tile_release();
}

}  // namespace

extern const GemmKernels ROOFLINE_TABLE(gemm) = {
    kColumns,
    2 * kTile,
    {0, 2, 0, 4},
    kTile,
    {nullptr, pack_rows_of_words<std::uint16_t, 2, kColumns, kTile>, nullptr, pack_rows_of_words<std::int8_t, 4, kColumns, kTile>},
    {nullptr, few_tiles<false>, nullptr, few_tiles<true>},
    {nullptr, block_of_tiles<false>, nullptr, block_of_tiles<true>},
    pack_tiles,
    kTile,
    0,
    {nullptr, pack_strips<kTile>},
    {},
    {nullptr, copy_words, nullptr, copy_words},
    {narrow_to<float>, narrow_to<Bf16>, narrow_to<Fp16>},
    pair_words,
    pair_rows<kColumns>,
};

}  // namespace roofline::cpu
