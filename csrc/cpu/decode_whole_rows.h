// Attention of up to eight queries whose rows are whole vectors: a key or a value at a time, without remainders. With fewer
// instructions a line a core's reorder window holds more outstanding loads, and loads in address order suit hardware prefetchers: on
// Zen 5 decode of one query reads at 0.95 instead of 0.72 of a plain sum's rate. Everything is internal to the file that includes it.
#pragma once

#include "cpu/decode_block.h"

namespace roofline::cpu {
namespace {

// Rows of queries that these kernels take; none over bytes, which two groups of four would widen twice.
template <class Element>
constexpr Index kMostWholeRows = !kLongTiles || kBytes<Element> ? 0 : 8;

// Whether these kernels take so many rows of queries, whose keys have so many elements.
template <class Element>
bool in_whole_rows(Index rows, Index head_dim, Index rope_dim) {
  const bool whole = head_dim == 2 * kLanes || head_dim == 4 * kLanes || head_dim == 8 * kLanes;
  return rows <= kMostWholeRows<Element> && whole && rope_dim == 0;
}

template <int Where, class Element>
ROOFLINE_INLINE void fetch_vector(const Element* row, int z) {
  if (kBeside<Where> && z * kLanes * sizeof(Element) % 64 == 0) prefetch(row + z * kLanes, Where == kFetchToL1);
}

// Prefetches the lines of kWhole rows in order, so many in each step, at even intervals. RowsAhead of decode_quads.h does so for
// any number of lines and steps, and counting them costs these kernels a sixth of their time on keys in L2 (Zen 5).
template <class Element, int Vectors>
class Spread {
 public:
  static constexpr int kLine = 64 / sizeof(Element), kColumns = Vectors * kLanes;
  // Lines of a step where kernels go through these rows so many times, a few rows at once.
  static constexpr int lines_of(int times, int rows_at_once) {
    return kColumns / kLine * rows_at_once < times ? 1 : kColumns / kLine * rows_at_once / times;
  }

  Spread(const Block<Element>& block, RowsAt<Element> then) : then_(then), row_(block.lead > 0 ? 0 : kWhole), to_l1_(block.to_l1) {}

  template <int Lines>
  __attribute__((always_inline)) inline void step() {
    if (row_ == kWhole) return;
    const Element* const line = then_[row_] + column_;
    for (int i = 0; i < Lines; ++i) prefetch(line + i * kLine, to_l1_);
    column_ += Lines * kLine;
    if (column_ >= kColumns) column_ = 0, ++row_;
  }

 private:
  RowsAt<Element> then_;
  Index row_, column_ = 0;
  bool to_l1_;
};

// scores[n][Rows] of rows that are `Vectors` whole vectors, of the keys [first, last): key by key where these come from memory, side
// by side where a query would be loaded again for each.
template <int Rows, int Vectors, int Where, class Element>
[[gnu::noinline]] void score_whole(const Number* q, const Block<Element>& block, Index first, Index last,
                                   Spread<Element, Vectors>* lines, Number* scores) {
  constexpr int kTile = kTileKeys<Rows>, kLines = Spread<Element, Vectors>::lines_of(2, 1);
  constexpr bool kHeld = Rows * Vectors <= 8;  // queries, in registers
  const Index pitch = Vectors * kLanes;
  Vec query[kHeld ? Rows * Vectors : 1];
#pragma GCC unroll 8
  for (int i = 0; i < (kHeld ? Rows * Vectors : 0); ++i) query[i] = load(q + i * kLanes);
  const Vec scale = set1(block.scale);
  for (Index key = first; key < last; key += kTile) {
    [[maybe_unused]] const auto then = block.after_keys(key);
    Vec sums[kTile * Rows];
#pragma GCC unroll 16
    for (Vec& sum : sums) sum = zero();
    if constexpr (Where == kSpread && !kHeld) {
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) {
        static_assert(Vectors % kTile == 0);
        if (z % (Vectors / kTile) == 0) lines->template step<kLines>();  // as many steps as keys
        Vec keys[kTile];
#pragma GCC unroll 16
        for (int j = 0; j < kTile; ++j) keys[j] = load(block.k + block.at[key + j] + z * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const Vec one = load(q + r * pitch + z * kLanes);
#pragma GCC unroll 16
          for (int j = 0; j < kTile; ++j) sums[j * Rows + r] = multiply_add<Element>(one, keys[j], sums[j * Rows + r]);
        }
      }
    } else {
#pragma GCC unroll 16
      for (int j = 0; j < kTile; ++j) {
        const Element* const row = block.k + block.at[key + j];
        [[maybe_unused]] const Element* const ahead = kBeside<Where> ? then[j] : row;
        if constexpr (Where == kSpread) lines->template step<kLines>();
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

// out[Rows][columns] += weights[n][Rows] V[n][columns] of such rows and the values [first, last). Results stay in registers: of as many
// rows as fit over whole values, which are then read in the order of memory, and the other rows find a few values in L1; beside another
// group (kSpread), or where one row would fit, of all rows, a part of the columns at a time. Each of these passes over a few values
// prefetches its share of the next few, in the order of memory.
template <int Rows, int Vectors, int Where, class Element>
[[gnu::noinline]] void value_whole(const Number* s, const Block<Element>& block, Index first, Index last,
                                   Spread<Element, Vectors>* lines, Number* out) {
  constexpr int kEach = kNumbers<Element>, kAll = Vectors * kEach, kFits = 16 / kAll;  // kAll: vectors of results
  constexpr int kTogether = Where == kSpread || kFits < 2 || kFits > Rows ? Rows : kFits;
  constexpr int kMost = Where == kSpread ? 4 : 16 / kTogether, kPart = kAll < kMost ? kAll : kMost, kWords = kPart / kEach;
  constexpr int kTurns = Rows / kTogether, kPasses = kTurns * kAll / kPart;
  constexpr int kShare = Vectors / kPasses;  // vectors that a pass prefetches with each of its rows
  static_assert(kPart == kAll || kTurns == 1);
  for (Index begin = first, end = 0; begin < last; begin = end) {
    end = kPasses == 1 ? last : least(begin + kWhole, last);
#pragma GCC unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      const int part = kTurns > 1 ? 0 : pass * kPart, row = kTurns > 1 ? pass * kTogether : 0;
      Number* const to = out + (row * kAll + part) * kLanes;
      Vec acc[kTogether][kPart];
#pragma GCC unroll 4
      for (int r = 0; r < kTogether; ++r)
#pragma GCC unroll 16
        for (int z = 0; z < kPart; ++z) acc[r][z] = load(to + (r * kAll + z) * kLanes);
      const Index column = part / kEach * kLanes;
      for (Index whole = begin; whole < end; whole += kWhole) {
        [[maybe_unused]] const auto then = block.after_values(whole);
        for (Index key = whole; key < least(whole + kWhole, end); key += kEach) {
          if constexpr (Where == kSpread) lines->template step<Spread<Element, Vectors>::lines_of(2 * kPasses, kEach)>();
          Vec values[kEach][kWords];
#pragma GCC unroll 2
          for (int i = 0; i < kEach; ++i) {
            const Element* const from = block.v + block.at[key + i] + column;
            [[maybe_unused]] const Index turn = pass * kWhole + key - whole + i;
            [[maybe_unused]] const Element* const ahead =
                kBeside<Where> ? then[turn / kPasses] + turn % kPasses * (kShare * kLanes) : from;
#pragma GCC unroll 16
            for (int z = 0; z < kWords; ++z) {
              if (z < kShare) fetch_vector<Where>(ahead, z);
              values[i][z] = load(from + z * kLanes);
              if constexpr (kEach == 2) values[i][z] = in_order(values[i][z]);
            }
          }
#if defined(ROOFLINE_PAIRS)
#pragma GCC unroll 8
          for (int z = 0; z < kWords; ++z)
            pair_fours(_mm512_castps_si512(values[0][z]), _mm512_castps_si512(values[1][z]), values[0][z], values[1][z]);
#endif
#pragma GCC unroll 4
          for (int r = 0; r < kTogether; ++r) {
            const Vec weight = set1(s[key / kEach * Rows + row + r]);
#pragma GCC unroll 16
            for (int z = 0; z < kPart; ++z)
              acc[r][z] = multiply_add<Element>(weight, values[z % kEach][z / kEach], acc[r][z]);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kTogether; ++r)
#pragma GCC unroll 16
        for (int z = 0; z < kPart; ++z) store(to + (r * kAll + z) * kLanes, acc[r][z]);
    }
  }
}

// Calls work(row, size, where, first, last, lines) for groups of `rows` and ranges of keys, so that all meet: one group in one range,
// and two in turn over a few keys, which the second finds in L1. then(first): the rows ahead of a range.
template <int Vectors, class Element, class Then, class Work>
ROOFLINE_INLINE void over_groups(Index rows, const Block<Element>& block, Then then, Work work) {
  if (rows > 4) {
    for (Index first = 0; first < block.n; first += kWhole) {
      Spread<Element, Vectors> lines(block, then(first));
      for_groups(0, rows, rows, [&](Index row, auto size) __attribute__((always_inline)) {
        work(row, size, Size<kSpread>{}, first, least(first + kWhole, block.n), &lines);
      });
    }
    return;
  }
  for_groups(0, rows, rows, [&](Index row, auto size) __attribute__((always_inline)) {
    fetching(block, [&](auto where) __attribute__((always_inline)) {
      work(row, size, where, Index{0}, block.n, static_cast<Spread<Element, Vectors>*>(nullptr));
    });
  });
}

template <int Vectors, class Element>
void score_whole(const Number* q, Index rows, const Block<Element>& block, Number* scores) {
  const auto then = [&](Index key) __attribute__((always_inline)) { return block.after_keys(key); };
  over_groups<Vectors>(rows, block, then, [&](Index row, auto size, auto where, Index first, Index last, auto* lines) {
    score_whole<decltype(size)::value, Vectors, decltype(where)::value>(q + row * Vectors * kLanes, block, first, last, lines,
                                                                        scores + row * kPitch);
  });
}

template <int Vectors, class Element>
void value_whole(const Number* s, Index rows, const Block<Element>& block, Number* out) {
  const auto then = [&](Index key) __attribute__((always_inline)) { return block.after_values(key); };
  over_groups<Vectors>(rows, block, then, [&](Index row, auto size, auto where, Index first, Index last, auto* lines) {
    value_whole<decltype(size)::value, Vectors, decltype(where)::value>(s + row * kPitch, block, first, last, lines,
                                                                        out + row * Vectors * kNumbers<Element> * kLanes);
  });
}

// Calls work(constant of the vectors in a row) where these kernels take the block; else it returns false.
template <class Element, class Work>
ROOFLINE_INLINE bool by_whole_rows(Index rows, const Block<Element>& block, Work work) {
  if constexpr (kMostWholeRows<Element> > 0) {
    if (!in_whole_rows<Element>(rows, block.head_dim, block.rope_dim)) return false;
    if (block.head_dim == 2 * kLanes) work(Size<2>{});
    else if (block.head_dim == 4 * kLanes) work(Size<4>{});
    else work(Size<8>{});
    return true;
  }
  return false;
}

}  // namespace
}  // namespace roofline::cpu
