// Products with weights of 8 and 4 bits by the tiles of AMX. 16 rows of a at a time, as digits of int8, are multiplied by a chunk of
// the weights; the sums of the digits are then put together and scaled. Weights of 8 bits are packed as tiles read them; those of 4
// bits become bytes in the first cache, once for all rows.
#include "cpu/amx_tiles.h"
#include "cpu/quantized_groups.h"

namespace roofline::cpu {
namespace {

constexpr Index kColumns = 2 * kTile;
constexpr Index kRowOfB = 4 * kColumns, kStepOfB = kTile * kRowOfB;  // bytes: four rows of weights; what a tile takes of them

// Tiles [digit][16 columns] of c, then a and b. rows: of c.
template <int Digits>
void configure_digits(int rows) {
  constexpr int kOfB = Digits == 2 ? 6 : 7;
  int all[8];
  for (int i = 0; i < 8; ++i) all[i] = i < kOfB ? rows : kTile;
  configure(all);
}

// Tiles of c = the product of every digit of a, in planes, with `steps` of b; between(step) runs beside them.
template <int Digits, class F>
ROOFLINE_INLINE void multiply_digits(const float* a, Index a_row, Index plane, const char* b, Index steps, const F& between) {
  Square<true, true>::clear();
  if constexpr (Digits == 2) {
    for (Index step = 0; step < steps; ++step, a += kTile, b += kStepOfB) {
      _tile_loadd(4, a, a_row);
      _tile_loadd(6, b, kRowOfB);
      _tile_dpbsud(0, 4, 6);
      _tile_loadd(7, b + kTileBytes, kRowOfB);
      _tile_dpbsud(1, 4, 7);
      _tile_loadd(5, a + plane, a_row);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
      between(step);
    }
  } else {
    _tile_zero(4);
    _tile_zero(5);
    for (Index step = 0; step < steps; ++step, a += kTile, b += kStepOfB) {
      _tile_loadd(7, b, kRowOfB);
      _tile_loadd(6, a, a_row);
      _tile_dpbsud(0, 6, 7);
      _tile_loadd(6, a + plane, a_row);
      _tile_dpbsud(2, 6, 7);
      _tile_loadd(6, a + 2 * plane, a_row);
      _tile_dpbsud(4, 6, 7);
      _tile_loadd(7, b + kTileBytes, kRowOfB);
      _tile_dpbsud(5, 6, 7);
      _tile_loadd(6, a + plane, a_row);
      _tile_dpbsud(3, 6, 7);
      _tile_loadd(6, a, a_row);
      _tile_dpbsud(1, 6, 7);
      between(step);
    }
  }
}

// Tiles of c to squares[digit][kTile][kColumns].
template <int Digits>
ROOFLINE_INLINE void store_digits(float (*squares)[kTile * kColumns]) {
  Square<true, true>::store(squares[0], kRowOfB);
  if constexpr (Digits == 3) {
    _tile_stored(4, squares[2], kRowOfB);
    _tile_stored(5, squares[2] + kTile, kRowOfB);
  }
  barrier();
}

template <class Strip>
struct InTiles {
  using Of = Groups<Strip>;
  using B = Strip;
  static constexpr int kDigits = Of::kDigits;

  // Up to kMostChunk rows of a strip, of one group.
  struct Chunk {
    const char *group, *numbers;
    Index fours, a, sum;  // of rows; where those of a and the sum of these lie

    Index steps() const { return (fours + kTile - 1) / kTile; }
    bool lies() const { return B::kRowBytes == kRowOfB && fours % kTile == 0; }  // as tiles read it
  };
  ROOFLINE_INLINE Chunk chunk(const QuantizedPart& part, Index strip, Index k) {
    const char* const b = static_cast<const char*>(part.b) + strip * Of::bytes(part);
    const auto at = Of::place(part, k);
    Of::fetch_header(part, b + at.header, b + at.numbers, kInFlight);
    return {b + at.header, b + at.numbers, (Of::after_chunk(part, k) - k + 3) / 4, at.a, at.sum};
  }

  // What a tile takes of a chunk as it reads it; fetches what follows.
  ROOFLINE_INLINE void prepare(const Chunk& chunk, Index step, char* bytes) {
    const char* const b = chunk.numbers + step * kTile * B::kRowBytes;
    if (chunk.lies()) return fetch(b + kInFlight, kTile * B::kRowBytes);
    const Index some = chunk.fours - step * kTile;
    float* to = reinterpret_cast<float*>(bytes + step * kStepOfB);
#pragma GCC unroll 4
    for (Index row = 0; row < kTile; ++row, to += kColumns) {
      fetch(b + kInFlight + row * B::kRowBytes, B::kRowBytes);
      Vec low = zero(), high = zero();
      if (row < some) B::read(b, row, 0, low, high);
      store(to, low), store(to + kTile, high);
    }
    barrier();
  }

  // Sums that have just left the tiles are slow to read: they are scaled beside the next products.
  struct Waiting {
    const float* squares;  // [digit][kTile][kColumns]
    Chunk chunk;
    Index row, rows;
  };
  ROOFLINE_INLINE void add_scaled(const QuantizedPart& part, const Waiting& of, Index begin, Index end) {
    if (begin >= end) return;
    const Index step = Of::sums_stride(part);
    const float* sum_of_a = part.sums + (of.row + begin) * step + of.chunk.sum;
    Vec scale[2], origin[2];
    for (int half = 0; half < 2; ++half) Of::factors(part, of.chunk.group, half, scale[half], origin[half]);
    for (Index r = begin; r < end; ++r, sum_of_a += step)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const float* const square = of.squares + r * kColumns + half * kLanes;
        float* const into = part.workspace + (of.row + r) * kColumns + half * kLanes;
        const Vec sum = Of::sum_of(part.scales_of_a + (sum_of_a - part.sums),
                                   [&](int i) __attribute__((always_inline)) { return load(square + i * kTile * kColumns); });
        store(into, fma(scale[half], sub(sum, mul(origin[half], set1(*sum_of_a))), load(into)));
      }
  }

  static void multiply(const QuantizedPart& part) {
    alignas(64) char bytes[2][kMostChunk<B> / 4 * kRowOfB];
    alignas(64) float squares[2][kDigits][kTile * kColumns];
    Waiting waiting{};
    int now = 0, square = 0;
    const Index a_row = Of::stride(part), plane = Of::plane(part);
    configure_digits<kDigits>(static_cast<int>(least(part.rows, kTile)));
    Chunk current = chunk(part, part.first, 0);
    for (Index step = 0; step < current.steps(); ++step) prepare(current, step, bytes[now]);
    for (Index strip = part.first; strip < part.last; ++strip) {
      for (Index at = 0; at < part.rows * kColumns; at += kLanes) store(part.workspace + at, zero());
      for (Index k = 0, end; k < part.inner; k = end, now = 1 - now) {
        end = Of::after_chunk(part, k);
        const bool last = end == part.inner && strip + 1 == part.last;
        const Chunk next = last ? current : end < part.inner ? chunk(part, strip, end) : chunk(part, strip + 1, 0);
        const Index then = last ? 0 : next.steps();
        for (Index row = 0; row < part.rows; row += kTile, square = 1 - square) {
          const bool prepares = row + kTile >= part.rows;
          const Index each = (waiting.rows + current.steps() - 1) / current.steps();
          multiply_digits<kDigits>(static_cast<const float*>(part.a) + row * a_row + current.a, 4 * a_row, plane,
                                   current.lies() ? current.numbers : bytes[now], current.steps(),
                                   [&](Index step) __attribute__((always_inline)) {
                                     if (prepares && step < then) prepare(next, step, bytes[1 - now]);
                                     add_scaled(part, waiting, step * each, least((step + 1) * each, waiting.rows));
                                   });
          store_digits<kDigits>(squares[square]);
          waiting = {squares[square][0], current, row, least(kTile, part.rows - row)};
        }
        for (Index step = current.steps(); step < then; ++step) prepare(next, step, bytes[1 - now]);
        current = next;
      }
      add_scaled(part, waiting, 0, waiting.rows);
      waiting.rows = 0;
      for (Index row = 0; row < part.rows; ++row)
        narrow_to<float>(part.workspace + row * kColumns, part.c + row * part.c_stride + strip * kColumns,
                         least(kColumns, part.columns - strip * kColumns));
    }
    _tile_release();
  }
};

}  // namespace

extern const QuantizedTiles ROOFLINE_TABLE(quantized_tiles) = {
    {{InTiles<ByteQuads<2>>::multiply, InTiles<ByteQuads<3>>::multiply},
     {InTiles<NibbleQuads<2>>::multiply, InTiles<NibbleQuads<3>>::multiply}},
};

}  // namespace roofline::cpu
