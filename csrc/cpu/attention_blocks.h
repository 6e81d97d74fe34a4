// Attention in one pass that keeps the scores in the cache: the walk of a block of queries over its keys. K, V, Q and P are fp32
// here, pairs of bf16 in attention_words.h, or fp64 where vectors are of that. Everything is internal to the file that includes it.
//
// A block of queries is cut into chunks as wide as a register tile; chunk by chunk, kv_block keys at a time (they stay in L2 while
// all chunks meet them). Q, O, S and P stay in L1 or L2. K, V and q are read, and out is written once, divided
// by the sum. K and V are read as they lie or gathered in panels, once for all chunks of the block. A chunk meets the keys from
// the first that any of its queries sees, a vector of it to the last that its own see; masks take part only where some see a key
// and others do not.
#pragma once

#include "cpu/attention_tiled_kernels.h"
#include "cpu/attention_values.h"
#if !defined(ROOFLINE_DOUBLES)
#include "cpu/simd/bytes.h"
#endif

namespace roofline::cpu {
namespace {

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
    case Cached::fp8_e5m2: return gather_as<Fp8E5m2>(all, columns, block, begin, n, to, pitch);
    default: break;
  }
#endif
  gather_as<Number>(all, columns, block, begin, n, to, pitch);
}

// chunk.q = qᵀ; out starts from zero where values do not begin it, and neg_max and sum from a sink, or zero.
template <class T, class Products>
void pack(const Chunk& chunk, const AttentionBlock& block) {
  const Index width = chunk.vectors * kLanes, key_dim = block.head_dim + block.rope_dim;
  const T* q = static_cast<const T*>(block.q) + chunk.first * key_dim;
  Products::queries(q, key_dim, static_cast<Number>(block.scale), chunk);
  const bool begun = Products::kBegins && chunk.start < chunk.stop();
  const Index results = begun ? 0 : round_up(block.value_dim, kLanes) * width;
  for (Index at = 0; at < results; at += kLanes) store(chunk.out + at, zero());
  for (Index at = 0; at < width; at += kLanes) {
    store(chunk.neg_max + at, zero());
    store(chunk.sum + at, zero());
  }
  for (Index lane = 0; lane < (block.sinks ? chunk.rows : 0); ++lane) {
    const float sink = block.sinks[(block.first_row + chunk.first + lane) / block.seq_q];
    if (sink == -kInfinity) continue;  // as if there were none
    chunk.neg_max[lane] = static_cast<Number>(-sink * 1.4426950408889634 - Products::kBelow);
    chunk.sum[lane] = Number{1} / (1 << Products::kBelow);
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

// The keys [from, to) that a query sees.
struct Seen {
  Index from, to;
};
ROOFLINE_INLINE Seen seen_by(const AttentionBlock& block, Index query) {
  const Index to = query + block.seq_kv - block.seq_q + 1;
  return {most(0, to - block.window), to};
}
ROOFLINE_INLINE Index query_of(const AttentionBlock& block, Index row) {
  return block.causal ? (block.first_row + row) % block.seq_q : block.seq_q - 1;
}

// Which keys the queries of a chunk see; lanes past its last row see what that row does.
void look(const AttentionBlock& block, Chunk& chunk) {
  chunk.start = chunk.full = block.seq_kv;
  chunk.late = 0;
  Index stop = 0;
  for (int z = 0; z < chunk.vectors; ++z) {
    const Index row = least(z * kLanes, chunk.rows - 1), last = least(row + kLanes, chunk.rows) - 1;
    Index low = query_of(block, chunk.first + row), high = low + (block.causal ? last - row : 0);
    Index half = least(low + kLanes / 2 - 1, high);
    // The last query of a head is among them, and the first of the next.
    if (high >= block.seq_q) low = 0, half = high = block.seq_q - 1;
    const Seen least_seen = seen_by(block, low), most_seen = seen_by(block, high);
    chunk.lates[z] = most_seen.from;
    chunk.fulls[z] = least_seen.to;
    chunk.halves[z] = seen_by(block, half).to;
    chunk.start = least(chunk.start, least_seen.from);
    chunk.late = most(chunk.late, most_seen.from);
    chunk.full = least(chunk.full, least_seen.to);
    chunk.stops[z] = stop = most(stop, least(most_seen.to, block.last));
  }
  chunk.start = most(chunk.start, block.first);
}

// f(lane, Seen) for all lanes of a chunk.
template <class F>
ROOFLINE_INLINE void for_lanes(const AttentionBlock& block, const Chunk& chunk, const F& f) {
  Index query = query_of(block, chunk.first);
  for (Index lane = 0; lane < chunk.vectors * kLanes; ++lane) {
    f(lane, seen_by(block, query));
    if (block.causal && lane + 1 < chunk.rows && ++query == block.seq_q) query = 0;
  }
}

// Products of numbers as vectors hold them: K and V are broadcast as they lie, or from panels.
struct PlainProducts : Fma, InRows {
  static constexpr bool kRaw = false;  // scores are scaled, and less the maximum
  static constexpr bool kTrims = true;  // vectors whose queries see no further key meet none
  static constexpr bool kBegins = true;  // values of the first keys begin the results, whatever is there
  static constexpr bool kInRegisters = sizeof(Vec) == 64 && sizeof(Number) == 4;  // scores of a tile become weights in registers
  static constexpr Index kNumbers = 1, kColumns = 1, kKeyStep = 1;
  static constexpr int kBelow = 0;  // log2 of how much less than 1 the weight of the largest score is
  static constexpr bool kFetchesWithScores = true;  // half of the keys that come next; else all of them with values
  static constexpr bool kApart = false;  // weights lie behind scores that are `bounded`; else in their place

  template <class T>
  static void queries(const T* q, Index key_dim, Number scale, const Chunk& chunk) {
    transpose_scaled(q, chunk.rows, key_dim, set1(scale), chunk.q, chunk.vectors * kLanes);
  }
  static void gather_keys(const AttentionBlock& block, Index begin, Index n, Number* to, Index pitch) {
    gather(block.k, block.head_dim, block, begin, n, to, pitch);
    if (block.rope_dim > 0) gather(block.rope, block.rope_dim, block, begin, n, to + block.head_dim, pitch);
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, Number* to) {
    gather(block.v, block.value_dim, block, begin, n, to, value_pitch(block, n));
  }
  static Index value_pitch(const AttentionBlock& block, Index) { return round_up(block.value_dim, kLanes); }
  static Index value_plane(const AttentionBlock& block, Index) { return columns_together(block.value_dim); }
  static Index value_offset(const AttentionBlock& block, Index lead) { return lead * value_pitch(block, lead); }

  template <int Vectors>
  static void begin(const Chunk&, const Keys&, Number*) {}
  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk& chunk, const Keys& keys, const Number* start, Index from, Index to, Number* s, Vec* grow) {
    score_tiles<PlainProducts, Vectors, First, Grow>(chunk, keys, start, from, to, s, grow);
  }
  template <int Vectors, int First, bool Masked>
  static void weigh(const Chunk& chunk, const Keys&, Index from, Index to, Number* s, const Vec (&up)[Vectors], bool moved) {
    moved ? weigh_scores<Vectors, First, true, Masked>(chunk, from, to, s, up)
          : weigh_scores<Vectors, First, false, Masked>(chunk, from, to, s, up);
  }
  // p = the weights of a tile's vector z of queries; adds to their sums.
  template <int Vectors, int Rows>
  ROOFLINE_INLINE void weigh_tile(const Chunk& chunk, const Keys&, int z, const Vec (&scores)[Rows][Vectors], Number* p) {
    Vec sum = load(chunk.sum + z * kLanes);
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
      const Vec weight = weight_or_zero(scores[row][z]);
      sum = add(sum, weight);
      store(p + row * kPitch<Vectors> + z * kLanes, weight);
    }
    store(chunk.sum + z * kLanes, sum);
  }
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, Number* p) {
    value_tiles<PlainProducts>(chunk, keys, p, kPitch<Vectors>);
  }
};

// One block of queries against all keys they see.
template <class T, class Products>
void tiled(const AttentionBlock& block) {
  using Table = AttentionTiledKernels;
  const Index query_words = Table::words(block.head_dim + block.rope_dim, Products::kNumbers, Products::kColumns);
  const Index key_words = block.key_panel ? query_words : block.head_dim / Products::kNumbers, rope_words = query_words - key_words;
  const Index value_columns = round_up(block.value_dim, kLanes), value_words = block.value_dim / Products::kNumbers;
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
    chunk.unit = take(width);
    chunk.from = take(width);
    chunk.to = take(width);
    look(block, chunk);
    pack<T, Products>(chunk, block);
    start = least(start, chunk.start);
    stop = most(stop, chunk.stop());
    row += chunk.rows;
  }

  const auto rows_of = [&block](const void* from, Index columns) {
    return Ahead{static_cast<const Number*>(from), from ? block.rows * columns * Index{sizeof(T)} / Index{sizeof(Number)} : 0};
  };
  const Ahead results = rows_of(block.top ? nullptr : block.out, block.value_dim);
  const Ahead queries = rows_of(block.next_q, block.head_dim + block.rope_dim);
  const Index scores = block.kv_block * (chunks[0].vectors * kLanes + kLine);  // the first chunk is the widest
  Number* const s = take(Products::kApart ? scores + scores / Products::kNumbers : scores);
  Number* const key_panel = take(block.key_panel ? Table::panel_words(block.kv_block, key_words) : 0);
  Number* const value_panel = free;
  const Index element_bytes = block.element == Cached::fp32 ? Index{sizeof(Number)} : Cached::bytes(block.element);
  const bool shared = Products::kNumbers == 1 && block.key_panel && block.k == block.v;  // keys begin with their values
  for (Index begin = start; begin < stop; begin += block.kv_block) {
    const Index all = least(block.kv_block, stop - begin);
    const Number* k = static_cast<const Number*>(block.k) + begin * key_words;  // where they lie as words
    const Number* v = static_cast<const Number*>(block.v) + begin * value_words;
    const Index value_pitch = shared ? key_words : block.value_panel ? Products::value_pitch(block, all) : value_words;
    const Index value_plane = block.value_panel && !shared ? Products::value_plane(block, all) : columns_together(block.value_dim);
    Number largest = 0;
    if (block.key_panel) {
      if constexpr (Products::kApart)
        largest = Products::gather_keys(block, begin, all, key_panel, key_words);
      else
        Products::gather_keys(block, begin, all, key_panel, key_words);
      k = key_panel;
    }
    if (shared) {
      v = key_panel;
    } else if (block.value_panel) {
      Products::gather_values(block, begin, all, value_panel);
      v = value_panel;
    }
    const auto next_of = [&](const void* from, Index columns) {  // past the end it may be of the range that follows
      const Index row_bytes = columns * element_bytes;
      return Ahead{reinterpret_cast<const Number*>(static_cast<const char*>(from) + (begin + all) * row_bytes),
                   all * row_bytes / Index{sizeof(Number)}};
    };
    const bool ends = begin + all == stop;
    Ahead with_scores = Ahead{v, block.value_panel ? 0 : all * value_words};
    if (block.value_panel && !block.pages) with_scores = next_of(block.v, block.value_dim);
    Ahead with_values = block.pages || (Products::kNumbers > 1 && block.key_panel) ? Ahead{} : next_of(block.k, block.head_dim);
    if (ends && block.next_k && with_values.n > 0) with_values.from = static_cast<const Number*>(block.next_k);
    if (block.k == block.v && with_values.n > 0) {
      with_scores = {with_values.from, Products::kFetchesWithScores ? round_up(with_values.n / 2, kLine) : 0};
      with_values = {with_values.from + with_scores.n, with_values.n - with_scores.n};
    }
    for (int c = 0; c < count; ++c) {
      const Chunk& chunk = chunks[c];
      const Index lead = most(0, chunk.start - begin) / Products::kKeyStep * Products::kKeyStep;
      const Index n = least(all, chunk.stop() - begin) - lead;
      if (n <= 0) continue;
      const Number* const rope = rope_words ? static_cast<const Number*>(block.rope) + (begin + lead) * rope_words : nullptr;
      const Index first_value = shared || !block.value_panel ? lead * value_pitch : Products::value_offset(block, lead);
      Keys keys = {k + lead * key_words, rope, v + first_value, key_words, rope_words, block.value_dim, value_pitch, value_plane,
                   begin + lead, n, {}, begin + lead <= chunk.start, chunk.full < begin + lead + n || chunk.late > begin + lead,
                   static_cast<Number>(Products::kRaw ? block.scale : 1), static_cast<Number>(block.softcap), {}, {}, &block, largest};
      if (c == 0) keys.with_scores[0] = with_scores, keys.with_values[0] = with_values;
      if (c == 0 && rope_words) keys.with_scores[2] = next_of(block.rope, block.rope_dim);
      if (ends && c == count - 1) keys.with_scores[1] = results, keys.with_values[1] = queries;
      share_out(keys.with_scores, n);
      share_out(keys.with_values, chunk.rows * ((block.value_dim + kWidth - 1) / kWidth));
      for (int z = 0; z < chunk.vectors; ++z)
        keys.ends[z] = Products::kTrims ? most(0, least(n, round_up(chunk.stops[z] - keys.begin, Products::kKeyStep))) : n;
      if (keys.masked)
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
