// Attention of few queries: keys and values are read once, row by row, each thread at eight places of its range in turn, since a core
// that reads at one place keeps too few lines on their way. Scores are dot products along the lanes; results add up row by row of V.
#include "cpu/decode_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

constexpr int kKeys = DecodeKernels::kKeys;
constexpr int kValueRows = 2;  // of a tile of results
constexpr int kStreams = 8;    // places where a range is read

// Rows of K or V in the order of a block: one of each stream, then the next of each.
template <int Streams>
struct Order {
  const float* first;
  Index stream;  // floats from one stream to the next
  Index head_dim;

  const float* row(Index i) const { return first + i % Streams * stream + i / Streams * head_dim; }
};

// scores[Rows][kLanes / Rows] of rows of q and as many keys.
template <int Rows, class Keys>
ROOFLINE_INLINE void score_tile(const float* q, const Keys& all, Index key, float* scores) {
  constexpr int kTileKeys = kLanes / Rows;
  const Index head_dim = all.head_dim;
  const float* k[kTileKeys];
#pragma GCC unroll 16
  for (int j = 0; j < kTileKeys; ++j) k[j] = all.row(key + j);
  Vec acc[kLanes];
#pragma GCC unroll 16
  for (Vec& one : acc) one = zero();
  const auto step = [&](Index d, int n) __attribute__((always_inline)) {
    Vec keys[kTileKeys];
#pragma GCC unroll 16
    for (int j = 0; j < kTileKeys; ++j) keys[j] = get(k[j] + d, n, zero());
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const Vec query = get(q + r * head_dim + d, n, zero());
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
    for (int i = 0; i < kLanes; ++i) scores[i / kTileKeys * kKeys + i % kTileKeys] = together[i];
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
    acc[0] = fma(get(q + d, n, zero()), get(k + d, n, zero()), acc[0]);
  }
  return reduce_add(add(acc[0], acc[1]));
}

template <int Rows, class Keys>
void score_rows(const float* q, const Keys& k, Index n, float* scores) {
  constexpr int kTileKeys = kLanes / Rows;
  Index key = 0;
  for (; key + kTileKeys <= n; key += kTileKeys) score_tile<Rows>(q, k, key, scores + key);
  for (; key < n; ++key)
    for (int r = 0; r < Rows; ++r) scores[r * kKeys + key] = score(q + r * k.head_dim, k.row(key), k.head_dim);
}

// Weights 2^(score - top) of the n keys that a row sees, and 0 up to `all`; top, sum and out move to the new top.
ROOFLINE_INLINE void weigh(float* s, Index n, Index all, float* top, float* sum, float* out, Index head_dim) {
  for (Index key = most(n, 0); key < all; ++key) s[key] = 0;
  if (n <= 0) return;
  Vec high = set1(*top);
  for (Index key = 0; key < n; key += kLanes) high = max(high, get(s + key, static_cast<int>(least(kLanes, n - key)), high));
  const float now = reduce_max(high);
  if (now > *top) {
    const Vec down = *top == -kInfinity ? zero() : exp2(set1(*top - now));
    *sum *= reduce_max(down);
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int lanes = static_cast<int>(least(kLanes, head_dim - d));
      put(out + d, lanes, mul(get(out + d, lanes, zero()), down));
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
    put(s + key, rest, exp2_bounded(sub(get(s + key, rest, highest), highest)));
    total = add(total, get(s + key, rest, zero()));
  }
  *sum += reduce_add(total);
}

// out[Rows][head_dim] += weights[Rows][Keys] V[Keys][head_dim]
template <int Rows, int Keys, class Values>
ROOFLINE_INLINE void value_tile(const float* s, const Values& all, Index key, float* out) {
  const Index head_dim = all.head_dim;
  const float* v[Keys];
#pragma GCC unroll 8
  for (int j = 0; j < Keys; ++j) v[j] = all.row(key + j);
  Vec weight[Rows][Keys];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j) weight[r][j] = set1(s[r * kKeys + key + j]);
  Index d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    Vec values[Keys];
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j) values[j] = load(v[j] + d);
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
      Vec acc = get(out + r * head_dim + d, n, zero());
      for (int j = 0; j < Keys; ++j) acc = fma(weight[r][j], get(v[j] + d, n, zero()), acc);
      put(out + r * head_dim + d, n, acc);
    }
  }
}

template <int Rows, class Values>
void value_rows(const float* s, const Values& v, Index n, float* out) {
  constexpr int kTileKeys = 8 / Rows;
  Index key = 0;
  for (; key + kTileKeys <= n; key += kTileKeys) value_tile<Rows, kTileKeys>(s, v, key, out);
  for (; key < n; ++key) value_tile<Rows, 1>(s, v, key, out);
}

// `each` keys of every stream, the first of them `first`. Without a mask all rows see all of them.
template <int Streams>
void walk(const DecodePart& part, const float* q, float* s, Index first, Index each, bool masked) {
  const Index head_dim = part.head_dim, rows = part.rows;
  for (Index begin = 0; begin < Streams * each; begin += kKeys) {
    const Index n = least(kKeys, Streams * each - begin);
    const Index at = (first + begin / Streams) * head_dim;
    const Order<Streams> k{part.k + at, each * head_dim, head_dim}, v{part.v + at, each * head_dim, head_dim};
    Index row = 0;
    if constexpr (kLanes >= 4) {  // a tile of scores has as many as lanes
      for (; row + 4 <= rows; row += 4) score_rows<4>(q + row * head_dim, k, n, s + row * kKeys);
      for (; row + 2 <= rows; row += 2) score_rows<2>(q + row * head_dim, k, n, s + row * kKeys);
    }
    for (; row < rows; ++row) score_rows<1>(q + row * head_dim, k, n, s + row * kKeys);
    for (row = 0; row < rows; ++row) {
      const Index seen = masked ? least(n, part.visible + row % part.seq_q * part.growth - first - begin) : n;
      weigh(s + row * kKeys, seen, n, part.top + row, part.sum + row, part.out + row * head_dim, head_dim);
    }
    for (row = 0; row + kValueRows <= rows; row += kValueRows) value_rows<kValueRows>(s + row * kKeys, v, n, part.out + row * head_dim);
    for (; row < rows; ++row) value_rows<1>(s + row * kKeys, v, n, part.out + row * head_dim);
  }
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
  const Index each = most(least(part.last, part.visible) - part.first, 0) / kStreams;  // of the keys that all rows see
  walk<kStreams>(part, q, s, part.first, each, false);
  const Index rest = part.first + kStreams * each;
  walk<1>(part, q, s, rest, part.last - rest, true);
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
        put(to + d, n, fma(get(all.out + at * head_dim + d, n, zero()), share, get(to + d, n, zero())));
      }
    }
    const Vec scale = set1(1 / sum);
    for (Index d = 0; d < head_dim; d += kLanes) {
      const int n = static_cast<int>(least(kLanes, head_dim - d));
      put(to + d, n, mul(get(to + d, n, zero()), scale));
    }
  }
}

}  // namespace

extern const DecodeKernels ROOFLINE_TABLE(decode) = {attend, combine};

}  // namespace roofline::cpu
