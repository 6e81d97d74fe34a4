// A chunk of queries against some keys: scores, the softmax running along, values. `Products` says how scores and values are
// multiplied. Everything is internal to the file that includes it.
//
// Queries lie in the lanes of scores and weights, so that the maximum and the sum of a query are vertical:
//   S[key][query] = K Qᵀ - m   Q is packed transposed; in fp32 scaled, and -m is where the accumulators start;
//   P = 2^S                    scores are in units of log2; m is kBelow above a maximum, and moves only when a score passes that by 8;
//   O[query][d] += P V         a few queries are broadcast, and the columns of V lie in the lanes; by AMX the other way round
#pragma once

#include "cpu/attention_tile.h"

namespace roofline::cpu {
namespace {

struct Chunk {
  Number* q;        // [head_dim + rope_dim, width]
  Number* out;      // as Products lays results
  Number* neg_max;  // [width]; in units of log2, as are all scores
  Number* sum;      // [width]
  Number* unit;     // [width]; what a unit of q counts, where `Products` rounds it; where kApart, [0] is the largest magnitude in q
  Number* from;     // [width]; the first key that each query sees and the first that it no longer sees, both from where the
  Number* to;       //          current keys begin
  Index first;     // row of the block
  Index rows;
  int vectors;
  Index start;            // the first key that any of its queries sees
  Index late, full;   // keys that all of them see; none where late is not less
  Index lates[kVectors], fulls[kVectors];  // the same of each vector
  Index halves[kVectors];  // past the last key that the lower half of its queries sees
  Index stops[kVectors];  // past the last key that the queries up to a vector see
  Index stop() const { return stops[vectors - 1]; }
};

// Keys that a chunk meets at a time. Rows of K and V are words: numbers of fp32, or what `Products` reads.
struct Keys {
  const Number* k;     // [n, key_words]
  const Number* rope;  // [n, rope_words]: the words of a key that follow
  const Number* v;     // [n, value_dim]
  Index key_words, rope_words, value_dim;
  Index value_pitch, value_plane;  // from a key of V, or a pair, to the next; from the columns of a register tile to the next
  Index begin, n;
  Index ends[kVectors];  // the vectors from z on meet keys up to ends[z]
  bool anew;     // they are the first that the chunk meets
  bool masked;   // chunk.from and chunk.to say which of them each query sees; else each sees all
  Number scale;  // of raw scores, times log2(e)
  Number softcap;
  // The first chunk prefetches for all. With scores: values of this block that are read in place, or words of the next one that are
  // gathered. With values: the next block's keys. While the last chunk meets its last keys, it prefetches where the results go, and
  // the queries that the thread meets next.
  Ahead with_scores[3], with_values[2];
  const AttentionBlock* block;
  Number largest;  // magnitude in k, where kApart
};

alignas(64) constexpr Number kZeros[kWidth] = {};

// From a row of scores, or weights, to the next: a line more than it takes, so that those of a few queries do not meet in few
// places of the first cache.
template <int Vectors>
constexpr Index kPitch = Vectors * kLanes + (Vectors * sizeof(Vec) > 64 ? kLine : 0);

// Scores of the vectors from First on.
template <class Products, int Vectors, int First, bool Grow>
struct ScoreTiles {
  static constexpr int kChunk = Vectors * kLanes;
  const Keys& keys;
  const Chunk& chunk;
  const Number* start;  // [width]; of the sums
  Index from, to;       // words of a key that are multiplied: the first of them begin the sums, the others go on
  Index first;          // of these keys
  Number* s;            // [keys.n, kPitch]
  Vec* grow;            // [Vectors]; highest score above the old maximum

  template <int Rows>
  [[gnu::noinline]] void tile(Index at) const {
    const Index key = first + at;
    Number* const sums = s + key * kPitch<Vectors>;
    Vec acc[Rows][Vectors];
    const Number* const begin = from == 0 ? start : sums;
    const Index next = from == 0 ? 0 : kPitch<Vectors>;
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = First; z < Vectors; ++z) acc[i][z] = load(begin + i * next + z * kLanes);
    if (from == 0) fetch(keys.with_scores, key, key + Rows);
    for (Index word = from, end; word < to; word = end) {
      const bool rope = word >= keys.key_words;
      const Index pitch = rope ? keys.rope_words : keys.key_words;
      end = rope ? to : least(to, keys.key_words);
      const Number* const k = rope ? keys.rope + key * pitch + word - keys.key_words : keys.k + key * pitch + word;
      multiply<Products, First>(acc, k, pitch, 1, chunk.q + word * kChunk, kChunk, end - word);
    }
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = First; z < Vectors; ++z) store(sums + i * kPitch<Vectors> + z * kLanes, acc[i][z]);
    if constexpr (Grow)
#pragma GCC unroll 8
      for (int z = First; z < Vectors; ++z) {
        Vec high = grow[z];
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) high = max(high, acc[i][z]);
        grow[z] = high;
      }
  }
};

constexpr Index kPassBytes = 32 << 10;  // of a chunk's queries that stay in L1 while all keys pass

// Scores of the keys [first, last), of as many words at a time as queries stay in L1.
template <class Products, int Vectors, int First, bool Grow>
void score_tiles(const Chunk& chunk, const Keys& keys, const Number* start, Index first, Index last, Number* s, Vec* grow) {
  const Index words = keys.key_words + keys.rope_words;
  const Index passes = (words * Vectors * kLanes * Index{sizeof(Number)} + kPassBytes - 1) / kPassBytes;
  for (Index pass = 0; pass < passes; ++pass) {
    const Index from = words * pass / passes, to = words * (pass + 1) / passes;
    const auto tiles = [&](const auto& of) { for_tiles<kTileRows<Vectors - First>>(last - first, of); };
    if (to == words)
      tiles(ScoreTiles<Products, Vectors, First, Grow>{keys, chunk, start, from, to, first, s, grow});
    else
      tiles(ScoreTiles<Products, Vectors, First, false>{keys, chunk, start, from, to, first, s, grow});
  }
}

// 2^x as exp2_bounded, but 0 of -infinity: sums of the least power times values would be denormal, and cost Intel's cores a
// hundred cycles each.
ROOFLINE_INLINE Vec weight_or_zero(Vec x) {
#if defined(ROOFLINE_DOUBLES)
  return exp2(x);
#else
  return exp2_or_zero<Number>(x);
#endif
}

// s = 2^s, or 2^(s - up) where the maximum has moved, of the keys [from, to); adds to the sums. Masked: 0 where s is -infinity.
template <int Vectors, int First, bool Moved, bool Masked>
void weigh_scores(const Chunk& chunk, Index from, Index to, Number* s, const Vec (&up)[Vectors]) {
  Vec sums[Vectors];
#pragma GCC unroll 8
  for (int z = First; z < Vectors; ++z) sums[z] = load(chunk.sum + z * kLanes);
  for (Index key = from; key < to; ++key)
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) {
      Number* at = s + key * kPitch<Vectors> + z * kLanes;
      const Vec score = Moved ? sub(load(at), up[z]) : load(at), weight = Masked ? weight_or_zero(score) : exp2_bounded(score);
      store(at, weight);
      sums[z] = add(sums[z], weight);
    }
#pragma GCC unroll 8
  for (int z = First; z < Vectors; ++z) store(chunk.sum + z * kLanes, sums[z]);
}

// Scores of the keys [first, last) that the tiles left as they were: capped, and -infinity where a query does not see the key.
template <bool Raw, int First, int Vectors>
void finish(const Chunk& chunk, const Keys& keys, Index first, Index last, Number* s, Vec (&grow)[Vectors]) {
  const bool capped = keys.softcap > 0;
  const Vec cap = set1(keys.softcap / keys.scale), share = set1(capped ? keys.scale / keys.softcap : 0);
  for (int z = First; z < Vectors; ++z) {
    const auto for_keys = [&](Index from, Index to, auto f) __attribute__((always_inline)) {
      for (Index key = most(first, from); key < least(to, last); ++key) {
        Number* const at = s + key * kPitch<Vectors> + z * kLanes;
        store(at, f(load(at), set1(static_cast<Number>(key))));
      }
    };
    if (capped) {
      const Vec less = Raw ? zero() : load(chunk.neg_max + z * kLanes);
      for_keys(first, last, [&](Vec score, Vec) { return fma(cap, tanh(mul(score, share)), less); });
    }
    const Vec from = load(chunk.from + z * kLanes), to = load(chunk.to + z * kLanes);
    const Vec none = set1(-kInfinity);
    for_keys(first, chunk.lates[z] - keys.begin, [&](Vec score, Vec key) { return select_less(key, from, none, score); });
    for_keys(chunk.fulls[z] - keys.begin, last, [&](Vec score, Vec key) { return select_less(key, to, score, none); });
    Vec high = grow[z];
    for (Index key = first; key < last; ++key) high = max(high, load(s + key * kPitch<Vectors> + z * kLanes));
    grow[z] = high;
  }
}

template <int I>
struct Constant {
  constexpr operator int() const { return I; }
};

// f(First, from, to) for the parts of the keys [first, last) that only the vectors from First on meet.
template <int Vectors, int First = 0, class F>
ROOFLINE_INLINE void for_parts(const Keys& keys, Index first, Index last, const F& f) {
  const Index to = most(first, least(keys.ends[First], last));
  if (first < to) f(Constant<First>{}, first, to);
  if constexpr (First + 1 < Vectors) for_parts<Vectors, First + 1>(keys, to, last, f);
}

// The keys [from, to) of these.
template <class Products>
Keys part_of(Keys keys, Index from, Index to) {
  keys.k += from * keys.key_words;
  keys.v += from / Products::kNumbers * keys.value_pitch;
  keys.begin += from;
  if (to < keys.n) keys.with_values[0] = keys.with_values[1] = {};
  keys.n = to - from;
  for (Index& end : keys.ends) end = most(0, least(end - from, keys.n));
  keys.anew = keys.anew && from == 0;
  for (Ahead& ahead : keys.with_scores) ahead.from += from * ahead.each, ahead.n -= from * ahead.each;
  return keys;
}

// Moves the maximum of a vector of queries whose scores pass it by `grown`; by how much it does. Sums and results follow it. A
// query that saw no key yet, and has no sink, has a sum of at most some 2^-125 for each key it does not see: it starts anew.
template <class Products, int Vectors>
Vec raise(const Chunk& chunk, const Keys& keys, int z, Vec grown) {
  const Vec none = set1(0x1p-60), sum = load(chunk.sum + z * kLanes);
  const Vec anew = select_less(set1(-0x1p120), grown, grown, zero());  // it may see none of these keys either
  const Vec up = select_less(sum, none, anew, max(grown, zero()));
  store(chunk.neg_max + z * kLanes, sub(load(chunk.neg_max + z * kLanes), up));
  const Vec down = select_less(sum, none, zero(), exp2(sub(zero(), up)));
  store(chunk.sum + z * kLanes, mul(sum, down));
  if (!keys.anew) Products::template shrink<Vectors>(chunk, keys.value_dim, z, down);
  return up;
}

// Weights of a tile of keys and of the vectors from First on, whose scores never leave registers. `move`: the tile gives the
// maximum; else false where a score passes that by 2^8. Upper: the lower half of the first vector sees none of these keys.
template <class Products, int Vectors, int First, bool Upper, int Rows>
[[gnu::noinline]] bool weighed_tile(const Chunk& chunk, const Keys& keys, Index key, bool move, Number* p) {
  Vec acc[Rows][Vectors], grown[Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) acc[i][z] = Products::kRaw ? zero() : load(chunk.neg_max + z * kLanes);
  if constexpr (Upper && !Products::kRaw)
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) acc[i][First] = load_upper(chunk.neg_max + First * kLanes);
  fetch(keys.with_scores, key, key + Rows);
  const Number* const k = keys.k + key * keys.key_words;
  multiply<Products, First, Upper>(acc, k, keys.key_words, 1, chunk.q, Vectors * kLanes, keys.key_words);
  if constexpr (Upper)
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) acc[i][First] = with_upper(set1(-kInfinity), acc[i][First]);
  Vec most_grown = set1(-kInfinity);
#pragma GCC unroll 8
  for (int z = First; z < Vectors; ++z) {
    if (keys.begin + key + Rows > chunk.fulls[z]) {
      const Vec to = load(chunk.to + z * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) acc[i][z] = select_less(set1(static_cast<Number>(key + i)), to, acc[i][z], set1(-kInfinity));
    }
    grown[z] = acc[0][z];
#pragma GCC unroll 8
    for (int i = 1; i < Rows; ++i) grown[z] = max(grown[z], acc[i][z]);
    if constexpr (Products::kRaw) grown[z] = fma(grown[z], set1(keys.scale), load(chunk.neg_max + z * kLanes));
    most_grown = max(most_grown, grown[z]);
  }
  if (move) {
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) {
      const Vec up = raise<Products, Vectors>(chunk, keys, z, grown[z]);
#pragma GCC unroll 8
      for (int i = 0; i < (Products::kRaw ? 0 : Rows); ++i) acc[i][z] = sub(acc[i][z], up);
    }
  } else if (any_greater(most_grown, set1(8))) {
    return false;
  }
#pragma GCC unroll 8
  for (int z = First; z < Vectors; ++z) Products::template weigh_tile<Vectors>(chunk, keys, z, acc, p);
  return true;
}

// Chunk's queries against some keys: scores, online softmax, values.
template <class Products, int Vectors>
void meet_in_turn(const Chunk& chunk, const Keys& keys, Number* s) {
  constexpr bool kRaw = Products::kRaw;
  const Index n = keys.n;
  const bool capped = keys.softcap > 0, first = keys.begin <= most(chunk.late, chunk.start);  // that some query sees
  // Keys before all queries' windows, and before the diagonal: as many as make whole tiles.
  constexpr Index kStep = kNarrowRows;
  const Index late = capped ? n : least(round_up(most(0, chunk.late - keys.begin), kStep), n);
  const Index seen = chunk.full - keys.begin;
  const Index full = most(late, seen >= n ? n : seen / kStep * kStep);

  Vec grow[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) grow[z] = set1(-kInfinity);
  const Number* const start = capped || kRaw ? kZeros : chunk.neg_max;
  Products::template begin<Vectors>(chunk, keys, s);
  const auto finished = [&](auto first_vector, Index from, Index to) {
    Products::template scores<Vectors, first_vector, false>(chunk, keys, start, from, to, s, nullptr);
    finish<kRaw, first_vector>(chunk, keys, from, to, s, grow);
  };
  const auto unmasked = [&] { Products::template scores<Vectors, 0, true>(chunk, keys, start, late, full, s, grow); };
  // Weights apart from scores can be made again. So after the first keys these are weighed by the maximum so far, and theirs is looked
  // for only where a score passes it.
  bool apart = false;
  if constexpr (Products::kApart) apart = Products::bounded(chunk, keys);
  Number* const weights = apart ? s + round_up(n, Products::kKeyStep) * kPitch<Vectors> : s;
  const auto weigh_apart = [&] {
    if constexpr (Products::kApart) return Products::template weigh_within<Vectors>(chunk, keys, s, weights);
    return false;
  };
  const bool try_first = apart && !first;
  for_parts<Vectors>(keys, 0, late, finished);
  if (!try_first) unmasked();
  for_parts<Vectors>(keys, full, n, finished);
  if (try_first && weigh_apart()) return Products::template values<Vectors>(chunk, keys, weights);
  if (try_first) unmasked();
  if constexpr (kRaw)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z)
      grow[z] = fma(grow[z], set1(keys.scale), add(load(chunk.neg_max + z * kLanes), set1(Products::kBelow)));

  // Within 2^8 of the maximum nothing overflows, so it is moved only beyond that: after the first keys, almost never.
  bool move = first;
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) move = move || any_greater(grow[z], set1(8));
  if (move)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) grow[z] = raise<Products, Vectors>(chunk, keys, z, grow[z]);
  const auto weighed = [&](auto masked) {
    return [&](auto first_vector, Index from, Index to) {
      Products::template weigh<Vectors, first_vector, masked>(chunk, keys, from, to, s, grow, move);
    };
  };
  if (apart) {
    weigh_apart();
  } else if constexpr (kRaw) {  // products of words take denormal numbers as 0, and their weights are made two or more keys at a time
    for_parts<Vectors>(keys, 0, n, weighed(Constant<false>{}));
  } else {
    for_parts<Vectors>(keys, 0, late, weighed(Constant<true>{}));
    for_parts<Vectors>(keys, late, full, weighed(Constant<false>{}));
    for_parts<Vectors>(keys, full, n, weighed(Constant<true>{}));
  }
  Products::template values<Vectors>(chunk, keys, weights);
}

// The same. Where each query sees the first of the keys, or knows a maximum, scores need no place in memory, until one passes the
// maximum, which the first tile gives.
template <class Products, int Vectors>
void meet(const Chunk& chunk, const Keys& keys, Number* s) {
  if constexpr (!Products::kInRegisters) {
    meet_in_turn<Products, Vectors>(chunk, keys, s);
  } else {
    const bool fits = keys.key_words * Vectors * kLanes * Index{sizeof(Number)} <= kPassBytes && keys.rope_words == 0;
    const bool first = keys.begin <= most(chunk.late, chunk.start), known = keys.anew ? chunk.full > keys.begin : !first;
    if (!fits || keys.softcap > 0 || chunk.late > keys.begin || !known) return meet_in_turn<Products, Vectors>(chunk, keys, s);
    Index n = 0;
    bool within = true;
    for_parts<Vectors>(keys, 0, keys.n, [&](auto first_vector, Index, Index to) {
      constexpr int kTile = kTileRows<Vectors - first_vector>;
      const auto weighed = [&] {
        Number* const weights = s + n / Products::kNumbers * kPitch<Vectors>;
        return keys.begin + n < chunk.halves[first_vector]
                   ? weighed_tile<Products, Vectors, first_vector, false, kTile>(chunk, keys, n, first && n == 0, weights)
                   : weighed_tile<Products, Vectors, first_vector, true, kTile>(chunk, keys, n, first && n == 0, weights);
      };
      while (within && n < to && n + kTile <= keys.n) {
        within = weighed();
        if (within) n += kTile;
      }
    });
    if (n > 0) Products::template values<Vectors>(chunk, part_of<Products>(keys, 0, n), s);
    if (n == keys.n) return;
    for (Index at = 0; at < (keys.masked ? Vectors * kLanes : 0); at += kLanes)
      store(chunk.to + at, sub(load(chunk.to + at), set1(static_cast<Number>(n))));
    meet_in_turn<Products, Vectors>(chunk, part_of<Products>(keys, n, keys.n), s);
  }
}

}  // namespace
}  // namespace roofline::cpu
