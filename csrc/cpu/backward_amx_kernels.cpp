// Gradients of attention of bf16 by the tiles of AMX, where a thread owns blocks of keys as in backward_blocks.h:
//   S[query][key] = q Kᵀ, dP[query][key] = dout Vᵀ  rows of q and dout are tiles as they lie, K and V are transposed once;
//   dvᵀ[d][key] += doutᵀ P, dkᵀ[d][key] += qᵀ dS    words of P and dS are two queries; q and dout are transposed in tiles;
//   dq[query][d] += dS K                            words of dS, as its rows lie, and of K are two keys.
// P and dS are rounded to bf16; denormals count as 0. Columns past head_dim, and queries past the last, are zeros.
#include "cpu/amx_products.h"
#include "cpu/backward_blocks.h"

namespace roofline::cpu {
namespace {

constexpr Index kStep = kPairedRows;  // rows and columns of two tiles, and numbers that one step of a product adds up
constexpr Index kQueries = 128, kSteps = kQueries / kStep;

// The pitch of rows of so many words: a line more, so that the rows of a tile do not meet in few sets of the first cache.
constexpr Index padded(Index words) { return words + kTile; }

// What a thread works in, from `base` on; rows are padded. Null: how many floats that takes.
struct Panels {
  Index block, columns;          // keys; head_dim in whole steps
  Index keys, key_words, words;  // from a row of as many keys, pairs of keys, or pairs of columns to the next
  Index floats = 0;
  float *dk, *dv;                // [columns][block]
  float *k, *v;                  // [words of columns][block]
  float* k_pairs;                // [pairs of keys][columns]
  float* rest;                   // [kStep][columns], of dq
  float *s, *dp;                 // [kQueries][block]
  float *p, *ds;                 // [pairs of queries][block]
  float* ds_rows;                // [kQueries][words of block]
  float *q, *dout;               // [kQueries][words of columns]
  float *q_tiles, *dout_tiles;   // [columns / 16][kSteps] tiles
  float *shift, *delta;          // [kQueries]; logsumexp in units of log2

  Panels(float* base, Index block, Index columns)
      : block(block), columns(columns), keys(padded(block)), key_words(padded(block / 2)), words(padded(columns / 2)) {
    const auto take = [&](Index n) {
      float* const taken = base ? base + floats : nullptr;
      floats += n;
      return taken;
    };
    dk = take(columns * keys), dv = take(columns * keys), k = take(columns / 2 * keys), v = take(columns / 2 * keys);
    k_pairs = take(block / 2 * padded(columns)), rest = take(kStep * padded(columns));
    s = take(kQueries * keys), dp = take(kQueries * keys), p = take(kQueries / 2 * keys), ds = take(kQueries / 2 * keys);
    ds_rows = take(kQueries * key_words), q = take(kQueries * words), dout = take(kQueries * words);
    q_tiles = take(kQueries * columns / 2), dout_tiles = take(kQueries * columns / 2);
    shift = take(kQueries), delta = take(kQueries);
  }
};

void clear(float* to, Index n) { __builtin_memset(to, 0, static_cast<std::size_t>(4 * n)); }

// rows[n in whole steps][words] = from[n][head_dim], and the tiles of its transpose.
void take_rows(const Bf16* from, Index n, Index head_dim, Index columns, float* rows, Index words, float* tiles) {
  for (Index row = 0; row < n; ++row, from += head_dim) {
    if (columns > head_dim) clear(rows + row * words + columns / 2 - kTile, kTile);
    __builtin_memcpy(rows + row * words, from, static_cast<std::size_t>(2 * head_dim));
  }
  clear(rows + n * words, (round_up(n, kStep) - n) * words);
  for (Index row = 0; row < n; row += kStep) {
    const Bf16* of_step[kStep];
    for (Index i = 0; i < kStep; ++i) of_step[i] = reinterpret_cast<const Bf16*>(rows + (row + i) * words);
    for (Index d = 0; d < columns; d += kStep) {
      float* const to = tiles + (d / kTile * kSteps + row / kStep) * kTileWords;
      put_transposed(of_step, d, to, to + kSteps * kTileWords);
    }
  }
}

// What a product's tiles are: rows of words, `pitch` words apart, whose steps lie side by side; or below one another.
ROOFLINE_INLINE TileOperand rows_at(const float* at, Index pitch) { return {at, at + kTile * pitch, 4 * pitch, kTile}; }
ROOFLINE_INLINE TileOperand columns_at(const float* at, Index pitch) { return {at, at + kTile, 4 * pitch, kTile * pitch}; }
ROOFLINE_INLINE TileOperand tiles_at(const float* at) { return {at, at + kSteps * kTileWords, kTileBytes, kTileWords}; }

// c = or += the product of `steps` steps. Columns: both tiles of them, else the first.
template <bool Columns = true>
ROOFLINE_INLINE void product(const TileOperand& a, const TileOperand& b, Index steps, bool add, float* c, Index pitch) {
  using Tiles = Square<true, Columns>;
  add ? Tiles::load(c, 4 * pitch) : Tiles::clear();
  Tiles::add(a, b, steps, kNothing);
  Tiles::store(c, 4 * pitch);
}

// Queries that meet a block of keys: the first sees `seen` of them, each next one `growth` more.
struct Queries {
  Index n, seen, growth, keys;
  Index sees(Index query) const { return most(0, least(seen + query * growth, keys)); }
  Index in_steps() const { return round_up(n, kStep); }
  // Keys that any of the queries up to the last of a step sees, in whole steps.
  Index met(Index query) const { return round_up(sees(query + kStep - 1), kStep); }
};

void scores(const Panels& to, const Queries& queries) {
  const Index steps = to.columns / kStep;
  barrier();
  for (Index query = 0; query < queries.in_steps(); query += kStep)
    for (Index key = 0; key < queries.met(query); key += kStep) {
      const Index row = query * to.words, at = query * to.keys + key;
      product(rows_at(to.q + row, to.words), columns_at(to.k + key, to.keys), steps, false, to.s + at, to.keys);
      product(rows_at(to.dout + row, to.words), columns_at(to.v + key, to.keys), steps, false, to.dp + at, to.keys);
    }
  barrier();
}

// P = 2^(S scale - shift) and dS = P (dP - delta), as words of two queries, and dS as words of two keys.
void weights(const Panels& to, const Queries& queries, Index met, float scale) {
  for (Index query = 0; query < queries.in_steps(); query += 2) {
    const Index seen[2] = {queries.sees(query), queries.sees(query + 1)};
    const Vec less[2] = {set1(-to.shift[query]), set1(-to.shift[query + 1])};
    const Vec delta[2] = {set1(to.delta[query]), set1(to.delta[query + 1])};
    for (Index key = 0; key < met; key += kStep) {
      const Index pair = query / 2 * to.keys + key;
      __m512i p_row[2], ds_row[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const Index at = (query + i) * to.keys + key;
        Vec weight[2], gradient[2];
#pragma GCC unroll 2
        for (int z = 0; z < 2; ++z) {
          const int lanes = static_cast<int>(least(most(seen[i] - key - z * kLanes, 0), kLanes));
          weight[z] = lanes == 0 ? zero() : exp2(fma(load(to.s + at + z * kLanes), set1(scale), less[i]));
          if (lanes > 0 && lanes < kLanes) weight[z] = _mm512_maskz_mov_ps(static_cast<__mmask16>((1u << lanes) - 1), weight[z]);
          gradient[z] = lanes == 0 ? zero() : mul(weight[z], sub(load(to.dp + at + z * kLanes), delta[i]));
        }
        p_row[i] = narrow_32(weight[0], weight[1]), ds_row[i] = narrow_32(gradient[0], gradient[1]);
        _mm512_storeu_si512(to.ds_rows + (query + i) * to.key_words + key / 2, ds_row[i]);
      }
      pair_32(p_row[0], p_row[1], to.p + pair);
      pair_32(ds_row[0], ds_row[1], to.ds + pair);
    }
  }
}

// dv and dk of the keys that these queries meet.
void add_to_keys(const Panels& to, const Queries& queries, Index met) {
  barrier();
  for (Index key = 0; key < met; key += kStep) {
    Index step = 0;  // the first that sees any of these keys
    while (queries.met(step * kStep) <= key) ++step;
    const Index steps = queries.in_steps() / kStep - step, at = step * kTile * to.keys + key;
    for (Index d = 0; d < to.columns; d += kStep) {
      const Index tile = (d / kTile * kSteps + step) * kTileWords, sums = d * to.keys + key;
      product(tiles_at(to.dout_tiles + tile), columns_at(to.p + at, to.keys), steps, true, to.dv + sums, to.keys);
      product(tiles_at(to.q_tiles + tile), columns_at(to.ds + at, to.keys), steps, true, to.dk + sums, to.keys);
    }
  }
  barrier();
}

// dq[queries][pitch], of which rows that fill no step are computed apart. anew: nothing is there yet.
void add_to_queries(const Panels& to, const Queries& queries, bool anew, float* dq, Index pitch) {
  for (Index query = 0; query < queries.n; query += kStep, dq += kStep * pitch) {
    const bool whole = query + kStep <= queries.n;
    const Index steps = queries.met(query) / kStep, apart = padded(to.columns);
    const TileOperand ds = rows_at(to.ds_rows + query * to.key_words, to.key_words);
    const auto add_columns = [&](auto both, Index d) __attribute__((always_inline)) {
      const TileOperand k = columns_at(to.k_pairs + d, apart);
      whole ? product<both>(ds, k, steps, !anew, dq + d, pitch) : product<both>(ds, k, steps, false, to.rest + d, apart);
    };
    for (Index d = 0; d < pitch; d += kStep)
      d + kTile < pitch ? add_columns(std::true_type{}, d) : add_columns(std::false_type{}, d);
    barrier();
    for (Index row = 0; row < (whole ? 0 : queries.n - query); ++row)
      for (Index d = 0; d < pitch; d += kLanes) {
        const Vec sum = load(to.rest + row * apart + d);
        store(dq + row * pitch + d, anew ? sum : add(load(dq + row * pitch + d), sum));
      }
  }
}

void gradients(const BackwardPart& part) {
  const Index head_dim = part.head_dim, columns = round_up(head_dim, kStep), pitch = round_up(head_dim, kTile);
  const Index later = part.seq_kv - part.seq_q;
  const Panels to(part.workspace, part.key_block, columns);
  const auto of = [head_dim](const void* all, Index row) { return static_cast<const Bf16*>(all) + row * head_dim; };
  configure(kTile, kTile);
  for (Index first = part.first_block * to.block; first < part.seq_kv; first += part.blocks_step * to.block) {
    const Index keys = least(to.block, part.seq_kv - first), begin = part.causal ? most(first - later, 0) : 0;
    const bool anew = first == part.first_block * to.block;
    transpose_words(of(part.k, first), keys, head_dim, to.k, to.keys, columns / 2);
    transpose_words(of(part.v, first), keys, head_dim, to.v, to.keys, columns / 2);
    clear(to.k_pairs, to.block / 2 * padded(columns));
    for (Index key = 0; key < keys; key += 2) {
      const Bf16* const next = key + 1 < keys ? of(part.k, first + key + 1) : nullptr;
      pair_rows(of(part.k, first + key), next, head_dim, to.k_pairs + key / 2 * padded(columns));
    }
    clear(to.dk, columns * to.keys), clear(to.dv, columns * to.keys);
    for (Index head = 0; head < part.group; ++head) {
      if (anew) clear(part.dq + head * part.seq_q * pitch, begin * pitch);
      for (Index query = begin; query < part.seq_q; query += kQueries) {
        const Index row = head * part.seq_q + query;
        const Index seen = part.causal ? query + later + 1 - first : keys;
        const Queries queries = {least(kQueries, part.seq_q - query), seen, part.causal, keys};
        const Index met = queries.met(queries.in_steps() - kStep);
        take_rows(of(part.q, row), queries.n, head_dim, columns, to.q, to.words, to.q_tiles);
        take_rows(of(part.dout, row), queries.n, head_dim, columns, to.dout, to.words, to.dout_tiles);
        for (Index i = 0; i < queries.in_steps(); ++i) {  // a query past the last has no weights
          to.shift[i] = i < queries.n ? part.logsumexp[row + i] * kLog2e : 1e30f;
          to.delta[i] = i < queries.n ? part.delta[row + i] : 0;
        }
        scores(to, queries);
        weights(to, queries, met, part.scale * kLog2e);
        add_to_keys(to, queries, met);
        add_to_queries(to, queries, anew, part.dq + row * pitch, pitch);
      }
    }
    const auto put = [&](const float* from, float scale, void* all) {
      auto* const rows = static_cast<Bf16*>(all) + first * head_dim;
      for (Index key = 0; key < keys; key += kLanes)
        transpose_scaled_back(from + key, head_dim, to.keys, set1(scale), rows + key * head_dim, keys - key);
    };
    put(to.dk, part.scale, part.dk);
    put(to.dv, 1, part.dv);
  }
  _tile_release();
}

std::int64_t workspace_floats(std::int64_t key_block, std::int64_t head_dim) {
  return Panels(nullptr, key_block, round_up(head_dim, kStep)).floats;
}

}  // namespace

extern const BackwardKernels ROOFLINE_TABLE(backward) = {
    kLanes,
    kStep,
    2,
    workspace_floats,
    {nullptr, deltas<Bf16>, nullptr},
    {nullptr, gradients, nullptr},
    {nullptr, sum<Bf16>, nullptr},
};

}  // namespace roofline::cpu
