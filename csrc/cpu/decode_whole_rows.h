// Attention of one query, two or four, whose rows are whole vectors: a key or a value at a time, without remainders. With fewer
// instructions a line a core's reorder window holds more outstanding loads, and loads in address order suit hardware prefetchers:
// on Zen 5 decode reads at 0.95 instead of 0.72 of a plain sum's rate. Everything is internal to the file that includes it.
#pragma once

#include "cpu/decode_block.h"

namespace roofline::cpu {
namespace {

// How a kernel of whole rows prefetches lines ahead.
enum Fetch : int { kNoFetch, kFetchToL2, kFetchToL1 };

template <int Where, class Element>
ROOFLINE_INLINE void fetch_vector(const Element* row, int z) {
  if (Where != kNoFetch && z * kLanes * sizeof(Element) % 64 == 0) prefetch(row + z * kLanes, Where == kFetchToL1);
}

// scores[n][Rows] of rows that are `Vectors` whole vectors, key by key.
template <int Rows, int Vectors, int Where, class Element>
[[gnu::noinline]] void score_whole(const Number* q, const Block<Element>& block, Number* scores) {
  constexpr int kTile = kTileKeys<Rows>;
  constexpr bool kHeld = Rows * Vectors <= 8;  // queries, in registers
  const Index pitch = Vectors * kLanes;
  Vec query[kHeld ? Rows * Vectors : 1];
#pragma GCC unroll 8
  for (int i = 0; i < (kHeld ? Rows * Vectors : 0); ++i) query[i] = load(q + i * kLanes);
  const Vec scale = set1(block.scale);
  for (Index key = 0; key < block.n; key += kTile) {
    [[maybe_unused]] const auto then = block.after_keys(key);
    Vec sums[kTile * Rows];
#pragma GCC unroll 16
    for (int j = 0; j < kTile; ++j) {
      const Element* const row = block.k + block.at[key + j];
      [[maybe_unused]] const Element* const ahead = Where == kNoFetch ? row : then[j];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) sums[j * Rows + r] = zero();
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) {
        fetch_vector<Where>(ahead, z);
        const Vec keys = load(row + z * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r)
          sums[j * Rows + r] =
              multiply_add<Element>(kHeld ? query[r * Vectors + z] : load(q + r * pitch + z * kLanes), keys, sums[j * Rows + r]);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kTile * Rows; i += kLanes) {
      Vec tile[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) tile[j] = sums[i + j];
      store(scores + key * Rows + i, mul(reduce_add(tile), scale));
    }
  }
}

// out[Rows][columns] += weights[n][Rows] V[n][columns] of such rows. Results stay in registers, of many columns a part at a time.
template <int Rows, int Vectors, int Where, class Element>
[[gnu::noinline]] void value_whole(const Number* s, const Block<Element>& block, Number* out) {
  constexpr int kEach = kNumbers<Element>, kAll = Vectors * kEach, kMost = Rows == 1 ? 16 : 16 / Rows;
  constexpr int kPart = kAll < kMost ? kAll : kMost, kWords = kPart / kEach;  // vectors of results, and of V
  for (Index begin = 0, end = 0; begin < block.n; begin = end) {
    end = kPart == kAll ? block.n : least(begin + kWhole, block.n);
#pragma GCC unroll 1
    for (int part = 0; part < kAll; part += kPart) {
      Vec acc[Rows][kPart];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int z = 0; z < kPart; ++z) acc[r][z] = load(out + (r * kAll + part + z) * kLanes);
      const Index column = part / kEach * kLanes;
      for (Index whole = begin; whole < end; whole += kWhole) {
        [[maybe_unused]] const auto then = block.after_values(whole);
        for (Index key = whole; key < least(whole + kWhole, end); key += kEach) {
          const Element* row[kEach];
          Vec values[kEach][kWords];
#pragma GCC unroll 2
          for (int i = 0; i < kEach; ++i) {
            row[i] = block.v + block.at[key + i] + column;
            [[maybe_unused]] const Element* const ahead = Where == kNoFetch ? row[i] : then[key - whole + i] + column;
#pragma GCC unroll 16
            for (int z = 0; z < kWords; ++z) {
              fetch_vector<Where>(ahead, z);
              values[i][z] = load(row[i] + z * kLanes);
              if constexpr (kEach == 2) values[i][z] = in_order(values[i][z]);
            }
          }
#if defined(ROOFLINE_PAIRS)
#pragma GCC unroll 8
          for (int z = 0; z < kWords; ++z)
            pair_fours(_mm512_castps_si512(values[0][z]), _mm512_castps_si512(values[1][z]), values[0][z], values[1][z]);
#endif
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) {
            const Vec weight = set1(s[key / kEach * Rows + r]);
#pragma GCC unroll 16
            for (int z = 0; z < kPart; ++z)
              acc[r][z] = multiply_add<Element>(weight, values[z % kEach][z / kEach], acc[r][z]);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int z = 0; z < kPart; ++z) store(out + (r * kAll + part + z) * kLanes, acc[r][z]);
    }
  }
}

// Calls work(rows, vectors, where) with constants where kernels of whole rows take this block; else it returns false.
template <class Element, class Work>
ROOFLINE_INLINE bool in_whole_rows(Index rows, const Block<Element>& block, Work work) {
  if constexpr (kLongTiles && sizeof(Element) > 1) {
    const auto ahead = [&](auto all, auto vectors) __attribute__((always_inline)) {
      if (block.lead == 0) work(all, vectors, Size<kNoFetch>{});
      else if (block.to_l1) work(all, vectors, Size<kFetchToL1>{});
      else work(all, vectors, Size<kFetchToL2>{});
      return true;
    };
    const auto sized = [&](auto all) __attribute__((always_inline)) {
      if (block.head_dim == 2 * kLanes) return ahead(all, Size<2>{});
      if (block.head_dim == 4 * kLanes) return ahead(all, Size<4>{});
      return block.head_dim == 8 * kLanes && ahead(all, Size<8>{});
    };
    if (rows <= 4 && block.rope_dim == 0) return rows > 2 ? sized(Size<4>{}) : rows == 2 ? sized(Size<2>{}) : sized(Size<1>{});
  }
  return false;
}

}  // namespace
}  // namespace roofline::cpu
