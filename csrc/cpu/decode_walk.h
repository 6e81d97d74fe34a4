// Attention of few queries: keys and values are read once, row by row. A thread reads its range in one or several address streams, with
// or without prefetches: bind picks the quickest. Scores are dot products along the lanes; results add up row by row of V. A few keys
// at a time meet all queries that fit in L1, so that more queries read neither K nor V again. Everything is internal to the file that
// includes it.
//
// Results that stay in registers while columns of many values pass were slower.
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
  const Index pitch = block.head_dim + block.rope_dim;
  Vec acc[kSums];
#pragma GCC unroll 16
  for (Vec& one : acc) one = zero();
  const auto columns = [&](const Element* all, const Index* at, Index dim, const Number* queries, int first, bool ahead) __attribute__((always_inline)) {
    const Element *k[Together], *then[Together];
    Vec* const sums = acc + first * Rows;
#pragma GCC unroll 16
    for (int j = 0; j < Together; ++j) {
      k[j] = all + at[first + j];
      then[j] = Reading && ahead ? block.after_key(key + first + j) : k[j];
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
  };
#pragma GCC unroll 8
  for (int first = 0; first < Keys; first += Together) {
    columns(block.k, block.at + key, block.head_dim, q, first, true);
    if (block.rope_dim > 0) columns(block.rope, block.rope_at + key, block.rope_dim, q + block.head_dim, first, false);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; i += kLanes) {
    Vec tile[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) tile[j] = acc[i + j < kSums ? i + j : i + j % 4];
    store(scores + i, reduce_add(tile));
  }
}

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

// The keys [first, last) of a block that a row sees.
struct Seen {
  Index first, last;
};

// Weights 2^(score - top) of the n keys, 0 of those that a row does not see; tops, sums and results move to the new tops.
template <int Rows>
ROOFLINE_INLINE void weigh(Number* s, Index n, const Seen* seen, Number softcap, Number* top, Number* sum, Number* out, Index head_dim) {
  const auto hide = [&](Number x) {
    for (int r = 0; r < Rows; ++r) {
      for (Index key = 0; key < least(seen[r].first, n); ++key) s[key * Rows + r] = x;
      for (Index key = most(seen[r].last, 0); key < n; ++key) s[key * Rows + r] = x;
    }
  };
  constexpr int kWide = kLanes < Rows ? Rows : kLanes;  // the scalar set has one lane
  Vec high[kWide / kLanes];
  const auto over = [&](auto&& work) __attribute__((always_inline)) {
    for (Index i = 0; i < n * Rows; i += kWide)
#pragma GCC unroll 4
      for (int j = 0; j < kWide / kLanes; ++j) work(s + i + j * kLanes, j);
  };
  if (softcap > 0) {
    const Vec cap = set1(softcap), share = set1(1 / softcap);
    over([&](Number* p, int) __attribute__((always_inline)) { store(p, mul(cap, tanh(mul(load(p), share)))); });
  }
  if (seen) hide(-kInfinity);
  Number each[kWide];
  for (Vec& one : high) one = set1(-kInfinity);
  over([&](const Number* p, int j) __attribute__((always_inline)) { high[j] = max(high[j], load(p)); });
  for (int j = 0; j < kWide / kLanes; ++j) store(each + j * kLanes, high[j]);
  Number tops[kWide];
  for (int r = 0; r < Rows; ++r) {
    Number now = Rows == 1 ? reduce_max(high[0]) : each[r];
    for (int i = r; i < (Rows == 1 ? 0 : kWide); i += Rows) now = each[i] > now ? each[i] : now;
    if (now > top[r]) {
      const Vec down = top[r] == -kInfinity ? zero() : exp2(set1(top[r] - now));
      sum[r] *= reduce_max(down);
      for (Index d = 0; d < head_dim; d += kLanes) {
        const int lanes = static_cast<int>(least(kLanes, head_dim - d));
        put(out + r * head_dim + d, lanes, mul(get(out + r * head_dim + d, lanes, zero()), down));
      }
      top[r] = now;
    }
    for (int i = r; i < kWide; i += Rows) tops[i] = top[r] == -kInfinity ? 0 : top[r];
  }
  Vec total[kWide / kLanes], highest[kWide / kLanes];
  for (int j = 0; j < kWide / kLanes; ++j) {
    total[j] = zero();
    highest[j] = load(tops + j * kLanes);
  }
  over([&](Number* p, int j) __attribute__((always_inline)) {
    const Vec weight = exp2_bounded(sub(load(p), highest[j]));
    store(p, weight);
    total[j] = add(total[j], weight);
  });
  if (seen) {
    hide(0);
    for (Vec& one : total) one = zero();
    over([&](const Number* p, int j) __attribute__((always_inline)) { total[j] = add(total[j], load(p)); });
  }
  if constexpr (Rows == 1) {
    sum[0] += reduce_add(total[0]);
    return;
  }
  for (int j = 0; j < kWide / kLanes; ++j) store(each + j * kLanes, total[j]);
  for (int i = 0; i < kWide; ++i) sum[i % Rows] += each[i];
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

// The keys that a row sees.
ROOFLINE_INLINE Seen seen_by(const Part& part, Index row) {
  const Index end = part.visible + (part.first_row + row) % part.seq_q * part.growth;
  return {end - part.window, end};
}

// `each` keys of every stream, the first of them `first`. Without a mask all rows see all of them.
template <class Element>
void walk(const Part& part, Index streams, Index first, Index each, bool masked) {
  const Index head_dim = part.head_dim, rows = part.rows, all = streams * each;
  Number* const s = part.workspace;  // of each group [kPitch][its rows]
  Index* const places = reinterpret_cast<Index*>(s + Kernels::whole(rows) * kPitch);  // [2][2][kKeys]: of this block and the next
  // Where rows do not fit in L1 together, a block meets them in turn, and should stay in L2.
  const Index key_bytes = static_cast<Index>(sizeof(Element)) * (head_dim + part.rope_dim + (part.v == part.k ? 0 : head_dim));
  const bool again = rows * (head_dim + part.rope_dim) > kRowNumbers;
  const Index keys = again ? most(least(kKeys, kBlockBytes / key_bytes / kWhole * kWhole), kWhole) : kKeys;
  const auto n_at = [&](Index begin) { return most(least(keys, all - begin), 0); };
  const auto place = [&](Index begin, Index* at, const Index* before) {
    const Index n = n_at(begin), whole = (n + kWhole - 1) / kWhole * kWhole;
    if (before && n == keys && part.pages == nullptr) {  // each as far from its place in the block before
      const Index further = keys / streams;
      for (Index i = 0; i < keys; ++i) at[i] = before[i] + further * head_dim;
      for (Index i = kKeys; i < (part.rope_dim > 0 ? kKeys + keys : 0); ++i) at[i] = before[i] + further * part.rope_dim;
      return;
    }
    for (Index stream = 0; stream < streams; ++stream)
      for (Index i = stream, row = first + begin / streams + stream * each, run; i < n; row += run) {
        const Index inside = part.pages ? row % part.page_size : 0;
        run = part.pages ? part.page_size - inside : n;
        Index place = part.pages ? part.pages[row / part.page_size] * part.page_rows + inside : row;
        for (Index last = least(i + run * streams, n); i < last; i += streams) at[i] = place++;
      }
    for (Index i = n; i < whole; ++i) at[i] = at[n - 1];
    for (Index i = 0; i < (part.rope_dim > 0 ? whole : 0); ++i) at[kKeys + i] = at[i] * part.rope_dim;
    for (Index i = 0; i < whole; ++i) at[i] *= head_dim;
  };
  const Index lead = part.lead_bytes ? most(part.lead_bytes / (head_dim * static_cast<Index>(sizeof(Element))), 1) : 0;
  if (all > 0) place(0, places, nullptr);
  for (Index begin = 0, turn = 0; begin < all; begin += keys, turn = 1 - turn) {
    const Index n = n_at(begin), whole = (n + kWhole - 1) / kWhole * kWhole, next_n = n_at(begin + keys);
    const Index weighed = (n + kLanes - 1) / kLanes * kLanes;  // whole vectors, whatever the rows of a group
    Index *const at = places + turn * 2 * kKeys, *const next_at = places + (1 - turn) * 2 * kKeys;
    if (next_n > 0) place(begin + keys, next_at, at);
    const Block<Element> block = {static_cast<const Element*>(part.k), static_cast<const Element*>(part.v), static_cast<const Element*>(part.rope),
                                  at, at + kKeys, n, whole, head_dim, part.rope_dim, lead, next_at, next_n,
                                  next_n == 0 && part.pages == nullptr};
    score(part.q, rows, block, s);
    for_groups(0, rows, rows, [&](Index row, auto size) __attribute__((always_inline)) {
      constexpr int kRows = decltype(size)::value;
      Seen seen[kRows];
      for (int r = 0; r < kRows; ++r) {
        seen[r] = {0, n};
        if (!masked) continue;
        const Seen keys_seen = seen_by(part, row + r);
        seen[r] = {most(0, keys_seen.first - first - begin), least(n, keys_seen.last - first - begin)};
      }
      weigh<kRows>(s + row * kPitch, weighed, masked || weighed != n ? seen : nullptr, part.softcap, part.top + row, part.sum + row,
                   part.out + row * head_dim, head_dim);
    });
    value(s, rows, block, part.out);
  }
}

template <class Element>
void attend(const Part& part) {
  const Index rows = Kernels::whole(part.rows);
  for (Index i = 0; i < rows * part.head_dim; ++i) part.out[i] = 0;
  Seen all = {part.first, part.last};  // what all rows see
  for (Index row = 0; row < rows; ++row) {
    part.top[row] = -kInfinity;
    part.sum[row] = 0;
    const Seen seen = seen_by(part, row);
    all = {most(all.first, seen.first), least(all.last, seen.last)};
  }
  // Each walk of its own costs about as much as some keys: where few are shared, one takes all.
  if (all.last - all.first < kFewKeys) return walk<Element>(part, 1, part.first, part.last - part.first, true);
  walk<Element>(part, 1, part.first, all.first - part.first, true);
  const Index each = (all.last - all.first) / part.streams, rest = all.first + part.streams * each;
  walk<Element>(part, part.streams, all.first, each, false);
  walk<Element>(part, 1, rest, part.last - rest, true);
}

template <class Element>
void widen(const void* from, Index rows, Index columns, Number scale, Number* to, Index pitch) {
  const Vec factor = set1(scale);
  for (Index row = 0; row < rows; ++row)
    for (Index i = 0; i < columns; i += kLanes) {
      const int n = static_cast<int>(least(kLanes, columns - i));
      put(to + row * pitch + i, n, mul(get(static_cast<const Element*>(from) + row * columns + i, n, zero()), factor));
    }
}

template <class Element>
void combine(const DecodeParts<Number>& all) {
  const Index head_dim = all.head_dim, whole = Kernels::whole(all.rows);
  for (Index row = 0; row < all.rows; ++row) {
    const auto part_of = [&](const Number* each, Index part) { return each[part * whole + row]; };
    const Number sink = all.sinks ? all.sinks[(all.first_row + row) / all.seq_q] * static_cast<Number>(1.4426950408889634) : -kInfinity;
    Number top = sink;
    for (Index part = 0; part < all.parts; ++part) top = part_of(all.top, part) > top ? part_of(all.top, part) : top;
    Number sum = all.sinks ? reduce_max(exp2(set1(sink - top))) : 0;
    for (Index part = 0; part < all.parts; ++part) {
      Number& share = all.top[part * whole + row];  // what counts of the part; 0 where it saw none of these keys
      share = part_of(all.sum, part) == 0 ? 0 : reduce_max(exp2(set1(share - top)));
      sum += part_of(all.sum, part) * share;
    }
    if (all.logsumexp) all.logsumexp[row] = static_cast<float>((__builtin_log2(sum) + top) * 0.6931471805599453);
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int n = static_cast<int>(least(kLanes, head_dim - d));
      Vec out = zero();
      for (Index part = 0; part < all.parts; ++part)
        if (const Number share = part_of(all.top, part); share != 0)
          out = fma(get(all.out + (part * whole + row) * head_dim + d, n, zero()), set1(share), out);
      put(static_cast<Element*>(all.to) + row * head_dim + d, n, mul(out, set1(all.unit / sum)));
    }
  }
}

}  // namespace
}  // namespace roofline::cpu
