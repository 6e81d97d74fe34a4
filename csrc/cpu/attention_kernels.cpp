// Attention in fp32: three passes through a score matrix (naive), and one pass that keeps the scores in the cache (tiled).
//
// Every product runs through one register tile, `multiply`: some rows of broadcast scalars against some vectors, the accumulators
// in registers throughout.
#include "cpu/attention_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

// Register tiles, so that accumulators, one row of vectors and a broadcast fit: 4 x 4 of 32 registers with AVX-512 and NEON (larger
// ones are slower, or spill), 6 x 2 of 16 with AVX2, 4 x 2 of 16 without vectors.
constexpr int kVectors = kLanes == 16 || kLanes == 4 ? 4 : 2;
constexpr int kRows = kLanes == 8 ? 6 : 4;
constexpr int kWidth = kVectors * kLanes;
constexpr int kNarrowRows = 8;  // of tiles with fewer vectors: as many accumulators as it takes to hide the latency of an FMA

template <int Vectors>
constexpr int kTileRows = Vectors == kVectors ? kRows : kNarrowRows;

// acc[i][z] += sum over t < n of a[i a_row + t a_step] * b[t b_step + z kLanes ...]
template <int Rows, int Vectors>
ROOFLINE_INLINE void multiply(Vec (&acc)[Rows][Vectors], const float* a, Index a_row, Index a_step, const float* b, Index b_step,
                              Index n) {
  for (Index t = 0; t < n; ++t) {
    Vec right[Vectors];
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) right[z] = load(b + z * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vec left = set1(a[i * a_row]);
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = fma(left, right[z], acc[i][z]);
    }
    a += a_step;
    b += b_step;
  }
}

// Rows of the next tile when `left` remain: the last two tiles share their rows, because a tile of one or two rows is slow.
template <int Max>
ROOFLINE_INLINE int next_rows(Index left) {
  if (left >= 2 * Max) return Max;
  return static_cast<int>(left <= Max ? left : (left + 1) / 2);
}

// Calls f.tile<Rows>(first) for the tiles of [0, n).
template <int Max, class F>
ROOFLINE_INLINE void for_tiles(Index n, const F& f) {
  for (Index first = 0; first < n;) {
    const int rows = next_rows<Max>(n - first);
    switch (rows) {
      case 8: f.template tile<8 <= Max ? 8 : 1>(first); break;
      case 7: f.template tile<7 <= Max ? 7 : 1>(first); break;
      case 6: f.template tile<6 <= Max ? 6 : 1>(first); break;
      case 5: f.template tile<5 <= Max ? 5 : 1>(first); break;
      case 4: f.template tile<4 <= Max ? 4 : 1>(first); break;
      case 3: f.template tile<3 <= Max ? 3 : 1>(first); break;
      case 2: f.template tile<2>(first); break;
      default: f.template tile<1>(first);
    }
    first += rows;
  }
}

// to[head_dim][width] = (from[rows][head_dim] scale)ᵀ, zero in the lanes past the last row.
void transpose_scaled(const float* from, Index rows, Index head_dim, Vec scale, float* to, Index width) {
  for (Index lane = 0; lane < width; lane += kLanes) {
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int columns = static_cast<int>(least(kLanes, head_dim - d));
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        square[i] = lane + i < rows ? mul(load_partial(from + (lane + i) * head_dim + d, columns, zero()), scale) : zero();
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (i < columns) store(to + (d + i) * width + lane, square[i]);
    }
  }
}

// Naive: the staircase's first step. Every pass goes through memory.

template <int Rows>
ROOFLINE_INLINE void score_tile(const AttentionRows& part, Index row, Index key) {
  Vec acc[Rows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int z = 0; z < kVectors; ++z) acc[i][z] = zero();
  multiply(acc, part.q + row * part.head_dim, part.head_dim, 1, part.panel, kWidth, part.head_dim);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    float* s = part.scores + (row + i) * part.seq_kv + key;
    const Index seen = part.visible + (row + i) * part.growth - key;
#pragma GCC unroll 8
    for (int z = 0; z < kVectors; ++z) {
      if (seen >= (z + 1) * kLanes)
        store(s + z * kLanes, acc[i][z]);
      else if (seen > z * kLanes)
        store_partial(s + z * kLanes, static_cast<int>(seen - z * kLanes), acc[i][z]);
    }
  }
}

struct NaiveScoreTiles {
  const AttentionRows& part;
  Index key;

  template <int Rows>
  [[gnu::noinline]] void tile(Index row) const {
    if (part.visible + (row + Rows - 1) * part.growth > key) score_tile<Rows>(part, row, key);
  }
};

// q·kᵀ: writes the scores of the unmasked pairs. A register tile's width of keys is transposed and scaled into the cache, and all
// queries of the block meet them there.
void scores(const AttentionRows& part) {
  const Index all = part.visible + (part.rows - 1) * part.growth;
  for (Index key = 0; key < all; key += kWidth) {
    transpose_scaled(part.k + key * part.head_dim, least(kWidth, all - key), part.head_dim, set1(part.scale), part.panel, kWidth);
    for_tiles<kRows>(part.rows, NaiveScoreTiles{part, key});
  }
}

// softmax: each row of scores is read, and its probabilities are written over it. A row of up to some thousand keys stays in the
// cache from the maximum to the division, so that memory sees one read and one write.
void softmax(const AttentionRows& part) {
  for (Index row = 0; row < part.rows; ++row) {
    float* s = part.scores + row * part.seq_kv;
    const Index n = part.visible + row * part.growth;
    const Index whole = n / kLanes * kLanes;
    const int rest = static_cast<int>(n - whole);
    const Vec lowest = set1(-kInfinity);
    Vec high[4] = {lowest, lowest, lowest, lowest};
    Index j = 0;
    for (; j + 4 * kLanes <= n; j += 4 * kLanes)
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) high[u] = max(high[u], load(s + j + u * kLanes));
    for (; j < whole; j += kLanes) high[0] = max(high[0], load(s + j));
    if (rest) high[0] = max(high[0], load_partial(s + whole, rest, lowest));
    const Vec top = set1(reduce_max(max(max(high[0], high[1]), max(high[2], high[3]))));
    Vec sums[2] = {zero(), zero()};
    for (j = 0; j + 2 * kLanes <= n; j += 2 * kLanes)
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u) {
        const Vec weight = exp(sub(load(s + j + u * kLanes), top));
        store(s + j + u * kLanes, weight);
        sums[u] = add(sums[u], weight);
      }
    for (; j < whole; j += kLanes) {
      const Vec weight = exp(sub(load(s + j), top));
      store(s + j, weight);
      sums[0] = add(sums[0], weight);
    }
    float sum = reduce_add(add(sums[0], sums[1]));
    if (rest) {
      const Vec weight = exp(sub(load_partial(s + whole, rest, lowest), top));
      store_partial(s + whole, rest, weight);
      sum += reduce_add(load_partial(s + whole, rest, zero()));
    }
    const Vec share = set1(1.0f / sum);
    for (j = 0; j < whole; j += kLanes) store(s + j, mul(load(s + j), share));
    if (rest) store_partial(s + whole, rest, mul(load_partial(s + whole, rest, zero()), share));
  }
}

// out[Rows][columns] += probabilities[Rows][n] V[n][columns]
template <int Rows, int Vectors>
ROOFLINE_INLINE void add_values(const float* p, Index seq_kv, const float* v, Index n, float* out, Index head_dim) {
  Vec acc[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) acc[i][z] = load(out + i * head_dim + z * kLanes);
  multiply(acc, p, seq_kv, 1, v, head_dim, n);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) store(out + i * head_dim + z * kLanes, acc[i][z]);
}

// The same for the last columns of a row, fewer than a vector.
void add_last_values(const float* p, const float* v, Index n, float* out, Index head_dim, int columns) {
  Vec acc = load_partial(out, columns, zero());
  for (Index key = 0; key < n; ++key) acc = fma(set1(p[key]), load_partial(v + key * head_dim, columns, zero()), acc);
  store_partial(out, columns, acc);
}

template <int Rows>
void add_values_all_columns(const float* p, Index seq_kv, const float* v, Index n, float* out, Index head_dim) {
  Index d = 0;
  for (; d + kWidth <= head_dim; d += kWidth) add_values<Rows, kVectors>(p, seq_kv, v + d, n, out + d, head_dim);
  for (; d + kLanes <= head_dim; d += kLanes) add_values<Rows, 1>(p, seq_kv, v + d, n, out + d, head_dim);
  if (d < head_dim)
    for (int i = 0; i < Rows; ++i)
      add_last_values(p + i * seq_kv, v + d, n, out + i * head_dim + d, head_dim, static_cast<int>(head_dim - d));
}

// p·v: rows of V, weighted and summed. 256 keys at a time, so that they stay in the cache while all queries of the block meet them.
void values(const AttentionRows& part) {
  constexpr Index kKeyBlock = 256;
  const Index head_dim = part.head_dim;
  const Index seq_kv = part.seq_kv;
  for (Index at = 0; at < part.rows * head_dim; ++at) part.out[at] = 0;
  const Index all = part.visible + (part.rows - 1) * part.growth;
  for (Index key_block = 0; key_block < all; key_block += kKeyBlock) {
    for (Index row = 0; row < part.rows; row += kRows) {
      const float* p = part.scores + row * seq_kv;
      float* out = part.out + row * head_dim;
      const Index visible = part.visible + row * part.growth;  // of the tile's first query
      Index key = key_block;
      if (row + kRows <= part.rows) {
        const Index n = most(0, least(key_block + kKeyBlock, visible) - key_block);
        add_values_all_columns<kRows>(p + key, seq_kv, part.v + key * head_dim, n, out, head_dim);
        key += n;
      }
      for (Index i = 0; i < kRows && row + i < part.rows; ++i) {
        const Index n = least(key_block + kKeyBlock, visible + i * part.growth) - key;
        if (n > 0)
          add_values_all_columns<1>(p + i * seq_kv + key, seq_kv, part.v + key * head_dim, n, out + i * head_dim, head_dim);
      }
    }
  }
}

// Tiled: the scores never leave the cache, and the softmax runs along.
//
// Queries lie in the lanes, so that the maximum, the sum and the rescaling of a query are vertical. A block of queries is cut into
// chunks as wide as a register tile; chunk by chunk, kv_block keys at a time (they stay in L2 while all chunks meet them):
//   S[key][query] = K Qᵀ - m   K is broadcast as it lies, Q is packed transposed and scaled, -m is where the accumulators start;
//   P = 2^S                    scores are in units of log2, m moves only when a score passes it by 2^8;
//   Oᵀ[d][query] += Vᵀ P       V is broadcast as it lies.
// Q, O, S and P stay in L1 or L2. K, V and q are read, and out is written once, transposed back and divided by the sum.

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

// Few queries, as in decode, compute too little on K and V to hide where these come from, and the order of the products (columns of V
// in turn) is none that the hardware sees ahead. So while the scores of a block are computed its values are fetched into the cache,
// and with the values the next block's keys.
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
  const float* v;  // values of these keys

  template <int Rows>
  [[gnu::noinline]] void tile(Index key) const {
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec start = load(chunk.neg_max + z * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) acc[i][z] = start;
    }
    if constexpr (Vectors == 1) fetch(v + key * head_dim, v + (key + Rows) * head_dim);
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
  const float* next;  // keys of the next block, as many; may lie past the end

  template <int Rows>
  [[gnu::noinline]] void tile(Index d) const {
    if constexpr (Vectors == 1) fetch(next + d * keys, next + (d + Rows) * keys);  // head_dim tiles in all: keys x head_dim
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

// Chunk's queries against keys [begin, begin + n): scores, online softmax, values.
template <int Vectors>
void meet(const Chunk& chunk, const AttentionBlock& block, Index begin, Index n, float* s) {
  constexpr int kChunk = Vectors * kLanes;
  const Index head_dim = block.head_dim;
  const float* k = block.k + begin * head_dim;
  const float* v = block.v + begin * head_dim;
  const Index full = most(0, least(chunk.full - begin, n));  // keys before the diagonal

  Vec grow[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) grow[z] = set1(-kInfinity);
  for_tiles<kTileRows<Vectors>>(full, ScoreTiles<Vectors, true>{k, head_dim, chunk, s, grow, v});
  if (full < n) {
    for_tiles<kTileRows<Vectors>>(n - full,
                                  ScoreTiles<Vectors, false>{k + full * head_dim, head_dim, chunk, s + full * kChunk, nullptr,
                                                             v + full * head_dim});
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
  if (move) {
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      const Vec up = first ? grow[z] : max(grow[z], zero());
      store(chunk.neg_max + z * kLanes, sub(load(chunk.neg_max + z * kLanes), up));
      for (Index key = 0; key < n; ++key) {
        float* at = s + key * kChunk + z * kLanes;
        store(at, sub(load(at), up));
      }
      if (!first) {
        const Vec down = exp2(sub(zero(), up));
        store(chunk.sum + z * kLanes, mul(load(chunk.sum + z * kLanes), down));
        for (Index d = 0; d < head_dim; ++d) {
          float* at = chunk.out + d * kChunk + z * kLanes;
          store(at, mul(load(at), down));
        }
      }
    }
  }

  Vec sums[Vectors];
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) sums[z] = load(chunk.sum + z * kLanes);
  for (Index key = 0; key < n; ++key)
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) {
      float* at = s + key * kChunk + z * kLanes;
      const Vec weight = exp2_bounded(load(at));
      store(at, weight);
      sums[z] = add(sums[z], weight);
    }
#pragma GCC unroll 8
  for (int z = 0; z < Vectors; ++z) store(chunk.sum + z * kLanes, sums[z]);

  for_tiles<kTileRows<Vectors>>(head_dim, ValueTiles<Vectors>{v, head_dim, chunk, s, n, k + n * head_dim});
}

// chunk.q = (q scale)ᵀ; out, neg_max and sum start from zero.
void pack(const Chunk& chunk, const AttentionBlock& block) {
  const Index width = chunk.vectors * kLanes;
  transpose_scaled(block.q + chunk.first * block.head_dim, chunk.rows, block.head_dim, set1(block.scale), chunk.q, width);
  for (Index at = 0; at < block.head_dim * width; at += kLanes) store(chunk.out + at, zero());
  for (Index at = 0; at < width; at += kLanes) {
    store(chunk.neg_max + at, zero());
    store(chunk.sum + at, zero());
  }
}

// out = chunk.outᵀ / sum
void unpack(const Chunk& chunk, const AttentionBlock& block) {
  const Index head_dim = block.head_dim;
  const Index width = chunk.vectors * kLanes;
  for (Index lane = 0; lane < width; lane += kLanes) {
    float* out = block.out + (chunk.first + lane) * head_dim;
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
        if (i < rows) store_partial(out + i * head_dim + d, columns, square[i]);
    }
  }
}

// Keys that a row of the block sees.
ROOFLINE_INLINE Index visible(const AttentionBlock& block, Index row) {
  return block.causal ? (block.first_row + row) % block.seq_q + block.seq_kv - block.seq_q + 1 : block.seq_kv;
}

// One block of queries against all keys they see.
void tiled(const AttentionBlock& block) {
  Chunk chunks[AttentionKernels::kMaxQueryBlock / kWidth + 2];
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
    pack(chunk, block);
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

  float* const s = free;
  for (Index begin = 0; begin < stop; begin += block.kv_block) {
    for (int c = 0; c < count; ++c) {
      const Chunk& chunk = chunks[c];
      const Index n = least(block.kv_block, chunk.stop - begin);
      if (n <= 0) continue;
      if (chunk.full < begin + n)
        for (Index lane = 0; lane < chunk.vectors * kLanes; ++lane)
          chunk.visible[lane] = static_cast<float>(visible(block, chunk.first + least(lane, chunk.rows - 1)) - begin);
      if (chunk.vectors == 1)
        meet<1>(chunk, block, begin, n, s);
      else if (chunk.vectors == 2)
        meet<2>(chunk, block, begin, n, s);
      else
        meet<kVectors>(chunk, block, begin, n, s);
    }
  }
  for (int c = 0; c < count; ++c) unpack(chunks[c], block);
}

}  // namespace

extern const AttentionKernels ROOFLINE_TABLE(attention) = {kLanes, kRows, kWidth, scores, softmax, values, tiled};

}  // namespace roofline::cpu
