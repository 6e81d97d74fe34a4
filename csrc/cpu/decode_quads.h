// Attention of some queries over many keys with AVX-512: a vector holds four columns of four queries, and meets four columns of
// a key, broadcast. A load of keys then serves as many products as there are vectors, and scores are added up along four lanes,
// not all of them. Where keys and values are not fp32, a few at a time are widened for all queries. Everything is internal to the
// file that includes it.
#pragma once

#include <type_traits>

#include "cpu/decode_tiles.h"

namespace roofline::cpu {
namespace {

constexpr int kQuad = 4;
constexpr Index kQuadRows = 7;      // at least, else vectors would be too empty

template <class Element>
ROOFLINE_INLINE bool in_quads(const Part& part) {
  return part.rows >= kQuadRows && part.head_dim + part.rope_dim <= DecodeKernels<Number>::kQuadColumns &&
         !in_whole_rows<Element>(part.rows, part.head_dim, part.rope_dim);
}

// bf16 is widened as pairs, by one operation each: of every 2 kLanes columns those at even places lie first then.
template <class Element>
constexpr bool kPairs = std::is_same_v<Element, Bf16>;

template <class Element>
ROOFLINE_INLINE void load_both(const Element* p, Vec& low, Vec& high) {
  if constexpr (kPairs<Element>)
    widen_pairs(reinterpret_cast<const std::uint32_t*>(p), low, high);
  else
    load_two(p, low, high);
}

// Rows that are prefetched while a few keys are worked on, in as many steps: one after the other, at even intervals.
struct RowsAhead {
  const char* rows[kWhole];
  std::uint32_t lines;  // of a row; 0: none are prefetched
  bool to_l1;
  std::uint32_t steps = 1, passed = 0, next = 0;

  template <class Element>
  explicit RowsAhead(const Block<Element>& block)
      : lines(block.lead > 0 ? static_cast<std::uint32_t>((block.head_dim * sizeof(Element) + 63) / 64) : 0), to_l1(block.to_l1) {}
  void begin(Index of_steps) { steps = static_cast<std::uint32_t>(of_steps), passed = next = 0; }
  __attribute__((always_inline)) void step() {
    for (passed += kWhole; passed >= steps && next < kWhole; passed -= steps) {
      const char* const row = rows[next++];
      for (std::uint32_t line = 0; line < lines; ++line) prefetch(row + line * 64, to_l1);
    }
  }
};

// A part's queries and scores as these kernels take them. Scores of four rows and four keys lie together:
// [keys / 4][vectors][4 rows][4 keys].
struct Quads {
  Index rows, vectors;
  Index columns;  // of a key, in whole vectors
  Number* q;      // [columns / 4][vectors][4 rows][4 columns]
  Number* panel;  // [kWhole][columns of a key, or of a value]
  Number* s;

  Quads(const Part& part, Number* scores, Number* free)
      : rows(part.rows),
        vectors((rows + kQuad - 1) / kQuad),
        columns((part.head_dim + part.rope_dim + kLanes - 1) / kLanes * kLanes),
        q(free),
        panel(free + columns * vectors * kQuad),
        s(scores) {}

  Number* scores(Index key, Index row) const {
    return s + (key / kQuad * vectors + row / kQuad) * kLanes + row % kQuad * kQuad + key % kQuad;
  }
};

// The column of a row whose number lies at `place` of its panel.
template <class Element>
ROOFLINE_INLINE Index column_at(Index place, Index columns) {
  const Index inside = place % (2 * kLanes), block = place - inside;
  if (!kPairs<Element> || block + 2 * kLanes > columns) return place;
  return block + 2 * (inside % kLanes) + inside / kLanes;
}

template <class Element>
void pack(const Quads& quads, const Part& part) {
  const Index pitch = part.head_dim + part.rope_dim;
  for (Index place = 0; place < quads.columns; ++place) {
    const Index before = place < part.head_dim ? 0 : part.head_dim;  // columns of the key's other part
    const Index column = before + column_at<Element>(place - before, before > 0 ? part.rope_dim : part.head_dim);
    Number* const to = quads.q + place / kQuad * quads.vectors * kLanes + place % kQuad;
    for (Index row = 0; row < quads.vectors * kQuad; ++row)
      to[row * kQuad] = row < part.rows && place < pitch ? part.q[row * pitch + column] : 0;
  }
}

template <class Element>
ROOFLINE_INLINE void widen_row(const Element* from, Index n, Number* to) {
  Index at = 0;
  for (; at + 2 * kLanes <= n; at += 2 * kLanes) {
    Vec low, high;
    load_both(from + at, low, high);
    store(to + at, low), store(to + at + kLanes, high);
  }
  for (; at < n; at += kLanes) {
    const int some = static_cast<int>(least(kLanes, n - at));
    put(to + at, some, get(from + at, some, zero()));
  }
}

// Scores of `Keys` keys of `Vectors` from q on.
template <int Vectors, int Keys>
[[gnu::noinline]] void score_quads(const Number* const* keys, const Number* q, Index vectors, Index columns, Number scale,
                                   RowsAhead& ahead, Number* s) {
  Vec acc[Keys][Vectors];
  const Number* k[Keys];
#pragma GCC unroll 8
  for (int j = 0; j < Keys; ++j) {
    k[j] = keys[j];
#pragma GCC unroll 4
    for (int z = 0; z < Vectors; ++z) acc[j][z] = zero();
  }
  for (Index d = 0; d < columns; d += kLanes) {
    if (ahead.lines > 0) ahead.step();
#pragma GCC unroll 4
    for (int quad = 0; quad < kLanes; quad += kQuad, q += vectors * kLanes) {
      Vec queries[Vectors];
#pragma GCC unroll 4
      for (int z = 0; z < Vectors; ++z) queries[z] = load(q + z * kLanes);
#pragma GCC unroll 8
      for (int j = 0; j < Keys; ++j) {
        const Vec four = _mm512_broadcast_f32x4(_mm_loadu_ps(k[j] + d + quad));
#pragma GCC unroll 4
        for (int z = 0; z < Vectors; ++z) acc[j][z] = fma(four, queries[z], acc[j][z]);
      }
    }
  }
#pragma GCC unroll 2
  for (int j = 0; j < Keys; j += kQuad)
#pragma GCC unroll 4
    for (int z = 0; z < Vectors; ++z) {
      const auto both = [](Vec a, Vec b) { return add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); };
      const Vec first = both(acc[j][z], acc[j + 1][z]), second = both(acc[j + 2][z], acc[j + 3][z]);
      const Vec low = _mm512_shuffle_ps(first, second, 0x44), high = _mm512_shuffle_ps(first, second, 0xEE);
      store(s + (j / kQuad * vectors + z) * kLanes, mul(add(low, high), set1(scale)));
    }
}

template <class Element>
void score(const Quads& quads, const Block<Element>& block) {
  const bool direct = sizeof(Element) == sizeof(Number) && block.rope_dim == 0 && block.head_dim % kLanes == 0;
  const Index groups = (quads.vectors + 3) / 4, tile_steps = quads.columns / kLanes;
  RowsAhead ahead(block);
  const Number* keys[kWhole];
  for (Index key = 0; key < block.whole; key += kWhole) {
    const auto then = block.after_keys(key);
    for (Index i = 0; i < kWhole; ++i) {
      const Element* const k = block.k + block.at[key + i];
      if (ahead.lines > 0) ahead.rows[i] = reinterpret_cast<const char*>(then[i]);
      keys[i] = reinterpret_cast<const Number*>(k);
      if (direct) continue;
      Number* const to = quads.panel + i * quads.columns;
      widen_row(k, block.head_dim, to);
      if (block.rope_dim > 0) widen_row(block.rope + block.rope_at[key + i], block.rope_dim, to + block.head_dim);
      for (Index place = block.head_dim + block.rope_dim; place < quads.columns; ++place) to[place] = 0;
      keys[i] = to;
    }
    const auto keys_of = [](Index vectors) { return vectors == 4 ? 4 : 8; };  // of a tile
    Index steps = 0;
    for (Index group = 0; group < groups; ++group)
      steps += kWhole / keys_of(quads.vectors * (group + 1) / groups - quads.vectors * group / groups) * tile_steps;
    ahead.begin(steps);
    for (Index group = 0; group < groups; ++group) {
      const Index first = quads.vectors * group / groups, some = quads.vectors * (group + 1) / groups - first;
      const auto tiles = [&](auto vectors, auto together) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(vectors)::value, kKeysOf = decltype(together)::value;
        for (Index i = 0; i < kWhole; i += kKeysOf)
          score_quads<kVectors, kKeysOf>(keys + i, quads.q + first * kLanes, quads.vectors, quads.columns, block.scale, ahead,
                                         quads.scores(key + i, first * kQuad));
      };
      if (some == 2) tiles(Size<2>{}, Size<8>{});
      if (some == 3) tiles(Size<3>{}, Size<8>{});
      if (some == 4) tiles(Size<4>{}, Size<4>{});
    }
  }
}

// Weights of n keys, 0 of those that a row does not see; tops, sums and results move to the new tops. tops and sums: [vectors][4
// rows][4 times the same, or parts of the sum].
void weigh(const Quads& quads, Index n, const Seen* seen, Number softcap, Number* tops, Number* sums, Number* out, Index head_dim) {
  const Index whole = (n + kWhole - 1) / kWhole * kWhole;
  const auto hide = [&](Number x) {
    for (Index row = 0; row < quads.rows; ++row) {
      for (Index key = 0; key < least(seen[row].first, n); ++key) *quads.scores(key, row) = x;
      for (Index key = most(seen[row].last, 0); key < whole; ++key) *quads.scores(key, row) = x;
    }
  };
  const auto over = [&](Index vector, auto&& work) __attribute__((always_inline)) {
    for (Index i = vector; i < whole / kQuad * quads.vectors; i += quads.vectors) work(quads.s + i * kLanes);
  };
  if (softcap > 0) {
    const Vec cap = set1(softcap), share = set1(1 / softcap);
    for (Index i = 0; i < whole / kQuad * quads.vectors; ++i)
      store(quads.s + i * kLanes, mul(cap, tanh(mul(load(quads.s + i * kLanes), share))));
  }
  if (seen) hide(-kInfinity);
  for (Index vector = 0; vector < quads.vectors; ++vector) {
    Number *const top = tops + vector * kLanes, *const sum = sums + vector * kLanes;
    Vec high = load(top);
    over(vector, [&](const Number* p) __attribute__((always_inline)) { high = max(high, load(p)); });
    high = max(high, _mm512_shuffle_ps(high, high, 0xB1));
    high = max(high, _mm512_shuffle_ps(high, high, 0x4E));
    const Vec base = select_less(high, set1(-3e38f), zero(), high);  // a row may have seen no key yet
    if (any_greater(high, load(top))) {
      const Vec down = exp2(sub(load(top), base));
      Number each[kLanes];
      store(each, down);
      store(sum, mul(load(sum), down));
      store(top, high);
      for (Index row = vector * kQuad; row < least(vector * kQuad + kQuad, quads.rows); ++row)
        for (Index d = 0; each[row % kQuad * kQuad] != 1 && d < head_dim; d += kLanes) {
          const int lanes = static_cast<int>(least(kLanes, head_dim - d));
          Number* const at = out + row * head_dim + d;
          put(at, lanes, mul(get(at, lanes, zero()), set1(each[row % kQuad * kQuad])));
        }
    }
    Vec total = load(sum);
    over(vector, [&](Number* p) __attribute__((always_inline)) {
      const Vec score = sub(load(p), base), weight = seen ? exp2_or_zero<Number>(score) : exp2_bounded(score);
      store(p, weight);
      total = add(total, weight);
    });
    store(sum, total);
  }
}

// out[Rows][head_dim] += weights V[kWhole][head_dim], whose sums, of `Vectors` at a time, stay in registers for all of the values.
template <int Rows, int Vectors, bool Part = false, class Element>
[[gnu::noinline]] void sum_columns(const Number* s, Index s_pitch, const Element* const* v, Index d, int some, RowsAhead& ahead,
                                   Number* out, Index head_dim) {
  const int lanes = Part ? some : kLanes;
  Vec acc[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) acc[r][z] = get(out + r * head_dim + d + z * kLanes, lanes, zero());
  for (Index key = 0; key < kWhole; key += kQuad, s += s_pitch) {
    if (ahead.lines > 0) ahead.step();
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i) {
      const Element* const from = v[key + i] + d;
      Vec values[Vectors];
      if constexpr (Vectors == 2)
        load_both(from, values[0], values[1]);
      else
#pragma GCC unroll 8
        for (int z = 0; z < Vectors; ++z) values[z] = get(from + z * kLanes, lanes, zero());
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Vec weight = set1(s[r / kQuad * kLanes + r % kQuad * kQuad + i]);
#pragma GCC unroll 8
        for (int z = 0; z < Vectors; ++z) acc[r][z] = fma(weight, values[z], acc[r][z]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) put(out + r * head_dim + d + z * kLanes, lanes, acc[r][z]);
}

// Vectors of results that stay in registers.
template <int Rows, class Element>
constexpr int kColumnsOf = sizeof(Element) < sizeof(Number) ? 2 : Rows <= 3 ? 8 : Rows <= 6 ? 4 : 3;

template <int Rows, class Element>
ROOFLINE_INLINE void sum_values(const Number* s, Index s_pitch, const Element* const* v, RowsAhead& ahead, Number* out,
                                Index head_dim) {
  Index d = 0;
  const auto columns = [&](auto vectors) __attribute__((always_inline)) {
    constexpr int kVectors = decltype(vectors)::value;
    for (; d + kVectors * kLanes <= head_dim; d += kVectors * kLanes)
      sum_columns<Rows, kVectors>(s, s_pitch, v, d, kLanes, ahead, out, head_dim);
  };
  columns(Size<kColumnsOf<Rows, Element>>{});
  columns(Size<2>{});
  columns(Size<1>{});
  if (d < head_dim) sum_columns<Rows, 1, true>(s, s_pitch, v, d, static_cast<int>(head_dim - d), ahead, out, head_dim);
}

template <class Element>
void value(const Quads& quads, const Block<Element>& block, Number* out) {
  constexpr int kGroup = 8;
  const Index head_dim = block.head_dim, groups = (quads.rows + kGroup - 1) / kGroup;
  RowsAhead ahead(block);
  const bool once = sizeof(Element) == sizeof(Number) || (kPairs<Element> && groups == 1);  // they are widened as they are used
  const Number* values[kWhole];
  const Element* narrow[kWhole];
  for (Index key = 0; key < block.n; key += kWhole) {
    const auto then = block.after_values(key);
    for (Index i = 0; i < kWhole; ++i) {
      const Element* const v = block.v + block.at[key + i];
      if (ahead.lines > 0) ahead.rows[i] = reinterpret_cast<const char*>(then[i]);
      narrow[i] = v;
      if (once) continue;
      Number* const to = quads.panel + i * head_dim;
      widen_row(v, head_dim, to);
      values[i] = to;
    }
    const Index together = once && sizeof(Element) < sizeof(Number) ? 2 : 3;  // vectors, mostly
    ahead.begin((head_dim + together * kLanes - 1) / (together * kLanes) * groups * (kWhole / kQuad));
    for (Index group = 0; group < groups; ++group) {
      const Number* const weights = quads.scores(key, group * kGroup);
      const auto sum = [&](auto size) __attribute__((always_inline)) {
        constexpr int kRows = decltype(size)::value;
        Number* const results = out + group * kGroup * head_dim;
        if (once && (sizeof(Element) == sizeof(Number) || (kPairs<Element> && kRows >= kQuadRows)))
          sum_values<kRows>(weights, quads.vectors * kLanes, narrow, ahead, results, head_dim);
        else
          sum_values<kRows>(weights, quads.vectors * kLanes, values, ahead, results, head_dim);
      };
      switch (least(kGroup, quads.rows - group * kGroup)) {
        case 1: sum(Size<1>{}); break;
        case 2: sum(Size<2>{}); break;
        case 3: sum(Size<3>{}); break;
        case 4: sum(Size<4>{}); break;
        case 5: sum(Size<5>{}); break;
        case 6: sum(Size<6>{}); break;
        case 7: sum(Size<7>{}); break;
        default: sum(Size<8>{}); break;
      }
    }
  }
}

// Rows whose queries lie in quads.
template <class Element>
struct InQuads {
  const Part& part;
  const Quads quads;
  alignas(64) Number tops[Kernels::kMostRows * kQuad], sums[Kernels::kMostRows * kQuad];

  InQuads(const Part& of, Number* scores, Number* free) : part(of), quads(of, scores, free) {
    pack<Element>(quads, part);
    for (Index i = 0; i < quads.vectors * kLanes; ++i) {
      const bool real = i / kQuad < part.rows;
      tops[i] = real ? part.top[i / kQuad] : -kInfinity;
      sums[i] = real && i % kQuad == 0 ? part.sum[i / kQuad] : 0;
    }
  }
  template <class SeenBy>
  [[gnu::always_inline]] void meet(const Block<Element>& block, bool masked, SeenBy seen_by_row) {
    Seen seen[Kernels::kMostRows];
    for (Index row = 0; row < part.rows; ++row) seen[row] = seen_by_row(row);
    score(quads, block);
    weigh(quads, block.n, masked || block.n % kLanes != 0 ? seen : nullptr, part.softcap, tops, sums, part.out, block.head_dim);
    value(quads, block, part.out);
  }
  void finish() const {
    for (Index row = 0; row < part.rows; ++row) {
      const Number* const sum = sums + row * kQuad;
      part.top[row] = tops[row * kQuad];
      part.sum[row] = sum[0] + sum[1] + sum[2] + sum[3];
    }
  }
};

// The columns of a row that lie as in panels go where they belong.
template <class Element>
void put_in_order(Number* row, Index columns) {
  for (Index at = 0; kPairs<Element> && at + 2 * kLanes <= columns; at += 2 * kLanes) {
    const Vec even = load(row + at), odd = load(row + at + kLanes);
    store_pairs(row + at, even, odd);
  }
}

}  // namespace
}  // namespace roofline::cpu
