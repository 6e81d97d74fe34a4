// Gradients of attention (FlashAttention-2, algorithm 2). A thread owns blocks of keys of one KV head, whose dk and dv stay in the
// cache while the queries of all heads of the group pass, some at a time:
//   P[query][key] = 2^(q Kᵀ - logsumexp)   q is broadcast as it lies, K is packed transposed and scaled, once for a block of keys;
//   dS[query][key] = P (dout Vᵀ - delta)   likewise;
//   dv[key][d] += Pᵀ dout, dk[key][d] += dSᵀ q, dq[query][d] += dS K: the rows lie in the lanes as they are.
// Numbers of 16 bits, and rows that are no whole vectors, are copied into panels of fp32.
#include "cpu/backward_kernels.h"

#include "cpu/attention_tile.h"

namespace roofline::cpu {
namespace {

constexpr Index kQueries = BackwardKernels::kQueries;
constexpr float kLog2e = 1.44269504f;

struct Scores {
  const float* q;     // [queries, pitch]
  const float* dout;  // [queries, pitch]
  const float* k;     // [head_dim, kWidth], scaled
  const float* v;     // [head_dim, kWidth]
  const float* logsumexp;
  const float* delta;
  float* p;  // [queries, key_block], from these keys
  float* ds;
  Index pitch, head_dim, key_block;
  Index seen;  // of these keys, by the first query
  bool causal;  // each next query sees one more

  template <int Rows>
  [[gnu::noinline]] void tile(Index query) const {
    Vec acc[Rows][kVectors];
    const auto clear = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
        for (int z = 0; z < kVectors; ++z) acc[i][z] = zero();
    };
    clear();
    multiply(acc, q + query * pitch, pitch, 1, k, kWidth, head_dim);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vec shift = set1(logsumexp[query + i] * kLog2e);
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) store(p + (query + i) * key_block + z * kLanes, exp2(sub(acc[i][z], shift)));
    }
    if (causal && seen + query < kWidth)
      for (int i = 0; i < Rows; ++i)
        for (Index key = most(seen + query + i, 0); key < kWidth; ++key) p[(query + i) * key_block + key] = 0;
    clear();
    multiply(acc, dout + query * pitch, pitch, 1, v, kWidth, head_dim);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vec less = set1(delta[query + i]);
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) {
        const Index at = (query + i) * key_block + z * kLanes;
        store(ds + at, mul(load(p + at), sub(acc[i][z], less)));
      }
    }
  }
};

// to[rows][Vectors] += a b
template <int Vectors>
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
    multiply(acc, a + row * a_row, a_row, a_step, b, pitch, n);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) store(from + i * pitch + z * kLanes, acc[i][z]);
  }
};

// to[rows, pitch] += a[rows, n] b[n, pitch]
void add_product(Index rows, const float* a, Index a_row, Index a_step, const float* b, Index n, float* to, Index pitch) {
  Index d = 0;
  for (; d + kWidth <= pitch; d += kWidth)
    for_tiles<kTileRows<kVectors>>(rows, Sums<kVectors>{a, a_row, a_step, b + d, to + d, pitch, n});
  for (; d < pitch; d += kLanes) for_tiles<kTileRows<1>>(rows, Sums<1>{a, a_row, a_step, b + d, to + d, pitch, n});
}

template <class T>
const float* panel_of(const T* from, Index rows, Index head_dim, Index pitch, float* panel) {
  if constexpr (sizeof(T) == sizeof(float))
    if (pitch == head_dim) return from;
  for (Index row = 0; row < rows; ++row) widen(from + row * head_dim, head_dim, panel + row * pitch);
  return panel;
}

template <class T>
void put_rows(const float* from, Index rows, Index head_dim, Index pitch, float scale, T* to) {
  for (Index row = 0; row < rows; ++row)
    for (Index d = 0; d < head_dim; d += kLanes)
      put(to + row * head_dim + d, static_cast<int>(least(kLanes, head_dim - d)), mul(load(from + row * pitch + d), set1(scale)));
}

template <class T>
void gradients(const BackwardPart& part) {
  const Index head_dim = part.head_dim, pitch = (head_dim + kLanes - 1) / kLanes * kLanes, block = part.key_block;
  const Index rows = part.group * part.seq_q;
  float* free = part.workspace;
  const auto take = [&free](Index floats) {
    float* const taken = free;
    free += floats;
    return taken;
  };
  float *const k_columns = take(block * head_dim), *const v_columns = take(block * head_dim);
  float *const dk = take(block * pitch), *const dv = take(block * pitch), *const k_panel = take(block * pitch);
  float *const p = take(block * kQueries), *const ds = take(block * kQueries);
  float *const q_panel = take(kQueries * pitch), *const dout_panel = take(kQueries * pitch);
  for (Index i = 0; i < rows * pitch; i += kLanes) store(part.dq + i, zero());

  for (Index first = part.first_block * block; first < part.seq_kv; first += part.blocks_step * block) {
    const Index keys = least(block, part.seq_kv - first);
    const T* const lies = static_cast<const T*>(part.k) + first * head_dim;
    const T* const values = static_cast<const T*>(part.v) + first * head_dim;
    const float* const k = panel_of(lies, keys, head_dim, pitch, k_panel);
    for (Index key = 0; key < keys; key += kWidth) {
      transpose_scaled(lies + key * head_dim, keys - key, head_dim, set1(part.scale * kLog2e), k_columns + key * head_dim, kWidth);
      transpose_scaled(values + key * head_dim, keys - key, head_dim, set1(1), v_columns + key * head_dim, kWidth);
    }
    for (Index i = 0; i < block * pitch; i += kLanes) {
      store(dk + i, zero());
      store(dv + i, zero());
    }
    const Index later = part.seq_kv - part.seq_q;
    for (Index head = 0; head < part.group; ++head)
      for (Index query = part.causal ? most(first - later, 0) : 0; query < part.seq_q; query += kQueries) {
        const Index n = least(kQueries, part.seq_q - query), row = head * part.seq_q + query;
        const float* const q = panel_of(static_cast<const T*>(part.q) + row * head_dim, n, head_dim, pitch, q_panel);
        const float* const dout = panel_of(static_cast<const T*>(part.dout) + row * head_dim, n, head_dim, pitch, dout_panel);
        for (Index key = 0; key < keys; key += kWidth)
          for_tiles<kTileRows<kVectors>>(
              n, Scores{q, dout, k_columns + key * head_dim, v_columns + key * head_dim, part.logsumexp + row, part.delta + row,
                        p + key, ds + key, pitch, head_dim, block, query + later + 1 - first - key, part.causal});
        add_product(keys, p, 1, block, dout, n, dv, pitch);
        add_product(keys, ds, 1, block, q, n, dk, pitch);
        add_product(n, ds, block, 1, k, keys, part.dq + row * pitch, pitch);
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

extern const BackwardKernels ROOFLINE_TABLE(backward) = {
    kLanes,
    kWidth,
    {deltas<float>, deltas<Bf16>, deltas<Fp16>},
    {gradients<float>, gradients<Bf16>, gradients<Fp16>},
    {sum<float>, sum<Bf16>, sum<Fp16>},
};

}  // namespace roofline::cpu
