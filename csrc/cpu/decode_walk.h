// Attention of few queries: keys and values are read once, row by row. A thread reads its range in one or several address streams,
// with or without prefetches: bind picks the quickest. Scores are dot products along the lanes; results add up row by row of V. A
// few keys at a time meet all queries that fit in L1, so that more queries read neither K nor V again. With AVX-512 many rows go
// another way: decode_quads.h; and bytes, where pairs of bf16 are multiplied: decode_bytes.h. Everything is internal to the file that
// includes it.
//
// Results of few rows that stay in registers while columns of many values pass were slower.
#pragma once

#include "cpu/decode_tiles.h"
#if defined(ROOFLINE_PAIRS)
#include "cpu/decode_bytes.h"
#endif
#if !defined(ROOFLINE_DOUBLES) && !defined(ROOFLINE_PAIRS) && \
    (defined(ROOFLINE_SIMDE) || (defined(__AVX512F__) && defined(__AVX512DQ__)))
#define ROOFLINE_QUADS
#include "cpu/decode_quads.h"
#endif

namespace roofline::cpu {
namespace {

// Weights 2^(score - top) of the n keys, 0 of those that a row does not see; tops, sums and results move to the new tops.
template <int Rows>
void weigh(Number* s, Index n, const Seen* seen, Number softcap, Number* top, Number* sum, Number* out, Index head_dim) {
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

// The keys that a row sees.
ROOFLINE_INLINE Seen seen_by(const Part& part, Index row) {
  const Index end = part.visible + (part.first_row + row) % part.seq_q * part.growth;
  return {end - part.window, end};
}

// [2][2][kKeys], behind the scores: of a block's keys and the next one's. More of the workspace follows.
ROOFLINE_INLINE Index* places_of(const Part& part) {
  return reinterpret_cast<Index*>(part.workspace + (part.rows + 3) / 4 * 4 * kPitch);
}

// Rows whose queries lie one by one.
template <class Element>
struct InRows {
  const Part& part;
  Number* s;  // of each group [kPitch][its rows]

  InRows(const Part& of, Number* scores, Number*) : part(of), s(scores) {}
  template <class SeenBy>
  [[gnu::always_inline]] void meet(const Block<Element>& block, bool masked, SeenBy seen_by_row) {
    const Index rows = part.rows, weighed = (block.n + kLanes - 1) / kLanes * kLanes;  // whole vectors, whatever the rows of a group
    if constexpr (kEights<Element>)
      score_bytes(part.q, rows, block, s);
    else
      score(part.q, rows, block, s);
    for_groups<kEights<Element>>(0, rows, rows, [&](Index row, auto size) __attribute__((always_inline)) {
      constexpr int kRows = decltype(size)::value;
      Seen seen[kRows];
      for (int r = 0; r < kRows; ++r) seen[r] = seen_by_row(row + r);
      weigh<kRows>(s + row * kPitch, weighed, masked || weighed != block.n ? seen : nullptr, part.softcap, part.top + row,
                   part.sum + row, part.out + row * part.head_dim, part.head_dim);
#if defined(ROOFLINE_PAIRS)
      pair_weights<kRows>(s + row * kPitch, weighed);
#endif
    });
    if constexpr (kEights<Element>)
      value_bytes(s, rows, block, part.out);
    else
      value(s, rows, block, part.out);
  }
  void finish() const {}
};

// `each` keys of every stream, the first of them `first`. Without a mask all rows see all of them. Way: InRows, or InQuads.
template <class Way, class Element>
[[gnu::noclone]] void walk(const Part& part, Index streams, Index first, Index each, bool masked) {
  const Index head_dim = part.head_dim / kNumbers<Element>, rope_dim = part.rope_dim / kNumbers<Element>;
  const Index rows = part.rows, all = streams * each;
  Index* const places = places_of(part);
  // Where rows do not fit in L1 together, a block meets them in turn, and should stay in L2.
  const Index key_bytes = static_cast<Index>(sizeof(Element)) * (head_dim + rope_dim + (part.v == part.k ? 0 : head_dim));
  const bool again = rows * (head_dim + rope_dim) > kRowNumbers;
  // Else a block is as long as its scores leave room in L1: from keys to values and back, memory waits for weights, and the
  // hardware's prefetchers begin anew.
  const Index most_keys = again ? kBlockBytes / key_bytes : most(kScores / rows / Kernels::kStep * Kernels::kStep, Kernels::kStep);
  const Index keys = most(least(most_keys / kWhole * kWhole, again || part.v == part.k ? Kernels::kStep : kKeys), kWhole);
  const auto n_at = [&](Index begin) { return most(least(keys, all - begin), 0); };
  const auto place = [&](Index begin, Index* at, const Index* before) {
    const Index n = n_at(begin), whole = (n + kWhole - 1) / kWhole * kWhole;
    if (before && n == keys && part.pages == nullptr) {  // each as far from its place in the block before
      const Index further = keys / streams;
      for (Index i = 0; i < keys; ++i) at[i] = before[i] + further * head_dim;
      for (Index i = kKeys; i < (rope_dim > 0 ? kKeys + keys : 0); ++i) at[i] = before[i] + further * rope_dim;
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
    for (Index i = 0; i < (rope_dim > 0 ? whole : 0); ++i) at[kKeys + i] = at[i] * rope_dim;
    for (Index i = 0; i < whole; ++i) at[i] *= head_dim;
  };
  const auto seen_at = [&](Index row, Index n, Index begin) -> Seen {  // of a block
    if (!masked) return {0, n};
    const Seen seen = seen_by(part, row);
    return {most(0, seen.first - first - begin), least(n, seen.last - first - begin)};
  };
  const Index lead_keys = part.lead_bytes / (head_dim * static_cast<Index>(sizeof(Element)));
  const Index lead = part.lead_bytes ? most(least((lead_keys + kWhole - 1) / kWhole * kWhole, keys), kWhole) : 0;
  const Index apart = (part.to_l1 || part.pages != nullptr || sizeof(Element) == 1 ? 64 : 256) / Index{sizeof(Element)};
  if (all <= 0) return;
  place(0, places, nullptr);
  Way way(part, part.workspace, reinterpret_cast<Number*>(places + 4 * kKeys));
  for (Index begin = 0, turn = 0; begin < all; begin += keys, turn = 1 - turn) {
    const Index n = n_at(begin), whole = (n + kWhole - 1) / kWhole * kWhole, next_n = n_at(begin + keys);
    Index *const at = places + turn * 2 * kKeys, *const next_at = places + (1 - turn) * 2 * kKeys;
    if (next_n > 0) place(begin + keys, next_at, at);
    const bool behind = next_n == 0 && part.pages == nullptr;  // the next range's keys follow in memory
    for (Index i = 0; i < (behind ? lead : 0); ++i) next_at[i] = at[n - 1] + (i + 1) * head_dim;
    const Block<Element> block = {static_cast<const Element*>(part.k), static_cast<const Element*>(part.v), static_cast<const Element*>(part.rope),
                                  at, at + kKeys, n, whole, head_dim, rope_dim, lead, next_at,
                                  behind ? lead : (next_n + kWhole - 1) / kWhole * kWhole, part.scale, part.to_l1, apart,
                                  part.element};
    way.meet(block, masked, [&](Index row) __attribute__((always_inline)) { return seen_at(row, n, begin); });
  }
  way.finish();
}

template <class Element>
void attend(const Part& given) {
  Part part = given;
  const Index rows = Kernels::whole(part.rows);
#if defined(ROOFLINE_PAIRS)
  if constexpr (kBytes<Element>) {
    Number* const q = reinterpret_cast<Number*>(places_of(part) + 4 * kKeys);
    take_chunks(part, rows, q);
    part.q = q;
  }
#endif
  for (Index i = 0; i < rows * part.head_dim; ++i) part.out[i] = 0;
  Seen all = {part.first, part.last};  // what all rows see
  for (Index row = 0; row < rows; ++row) {
    part.top[row] = -kInfinity;
    part.sum[row] = 0;
    const Seen seen = seen_by(part, row);
    all = {most(all.first, seen.first), least(all.last, seen.last)};
  }
  // Each walk of its own costs about as much as some keys: where few are shared, one takes all.
  if (all.last - all.first < kFewKeys) all = {part.last, part.last};
  const auto walks = [&](auto walk_of) {
    const Index each = (all.last - all.first) / part.streams, rest = all.first + part.streams * each;
    walk_of(1, part.first, all.first - part.first, true);
    walk_of(part.streams, all.first, each, false);
    walk_of(1, rest, part.last - rest, true);
  };
#if defined(ROOFLINE_QUADS)
  if (in_quads<Element>(part)) {
    walks([&](auto... at) { walk<InQuads<Element>, Element>(part, at...); });
    for (Index row = 0; row < part.rows; ++row) put_in_order<Element>(part.out + row * part.head_dim, part.head_dim);
    return;
  }
#endif
  walks([&](auto... at) { walk<InRows<Element>, Element>(part, at...); });
#if defined(ROOFLINE_PAIRS)
  for (Index row = 0; row < part.rows; ++row)  // the columns of some vectors of words go where they belong
    swap_fours<kBytes<Element> ? 4 : 2, 4>(part.out + row * part.head_dim, part.head_dim, part.out + row * part.head_dim);
#endif
}

template <class Element>
void take(const void* from, Index rows, Index columns, Number* to, Index pitch) {
  const Index words = columns / kNumbers<Element>;
  for (Index row = 0; row < rows; ++row)
    for (Index i = 0; i < words; i += kLanes) {
      const int n = static_cast<int>(least(kLanes, words - i));
      put(to + row * pitch + i, n, get(static_cast<const Element*>(from) + row * words + i, n, zero()));
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
