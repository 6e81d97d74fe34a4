// Attention in one pass that keeps the scores in the cache, and the softmax running along: the walk of a block of queries over its
// keys. `Products` says how scores and values are multiplied and what K, V, Q and P are then: fp32 here, pairs of bf16 in
// attention_words.h, or fp64 where vectors are of that. Everything is internal to the file that includes it.
//
// Queries lie in the lanes, so that the maximum, the sum and the rescaling of a query are vertical. A block of queries is cut into
// chunks as wide as a register tile; chunk by chunk, kv_block keys at a time (they stay in L2 while all chunks meet them):
//   S[key][query] = K Qᵀ - m   Q is packed transposed; in fp32 scaled, and -m is where the accumulators start;
//   P = 2^S                    scores are in units of log2, m moves only when a score passes it by 2^8;
//   Oᵀ[d][query] += Vᵀ P
// Q, O, S and P stay in L1 or L2. K, V and q are read, and out is written once, transposed back and divided by the sum. K and V
// are read as they lie or gathered in panels, once for all chunks of the block. A chunk meets the keys from the first that any of
// its queries sees, a vector of it to the last that its own see; masks take part only where some see a key and others do not.
#pragma once

#include "cpu/attention_tile.h"
#include "cpu/attention_tiled_kernels.h"
#if !defined(ROOFLINE_DOUBLES)
#include "cpu/simd/bytes.h"
#endif

namespace roofline::cpu {
namespace {

struct Chunk {
  Number* q;        // [head_dim + rope_dim, width]
  Number* out;      // [value_dim, width]
  Number* neg_max;  // [width]; in units of log2, as are all scores
  Number* sum;      // [width]
  Number* from;     // [width]; the first key that each query sees and the first that it no longer sees, both from where the
  Number* to;       //          current keys begin
  Index first;     // row of the block
  Index rows;
  int vectors;
  Index start;            // the first key that any of its queries sees
  Index late, full;   // keys that all of them see; none where late is not less
  Index stops[kVectors];  // past the last key that the queries up to a vector see
  Index stop() const { return stops[vectors - 1]; }
};

// Memory that is prefetched during the products: so many numbers, `each` with a row of a tile.
struct Ahead {
  const Number* from;
  Index n, each = 0;
};

// Keys that a chunk meets at a time. Rows of K and V are words: numbers of fp32, or what `Products` reads.
struct Keys {
  const Number* k;     // [n, key_words]
  const Number* rope;  // [n, rope_words]: the words of a key that follow
  const Number* v;     // [n, value_dim]
  Index key_words, rope_words, value_dim;
  Index value_pitch;
  Index begin, n;
  Index ends[kVectors];  // the vectors from z on meet keys up to ends[z]
  Number scale;  // of raw scores, times log2(e)
  Number softcap;
  Ahead with_scores[3], with_values[2];
};

alignas(64) constexpr Number kZeros[kWidth] = {};

ROOFLINE_INLINE Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

// The order of the products (rows of keys side by side, columns of V in turn) is none that the hardware sees ahead. So the first
// chunk prefetches for all. With scores: values of this block that are read in place, or words of the next one that are gathered.
// With values: the next block's keys. While the last chunk meets its last keys, it prefetches where the results go, and the queries
// that the thread meets next. This is the share of the tile's rows [first, last).
constexpr Index kLine = 64 / sizeof(Number);
template <int N>
ROOFLINE_INLINE void fetch(const Ahead (&all)[N], Index first, Index last) {
  for (const Ahead& ahead : all)
    for (Index i = first * ahead.each; i < least(last * ahead.each, ahead.n); i += kLine) __builtin_prefetch(ahead.from + i, 0, 2);
}

// Of the vectors from First on.
template <class Products, int Vectors, int First, bool Grow>
struct ScoreTiles {
  static constexpr int kChunk = Vectors * kLanes;
  const Keys& keys;
  const Chunk& chunk;
  const Number* start;  // [width]; of the sums
  Index from, to;       // words of a key that are multiplied: the first of them begin the sums, the others go on
  Index first;          // of these keys
  Number* s;            // [keys.n, width]
  Vec* grow;            // [Vectors]; highest score above the old maximum

  template <int Rows>
  [[gnu::noinline]] void tile(Index at) const {
    const Index key = first + at;
    Number* const sums = s + key * kChunk;
    Vec acc[Rows][Vectors];
    const Number* const begin = from == 0 ? start : sums;
    const Index next = from == 0 ? 0 : kChunk;
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
      for (int z = First; z < Vectors; ++z) store(sums + i * kChunk + z * kLanes, acc[i][z]);
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

template <class Products, int Vectors>
struct ValueTiles {
  static constexpr int kChunk = Vectors * kLanes;
  const Keys& keys;
  const Chunk& chunk;
  const Number* p;  // [rows of V: keys, or pairs of keys][width]

  template <int First, int Rows>
  [[gnu::always_inline]] void multiply_from(Vec (&acc)[Rows][Vectors], Index d, Index from) const {
    const Index to = (keys.ends[First] + Products::kNumbers - 1) / Products::kNumbers;
    const Number* const v = keys.v + d + from * keys.value_pitch;
    if (from < to) multiply<Products, First>(acc, v, 1, keys.value_pitch, p + from * kChunk, kChunk, to - from);
    if constexpr (First + 1 < Vectors) multiply_from<First + 1>(acc, d, to);
  }

  template <int Rows>
  [[gnu::noinline]] void tile(Index d) const {
    fetch(keys.with_values, d, d + Rows);
    Number* out = chunk.out + d * kChunk;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = load(out + i * kChunk + z * kLanes);
    multiply_from<0>(acc, d, 0);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(out + i * kChunk + z * kLanes, acc[i][z]);
  }
};

// s = 2^s, or 2^(s - up) where the maximum has moved, of the keys [from, to); adds to the sums.
template <int Vectors, int First, bool Moved>
void weigh_scores(const Chunk& chunk, Index from, Index to, Number* s, const Vec (&up)[Vectors]) {
  Vec sums[Vectors];
#pragma GCC unroll 8
  for (int z = First; z < Vectors; ++z) sums[z] = load(chunk.sum + z * kLanes);
  for (Index key = from; key < to; ++key)
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) {
      Number* at = s + (key * Vectors + z) * kLanes;
      const Vec weight = exp2_bounded(Moved ? sub(load(at), up[z]) : load(at));
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
  for (Index key = first; key < last; ++key) {
    const Vec position = set1(static_cast<Number>(key));
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) {
      Number* at = s + (key * Vectors + z) * kLanes;
      Vec score = load(at);
      if (capped) score = fma(cap, tanh(mul(score, share)), Raw ? zero() : load(chunk.neg_max + z * kLanes));
      score = select_less(position, load(chunk.to + z * kLanes), score, set1(-kInfinity));
      score = select_less(position, load(chunk.from + z * kLanes), set1(-kInfinity), score);
      store(at, score);
      grow[z] = max(grow[z], score);
    }
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

// Chunk's queries against some keys: scores, online softmax, values.
template <class Products, int Vectors>
void meet(const Chunk& chunk, const Keys& keys, Number* s) {
  constexpr bool kRaw = Products::kRaw;
  const Index n = keys.n;
  const bool capped = keys.softcap > 0;
  const Index late = capped ? n : most(0, least(chunk.late - keys.begin, n));  // keys before all queries' windows
  const Index full = most(late, least(chunk.full - keys.begin, n));            // keys before the diagonal

  Vec grow[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) grow[z] = set1(-kInfinity);
  const Number* const start = capped || kRaw ? kZeros : chunk.neg_max;
  Products::template begin<Vectors>(chunk, keys, s);
  const auto finished = [&](auto first, Index from, Index to) {
    Products::template scores<Vectors, first, false>(chunk, keys, start, from, to, s, nullptr);
    finish<kRaw, first>(chunk, keys, from, to, s, grow);
  };
  for_parts<Vectors>(keys, 0, late, finished);
  Products::template scores<Vectors, 0, true>(chunk, keys, start, late, full, s, grow);
  for_parts<Vectors>(keys, full, n, finished);
  if constexpr (kRaw)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) grow[z] = fma(grow[z], set1(keys.scale), load(chunk.neg_max + z * kLanes));

  // Within 2^8 of the maximum nothing overflows, so it is moved only beyond that: after the first keys, almost never. A query that
  // saw no key yet, and has no sink, has a sum of at most some 2^-125 for each key it does not see: it starts anew.
  const bool first = keys.begin <= most(chunk.late, chunk.start);
  bool move = first;
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) move = move || any_greater(grow[z], set1(8));
  if (move) {
    const Vec none = set1(0x1p-60);
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec sum = load(chunk.sum + z * kLanes);
      const Vec anew = select_less(set1(-0x1p120), grow[z], grow[z], zero());  // it may see none of these keys either
      const Vec up = grow[z] = select_less(sum, none, anew, max(grow[z], zero()));
      store(chunk.neg_max + z * kLanes, sub(load(chunk.neg_max + z * kLanes), up));
      const Vec down = select_less(sum, none, zero(), exp2(sub(zero(), up)));
      store(chunk.sum + z * kLanes, mul(sum, down));
      if (keys.begin > chunk.start) Products::template shrink<Vectors>(chunk, keys.value_dim, z, down);
    }
  }
  for_parts<Vectors>(keys, 0, n, [&](auto first, Index from, Index to) {
    Products::template weigh<Vectors, first>(chunk, keys, from, to, s, grow, move);
  });
  Products::template values<Vectors>(chunk, keys, s);
}

// to[n][pitch] = the columns of the keys [begin, begin + n).
template <class T>
void gather_as(const void* all, Index columns, const AttentionBlock& block, Index begin, Index n, Number* to, Index pitch) {
  for (Index done = 0, run; done < n; done += run) {
    Index row = begin + done;
    run = n - done;
    if (block.pages) {
      const Index inside = row % block.page_size;
      run = least(run, block.page_size - inside);
      row = block.pages[row / block.page_size] * block.page_rows + inside;
    }
    const T* from = static_cast<const T*>(all) + row * columns;
    if (columns == pitch)
      widen(from, run * columns, to + done * pitch);
    else
      for (Index i = 0; i < run; ++i) widen(from + i * columns, columns, to + (done + i) * pitch);
  }
}

void gather(const void* all, Index columns, const AttentionBlock& block, Index begin, Index n, Number* to, Index pitch) {
#if !defined(ROOFLINE_DOUBLES)
  switch (block.element) {
    case Cached::bf16: return gather_as<Bf16>(all, columns, block, begin, n, to, pitch);
    case Cached::fp16: return gather_as<Fp16>(all, columns, block, begin, n, to, pitch);
    case Cached::int8: return gather_as<Int8>(all, columns, block, begin, n, to, pitch);
    case Cached::fp8_e4m3: return gather_as<Fp8E4m3>(all, columns, block, begin, n, to, pitch);
    default: break;
  }
#endif
  gather_as<Number>(all, columns, block, begin, n, to, pitch);
}

// chunk.q = qᵀ; out starts from zero, and neg_max and sum from a sink, or zero.
template <class T, class Products>
void pack(const Chunk& chunk, const AttentionBlock& block) {
  const Index width = chunk.vectors * kLanes, key_dim = block.head_dim + block.rope_dim;
  const T* q = static_cast<const T*>(block.q) + chunk.first * key_dim;
  Products::queries(q, chunk.rows, key_dim, static_cast<Number>(block.scale), chunk.q, width);
  for (Index at = 0; at < round_up(block.value_dim, Products::kColumns) * width; at += kLanes) store(chunk.out + at, zero());
  for (Index at = 0; at < width; at += kLanes) {
    store(chunk.neg_max + at, zero());
    store(chunk.sum + at, zero());
  }
  for (Index lane = 0; lane < (block.sinks ? chunk.rows : 0); ++lane) {
    const float sink = block.sinks[(block.first_row + chunk.first + lane) / block.seq_q];
    if (sink == -kInfinity) continue;  // as if there were none
    chunk.neg_max[lane] = static_cast<Number>(-sink * 1.4426950408889634);
    chunk.sum[lane] = 1;
  }
}

// out = the results / sum, or of a range of keys the results, with tops and sums.
template <class T, class Products>
void unpack(const Chunk& chunk, const AttentionBlock& block) {
  for (Index lane = 0; lane < chunk.vectors * kLanes; lane += kLanes) {
    const Vec share = block.top ? set1(1) : div(set1(static_cast<Number>(block.unit)), load(chunk.sum + lane));
    Products::results(chunk, block.value_dim, lane, share, static_cast<T*>(block.out) + (chunk.first + lane) * block.value_dim);
  }
  for (Index lane = 0; lane < (block.logsumexp ? chunk.rows : 0); ++lane)
    block.logsumexp[chunk.first + lane] =
        static_cast<float>((__builtin_log2(chunk.sum[lane]) - chunk.neg_max[lane]) * 0.6931471805599453);
  for (Index lane = 0; lane < (block.top ? chunk.rows : 0); ++lane) {
    const bool none = chunk.sum[lane] < 0x1p-60f;  // it saw no key
    block.top[chunk.first + lane] = static_cast<float>(none ? -kInfinity : -chunk.neg_max[lane]);
    block.sum[chunk.first + lane] = static_cast<float>(none ? 0 : chunk.sum[lane]);
  }
}

// The keys [from, to) that a row of the block sees.
struct Seen {
  Index from, to;
};
// f(lane, Seen) for all lanes of a chunk; those past its last row see what that row does.
template <class F>
ROOFLINE_INLINE void for_lanes(const AttentionBlock& block, const Chunk& chunk, const F& f) {
  Index query = block.causal ? (block.first_row + chunk.first) % block.seq_q : block.seq_q - 1;
  for (Index lane = 0; lane < chunk.vectors * kLanes; ++lane) {
    const Index to = query + block.seq_kv - block.seq_q + 1;
    f(lane, Seen{most(0, to - block.window), to});
    if (block.causal && lane + 1 < chunk.rows && ++query == block.seq_q) query = 0;
  }
}

// Results with the queries in lanes: chunk.out [value_dim, width].
struct InLanes {
  static constexpr int kMostVectors = kVectors;

  template <int Vectors>
  static void shrink(const Chunk& chunk, Index columns, int z, Vec down) {
    for (Index d = 0; d < columns; ++d) {
      Number* const at = chunk.out + (d * Vectors + z) * kLanes;
      store(at, mul(load(at), down));
    }
  }
  template <class T>
  static void results(const Chunk& chunk, Index columns, Index lane, Vec share, T* out) {
    const Index width = chunk.vectors * kLanes, rows = chunk.rows - lane;
    for (Index d = 0; d < columns; d += kLanes) {
      const int some = static_cast<int>(least(kLanes, columns - d));
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = i < some ? mul(load(chunk.out + (d + i) * width + lane), share) : zero();
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (i < rows) put(out + i * columns + d, some, square[i]);
    }
  }
};

// Products of numbers as vectors hold them: K and V are broadcast as they lie, or from panels.
struct PlainProducts : Fma, InLanes {
  static constexpr bool kRaw = false;  // scores are scaled, and less the maximum
  static constexpr bool kTrims = true;  // vectors whose queries see no further key meet none
  static constexpr Index kNumbers = 1, kColumns = 1, kKeyStep = 1;

  template <class T>
  static void queries(const T* q, Index rows, Index key_dim, Number scale, Number* to, Index width) {
    transpose_scaled(q, rows, key_dim, set1(scale), to, width);
  }
  static void gather_keys(const AttentionBlock& block, Index begin, Index n, Number* to, Index pitch) {
    gather(block.k, block.head_dim, block, begin, n, to, pitch);
    if (block.rope_dim > 0) gather(block.rope, block.rope_dim, block, begin, n, to + block.head_dim, pitch);
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, Number* to) {
    gather(block.v, block.value_dim, block, begin, n, to, block.value_dim);
  }
  static Index value_pitch(const AttentionBlock& block, Index) { return block.value_dim; }
  static Index value_offset(const AttentionBlock& block, Index lead) { return lead * block.value_dim; }

  template <int Vectors>
  static void begin(const Chunk&, const Keys&, Number*) {}
  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk& chunk, const Keys& keys, const Number* start, Index from, Index to, Number* s, Vec* grow) {
    score_tiles<PlainProducts, Vectors, First, Grow>(chunk, keys, start, from, to, s, grow);
  }
  template <int Vectors, int First>
  static void weigh(const Chunk& chunk, const Keys&, Index from, Index to, Number* s, const Vec (&up)[Vectors], bool moved) {
    moved ? weigh_scores<Vectors, First, true>(chunk, from, to, s, up)
          : weigh_scores<Vectors, First, false>(chunk, from, to, s, up);
  }
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, const Number* p) {
    for_tiles<kTileRows<Vectors>>(keys.value_dim, ValueTiles<PlainProducts, Vectors>{keys, chunk, p});
  }
};

// One block of queries against all keys they see.
template <class T, class Products>
void tiled(const AttentionBlock& block) {
  using Table = AttentionTiledKernels;
  const Index query_words = Table::words(block.head_dim + block.rope_dim, Products::kNumbers, Products::kColumns);
  const Index key_words = block.key_panel ? query_words : block.head_dim / Products::kNumbers, rope_words = query_words - key_words;
  const Index value_columns = round_up(block.value_dim, Products::kColumns), value_words = block.value_dim / Products::kNumbers;
  Chunk chunks[Table::kMaxQueryBlock / kWidth + 2] = {};
  int count = 0;
  Number* free = static_cast<Number*>(block.workspace);
  const auto take = [&free](Index numbers) {
    Number* const taken = free;
    free += numbers;
    return taken;
  };
  Index start = block.seq_kv, stop = 0;
  for (Index row = 0; row < block.rows; ++count) {
    Chunk& chunk = chunks[count];
    chunk.first = row;
    chunk.vectors = block.rows - row <= kLanes ? 1 : block.rows - row <= 2 * kLanes ? 2 : kVectors;
    const Index width = chunk.vectors * kLanes;
    chunk.rows = least(width, block.rows - row);
    chunk.q = take(query_words * width);
    chunk.out = take(value_columns * width);
    chunk.neg_max = take(width);
    chunk.sum = take(width);
    chunk.from = take(width);
    chunk.to = take(width);
    pack<T, Products>(chunk, block);
    chunk.start = chunk.full = block.seq_kv;
    chunk.late = 0;
    Index seen_to = 0;
    for_lanes(block, chunk, [&](Index lane, Seen seen) {
      chunk.start = least(chunk.start, seen.from);
      chunk.late = most(chunk.late, seen.from);
      chunk.full = least(chunk.full, seen.to);
      seen_to = most(seen_to, least(seen.to, block.last));
      chunk.stops[lane / kLanes] = seen_to;
    });
    start = least(start, chunk.start = most(chunk.start, block.first));
    stop = most(stop, chunk.stop());
    row += chunk.rows;
  }

  const auto rows_of = [&block](const void* from, Index columns) {
    return Ahead{static_cast<const Number*>(from), from ? block.rows * columns * Index{sizeof(T)} / Index{sizeof(Number)} : 0};
  };
  const Ahead results = rows_of(block.top ? nullptr : block.out, block.value_dim);
  const Ahead queries = rows_of(block.next_q, block.head_dim + block.rope_dim);
  Number* const s = take(block.kv_block * chunks[0].vectors * kLanes);  // the first chunk is the widest
  Number* const key_panel = take(block.key_panel ? Table::panel_words(block.kv_block, key_words) : 0);
  Number* const value_panel = free;
  for (Index begin = start; begin < stop; begin += block.kv_block) {
    const Index all = least(block.kv_block, stop - begin);
    const Number* k = static_cast<const Number*>(block.k) + begin * key_words;  // where they lie as words
    const Number* v = static_cast<const Number*>(block.v) + begin * value_words;
    const Index value_pitch = block.value_panel ? Products::value_pitch(block, all) : value_words;
    if (block.key_panel) {
      Products::gather_keys(block, begin, all, key_panel, key_words);
      k = key_panel;
    }
    if (block.value_panel) {
      Products::gather_values(block, begin, all, value_panel);
      v = value_panel;
    }
    const auto next_of = [&](const void* from, Index columns) {  // past the end it may be of the range that follows
      const Index words = columns / Products::kNumbers;
      return Ahead{static_cast<const Number*>(from) + (begin + all) * words, all * words};
    };
    const bool words = Products::kNumbers > 1 && !block.pages;
    const bool ends = begin + all == stop;
    Ahead with_scores = Ahead{v, block.value_panel ? 0 : all * block.value_dim};
    if (words) with_scores = next_of(block.v, block.value_dim);
    Ahead with_values = block.key_panel ? Ahead{} : next_of(block.k, block.head_dim);
    if (ends && block.next_k && !block.key_panel) with_values.from = static_cast<const Number*>(block.next_k);
    if (block.k == block.v && words && !block.key_panel) {  // half with each
      with_scores.n /= 2;
      with_values = {with_values.from + with_scores.n, with_values.n - with_scores.n};
    }
    for (int c = 0; c < count; ++c) {
      const Chunk& chunk = chunks[c];
      const Index lead = most(0, chunk.start - begin) / Products::kKeyStep * Products::kKeyStep;
      const Index n = least(all, chunk.stop() - begin) - lead;
      if (n <= 0) continue;
      const Number* const rope = rope_words ? static_cast<const Number*>(block.rope) + (begin + lead) * rope_words : nullptr;
      Keys keys = {k + lead * key_words, rope, v + (block.value_panel ? Products::value_offset(block, lead) : lead * value_words),
                   key_words, rope_words, block.value_dim, value_pitch, begin + lead, n, {},
                   static_cast<Number>(Products::kRaw ? block.scale : 1), static_cast<Number>(block.softcap), {}, {}};
      if (c == 0) keys.with_scores[0] = with_scores, keys.with_values[0] = with_values;
      if (c == 0 && rope_words) keys.with_scores[2] = next_of(block.rope, block.rope_dim);
      if (ends && c == count - 1) keys.with_scores[1] = results, keys.with_values[1] = queries;
      for (Ahead& ahead : keys.with_scores) ahead.each = round_up((ahead.n + n - 1) / n, kLine);
      for (Ahead& ahead : keys.with_values) ahead.each = round_up((ahead.n + block.value_dim - 1) / block.value_dim, kLine);
      for (int z = 0; z < chunk.vectors; ++z)
        keys.ends[z] = Products::kTrims ? most(0, least(n, round_up(chunk.stops[z] - keys.begin, Products::kKeyStep))) : n;
      if (chunk.full < keys.begin + n || chunk.late > keys.begin || block.softcap > 0)
        for_lanes(block, chunk, [&](Index lane, Seen seen) {
          chunk.from[lane] = static_cast<Number>(seen.from - keys.begin);
          chunk.to[lane] = static_cast<Number>(seen.to - keys.begin);
        });
      if (chunk.vectors == 1)
        meet<Products, 1>(chunk, keys, s);
      else if constexpr (Products::kMostVectors > 1)
        chunk.vectors == 2 ? meet<Products, 2>(chunk, keys, s) : meet<Products, kVectors>(chunk, keys, s);
    }
  }
  for (int c = 0; c < count; ++c) {
    if constexpr (sizeof(Number) == sizeof(float))
      if (block.top) {
        unpack<float, Products>(chunks[c], block);
        continue;
      }
    unpack<T, Products>(chunks[c], block);
  }
}

}  // namespace
}  // namespace roofline::cpu
