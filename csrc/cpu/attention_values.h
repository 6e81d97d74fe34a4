// Values of a chunk of queries in attention: results with the queries in rows, and the columns of V in lanes. Everything is
// internal to the file that includes it.
#pragma once

#include "cpu/attention_chunk.h"

namespace roofline::cpu {
namespace {

// Columns of V that a register tile takes, of so many: all tiles about the same.
ROOFLINE_INLINE Index columns_together(Index columns) {
  const Index vectors = (columns + kLanes - 1) / kLanes, tiles = (vectors + kVectors - 1) / kVectors;
  return (vectors + tiles - 1) / tiles * kLanes;
}

// out[rows][columns] += Pᵀ V: rows of queries against as many vectors of columns as registers hold results of. A tile meets the
// keys from the first to the last that any of its rows sees.
template <class Products, int Vectors>
struct ValueTiles {
  const Keys& keys;
  const Chunk& chunk;
  const Number* p;  // [rows of V: keys, or pairs of keys][p_pitch]
  Index p_pitch;
  const Number* v;  // [the same][value_pitch]
  Index column;  // the first of these
  Index before;  // rows of the tiles of earlier columns

  template <int Rows>
  [[gnu::noinline]] void tile(Index row) const {
    fetch(keys.with_values, before + row, before + row + Rows);
    const Index pitch = round_up(keys.value_dim, kLanes);
    Index first = 0, last = keys.n;
    if (keys.masked) {
      Number from = chunk.from[row], to = chunk.to[row];
      for (int i = 1; i < Rows; ++i) {
        from = chunk.from[row + i] < from ? chunk.from[row + i] : from;
        to = chunk.to[row + i] > to ? chunk.to[row + i] : to;
      }
      first = most(first, static_cast<Index>(from)) / Products::kNumbers;
      last = least(last, static_cast<Index>(to));
    }
    last = (last + Products::kNumbers - 1) / Products::kNumbers;
    Number* const out = chunk.out + row * pitch + column;
    const Number* const begin = keys.anew ? kZeros : out;
    const Index next = keys.anew ? 0 : pitch;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = load(begin + i * next + z * kLanes);
    multiply<Products>(acc, p + first * p_pitch + row, 1, p_pitch, v + first * keys.value_pitch, keys.value_pitch, last - first);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(out + i * pitch + z * kLanes, acc[i][z]);
  }
};

template <class Products>
struct ValueColumns {
  const Keys& keys;
  const Chunk& chunk;
  const Number* p;
  Index p_pitch, together;

  template <int Vectors>
  void tile(Index number) const {
    const Number* const v = keys.v + number * keys.value_plane;
    const ValueTiles<Products, Vectors> tiles = {keys, chunk, p, p_pitch, v, number * together, number * chunk.rows};
    for_tiles<kTileRows<Vectors>>(chunk.rows, tiles);
  }
};

// Rows of a tile may be of two vectors of queries. Keys that only the second meets have no weights of the first yet: 0.
template <class Products>
void value_tiles(const Chunk& chunk, const Keys& keys, Number* p, Index p_pitch) {
  const auto words = [](Index n) { return (n + Products::kNumbers - 1) / Products::kNumbers; };
  const bool apart = kLanes % kRows == 0 && kLanes % kNarrowRows == 0 && chunk.rows % kLanes == 0;
  for (int z = 0; z + 1 < (apart ? 0 : chunk.vectors); ++z)
    for (Index row = words(keys.ends[z]); row < words(keys.ends[chunk.vectors - 1]); ++row)
      store(p + row * p_pitch + z * kLanes, zero());
  const Index columns = round_up(keys.value_dim, kLanes), together = columns_together(keys.value_dim);
  for (Index number = 0; number * together < columns; ++number)
    call_tile<kVectors>(static_cast<int>(least(together, columns - number * together) / kLanes), number,
                        ValueColumns<Products>{keys, chunk, p, p_pitch, together});
}

// Results with the queries in rows: chunk.out [width][value_dim in whole vectors].
struct InRows {
  static constexpr int kMostVectors = kVectors;

  template <int Vectors>
  static void shrink(const Chunk& chunk, Index columns, int z, Vec down) {
    const Index pitch = round_up(columns, kLanes);
    alignas(Vec) Number each[kLanes];
    store(each, down);
    for (Index lane = 0; lane < kLanes; ++lane)
      for (Index d = 0; d < pitch; d += kLanes) {
        Number* const at = chunk.out + (z * kLanes + lane) * pitch + d;
        store(at, mul(load(at), set1(each[lane])));
      }
  }
  template <class T>
  static void results(const Chunk& chunk, Index columns, Index lane, Vec share, T* out) {
    const Index pitch = round_up(columns, kLanes);
    alignas(Vec) Number each[kLanes];
    store(each, share);
    for (Index i = 0; i < least(kLanes, chunk.rows - lane); ++i)
      for (Index d = 0; d < columns; d += kLanes)
        put(out + i * columns + d, static_cast<int>(least(kLanes, columns - d)),
            mul(load(chunk.out + (lane + i) * pitch + d), set1(each[i])));
  }
};

}  // namespace
}  // namespace roofline::cpu
