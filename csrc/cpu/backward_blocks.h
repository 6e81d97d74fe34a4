// Gradients of attention (FlashAttention-2, algorithm 2). A thread owns blocks of keys of one KV head, whose dk and dv stay in the
// cache while the queries of all heads of the group pass, some at a time:
//   P[query][key] = 2^(q Kᵀ - logsumexp)   q is broadcast, K is packed transposed, once for a block of keys;
//   dS[query][key] = P (dout Vᵀ - delta)   likewise;
//   dv[key][d] += Pᵀ dout, dk[key][d] += dSᵀ q, dq[query][d] += dS K: the rows lie in the lanes as they are.
// `Products` says which numbers are multiplied: fp32, into which numbers of 16 bits are widened, or words of bf16 pairs in
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

// P, and dS from P, or one of them.
template <class Products, bool P, bool Ds>
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
  Index growth;  // how many more each next query sees: 1 if causal, else 0
  float scale;   // of scores, times log2(e)
  Index first;   // group
  const Ahead (&ahead)[4];

  // Vectors of which no query sees a key are 0.
  template <int Groups>
  [[gnu::always_inline]] void tile(Index at) const {
    const Index group = first + at, last = (group + Groups) * kNumbers - 1;
    const Index vectors = (least(keys, seen + last * growth) + kLanes - 1) / kLanes;
    if constexpr (Groups * kNumbers == kRows)
      for_vectors<Groups, 1>(group, vectors);
    else
      tile<Groups, kVectors>(group);
  }
  template <int Groups, int Vectors>
  [[gnu::always_inline]] void for_vectors(Index group, Index vectors) const {
    if constexpr (Vectors < kVectors)
      if (vectors > Vectors) return for_vectors<Groups, Vectors + 1>(group, vectors);
    tile<Groups, Vectors>(group);
  }

  template <int Groups, int Vectors>
  [[gnu::noinline]] void tile(Index group) const {
    constexpr int kRows = Groups * static_cast<int>(kNumbers);
    const Index query = group * kNumbers;
    if constexpr (P) fetch(ahead, query, query + kRows);
    alignas(64) float own[kNumbers > 1 ? kRows * kWidth : 1];
    float* const weights = kNumbers > 1 ? own : p + query * key_block;
    const Index pitch = kNumbers > 1 ? kWidth : key_block;
    Vec acc[kRows][Vectors], all[kRows][kVectors];
    const auto product = [&](const Operand& a, const float* b) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int z = 0; z < Vectors; ++z) acc[i][z] = zero();
      multiply<Products>(acc, a.rows + query * a.pitch, a.pitch, 1, b, kWidth, words);
    };
    if constexpr (P) {
      product(q, k);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec less = set1(-shift[query + i]);
#pragma GCC unroll 8
        for (int z = 0; z < kVectors; ++z)
          store(weights + i * pitch + z * kLanes, z < Vectors ? exp2(fma(acc[i][z], set1(scale), less)) : zero());
      }
      for (int i = 0; i < kRows; ++i) {
        const Index met = most(least(seen + (query + i) * growth, keys), 0);
        for (Index key = met; key < Vectors * kLanes; ++key) weights[i * pitch + key] = 0;
      }
    }
    if constexpr (Ds) {
      product(dout, v);
      Products::template put<kRows>(weights, p + group * key_block, key_block);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec less = set1(delta[query + i]);
#pragma GCC unroll 8
        for (int z = 0; z < kVectors; ++z)
          all[i][z] = z < Vectors ? mul(load(weights + i * pitch + z * kLanes), sub(acc[i][z], less)) : zero();
      }
      Products::template put<kRows>(all, ds + group * key_block, ds_rows + query * (key_block / kNumbers), key_block);
    }
  }
};

constexpr Index kFar = Index{1} << 40;

// Which words a row meets: those from the number row - begin on, and with `Rows` up to the number row + end.
struct Edge {
  Index begin = kFar, end = kFar;
};

// to[rows][Vectors] += a b
template <class Products, int Vectors>
struct Sums {
  const float* a;
  Index a_row, a_step;
  const float* b;
  float* to;
  Index pitch, n;
  Edge edge;

  template <int Rows>
  [[gnu::noinline]] void tile(Index row) const {
    constexpr Index kNumbers = Products::kNumbers;
    const Index begin = least(most(row - edge.begin, 0) / kNumbers, n);
    const Index end = least((row + Rows + edge.end + kNumbers - 1) / kNumbers, n);
    float* const from = to + row * pitch;
    Vec acc[Rows][Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) acc[i][z] = load(from + i * pitch + z * kLanes);
    multiply<Products>(acc, a + row * a_row + begin * a_step, a_row, a_step, b + begin * pitch, pitch, end - begin);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(from + i * pitch + z * kLanes, acc[i][z]);
  }
};

// to[rows, pitch] += a[rows, n] b[n, pitch]
template <class Products>
void add_product(Index rows, const float* a, Index a_row, Index a_step, const float* b, Index n, Edge edge, float* to,
                 Index pitch) {
  Index d = 0;
  for (; d + kWidth <= pitch; d += kWidth)
    for_tiles<kTileRows<kVectors>>(rows, Sums<Products, kVectors>{a, a_row, a_step, b + d, to + d, pitch, n, edge});
  for (; d < pitch; d += kLanes) for_tiles<kTileRows<1>>(rows, Sums<Products, 1>{a, a_row, a_step, b + d, to + d, pitch, n, edge});
}

template <class T>
void put_rows(const float* from, Index rows, Index head_dim, Index pitch, float scale, T* to) {
  for (Index row = 0; row < rows; ++row)
    for (Index d = 0; d < head_dim; d += kLanes)
      put(to + row * head_dim + d, static_cast<int>(least(kLanes, head_dim - d)), mul(load(from + row * pitch + d), set1(scale)));
}

// dk and dv, K and V transposed, K, two matrices of scores, of words one more; queries and dout, twice; two numbers of a query.
template <class Products>
std::int64_t workspace_floats(std::int64_t key_block, std::int64_t head_dim) {
  constexpr Index kNumbers = Products::kNumbers, kQueries = Products::kQueries;
  const Index columns = round_up(head_dim, kLanes), words = (head_dim + kNumbers - 1) / kNumbers;
  return key_block * (2 * columns + 2 * words + columns / kNumbers + (kNumbers > 1 ? 3 : 2) * kQueries / kNumbers) +
         4 * kQueries * columns / kNumbers + 2 * kQueries;
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
  const Ahead none[4] = {};
  const auto fill = [](float* to, Index n) {
    for (Index i = 0; i < n; i += kLanes) store(to + i, zero());
  };
  const auto rows_of = [head_dim](const void* all, Index row, Index last) {
    const auto* const from = static_cast<const T*>(all) + row * head_dim;
    return Ahead{reinterpret_cast<const float*>(from), most(0, last - row) * head_dim * Index{sizeof(T)} / 4};
  };

  for (Index first = part.first_block * block; first < part.seq_kv; first += part.blocks_step * block) {
    const Index keys = least(block, part.seq_kv - first);
    const T* const k = static_cast<const T*>(part.k) + first * head_dim;
    const T* const v = static_cast<const T*>(part.v) + first * head_dim;
    const float* const k_sums = Products::sums(k, keys, head_dim, pitch, k_panel);
    for (Index key = 0; key < keys; key += kWidth) {
      Products::columns(k + key * head_dim, keys - key, head_dim, k_columns + key * words);
      Products::columns(v + key * head_dim, keys - key, head_dim, v_columns + key * words);
    }
    fill(dk, block * pitch);
    fill(dv, block * pitch);
    const Index later = part.seq_kv - part.seq_q, begin = part.causal ? most(first - later, 0) : 0;
    const bool anew = first == part.first_block * block;
    for (Index head = 0; head < part.group; ++head) {
      if (anew) fill(part.dq + head * part.seq_q * pitch, begin * pitch);
      for (Index query = begin; query < part.seq_q; query += kQueries) {
        const Index n = least(kQueries, part.seq_q - query), row = head * part.seq_q + query, groups = words_of(n);
        if (anew) fill(part.dq + row * pitch, n * pitch);
        const Index after = row + n, to = least(after + kQueries, rows);
        Ahead ahead[4] = {
            rows_of(part.q, after, to), rows_of(part.dout, after, to), {part.dq + after * pitch, (to - after) * pitch}, {}};
        if (after == rows) {
          const Index next = first + part.blocks_step * block, next_to = least(next + block, part.seq_kv);
          ahead[0] = rows_of(part.k, next, next_to), ahead[1] = rows_of(part.v, next, next_to);
          ahead[2] = rows_of(part.dk, first, first + keys), ahead[3] = rows_of(part.dv, first, first + keys);
        }
        share_out(ahead, n);
        const Operand q = Products::operand(static_cast<const T*>(part.q) + row * head_dim, n, head_dim, pitch, q_panel);
        const Operand dout = Products::operand(static_cast<const T*>(part.dout) + row * head_dim, n, head_dim, pitch, dout_panel);
        for (Index i = 0; i < groups * kNumbers; ++i) {  // a query that fills up the last word has no weights
          shift[i] = i < n ? part.logsumexp[row + i] * kLog2e : 1e30f;
          delta[i] = i < n ? part.delta[row + i] : 0;
        }
        // Along the diagonal every product meets what its rows see. A tile of keys may begin before these: zeros are there too.
        const Index seen = part.causal ? query + later + 1 - first : kFar, met = least(keys, seen + n - 1);
        for (Index key = 0; key < met; key += kWidth) {
          const Index unseeing = least(most(key - seen - kNarrowRows, 0) / kNumbers, groups);
          const auto scores = [&](auto p_too, auto ds_too) {
            for_tiles<kRows / kNumbers>(
                groups - unseeing,
                Scores<Products, p_too, ds_too>{q, dout, k_columns + key * words, v_columns + key * words, shift, delta, p + key,
                                                ds + key, ds_rows + key / kNumbers, words, block, seen - key, keys - key,
                                                part.causal, part.scale * kLog2e, unseeing, key == 0 ? ahead : none});
          };
          // In fp32 the columns of K and of V fit into the first cache one after the other, and P lies in memory anyway.
          if constexpr (kNumbers == 1) {
            scores(std::true_type{}, std::false_type{});
            scores(std::false_type{}, std::true_type{});
          } else {
            scores(std::true_type{}, std::true_type{});
          }
        }
        add_product<Products>(met, p, 1, block, dout.sums, groups, {seen - 1, kFar}, dv, pitch);
        add_product<Products>(met, ds, 1, block, q.sums, groups, {seen - 1, kFar}, dk, pitch);
        add_product<Products>(n, ds_rows, block / kNumbers, 1, k_sums, words_of(met), {kFar, seen - 1}, part.dq + row * pitch,
                              pitch);
      }
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
