// Attention of few queries: keys and values are read once, in the order they lie in memory, by whole rows. Scores are dot products
// along the lanes; results add up row by row of V. While a block's keys are read its values are fetched into the cache, and with
// the values the next block's keys, so that memory never waits for the arithmetic between.
#include "cpu/decode_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

constexpr float kInfinity = __builtin_inff();
constexpr int kKeys = DecodeKernels::kKeys;
constexpr int kMostRows = kLanes < 4 ? kLanes : 4;  // of a tile of scores: rows x keys are as many as lanes
constexpr int kValueRows = 2;                       // of a tile of results

ROOFLINE_INLINE Index least(Index a, Index b) { return a < b ? a : b; }
ROOFLINE_INLINE Index most(Index a, Index b) { return a > b ? a : b; }

ROOFLINE_INLINE void fetch(const float* first, const float* last) {
  for (; first < last; first += 64 / sizeof(float)) __builtin_prefetch(first, 0, 2);
}

// scores[Rows][kLanes / Rows] of rows of q and as many keys.
template <int Rows>
ROOFLINE_INLINE void score_tile(const float* q, const float* k, Index head_dim, float* scores, Index stride) {
  constexpr int kTileKeys = kLanes / Rows;
  Vec acc[kLanes];
#pragma GCC unroll 16
  for (Vec& one : acc) one = zero();
  const auto step = [&](Index d, int n) __attribute__((always_inline)) {
    Vec keys[kTileKeys];
#pragma GCC unroll 16
    for (int j = 0; j < kTileKeys; ++j)
      keys[j] = n == kLanes ? load(k + j * head_dim + d) : load_partial(k + j * head_dim + d, n, zero());
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const Vec query = n == kLanes ? load(q + r * head_dim + d) : load_partial(q + r * head_dim + d, n, zero());
#pragma GCC unroll 16
      for (int j = 0; j < kTileKeys; ++j) acc[r * kTileKeys + j] = fma(query, keys[j], acc[r * kTileKeys + j]);
    }
  };
  Index d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) step(d, kLanes);
  if (d < head_dim) step(d, static_cast<int>(head_dim - d));
  transpose(acc);
#pragma GCC unroll 4
  for (int width = kLanes / 2; width > 0; width /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) acc[i] = add(acc[i], acc[i + width]);
  if constexpr (Rows == 1) {
    store(scores, acc[0]);
  } else {
    float together[kLanes];
    store(together, acc[0]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) scores[i / kTileKeys * stride + i % kTileKeys] = together[i];
  }
}

// One score, where keys do not fill a tile.
ROOFLINE_INLINE float score(const float* q, const float* k, Index head_dim) {
  Vec acc[2] = {zero(), zero()};
  Index d = 0;
  for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
    acc[0] = fma(load(q + d), load(k + d), acc[0]);
    acc[1] = fma(load(q + d + kLanes), load(k + d + kLanes), acc[1]);
  }
  for (; d < head_dim; d += kLanes) {
    const int n = static_cast<int>(least(kLanes, head_dim - d));
    acc[0] = fma(load_partial(q + d, n, zero()), load_partial(k + d, n, zero()), acc[0]);
  }
  return reduce_add(add(acc[0], acc[1]));
}

// Rows of q against n keys; the values of these keys come into the cache with the first rows.
template <int Rows>
void score_rows(const float* q, const float* k, const float* v, Index n, Index head_dim, float* scores, bool with_values) {
  constexpr int kTileKeys = kLanes / Rows;
  Index key = 0;
  for (; key + kTileKeys <= n; key += kTileKeys) {
    if (with_values) fetch(v + key * head_dim, v + (key + kTileKeys) * head_dim);
    score_tile<Rows>(q, k + key * head_dim, head_dim, scores + key, kKeys);
  }
  for (; key < n; ++key)
    for (int r = 0; r < Rows; ++r) scores[r * kKeys + key] = score(q + r * head_dim, k + key * head_dim, head_dim);
}

// Weights 2^(score - top) of the n keys that a row sees, and 0 up to `all`; top, sum and out move to the new top.
ROOFLINE_INLINE void weigh(float* s, Index n, Index all, float* top, float* sum, float* out, Index head_dim) {
  for (Index key = most(n, 0); key < all; ++key) s[key] = 0;
  if (n <= 0) return;
  Vec high = set1(*top);
  for (Index key = 0; key < n; key += kLanes) high = max(high, load_partial(s + key, static_cast<int>(least(kLanes, n - key)), high));
  const float now = reduce_max(high);
  if (now > *top) {
    const Vec down = *top == -kInfinity ? zero() : exp2(set1(*top - now));
    *sum *= reduce_max(down);
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int lanes = static_cast<int>(least(kLanes, head_dim - d));
      store_partial(out + d, lanes, mul(load_partial(out + d, lanes, zero()), down));
    }
    *top = now;
  }
  const Vec highest = set1(*top);
  Vec total = zero();
  Index key = 0;
  for (; key + kLanes <= n; key += kLanes) {
    const Vec weight = exp2_bounded(sub(load(s + key), highest));
    store(s + key, weight);
    total = add(total, weight);
  }
  if (key < n) {
    const int rest = static_cast<int>(n - key);
    store_partial(s + key, rest, exp2_bounded(sub(load_partial(s + key, rest, highest), highest)));
    total = add(total, load_partial(s + key, rest, zero()));
  }
  *sum += reduce_add(total);
}

// out[Rows][head_dim] += weights[Rows][Keys] V[Keys][head_dim]
template <int Rows, int Keys>
ROOFLINE_INLINE void value_tile(const float* s, const float* v, Index head_dim, float* out) {
  Vec weight[Rows][Keys];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j) weight[r][j] = set1(s[r * kKeys + j]);
  Index d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    Vec values[Keys];
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j) values[j] = load(v + j * head_dim + d);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      Vec acc = load(out + r * head_dim + d);
#pragma GCC unroll 8
      for (int j = 0; j < Keys; ++j) acc = fma(weight[r][j], values[j], acc);
      store(out + r * head_dim + d, acc);
    }
  }
  if (d < head_dim) {
    const int n = static_cast<int>(head_dim - d);
    for (int r = 0; r < Rows; ++r) {
      Vec acc = load_partial(out + r * head_dim + d, n, zero());
      for (int j = 0; j < Keys; ++j) acc = fma(weight[r][j], load_partial(v + j * head_dim + d, n, zero()), acc);
      store_partial(out + r * head_dim + d, n, acc);
    }
  }
}

template <int Rows>
void value_rows(const float* s, const float* v, const float* next, Index n, Index head_dim, float* out, bool with_next) {
  constexpr int kTileKeys = 8 / Rows;
  Index key = 0;
  for (; key + kTileKeys <= n; key += kTileKeys) {
    if (with_next) fetch(next + key * head_dim, next + (key + kTileKeys) * head_dim);
    value_tile<Rows, kTileKeys>(s + key, v + key * head_dim, head_dim, out);
  }
  for (; key < n; ++key) value_tile<Rows, 1>(s + key, v + key * head_dim, head_dim, out);
}

void attend(const DecodePart& part) {
  const Index head_dim = part.head_dim, rows = part.rows;
  float* const q = part.workspace;                    // [rows, head_dim], scaled
  float* const s = part.workspace + rows * head_dim;  // [rows, kKeys]
  for (Index i = 0; i < rows * head_dim; ++i) q[i] = part.q[i] * part.scale;
  for (Index i = 0; i < rows * head_dim; ++i) part.out[i] = 0;
  for (Index row = 0; row < rows; ++row) {
    part.top[row] = -kInfinity;
    part.sum[row] = 0;
  }
  for (Index begin = part.first; begin < part.last; begin += kKeys) {
    const Index n = least(kKeys, part.last - begin);
    const float* const k = part.k + begin * head_dim;
    const float* const v = part.v + begin * head_dim;
    Index row = 0;
    if constexpr (kMostRows >= 4)
      for (; row + 4 <= rows; row += 4) score_rows<4>(q + row * head_dim, k, v, n, head_dim, s + row * kKeys, row == 0);
    if constexpr (kMostRows >= 2)
      for (; row + 2 <= rows; row += 2) score_rows<2>(q + row * head_dim, k, v, n, head_dim, s + row * kKeys, row == 0);
    for (; row < rows; ++row) score_rows<1>(q + row * head_dim, k, v, n, head_dim, s + row * kKeys, row == 0);
    for (row = 0; row < rows; ++row)
      weigh(s + row * kKeys, least(n, part.visible + row % part.seq_q * part.growth - begin), n, part.top + row, part.sum + row,
            part.out + row * head_dim, head_dim);
    const float* const next = k + n * head_dim;  // as many keys may follow; past the last they are not fetched
    const bool more = begin + 2 * kKeys <= part.last;
    for (row = 0; row + kValueRows <= rows; row += kValueRows)
      value_rows<kValueRows>(s + row * kKeys, v, next, n, head_dim, part.out + row * head_dim, more && row == 0);
    for (; row < rows; ++row) value_rows<1>(s + row * kKeys, v, next, n, head_dim, part.out + row * head_dim, more && row == 0);
  }
}

void combine(const DecodeParts& all) {
  const Index head_dim = all.head_dim;
  for (Index row = 0; row < all.rows; ++row) {
    float top = -kInfinity;
    for (Index part = 0; part < all.parts; ++part) top = all.top[part * all.rows + row] > top ? all.top[part * all.rows + row] : top;
    float* const to = all.to + row * head_dim;
    float sum = 0;
    for (Index d = 0; d < head_dim; ++d) to[d] = 0;
    for (Index part = 0; part < all.parts; ++part) {
      const Index at = part * all.rows + row;
      if (all.sum[at] == 0) continue;  // it saw none of these keys
      const Vec share = exp2(set1(all.top[at] - top));
      sum += all.sum[at] * reduce_max(share);
      for (Index d = 0; d < head_dim; d += kLanes) {
        const int n = static_cast<int>(least(kLanes, head_dim - d));
        store_partial(to + d, n, fma(load_partial(all.out + at * head_dim + d, n, zero()), share, load_partial(to + d, n, zero())));
      }
    }
    const Vec scale = set1(1 / sum);
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int n = static_cast<int>(least(kLanes, head_dim - d));
      store_partial(to + d, n, mul(load_partial(to + d, n, zero()), scale));
    }
  }
}

}  // namespace

extern const DecodeKernels ROOFLINE_TABLE(decode) = {attend, combine};

}  // namespace roofline::cpu
