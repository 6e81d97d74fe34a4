// Attention in one pass that keeps the scores in the cache, and the softmax running along.
//
// Queries lie in the lanes, so that the maximum, the sum and the rescaling of a query are vertical. A block of queries is cut into
// chunks as wide as a register tile; chunk by chunk, kv_block keys at a time (they stay in L2 while all chunks meet them):
//   S[key][query] = K Qᵀ - m   K is broadcast as it lies, Q is packed transposed and scaled, -m is where the accumulators start;
//   P = 2^S                    scores are in units of log2, m moves only when a score passes it by 2^8;
//   Oᵀ[d][query] += Vᵀ P       V is broadcast as it lies.
// Q, O, S and P stay in L1 or L2. K, V and q are read, and out is written once, transposed back and divided by the sum. K and V of
// 16 bits are widened into panels of fp32, once for all chunks of the block.
#include "cpu/attention_tiled_kernels.h"

#include "cpu/attention_tile.h"
#include "cpu/isa.h"

namespace roofline::cpu {
namespace {

struct Chunk {
  float* q;        // [head_dim, width]
  float* out;      // [head_dim, width]
  float* neg_max;  // [width]; in units of log2, as are all scores
  float* sum;      // [width]
  float* visible;  // [width]; keys that each query sees, from the current kv block's first
  Index first;     // row of the block
  Index rows;
  int vectors;
  Index full;  // keys that all its queries see
  Index stop;  // keys that any of them sees
};

// The order of the products (rows of keys side by side, columns of V in turn) is none that the hardware sees ahead. So the first
// chunk fetches what lies in memory into the cache for all: values while it computes their scores, and with the values the next
// block's keys. Panels are in the cache already.
ROOFLINE_INLINE void fetch(const float* first, const float* last) {
  for (; first < last; first += 64 / sizeof(float)) __builtin_prefetch(first, 0, 2);
}

template <int Vectors, bool Grow>
struct ScoreTiles {
  static constexpr int kChunk = Vectors * kLanes;
  const float* k;
  Index head_dim;
  const Chunk& chunk;
  float* s;        // [keys, width]
  Vec* grow;       // [Vectors]; highest score above the old maximum
  const float* v;  // values of these keys, to be fetched; null if they need not be

  template <int Rows>
  [[gnu::noinline]] void tile(Index key) const {
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec start = load(chunk.neg_max + z * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) acc[i][z] = start;
    }
    if (v) fetch(v + key * head_dim, v + (key + Rows) * head_dim);
    multiply(acc, k + key * head_dim, head_dim, 1, chunk.q, kChunk, head_dim);
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
  const float* v;
  Index head_dim;
  const Chunk& chunk;
  const float* p;  // [keys, width]
  Index keys;
  const float* next;  // keys of the next block, as many, to be fetched; may lie past the end; null if they need not be

  template <int Rows>
  [[gnu::noinline]] void tile(Index d) const {
    if (next) fetch(next + d * keys, next + (d + Rows) * keys);  // head_dim tiles in all: keys x head_dim
    float* out = chunk.out + d * kChunk;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = load(out + i * kChunk + z * kLanes);
    multiply(acc, v + d, 1, head_dim, p, kChunk, keys);
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

// Chunk's queries against keys [begin, begin + n): scores, online softmax, values.
template <int Vectors>
void meet(const Chunk& chunk, const float* k, const float* v, Index head_dim, Index begin, Index n, float* s, bool fetching) {
  constexpr int kChunk = Vectors * kLanes;
  const Index full = most(0, least(chunk.full - begin, n));  // keys before the diagonal

  Vec grow[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) grow[z] = set1(-kInfinity);
  for_tiles<kTileRows<Vectors>>(full, ScoreTiles<Vectors, true>{k, head_dim, chunk, s, grow, fetching ? v : nullptr});
  if (full < n) {
    for_tiles<kTileRows<Vectors>>(n - full,
                                  ScoreTiles<Vectors, false>{k + full * head_dim, head_dim, chunk, s + full * kChunk, nullptr,
                                                             fetching ? v + full * head_dim : nullptr});
    for (Index key = full; key < n; ++key) {
      const Vec position = set1(static_cast<float>(key));
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) {
        float* at = s + key * kChunk + z * kLanes;
        const Vec score = select_less(position, load(chunk.visible + z * kLanes), load(at), set1(-kInfinity));
        store(at, score);
        grow[z] = max(grow[z], score);
      }
    }
  }

  // Within 2^8 of the maximum nothing overflows, so it is moved only beyond that: after the first keys, almost never.
  const bool first = begin == 0;
  bool move = first;
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) move = move || any_greater(grow[z], set1(8.0f));
  if (!move) {
    weigh<Vectors, false>(chunk, n, s, grow);
  } else {
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec up = grow[z] = first ? grow[z] : max(grow[z], zero());
      store(chunk.neg_max + z * kLanes, sub(load(chunk.neg_max + z * kLanes), up));
      if (!first) {
        const Vec down = exp2(sub(zero(), up));
        store(chunk.sum + z * kLanes, mul(load(chunk.sum + z * kLanes), down));
        for (Index d = 0; d < head_dim; ++d) {
          float* at = chunk.out + d * kChunk + z * kLanes;
          store(at, mul(load(at), down));
        }
      }
    }
    weigh<Vectors, true>(chunk, n, s, grow);
  }

  for_tiles<kTileRows<Vectors>>(head_dim, ValueTiles<Vectors>{v, head_dim, chunk, s, n, fetching ? k + n * head_dim : nullptr});
}

// K or V of a block of keys in fp32: as they lie, or widened into the panel.
const float* in_fp32(const float* from, Index, float*) { return from; }
template <class T>
const float* in_fp32(const T* from, Index n, float* panel) {
  widen(from, n, panel);
  return panel;
}

// chunk.q = (q scale)ᵀ; out, neg_max and sum start from zero.
template <class T>
void pack(const Chunk& chunk, const AttentionBlock& block) {
  const Index width = chunk.vectors * kLanes;
  const T* q = static_cast<const T*>(block.q) + chunk.first * block.head_dim;
  transpose_scaled(q, chunk.rows, block.head_dim, set1(block.scale), chunk.q, width);
  for (Index at = 0; at < block.head_dim * width; at += kLanes) store(chunk.out + at, zero());
  for (Index at = 0; at < width; at += kLanes) {
    store(chunk.neg_max + at, zero());
    store(chunk.sum + at, zero());
  }
}

// out = chunk.outᵀ / sum
template <class T>
void unpack(const Chunk& chunk, const AttentionBlock& block) {
  const Index head_dim = block.head_dim;
  const Index width = chunk.vectors * kLanes;
  for (Index lane = 0; lane < width; lane += kLanes) {
    T* out = static_cast<T*>(block.out) + (chunk.first + lane) * head_dim;
    const Index rows = chunk.rows - lane;
    const Vec share = div(set1(1.0f), load(chunk.sum + lane));
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int columns = static_cast<int>(least(kLanes, head_dim - d));
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = i < columns ? mul(load(chunk.out + (d + i) * width + lane), share) : zero();
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (i < rows) put(out + i * head_dim + d, columns, square[i]);
    }
  }
}

// Keys that a row of the block sees.
ROOFLINE_INLINE Index visible(const AttentionBlock& block, Index row) {
  return block.causal ? (block.first_row + row) % block.seq_q + block.seq_kv - block.seq_q + 1 : block.seq_kv;
}

// One block of queries against all keys they see.
template <class T>
void tiled(const AttentionBlock& block) {
  Chunk chunks[AttentionTiledKernels::kMaxQueryBlock / kWidth + 2];
  int count = 0;
  float* free = block.workspace;
  const auto take = [&free](Index floats) {
    float* const taken = free;
    free += floats;
    return taken;
  };
  Index stop = 0;
  for (Index row = 0; row < block.rows; ++count) {
    Chunk& chunk = chunks[count];
    chunk.first = row;
    chunk.vectors = block.rows - row <= kLanes ? 1 : block.rows - row <= 2 * kLanes ? 2 : kVectors;
    const Index width = chunk.vectors * kLanes;
    chunk.rows = least(width, block.rows - row);
    chunk.q = take(block.head_dim * width);
    chunk.out = take(block.head_dim * width);
    chunk.neg_max = take(width);
    chunk.sum = take(width);
    chunk.visible = take(width);
    pack<T>(chunk, block);
    chunk.full = block.seq_kv;
    chunk.stop = 0;
    for (Index lane = 0; lane < chunk.rows; ++lane) {
      const Index seen = visible(block, row + lane);
      chunk.full = least(chunk.full, seen);
      chunk.stop = most(chunk.stop, seen);
    }
    stop = most(stop, chunk.stop);
    row += chunk.rows;
  }

  float* const s = take(block.kv_block * chunks[0].vectors * kLanes);  // the first chunk is the widest
  const Index panel = AttentionTiledKernels::panel_floats(block.kv_block, block.head_dim);
  for (Index begin = 0; begin < stop; begin += block.kv_block) {
    const Index keys = least(block.kv_block, stop - begin);
    const T* const lies = static_cast<const T*>(block.k) + begin * block.head_dim;
    const float* k = in_fp32(lies, keys * block.head_dim, free);
    const float* v = in_fp32(static_cast<const T*>(block.v) + begin * block.head_dim, keys * block.head_dim, free + panel);
    for (int c = 0; c < count; ++c) {
      const Chunk& chunk = chunks[c];
      const bool fetching = c == 0 && k == static_cast<const void*>(lies);
      const Index n = least(block.kv_block, chunk.stop - begin);
      if (n <= 0) continue;
      if (chunk.full < begin + n)
        for (Index lane = 0; lane < chunk.vectors * kLanes; ++lane)
          chunk.visible[lane] = static_cast<float>(visible(block, chunk.first + least(lane, chunk.rows - 1)) - begin);
      if (chunk.vectors == 1)
        meet<1>(chunk, k, v, block.head_dim, begin, n, s, fetching);
      else if (chunk.vectors == 2)
        meet<2>(chunk, k, v, block.head_dim, begin, n, s, fetching);
      else
        meet<kVectors>(chunk, k, v, block.head_dim, begin, n, s, fetching);
    }
  }
  for (int c = 0; c < count; ++c) unpack<T>(chunks[c], block);
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_tiled) = {
    kLanes, kRows, kWidth, {tiled<float>, tiled<Bf16>, tiled<Fp16>}};

}  // namespace roofline::cpu
