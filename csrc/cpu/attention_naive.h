// Attention in three passes, the staircase's first step: every pass goes through memory. Scores are fp32, whatever the elements
// of q, k, v and out, or all numbers fp64. Everything is internal to the file that includes it.
#pragma once

#include "cpu/attention_naive_kernels.h"
#include "cpu/attention_tile.h"

namespace roofline::cpu {
namespace {

#if defined(ROOFLINE_DOUBLES)
// e^x, within 2^-53 |x| of itself: of the largest in a row that is next to nothing.
ROOFLINE_INLINE Vec exp(Vec x) { return exp2(mul(x, set1(1.4426950408889634))); }
#endif

template <int Rows>
ROOFLINE_INLINE void score_tile(const AttentionRows& part, const Number* q, const Number* panel, Index row, Index key) {
  Vec acc[Rows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int z = 0; z < kVectors; ++z) acc[i][z] = zero();
  multiply(acc, q + row * part.head_dim, part.head_dim, 1, panel, kWidth, part.head_dim);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    Number* s = static_cast<Number*>(part.scores) + (row + i) * part.seq_kv + key;
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

struct ScoreTiles {
  const AttentionRows& part;
  const Number* q;      // [rows, head_dim]
  const Number* panel;  // [head_dim, kWidth], keys
  Index key;

  template <int Rows>
  [[gnu::noinline]] void tile(Index row) const {
    if (part.visible + (row + Rows - 1) * part.growth > key) score_tile<Rows>(part, q, panel, row, key);
  }
};

// q·kᵀ: writes the scores of the unmasked pairs. A register tile's width of keys is transposed and scaled into the cache, and all
// queries of the block meet them there.
template <class T>
void scores(const AttentionRows& part) {
  const T* k = static_cast<const T*>(part.k);
  Number* const q = static_cast<Number*>(part.workspace);
  Number* const panel = q + part.rows * part.head_dim + AttentionNaiveKernels::kMaxLanes;
  widen(static_cast<const T*>(part.q), part.rows * part.head_dim, q);
  const Index all = part.visible + (part.rows - 1) * part.growth;
  const Vec scale = set1(static_cast<Number>(part.scale));
  for (Index key = 0; key < all; key += kWidth) {
    transpose_scaled(k + key * part.head_dim, least(kWidth, all - key), part.head_dim, scale, panel, kWidth);
    for_tiles<kRows>(part.rows, ScoreTiles{part, q, panel, key});
  }
}

// softmax: each row of scores is read, and its probabilities are written over it. A row of up to some thousand keys stays in the
// cache from the maximum to the division, so that memory sees one read and one write.
void softmax(const AttentionRows& part) {
  for (Index row = 0; row < part.rows; ++row) {
    Number* s = static_cast<Number*>(part.scores) + row * part.seq_kv;
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
    Number sum = reduce_add(add(sums[0], sums[1]));
    if (rest) {
      const Vec weight = exp(sub(load_partial(s + whole, rest, lowest), top));
      store_partial(s + whole, rest, weight);
      sum += reduce_add(load_partial(s + whole, rest, zero()));
    }
    if (part.logsumexp) part.logsumexp[row] = static_cast<float>(__builtin_log(sum) + reduce_max(top));
    const Vec share = set1(1 / sum);
    for (j = 0; j < whole; j += kLanes) store(s + j, mul(load(s + j), share));
    if (rest) store_partial(s + whole, rest, mul(load_partial(s + whole, rest, zero()), share));
  }
}

// out[Rows][columns] += probabilities[Rows][n] V[n][columns]
template <int Rows, int Vectors, class T>
ROOFLINE_INLINE void add_values(const Number* p, Index seq_kv, const T* v, Index n, Number* out, Index head_dim) {
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
template <class T>
void add_last_values(const Number* p, const T* v, Index n, Number* out, Index head_dim, int columns) {
  Vec acc = load_partial(out, columns, zero());
  for (Index key = 0; key < n; ++key) acc = fma(set1(p[key]), load_partial(v + key * head_dim, columns, zero()), acc);
  store_partial(out, columns, acc);
}

template <int Rows, class T>
void add_values_all_columns(const Number* p, Index seq_kv, const T* v, Index n, Number* out, Index head_dim) {
  Index d = 0;
  for (; d + kWidth <= head_dim; d += kWidth) add_values<Rows, kVectors>(p, seq_kv, v + d, n, out + d, head_dim);
  for (; d + kLanes <= head_dim; d += kLanes) add_values<Rows, 1>(p, seq_kv, v + d, n, out + d, head_dim);
  if (d < head_dim)
    for (int i = 0; i < Rows; ++i)
      add_last_values(p + i * seq_kv, v + d, n, out + i * head_dim + d, head_dim, static_cast<int>(head_dim - d));
}

// p·v: rows of V, weighted and summed. 256 keys at a time, so that they stay in the cache while all queries of the block meet them.
template <class T>
void values(const AttentionRows& part) {
  constexpr Index kKeyBlock = 256;
  const Index head_dim = part.head_dim;
  const Index seq_kv = part.seq_kv;
  const T* v = static_cast<const T*>(part.v);
  Number* const sums = static_cast<Number*>(part.workspace);
  const Index results = part.rows * head_dim;
  for (Index at = 0; at < results; at += kLanes) store(sums + at, zero());
  const Index all = part.visible + (part.rows - 1) * part.growth;
  for (Index key_block = 0; key_block < all; key_block += kKeyBlock) {
    for (Index row = 0; row < part.rows; row += kRows) {
      const Number* p = static_cast<const Number*>(part.scores) + row * seq_kv;
      Number* out = sums + row * head_dim;
      const Index visible = part.visible + row * part.growth;  // of the tile's first query
      Index key = key_block;
      if (row + kRows <= part.rows) {
        const Index n = most(0, least(key_block + kKeyBlock, visible) - key_block);
        add_values_all_columns<kRows>(p + key, seq_kv, v + key * head_dim, n, out, head_dim);
        key += n;
      }
      for (Index i = 0; i < kRows && row + i < part.rows; ++i) {
        const Index n = least(key_block + kKeyBlock, visible + i * part.growth) - key;
        if (n > 0)
          add_values_all_columns<1>(p + i * seq_kv + key, seq_kv, v + key * head_dim, n, out + i * head_dim, head_dim);
      }
    }
  }
  T* out = static_cast<T*>(part.out);
  Index at = 0;
  for (; at + kLanes <= results; at += kLanes) store(out + at, load(sums + at));
  if (at < results) store_partial(out + at, static_cast<int>(results - at), load(sums + at));
}

}  // namespace
}  // namespace roofline::cpu
