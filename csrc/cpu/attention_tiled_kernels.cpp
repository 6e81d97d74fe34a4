// Attention in one pass that keeps the scores in the cache, and the softmax running along.
//
// Queries lie in the lanes, so that the maximum, the sum and the rescaling of a query are vertical. A block of queries is cut into
// chunks as wide as a register tile; chunk by chunk, kv_block keys at a time (they stay in L2 while all chunks meet them):
//   S[key][query] = K Qᵀ - m   K is broadcast as it lies, Q is packed transposed and scaled, -m is where the accumulators start;
//   P = 2^S                    scores are in units of log2, m moves only when a score passes it by 2^8;
//   Oᵀ[d][query] += Vᵀ P       V is broadcast as it lies.
// Q, O, S and P stay in L1 or L2. K, V and q are read, and out is written once, transposed back and divided by the sum. K and V
// that lie otherwise than in fp32 and one piece are gathered in panels, once for all chunks of the block. A chunk meets the keys
// from the first to the last that any of its queries sees; masks take part only where some of them see a key and others do not.
#include "cpu/attention_tiled_kernels.h"

#include "cpu/attention_tile.h"
#include "cpu/isa.h"
#include "cpu/simd/bytes.h"

namespace roofline::cpu {
namespace {

struct Chunk {
  float* q;        // [head_dim + rope_dim, width]
  float* out;      // [value_dim, width]
  float* neg_max;  // [width]; in units of log2, as are all scores
  float* sum;      // [width]
  float* from;     // [width]; the first key that each query sees and the first that it no longer sees, both from where the
  float* to;       //          current keys begin
  Index first;     // row of the block
  Index rows;
  int vectors;
  Index start, stop;  // keys that any of its queries sees
  Index late, full;   // keys that all of them see; none where late is not less
};

// Keys that a chunk meets at a time.
struct Keys {
  const float* k;  // [n, key_dim]
  const float* v;  // [n, value_dim]
  Index key_dim, value_dim;
  Index begin, n;
  float softcap;
  bool fetch_keys, fetch_values;  // they lie in memory
};

alignas(64) constexpr float kZeros[kWidth] = {};

// The order of the products (rows of keys side by side, columns of V in turn) is none that the hardware sees ahead. So the first
// chunk fetches what lies in memory into the cache for all: values while it computes their scores, and with the values the next
// block's keys. Panels are in the cache already.
ROOFLINE_INLINE void fetch(const float* first, const float* last) {
  for (; first < last; first += 64 / sizeof(float)) __builtin_prefetch(first, 0, 2);
}

template <int Vectors, bool Grow>
struct ScoreTiles {
  static constexpr int kChunk = Vectors * kLanes;
  const Keys& keys;
  const Chunk& chunk;
  const float* start;  // [width]; of the sums
  Index first;         // of these keys
  float* s;            // [keys.n, width]
  Vec* grow;           // [Vectors]; highest score above the old maximum

  template <int Rows>
  [[gnu::noinline]] void tile(Index at) const {
    const Index key = first + at, key_dim = keys.key_dim;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec one = load(start + z * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) acc[i][z] = one;
    }
    if (keys.fetch_values) fetch(keys.v + key * keys.value_dim, keys.v + (key + Rows) * keys.value_dim);
    multiply(acc, keys.k + key * key_dim, key_dim, 1, chunk.q, kChunk, key_dim);
    float* to = s + key * kChunk;
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(to + i * kChunk + z * kLanes, acc[i][z]);
    if constexpr (Grow)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) {
        Vec high = grow[z];
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) high = max(high, acc[i][z]);
        grow[z] = high;
      }
  }
};

template <int Vectors>
struct ValueTiles {
  static constexpr int kChunk = Vectors * kLanes;
  const Keys& keys;
  const Chunk& chunk;
  const float* p;  // [keys.n, width]

  template <int Rows>
  [[gnu::noinline]] void tile(Index d) const {
    if (keys.fetch_keys) {  // of the next block, shared out to the columns of V; some may lie past the end
      const float* const next = keys.k + keys.n * keys.key_dim;
      const Index share = keys.n * keys.key_dim / keys.value_dim;
      fetch(next + d * share, next + (d + Rows) * share);
    }
    float* out = chunk.out + d * kChunk;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = load(out + i * kChunk + z * kLanes);
    multiply(acc, keys.v + d, 1, keys.value_dim, p, kChunk, keys.n);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(out + i * kChunk + z * kLanes, acc[i][z]);
  }
};

// s = 2^s, or 2^(s - up) where the maximum has moved; adds to the sums.
template <int Vectors, bool Moved>
void weigh(const Chunk& chunk, Index n, float* s, const Vec (&up)[Vectors]) {
  Vec sums[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) sums[z] = load(chunk.sum + z * kLanes);
  for (Index key = 0; key < n; ++key)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      float* at = s + (key * Vectors + z) * kLanes;
      const Vec weight = exp2_bounded(Moved ? sub(load(at), up[z]) : load(at));
      store(at, weight);
      sums[z] = add(sums[z], weight);
    }
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) store(chunk.sum + z * kLanes, sums[z]);
}

// Scores of the keys [first, last) that the tiles left as they were: capped, and -infinity where a query does not see the key.
template <int Vectors>
void finish(const Chunk& chunk, const Keys& keys, Index first, Index last, float* s, Vec (&grow)[Vectors]) {
  const bool capped = keys.softcap > 0;
  const Vec cap = set1(keys.softcap), share = set1(capped ? 1 / keys.softcap : 0);
  for (Index key = first; key < last; ++key) {
    const Vec position = set1(static_cast<float>(key));
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      float* at = s + (key * Vectors + z) * kLanes;
      Vec score = load(at);
      if (capped) score = fma(cap, tanh(mul(score, share)), load(chunk.neg_max + z * kLanes));
      score = select_less(position, load(chunk.to + z * kLanes), score, set1(-kInfinity));
      score = select_less(position, load(chunk.from + z * kLanes), set1(-kInfinity), score);
      store(at, score);
      grow[z] = max(grow[z], score);
    }
  }
}

// Chunk's queries against some keys: scores, online softmax, values.
template <int Vectors>
void meet(const Chunk& chunk, const Keys& keys, float* s) {
  constexpr int kChunk = Vectors * kLanes, kTile = kTileRows<Vectors>;
  const Index n = keys.n;
  const bool capped = keys.softcap > 0;
  const Index late = capped ? n : most(0, least(chunk.late - keys.begin, n));  // keys before all queries' windows
  const Index full = most(late, least(chunk.full - keys.begin, n));            // keys before the diagonal

  Vec grow[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) grow[z] = set1(-kInfinity);
  const float* const start = capped ? kZeros : chunk.neg_max;
  if (late > 0) {
    for_tiles<kTile>(late, ScoreTiles<Vectors, false>{keys, chunk, start, 0, s, nullptr});
    finish<Vectors>(chunk, keys, 0, late, s, grow);
  }
  for_tiles<kTile>(full - late, ScoreTiles<Vectors, true>{keys, chunk, start, late, s, grow});
  if (full < n) {
    for_tiles<kTile>(n - full, ScoreTiles<Vectors, false>{keys, chunk, start, full, s, nullptr});
    finish<Vectors>(chunk, keys, full, n, s, grow);
  }

  // Within 2^8 of the maximum nothing overflows, so it is moved only beyond that: after the first keys, almost never. A query that
  // saw no key yet, and has no sink, has a sum of at most some 2^-125 for each key it does not see: it starts anew.
  const bool first = keys.begin <= chunk.late;
  bool move = first;
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) move = move || any_greater(grow[z], set1(8.0f));
  if (!move) {
    weigh<Vectors, false>(chunk, n, s, grow);
  } else {
    const Vec none = set1(0x1p-60f);
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec sum = load(chunk.sum + z * kLanes);
      const Vec anew = select_less(set1(-0x1p120f), grow[z], grow[z], zero());  // it may see none of these keys either
      const Vec up = grow[z] = select_less(sum, none, anew, max(grow[z], zero()));
      store(chunk.neg_max + z * kLanes, sub(load(chunk.neg_max + z * kLanes), up));
      const Vec down = select_less(sum, none, zero(), exp2(sub(zero(), up)));
      store(chunk.sum + z * kLanes, mul(sum, down));
      if (keys.begin > chunk.start)
        for (Index d = 0; d < keys.value_dim; ++d) {
          float* at = chunk.out + d * kChunk + z * kLanes;
          store(at, mul(load(at), down));
        }
    }
    weigh<Vectors, true>(chunk, n, s, grow);
  }

  for_tiles<kTile>(keys.value_dim, ValueTiles<Vectors>{keys, chunk, s});
}

// to[n][pitch] = the columns of the keys [begin, begin + n) in fp32.
template <class T>
void gather_as(const void* all, Index columns, const AttentionBlock& block, Index begin, Index n, float* to, Index pitch) {
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

void gather(const void* all, Index columns, const AttentionBlock& block, Index begin, Index n, float* to, Index pitch) {
  switch (block.element) {
    case Cached::bf16: return gather_as<Bf16>(all, columns, block, begin, n, to, pitch);
    case Cached::fp16: return gather_as<Fp16>(all, columns, block, begin, n, to, pitch);
    case Cached::int8: return gather_as<Int8>(all, columns, block, begin, n, to, pitch);
    case Cached::fp8_e4m3: return gather_as<Fp8E4m3>(all, columns, block, begin, n, to, pitch);
    default: return gather_as<float>(all, columns, block, begin, n, to, pitch);
  }
}

// chunk.q = (q scale)ᵀ; out starts from zero, and neg_max and sum from a sink, or zero.
template <class T>
void pack(const Chunk& chunk, const AttentionBlock& block) {
  const Index width = chunk.vectors * kLanes, key_dim = block.head_dim + block.rope_dim;
  const T* q = static_cast<const T*>(block.q) + chunk.first * key_dim;
  transpose_scaled(q, chunk.rows, key_dim, set1(block.scale), chunk.q, width);
  for (Index at = 0; at < block.value_dim * width; at += kLanes) store(chunk.out + at, zero());
  for (Index at = 0; at < width; at += kLanes) {
    store(chunk.neg_max + at, zero());
    store(chunk.sum + at, zero());
  }
  for (Index lane = 0; lane < (block.sinks ? chunk.rows : 0); ++lane) {
    const float sink = block.sinks[(block.first_row + chunk.first + lane) / block.seq_q];
    if (sink == -kInfinity) continue;  // as if there were none
    chunk.neg_max[lane] = -sink * 1.44269504f;
    chunk.sum[lane] = 1;
  }
}

// out = chunk.outᵀ / sum
template <class T>
void unpack(const Chunk& chunk, const AttentionBlock& block) {
  const Index columns = block.value_dim;
  const Index width = chunk.vectors * kLanes;
  for (Index lane = 0; lane < width; lane += kLanes) {
    T* out = static_cast<T*>(block.out) + (chunk.first + lane) * columns;
    const Index rows = chunk.rows - lane;
    const Vec share = div(set1(block.unit), load(chunk.sum + lane));
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
  for (Index lane = 0; lane < (block.logsumexp ? chunk.rows : 0); ++lane)
    block.logsumexp[chunk.first + lane] = (__builtin_log2f(chunk.sum[lane]) - chunk.neg_max[lane]) * 0.693147181f;
}

// The keys [from, to) that a row of the block sees.
struct Seen {
  Index from, to;
};
ROOFLINE_INLINE Seen seen_by(const AttentionBlock& block, Index row) {
  const Index to = block.causal ? (block.first_row + row) % block.seq_q + block.seq_kv - block.seq_q + 1 : block.seq_kv;
  return {most(0, to - block.window), to};
}

// One block of queries against all keys they see.
template <class T>
void tiled(const AttentionBlock& block) {
  const Index key_dim = block.head_dim + block.rope_dim;
  Chunk chunks[AttentionTiledKernels::kMaxQueryBlock / kWidth + 2];
  int count = 0;
  float* free = block.workspace;
  const auto take = [&free](Index floats) {
    float* const taken = free;
    free += floats;
    return taken;
  };
  Index start = block.seq_kv, stop = 0;
  for (Index row = 0; row < block.rows; ++count) {
    Chunk& chunk = chunks[count];
    chunk.first = row;
    chunk.vectors = block.rows - row <= kLanes ? 1 : block.rows - row <= 2 * kLanes ? 2 : kVectors;
    const Index width = chunk.vectors * kLanes;
    chunk.rows = least(width, block.rows - row);
    chunk.q = take(key_dim * width);
    chunk.out = take(block.value_dim * width);
    chunk.neg_max = take(width);
    chunk.sum = take(width);
    chunk.from = take(width);
    chunk.to = take(width);
    pack<T>(chunk, block);
    chunk.start = chunk.full = block.seq_kv;
    chunk.stop = chunk.late = 0;
    for (Index lane = 0; lane < chunk.rows; ++lane) {
      const Seen seen = seen_by(block, row + lane);
      chunk.start = least(chunk.start, seen.from);
      chunk.late = most(chunk.late, seen.from);
      chunk.full = least(chunk.full, seen.to);
      chunk.stop = most(chunk.stop, seen.to);
    }
    start = least(start, chunk.start);
    stop = most(stop, chunk.stop);
    row += chunk.rows;
  }

  float* const s = take(block.kv_block * chunks[0].vectors * kLanes);  // the first chunk is the widest
  float* const key_panel = take(block.key_panel ? AttentionTiledKernels::panel_floats(block.kv_block, key_dim) : 0);
  float* const value_panel = free;
  for (Index begin = start; begin < stop; begin += block.kv_block) {
    const Index all = least(block.kv_block, stop - begin);
    const float* k = static_cast<const float*>(block.k) + begin * key_dim;
    const float* v = static_cast<const float*>(block.v) + begin * block.value_dim;
    if (block.key_panel) {
      gather(block.k, block.head_dim, block, begin, all, key_panel, key_dim);
      if (block.rope_dim > 0) gather(block.rope, block.rope_dim, block, begin, all, key_panel + block.head_dim, key_dim);
      k = key_panel;
    }
    if (block.value_panel) {
      gather(block.v, block.value_dim, block, begin, all, value_panel, block.value_dim);
      v = value_panel;
    }
    for (int c = 0; c < count; ++c) {
      const Chunk& chunk = chunks[c];
      const Index lead = most(0, chunk.start - begin), n = least(all, chunk.stop - begin) - lead;
      if (n <= 0) continue;
      const Keys keys = {k + lead * key_dim, v + lead * block.value_dim, key_dim, block.value_dim, begin + lead, n, block.softcap,
                         c == 0 && !block.key_panel, c == 0 && !block.value_panel};
      if (chunk.full < keys.begin + n || chunk.late > keys.begin || block.softcap > 0)
        for (Index lane = 0; lane < chunk.vectors * kLanes; ++lane) {
          const Seen seen = seen_by(block, chunk.first + least(lane, chunk.rows - 1));
          chunk.from[lane] = static_cast<float>(seen.from - keys.begin);
          chunk.to[lane] = static_cast<float>(seen.to - keys.begin);
        }
      if (chunk.vectors == 1)
        meet<1>(chunk, keys, s);
      else if (chunk.vectors == 2)
        meet<2>(chunk, keys, s);
      else
        meet<kVectors>(chunk, keys, s);
    }
  }
  for (int c = 0; c < count; ++c) unpack<T>(chunks[c], block);
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_tiled) = {
    kLanes, kRows, kWidth, {tiled<float>, tiled<Bf16>, tiled<Fp16>}};

}  // namespace roofline::cpu
