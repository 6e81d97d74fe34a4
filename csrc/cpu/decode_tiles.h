// Attention of few queries: the register tiles of scores and results, of any size. Everything is internal to the file that includes
// it.
#pragma once

#include "cpu/decode_whole_rows.h"

namespace roofline::cpu {
namespace {

// scores[Keys][Rows] of rows of q; up to a vector more is written behind them. Reading: with prefetches, four keys at a time, so
// that rows are read nearly in order.
template <int Rows, int Keys, bool Reading, class Element>
ROOFLINE_INLINE void score_tile(const Number* q, const Block<Element>& block, Index key, Number* scores) {
  constexpr int kSums = Rows * Keys, kTogether = Reading && Keys % 4 == 0 ? 4 : Keys;
  const Index pitch = block.head_dim + block.rope_dim, parts = block.rope_dim > 0 ? 2 : 1;  // columns of k, then of rope
  Vec acc[kSums];
#pragma GCC unroll 4
  for (int first = 0; first < Keys; first += kTogether) {
    const auto then = block.after_keys(key + first);
    if constexpr (Reading)
#pragma GCC unroll 16
      for (int j = 0; j < kTogether; ++j) block.fetch(then[j]);
    Vec sums[Rows * kTogether];
#pragma GCC unroll 16
    for (Vec& one : sums) one = zero();
#pragma GCC unroll 1
    for (Index part = 0; part < parts; ++part) {
      const Element* k[kTogether];
      const Number* const queries = q + part * block.head_dim;
      const Index dim = part ? block.rope_dim : block.head_dim;
#pragma GCC unroll 16
      for (int j = 0; j < kTogether; ++j)
        k[j] = part ? block.rope + block.rope_at[key + first + j] : block.k + block.at[key + first + j];
      const auto step = [&](Index d, int n) __attribute__((always_inline)) {
        if constexpr (Rows < kTogether) {  // the fewer operands wait in registers
          Vec query[Rows];
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) query[r] = get(queries + r * pitch + d, n, zero());
#pragma GCC unroll 16
          for (int j = 0; j < kTogether; ++j) {
            const Vec keys = get(k[j] + d, n, zero());
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) sums[j * Rows + r] = multiply_add<Element>(query[r], keys, sums[j * Rows + r]);
          }
        } else {
          Vec keys[kTogether];
#pragma GCC unroll 16
          for (int j = 0; j < kTogether; ++j) keys[j] = get(k[j] + d, n, zero());
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) {
            const Vec query = get(queries + r * pitch + d, n, zero());
#pragma GCC unroll 16
            for (int j = 0; j < kTogether; ++j) sums[j * Rows + r] = multiply_add<Element>(query, keys[j], sums[j * Rows + r]);
          }
        }
      };
      Index d = 0;
      if constexpr (sizeof(Element) == 1 && (Rows < Keys || kManyRegisters || kInTwos<Element>))
        for (; d + 2 * kLanes <= dim; d += 2 * kLanes) {
          Vec query[Rows][2];
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r)
            for (int half = 0; half < 2; ++half) query[r][half] = load(queries + r * pitch + d + half * kLanes);
#pragma GCC unroll 16
          for (int j = 0; j < kTogether; ++j) {
            Vec low, high;
            load_two(k[j] + d, low, high);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r)
              sums[j * Rows + r] = fma(query[r][1], high, fma(query[r][0], low, sums[j * Rows + r]));
          }
        }
      for (; d + kLanes <= dim; d += kLanes) step(d, kLanes);
      if (d < dim) step(d, static_cast<int>(dim - d));
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows * kTogether; ++i) acc[first * Rows + i] = sums[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; i += kLanes) {
    Vec tile[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) tile[j] = acc[i + j < kSums ? i + j : i + j % 4];
    store(scores + i, mul(reduce_add(tile), set1(block.scale)));
  }
}

// The keys [first, last) of a block that a row sees.
struct Seen {
  Index first, last;
};

template <class Element>
void score(const Number* q, Index rows, const Block<Element>& block, Number* scores) {
  if (by_whole_rows(rows, block, [&](auto vectors) { score_whole<decltype(vectors)::value>(q, rows, block, scores); })) return;
  const Index pitch = block.head_dim + block.rope_dim, together = most(kRowNumbers / pitch / 4 * 4, 4);
  for (Index first = 0; first < rows; first += together)
    for (Index key = 0; key < block.whole; key += kWhole)
      for_groups(first, least(rows, first + together), rows, [&](Index row, auto size) __attribute__((always_inline)) {
        constexpr int kRows = decltype(size)::value, kStep = kTileKeys<kRows>;
        static_assert(kWhole % kStep == 0 && kWhole * kRows % kLanes == 0);
        const Index last = least(key + kWhole, block.n);  // the last tile may take keys that are there only to fill it
        for (Index i = key; i < last; i += kStep) {
          Number* const to = scores + row * kPitch + i * kRows;
          const Number* const queries = q + row * pitch;
          if (row == 0 && block.lead > 0)  // the first rows read for all
            score_tile<kRows, kStep, true>(queries, block, i, to);
          else
            score_tile<kRows, kStep, false>(queries, block, i, to);
        }
      });
}

#if defined(ROOFLINE_PAIRS)
// Words of the weights of two keys each, rounded, [n / 2][Rows], in place of those of fp32, [n][Rows].
template <int Rows>
void pair_weights(Number* s, Index n) {
  alignas(32) static constexpr auto kInTurn = [] {
    struct { std::uint16_t of[kLanes]; } all = {};
    for (int i = 0; i < kLanes; ++i) all.of[i] = static_cast<std::uint16_t>((i / (2 * Rows) * 2 + i % 2) * Rows + i / 2 % Rows);
    return all;
  }();
  const __m256i in_turn = _mm256_load_si256(reinterpret_cast<const __m256i*>(kInTurn.of));
  for (Index i = 0; i < n * Rows; i += kLanes) {
    const __m256i weights = narrow(static_cast<const Bf16*>(nullptr), load(s + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(s + i / 2), _mm256_permutexvar_epi16(in_turn, weights));
  }
}
#endif

// Values of the first n of one vector of columns, or two; words are of the columns of two rows of V, of two whole vectors in the
// order of pair_fours.
template <int Count, class Element>
ROOFLINE_INLINE void load_values(const Element* const* v, Index at, int n, Vec (&values)[Count]) {
  if constexpr (kNumbers<Element> == 2) {
    const int words = n / 2;
    // Without in_order the compiler loads each twice, as an operand of both permutations.
    const auto row = [&](int i) __attribute__((always_inline)) {
      return _mm512_castps_si512(in_order(get(v[i] + at, words, zero())));
    };
    n < 2 * kLanes ? pair_32(row(0), row(1), values[0], values[1]) : pair_fours(row(0), row(1), values[0], values[1]);
  } else if constexpr (Count == 2) {
    load_two(v[0] + at, values[0], values[1]);
  } else {
    values[0] = get(v[0] + at, n, zero());
  }
}

// out[Rows][head_dim] += weights[keys][Rows] V[keys][head_dim] of the keys [key, last), as many columns at a time as registers hold
// results of. There are `Keys` of them, whose weights stay in registers, or any number: 0.
template <int Rows, int Keys, bool Reading, class Element>
ROOFLINE_INLINE void value_tile(const Number* s, const Block<Element>& block, Index key, Index last, Number* out) {
  constexpr int kEach = kNumbers<Element>, kHeld = Keys > 0 ? Keys : 1;  // kEach: keys whose values a word holds
  const Index head_dim = block.head_dim * kEach;
  const Element* v[kHeld][kEach];
  Vec weight[kHeld][Rows];
  const auto take = [&](Index at, int j) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int i = 0; i < kEach; ++i) v[j][i] = block.v + block.at[at + i];
    const Number* const weights = s + static_cast<std::size_t>(at) / kEach * Rows;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) weight[j][r] = set1(weights[r]);
  };
#pragma GCC unroll 8
  for (int j = 0; j < Keys; ++j) take(key + j, j);
  if constexpr (Reading && Keys > 0)
#pragma GCC unroll 8
    for (int j = 0; j < Keys; ++j) block.fetch(block.after_values(key)[j]);
  const auto columns = [&](Index d, auto size, int n) __attribute__((always_inline)) {
    constexpr int kVectors = decltype(size)::value, kLoaded = kEach == 2 || (sizeof(Element) == 1 && kVectors > 1) ? 2 : 1;
    const auto lanes = [n](int z, int vectors) __attribute__((always_inline)) {
      return static_cast<int>(most(0, least(vectors * kLanes, n - z * kLanes)));
    };
    Vec acc[Rows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) acc[r][z] = get(out + r * head_dim + d + z * kLanes, lanes(z, 1), zero());
    const auto add_values = [&](int j) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; z += kLoaded) {
        Vec values[kLoaded];
        load_values(v[j], (d + z * kLanes) / kEach, lanes(z, kLoaded), values);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
          for (int i = 0; i < kLoaded; ++i) acc[r][z + i] = multiply_add<Element>(weight[j][r], values[i], acc[r][z + i]);
      }
    };
    if constexpr (Keys > 0)
#pragma GCC unroll 8
      for (int j = 0; j < Keys; ++j) add_values(j);
    else
      for (Index whole = key; whole < last; whole += kWhole) {
        const auto then = block.after_values(whole);
        for (Index at = whole; at < least(whole + kWhole, last); at += kEach) {
          take(at, 0);
          if (Reading && d == 0)
#pragma GCC unroll 2
            for (int i = 0; i < kEach; ++i) {
              block.fetch(then[at - whole + i]);
              for (Index rest = kVectors * kLanes / kEach; rest < block.head_dim; rest += 64 / Index{sizeof(Element)})
                __builtin_prefetch(v[0][i] + rest);  // in order, for the columns that follow
            }
          add_values(0);
        }
      }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int z = 0; z < kVectors; ++z) put(out + r * head_dim + d + z * kLanes, lanes(z, 1), acc[r][z]);
  };
  // Where keys are few one row is read line by line, in turn: bound by memory, that order is the quicker one.
  constexpr int kBytes = kLanes * sizeof(Element), kLine = kBytes < 32 ? 4 : kBytes < 64 ? 2 : 1;
  constexpr int kMost = Keys == 0 ? (Rows == 1 ? 8 : 16 / Rows) : Rows == 1 && Reading ? kLine : (kManyRegisters ? 8 : 4) / Rows;
  Index d = 0;
  for (; d + kMost * kLanes <= head_dim; d += kMost * kLanes) columns(d, Size<kMost>{}, kMost * kLanes);
  for (; kMost > 2 && d + 2 * kLanes <= head_dim; d += 2 * kLanes) columns(d, Size<2>{}, 2 * kLanes);
  for (; d < head_dim; d += kEach * kLanes) columns(d, Size<kEach>{}, static_cast<int>(least(kEach * kLanes, head_dim - d)));
}

template <class Element>
void value(const Number* s, Index rows, const Block<Element>& block, Number* out) {
  if (by_whole_rows(rows, block, [&](auto vectors) { value_whole<decltype(vectors)::value>(s, rows, block, out); })) return;
  const Index head_dim = block.head_dim * kNumbers<Element>, together = most(kRowNumbers / head_dim / 4 * 4, 4);
  const Index few = most(kLongTiles ? kValueBytes / (block.head_dim * Index{sizeof(Element)}) / kWhole : 1, 1) * kWhole;
  for (Index first = 0; first < rows; first += together)
    for (Index key = 0; key < block.n; key += few)
      for_groups(first, least(rows, first + together), rows, [&](Index row, auto size) __attribute__((always_inline)) {
        constexpr int kRows = decltype(size)::value;
        const Number* const weights = s + row * kPitch;
        Number* const to = out + row * head_dim;
        const bool reading = row == 0 && block.lead > 0;
        const Index last = least(key + few, block.n);
        if constexpr (kLongTiles) {
          reading ? value_tile<kRows, 0, true>(weights, block, key, last, to)
                  : value_tile<kRows, 0, false>(weights, block, key, last, to);
        } else {
          constexpr int kStep = kRows == 4 ? (kManyRegisters ? 4 : 3) : 8 / kRows, kReadStep = kRows == 1 ? 2 : kStep;
          Index i = key;
          for (; reading && i + kReadStep <= last; i += kReadStep) value_tile<kRows, kReadStep, true>(weights, block, i, 0, to);
          for (; i + kStep <= last; i += kStep) value_tile<kRows, kStep, false>(weights, block, i, 0, to);
          for (; i < last; ++i) value_tile<kRows, 1, false>(weights, block, i, 0, to);
        }
      });
}

}  // namespace
}  // namespace roofline::cpu
