// Gradients of attention (FlashAttention-2, algorithm 2). A thread owns blocks of keys of one KV head, whose dk and dv stay in the
// cache while the queries of all heads of the group pass, some at a time:
//   P[query][key] = 2^(q Kᵀ - logsumexp)   q is broadcast, K is packed transposed, once for a block of keys;
//   dS[query][key] = P (dout Vᵀ - delta)   likewise;
//   dv[key][d] += Pᵀ dout, dk[key][d] += dSᵀ q, dq[query][d] += dS K: the rows lie in the lanes as they are.
// `Products` says what is multiplied: fp32, into which numbers of 16 bits are widened, or words of bf16 pairs in
// backward_pairs_kernels.cpp. A word is two numbers along what a product adds up: of q, dout, K and V along head_dim for P and dS,
// then of P, dS, dout and q two queries, and of dS and K two keys. Everything is internal to the file that includes it.
#pragma once

#include "cpu/backward_kernels.h"

#include "cpu/attention_tile.h"

namespace roofline::cpu {
namespace {

constexpr float kLog2e = 1.44269504f;

// Rows as products take them.
struct Operand {
  const float* rows;  // [rows, pitch] words along head_dim
  Index pitch;
  const float* sums;  // [rows, head_dim], a word of as many rows as it has numbers
};

template <class Products>
struct Scores {
  static constexpr Index kNumbers = Products::kNumbers;
  const Operand& q;
  const Operand& dout;
  const float* k;  // [words of head_dim, kWidth]
  const float* v;
  const float* shift;  // [queries]; logsumexp in units of log2
  const float* delta;
  float* p;        // [words of queries, key_block], from these keys
  float* ds;
  float* ds_rows;  // [queries, words of key_block]; ds itself where a word is a number
  Index words, key_block;
  Index seen;   // of these keys, by the first query
  Index keys;
  bool causal;  // each next query sees one more
  float scale;  // of scores, times log2(e)

  template <int Groups>
  [[gnu::noinline]] void tile(Index group) const {
    constexpr int kRows = Groups * static_cast<int>(kNumbers);
    const Index query = group * kNumbers;
    alignas(64) float own[kNumbers > 1 ? kRows * kWidth : 1];
    float* const weights = kNumbers > 1 ? own : p + query * key_block;
    const Index pitch = kNumbers > 1 ? kWidth : key_block;
    Vec acc[kRows][kVectors];
    const auto product = [&](const Operand& a, const float* b) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int z = 0; z < kVectors; ++z) acc[i][z] = zero();
      multiply<Products>(acc, a.rows + query * a.pitch, a.pitch, 1, b, kWidth, words);
    };
    product(q, k);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec less = set1(-shift[query + i]);
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) store(weights + i * pitch + z * kLanes, exp2(fma(acc[i][z], set1(scale), less)));
    }
    for (int i = 0; i < kRows; ++i)
      for (Index key = most(least(causal ? seen + query + i : kWidth, keys), 0); key < kWidth; ++key) weights[i * pitch + key] = 0;
    product(dout, v);
    Products::template put<kRows>(weights, p + group * key_block, key_block);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec less = set1(delta[query + i]);
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) acc[i][z] = mul(load(weights + i * pitch + z * kLanes), sub(acc[i][z], less));
    }
    Products::template put<kRows>(acc, ds + group * key_block, ds_rows + query * (key_block / kNumbers), key_block);
  }
};

// to[rows][Vectors] += a b
template <class Products, int Vectors>
struct Sums {
  const float* a;
  Index a_row, a_step;
  const float* b;
  float* to;
  Index pitch, n;

  template <int Rows>
  [[gnu::noinline]] void tile(Index row) const {
    float* const from = to + row * pitch;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = load(from + i * pitch + z * kLanes);
    multiply<Products>(acc, a + row * a_row, a_row, a_step, b, pitch, n);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(from + i * pitch + z * kLanes, acc[i][z]);
  }
};

// to[rows, pitch] += a[rows, n] b[n, pitch]
template <class Products>
void add_product(Index rows, const float* a, Index a_row, Index a_step, const float* b, Index n, float* to, Index pitch) {
  Index d = 0;
  for (; d + kWidth <= pitch; d += kWidth)
    for_tiles<kTileRows<kVectors>>(rows, Sums<Products, kVectors>{a, a_row, a_step, b + d, to + d, pitch, n});
  for (; d < pitch; d += kLanes) for_tiles<kTileRows<1>>(rows, Sums<Products, 1>{a, a_row, a_step, b + d, to + d, pitch, n});
}

template <class T>
void put_rows(const float* from, Index rows, Index head_dim, Index pitch, float scale, T* to) {
  for (Index row = 0; row < rows; ++row)
    for (Index d = 0; d < head_dim; d += kLanes)
      put(to + row * head_dim + d, static_cast<int>(least(kLanes, head_dim - d)), mul(load(from + row * pitch + d), set1(scale)));
}

template <class T, class Products>
void gradients(const BackwardPart& part) {
  constexpr Index kNumbers = Products::kNumbers, kQueries = Products::kQueries;
  const auto words_of = [](Index n) { return (n + kNumbers - 1) / kNumbers; };
  const Index head_dim = part.head_dim, words = words_of(head_dim), block = part.key_block;
  const Index pitch = (head_dim + kLanes - 1) / kLanes * kLanes, rows = part.group * part.seq_q;
  float* free = part.workspace;
  const auto take = [&free](Index floats) {
    float* const taken = free;
    free += floats;
    return taken;
  };
  float *const dk = take(block * pitch), *const dv = take(block * pitch);
  float *const k_columns = take(block * words), *const v_columns = take(block * words);
  float* const k_panel = take(block * pitch / kNumbers);
  float *const p = take(block * kQueries / kNumbers), *const ds = take(block * kQueries / kNumbers);
  float* const ds_rows = kNumbers > 1 ? take(block * kQueries / kNumbers) : ds;
  float *const q_panel = take(kQueries * pitch / kNumbers * 2), *const dout_panel = take(kQueries * pitch / kNumbers * 2);
  float *const shift = take(kQueries), *const delta = take(kQueries);
  for (Index i = 0; i < rows * pitch; i += kLanes) store(part.dq + i, zero());

  for (Index first = part.first_block * block; first < part.seq_kv; first += part.blocks_step * block) {
    const Index keys = least(block, part.seq_kv - first);
    const T* const k = static_cast<const T*>(part.k) + first * head_dim;
    const T* const v = static_cast<const T*>(part.v) + first * head_dim;
    const float* const k_sums = Products::sums(k, keys, head_dim, pitch, k_panel);
    for (Index key = 0; key < keys; key += kWidth) {
      Products::columns(k + key * head_dim, keys - key, head_dim, k_columns + key * words);
      Products::columns(v + key * head_dim, keys - key, head_dim, v_columns + key * words);
    }
    for (Index i = 0; i < block * pitch; i += kLanes) {
      store(dk + i, zero());
      store(dv + i, zero());
    }
    const Index later = part.seq_kv - part.seq_q;
    for (Index head = 0; head < part.group; ++head)
      for (Index query = part.causal ? most(first - later, 0) : 0; query < part.seq_q; query += kQueries) {
        const Index n = least(kQueries, part.seq_q - query), row = head * part.seq_q + query, groups = words_of(n);
        const Operand q = Products::operand(static_cast<const T*>(part.q) + row * head_dim, n, head_dim, pitch, q_panel);
        const Operand dout = Products::operand(static_cast<const T*>(part.dout) + row * head_dim, n, head_dim, pitch, dout_panel);
        for (Index i = 0; i < groups * kNumbers; ++i) {  // a query that fills up the last word has no weights
          shift[i] = i < n ? part.logsumexp[row + i] * kLog2e : 1e30f;
          delta[i] = i < n ? part.delta[row + i] : 0;
        }
        for (Index key = 0; key < keys; key += kWidth)
          for_tiles<kRows / kNumbers>(
              groups, Scores<Products>{q, dout, k_columns + key * words, v_columns + key * words, shift, delta, p + key, ds + key,
                                       ds_rows + key / kNumbers, words, block, query + later + 1 - first - key, keys - key,
                                       part.causal, part.scale * kLog2e});
        add_product<Products>(keys, p, 1, block, dout.sums, groups, dv, pitch);
        add_product<Products>(keys, ds, 1, block, q.sums, groups, dk, pitch);
        add_product<Products>(n, ds_rows, block / kNumbers, 1, k_sums, words_of(keys), part.dq + row * pitch, pitch);
      }
    put_rows(dk, keys, head_dim, pitch, part.scale, static_cast<T*>(part.dk) + first * head_dim);
    put_rows(dv, keys, head_dim, pitch, 1, static_cast<T*>(part.dv) + first * head_dim);
  }
}

template <class T>
void deltas(const void* out, const void* dout, Index rows, Index head_dim, float* delta) {
  for (Index row = 0; row < rows; ++row) {
    Vec sum = zero();
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int n = static_cast<int>(least(kLanes, head_dim - d));
      const Index at = row * head_dim + d;
      sum = fma(get(static_cast<const T*>(out) + at, n, zero()), get(static_cast<const T*>(dout) + at, n, zero()), sum);
    }
    delta[row] = reduce_add(sum);
  }
}

template <class T>
void sum(const float* parts, Index count, Index step, Index rows, Index head_dim, float scale, void* dq) {
  const Index pitch = (head_dim + kLanes - 1) / kLanes * kLanes;
  for (Index row = 0; row < rows; ++row)
    for (Index d = 0; d < head_dim; d += kLanes) {
      Vec all = zero();
      for (Index part = 0; part < count; ++part) all = add(all, load(parts + part * step + row * pitch + d));
      const int n = static_cast<int>(least(kLanes, head_dim - d));
      put(static_cast<T*>(dq) + row * head_dim + d, n, mul(all, set1(scale)));
    }
}

}  // namespace
}  // namespace roofline::cpu
