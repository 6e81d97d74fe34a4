// Attention of few queries: the register tiles of scores and results. Everything is internal to the file that includes it.
#pragma once

#include "cpu/decode_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"
#if !defined(ROOFLINE_DOUBLES)
#include "cpu/simd/bytes.h"
#endif

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

using Kernels = DecodeKernels<Number>;
using Part = DecodePart<Number>;

constexpr int kKeys = Kernels::kKeys;
constexpr int kPitch = kKeys + 4;       // scores of a row: a tile may write up to a vector more behind its last
constexpr Index kFewKeys = 64;          // of all rows, that are not worth these places
constexpr Index kRowNumbers = (8 << 10) / sizeof(Number);  // of queries, or results, that stay in L1
constexpr Index kBlockBytes = 64 << 10;  // keys and values that stay in L2 beside all queries and results

// Rows are worked on in groups of 4, the last of 2 or 1 where that is enough. Scores of a group lie [key][row].
// Keys of a tile of scores: as many sums as keep both multipliers busy.
template <int Rows>
constexpr int kTileKeys = Rows == 4 ? (kManyRegisters ? 4 : 3) : (kLanes > 8 ? kLanes : 8) / Rows;
// Keys of a tile of results: as many weights as registers hold.
template <int Rows>
constexpr int kValueKeys = Rows == 4 ? (kManyRegisters ? 4 : 3) : 8 / Rows;
// A block is filled up to a multiple of keys that makes whole tiles and whole vectors of scores.
constexpr int kWhole = kLanes > 8 ? 16 : 24;
static_assert(kKeys % kWhole == 0);

template <int N>
struct Size {
  static constexpr int value = N;
};

// Keys of a block in the order in which they are taken.
template <class Element>
struct Block {
  const Element* k;
  const Element* v;
  const Element* rope;
  const Index* at;       // [whole]; elements from k, or v, to a key's row; the last again beyond n
  const Index* rope_at;  // [whole]; from rope
  Index n;
  Index whole;  // multiple of kWhole
  Index head_dim;
  Index rope_dim;
  Index lead;            // keys: how far ahead rows are prefetched; 0: not at all
  const Index* next_at;  // [next_n], of the next block
  Index next_n;
  bool last;             // the keys of the range that is taken next lie behind this block's in memory

  // The row to prefetch with a key, and with a value: `lead` rows ahead. V follows the block's keys, and the next keys follow V.
  __attribute__((always_inline)) const Element* after_key(Index key) const {
    const Index then = key + lead;
    return then < n ? k + at[then] : v != k && then - n < n ? v + at[then - n] : k + at[key];
  }
  __attribute__((always_inline)) const Element* after_value(Index key) const {
    const Index then = key + lead;
    if (last && then >= n) return k + at[n - 1] + (then - n + 1) * head_dim;
    return then < n ? v + at[then] : then - n < next_n ? k + next_at[then - n] : v + at[key];
  }
};

template <class Element>
ROOFLINE_INLINE void fetch(const Element* row, Index d) {
  if (d * static_cast<Index>(sizeof(Element)) % 64 == 0) __builtin_prefetch(row + d);
}
// The same for vector z of several that begin a line together.
template <class Element>
ROOFLINE_INLINE void fetch_vector(const Element* row, int z) {
  if (z * kLanes * static_cast<int>(sizeof(Element)) % 64 == 0) __builtin_prefetch(row + z * kLanes);
}

// Compute-bound tiles take as many keys as registers hold. Memory-bound tiles take two, so that rows are read nearly in order.
constexpr int kReadKeys = 2;

// scores[Keys][Rows] of rows of q, `Together` keys at a time; up to a vector more is written behind them. Reading: prefetches.
template <int Rows, int Keys, int Together, bool Reading, class Element>
ROOFLINE_INLINE void score_tile(const Number* q, const Block<Element>& block, Index key, Number* scores) {
  constexpr int kSums = Rows * Keys;
  const Index pitch = block.head_dim + block.rope_dim, parts = block.rope_dim > 0 ? 2 : 1;  // columns of k, then of rope
  Vec acc[kSums];
#pragma GCC unroll 1
  for (int first = 0; first < Keys; first += Together) {
    Vec sums[Rows * Together];
#pragma GCC unroll 16
    for (Vec& one : sums) one = zero();
#pragma GCC unroll 1
    for (Index part = 0; part < parts; ++part) {
      const Element *k[Together], *then[Together];
      const Number* const queries = q + part * block.head_dim;
      const Index dim = part ? block.rope_dim : block.head_dim;
#pragma GCC unroll 16
      for (int j = 0; j < Together; ++j) {
        k[j] = part ? block.rope + block.rope_at[key + first + j] : block.k + block.at[key + first + j];
        then[j] = Reading && !part ? block.after_key(key + first + j) : k[j];
      }
      const auto step = [&](Index d, int n) __attribute__((always_inline)) {
        if (Reading)
#pragma GCC unroll 16
          for (int j = 0; j < Together; ++j) fetch(then[j], d);
        if constexpr (Rows < Together) {  // the fewer operands wait in registers
          Vec query[Rows];
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) query[r] = get(queries + r * pitch + d, n, zero());
#pragma GCC unroll 16
          for (int j = 0; j < Together; ++j) {
            const Vec keys = get(k[j] + d, n, zero());
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) sums[j * Rows + r] = fma(query[r], keys, sums[j * Rows + r]);
          }
        } else {
          Vec keys[Together];
#pragma GCC unroll 16
          for (int j = 0; j < Together; ++j) keys[j] = get(k[j] + d, n, zero());
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) {
            const Vec query = get(queries + r * pitch + d, n, zero());
#pragma GCC unroll 16
            for (int j = 0; j < Together; ++j) sums[j * Rows + r] = fma(query, keys[j], sums[j * Rows + r]);
          }
        }
      };
      Index d = 0;
      if constexpr (sizeof(Element) == 1 && (Rows < Keys || kManyRegisters))
        for (; d + 2 * kLanes <= dim; d += 2 * kLanes) {
          Vec query[Rows][2];
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r)
            for (int half = 0; half < 2; ++half) query[r][half] = load(queries + r * pitch + d + half * kLanes);
#pragma GCC unroll 16
          for (int j = 0; j < Together; ++j) {
            Vec low, high;
            if (Reading) fetch(then[j], d);
            load_two(k[j] + d, low, high);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r)
              sums[j * Rows + r] = fma(query[r][1], high, fma(query[r][0], low, sums[j * Rows + r]));
          }
        }
      for (; d + kLanes <= dim; d += kLanes) step(d, kLanes);
      if (d < dim) step(d, static_cast<int>(dim - d));
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows * Together; ++i) acc[first * Rows + i] = sums[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; i += kLanes) {
    Vec tile[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) tile[j] = acc[i + j < kSums ? i + j : i + j % 4];
    store(scores + i, reduce_add(tile));
  }
}

// The keys [first, last) of a block that a row sees.
struct Seen {
  Index first, last;
};

// Calls work(row, constant of its size) for each group of rows in [first, last), where `rows` are all there are.
template <class Work>
ROOFLINE_INLINE void for_groups(Index first, Index last, Index rows, Work work) {
  for (Index row = first; row < last; row += 4) {
    if (rows - row >= 3) work(row, Size<4>{});
    else if (rows - row == 2) work(row, Size<2>{});
    else work(row, Size<1>{});
  }
}

template <class Element>
void score(const Number* q, Index rows, const Block<Element>& block, Number* scores) {
  const Index pitch = block.head_dim + block.rope_dim, together = most(kRowNumbers / pitch / 4 * 4, 4);
  const bool in_order = rows <= 4 && block.lead > 0;
  for (Index first = 0; first < rows; first += together)
    for (Index key = 0; key < block.whole; key += kWhole)
      for_groups(first, least(rows, first + together), rows, [&](Index row, auto size) __attribute__((always_inline)) {
        constexpr int kRows = decltype(size)::value, kStep = kTileKeys<kRows>;
        static_assert(kWhole % kStep == 0 && kWhole * kRows % kLanes == 0);
        const Index last = least(key + kWhole, block.n);  // the last tile may take keys that are there only to fill it
        for (Index i = key; i < last; i += kStep) {
          Number* const to = scores + row * kPitch + i * kRows;
          const Number* const queries = q + row * pitch;
          if (kStep % kReadKeys == 0 && in_order)
            score_tile<kRows, kStep, kStep % kReadKeys ? kStep : kReadKeys, true>(queries, block, i, to);
          else if (kRows == 4 && row == 0 && block.lead > 0)
            score_tile<kRows, kStep, kStep, true>(queries, block, i, to);
          else
            score_tile<kRows, kStep, kStep, false>(queries, block, i, to);
        }
      });
}

// out[Rows][head_dim] += weights[Keys][Rows] V[Keys][head_dim], as many columns at a time as registers hold results of.
template <int Rows, int Keys, bool Reading, class Element>
ROOFLINE_INLINE void value_tile(const Number* s, const Block<Element>& block, Index key, Number* out) {
  const Index head_dim = block.head_dim;
  const Element *v[Keys], *then[Keys];
#pragma GCC unroll 8
  for (int j = 0; j < Keys; ++j) {
    v[j] = block.v + block.at[key + j];
    then[j] = Reading ? block.after_value(key + j) : v[j];
  }
  Vec weight[Keys][Rows];
#pragma GCC unroll 8
  for (int j = 0; j < Keys; ++j)
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) weight[j][r] = set1(s[(key + j) * Rows + r]);
  const auto columns = [&](Index d, auto size, int n) __attribute__((always_inline)) {
    constexpr int kVectors = decltype(size)::value, kEach = sizeof(Element) == 1 && kVectors > 1 ? 2 : 1;
    Vec acc[Rows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) acc[r][z] = get(out + r * head_dim + d + z * kLanes, n, zero());
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; z += kEach) {
        Vec values[kEach];
        if constexpr (kEach == 2)
          load_two(v[j] + d + z * kLanes, values[0], values[1]);
        else
          values[0] = get(v[j] + d + z * kLanes, n, zero());
        if (Reading) fetch_vector(then[j] + d, z);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
          for (int i = 0; i < kEach; ++i) acc[r][z + i] = fma(weight[j][r], values[i], acc[r][z + i]);
      }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) put(out + r * head_dim + d + z * kLanes, n, acc[r][z]);
  };
  // One row is read line by line, a few keys in turn: bound by memory, that order is the quicker one.
  constexpr int kBytes = kLanes * sizeof(Element), kLine = kBytes < 32 ? 4 : kBytes < 64 ? 2 : 1;
  constexpr int kMost = Rows == 1 && Reading ? kLine : (kManyRegisters ? 8 : 4) / Rows;
  Index d = 0;
  for (; d + kMost * kLanes <= head_dim; d += kMost * kLanes) columns(d, Size<kMost>{}, kLanes);
  for (; d + kLanes <= head_dim; d += kLanes) columns(d, Size<1>{}, kLanes);
  if (d < head_dim) columns(d, Size<1>{}, static_cast<int>(head_dim - d));
}

template <class Element>
void value(const Number* s, Index rows, const Block<Element>& block, Number* out) {
  const Index head_dim = block.head_dim, together = most(kRowNumbers / head_dim / 4 * 4, 4);
  for (Index first = 0; first < rows; first += together)
    for (Index key = 0; key < block.n; key += kWhole)
      for_groups(first, least(rows, first + together), rows, [&](Index row, auto size) __attribute__((always_inline)) {
        constexpr int kRows = decltype(size)::value, kStep = kValueKeys<kRows>;
        const Number* const weights = s + row * kPitch;
        const bool reading = row == 0 && block.lead > 0;  // the first rows read for all
        const Index last = least(key + kWhole, block.n);
        Index i = key;
        constexpr int kReadStep = kRows == 1 ? kReadKeys : kStep;
        for (; reading && i + kReadStep <= last; i += kReadStep)
          value_tile<kRows, kReadStep, true>(weights, block, i, out + row * head_dim);
        for (; i + kStep <= last; i += kStep)
          value_tile<kRows, kStep, false>(weights, block, i, out + row * head_dim);
        for (; i < last; ++i) value_tile<kRows, 1, false>(weights, block, i, out + row * head_dim);
      });
}

}  // namespace
}  // namespace roofline::cpu
