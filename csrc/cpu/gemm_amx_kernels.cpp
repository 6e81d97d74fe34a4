// Matrix products of bf16 and int8 by the tiles of AMX: 32 x 32 of c in four of them, two of rows of a and two of columns of b beside
// them. A tile is 16 rows of 16 words, a word two numbers of bf16 or four of int8 along inner; words beyond the last number are 0.
#include "cpu/gemm_kernels.h"

#include "cpu/amx_tiles.h"
#include "cpu/gemm_strips.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

constexpr Index kColumns = 2 * kTile;   // of a strip
constexpr Index kRowOfB = 4 * kColumns;  // bytes of a row of words of a strip

#define ROOFLINE_ADD_PRODUCT(Integers, c, a, b) \
  if constexpr (Integers)                       \
    _tile_dpbssd(c, a, b);                      \
  else                                          \
    _tile_dpbf16ps(c, a, b)

// Both column tiles of a strip from row `b` on.
#define ROOFLINE_LOAD_COLUMNS(b)  \
  _tile_loadd(6, (b), kRowOfB);   \
  _tile_loadd(7, (b) + kTileBytes, kRowOfB)

// rows x columns of c from, and to, 32 x 32 numbers side by side.
void copy_c(float* c, Index stride, Index rows, Index columns, float (*square)[kColumns], bool out) {
  for (Index r = 0; r < rows; ++r)
    __builtin_memcpy(out ? c + r * stride : square[r], out ? square[r] : c + r * stride, static_cast<std::size_t>(columns) * 4);
}

// Into L2: tile loads alone keep too few lines in flight while memory is busy.
ROOFLINE_INLINE void fetch(const char* from, Index bytes) {
  for (Index line = 0; line < bytes; line += 64) __builtin_prefetch(from + line, 0, 2);
}

// A strip and, with `Other`, another one at a time: two address streams, which up to 16 rows of c leave tiles for.
template <bool Integers, bool Other>
ROOFLINE_INLINE void strips(const GemmPart& part, Index one, Index other) {
  const char *a = static_cast<const char*>(part.a), *b = static_cast<const char*>(part.b) + one * part.inner * kRowOfB;
  const char* const from_other = static_cast<const char*>(part.b) + other * part.inner * kRowOfB;
  const Index row_words = part.row_words();
  const bool second = Other || part.rows > kTile;
  constexpr Index kAhead = kInFlight / (Other ? 2 : 1);
  _tile_zero(0);
  _tile_zero(1);
  if (second) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (Index k = 0; k < part.inner; k += kTile) {
    fetch(b + k * kRowOfB + kAhead, kTile * kRowOfB);
    if (Other) fetch(from_other + k * kRowOfB + kAhead, kTile * kRowOfB);
    _tile_loadd(4, a + 4 * k, 4 * row_words);
    ROOFLINE_LOAD_COLUMNS(b + k * kRowOfB);
    ROOFLINE_ADD_PRODUCT(Integers, 0, 4, 6);
    ROOFLINE_ADD_PRODUCT(Integers, 1, 4, 7);
    if (!second) continue;
    if constexpr (Other) {
      ROOFLINE_LOAD_COLUMNS(from_other + k * kRowOfB);
      ROOFLINE_ADD_PRODUCT(Integers, 2, 4, 6);
      ROOFLINE_ADD_PRODUCT(Integers, 3, 4, 7);
    } else {
      _tile_loadd(5, a + 4 * (kTile * row_words + k), 4 * row_words);
      ROOFLINE_ADD_PRODUCT(Integers, 2, 5, 6);
      ROOFLINE_ADD_PRODUCT(Integers, 3, 5, 7);
    }
  }
  alignas(64) float square[2 * kTile][kColumns];
  _tile_stored(0, square[0], kRowOfB);
  _tile_stored(1, square[0] + kTile, kRowOfB);
  if (second) {
    _tile_stored(2, square[kTile], kRowOfB);
    _tile_stored(3, square[kTile] + kTile, kRowOfB);
  }
  barrier();
  const auto put_strip = [&](Index strip, Index rows, float(*from)[kColumns]) {
    copy_c(part.c + strip * kColumns, part.c_stride, rows, least(kColumns, part.columns - strip * kColumns), from, true);
  };
  put_strip(one, Other ? part.rows : least(part.rows, 2 * kTile), square);
  if (Other) put_strip(other, part.rows, square + kTile);
}

template <bool Integers>
void few_tiles(const GemmPart& part) {
  const int rows = static_cast<int>(part.rows);
  if (rows > kTile) {
    configure(kTile, rows - kTile);
    for (Index s = part.first; s < part.last; ++s) strips<Integers, false>(part, s, s);
  } else {
    configure(rows, rows);
    const Index each = (part.last - part.first) / 2;
    for (Index i = 0; i < each; ++i) strips<Integers, true>(part, part.first + i, part.first + each + i);
    if (part.first + 2 * each < part.last) strips<Integers, true>(part, part.last - 1, part.last - 1);
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

// 32 x 32, or 16 x 32, of c = or += the product of n words along inner. Prefetches `each` bytes from `next` on at every step.
template <bool Integers>
ROOFLINE_INLINE void square_product(const float* a, Index n, const char* b, bool second, float* c, Index stride, bool first,
                                    const char* next, Index each) {
  char* const at = reinterpret_cast<char*>(c);
  const Index row = 4 * stride, half = kTile * row;
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, at, row);
    _tile_loadd(1, at + kTileBytes, row);
    if (second) {
      _tile_loadd(2, at + half, row);
      _tile_loadd(3, at + half + kTileBytes, row);
    }
  }
  for (Index k = 0; k < n; k += kTile) {
    fetch(next + k / kTile * each, each);
    _tile_loadd(4, a + k * kTile, kTileBytes);
    ROOFLINE_LOAD_COLUMNS(b + k * kRowOfB);
    ROOFLINE_ADD_PRODUCT(Integers, 0, 4, 6);
    ROOFLINE_ADD_PRODUCT(Integers, 1, 4, 7);
    if (!second) continue;
    _tile_loadd(5, a + (n + k) * kTile, kTileBytes);
    ROOFLINE_ADD_PRODUCT(Integers, 2, 5, 6);
    ROOFLINE_ADD_PRODUCT(Integers, 3, 5, 7);
  }
  _tile_stored(0, at, row);
  _tile_stored(1, at + kTileBytes, row);
  if (second) {
    _tile_stored(2, at + half, row);
    _tile_stored(3, at + half + kTileBytes, row);
  }
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
        const bool second = rows > kTile, whole = columns == kColumns && rows % kTile == 0 && !alone;
        float* const c = part.c + row * part.c_stride + s * kColumns;
        alignas(64) float square[2 * kTile][kColumns];
        if (!whole && k > 0) copy_c(c, part.c_stride, rows, columns, square, false), barrier();
        square_product<Integers>(tiles + row * n, n, b, second, whole ? c : square[0], whole ? part.c_stride : kColumns, k == 0,
                                 next.from, each);
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
