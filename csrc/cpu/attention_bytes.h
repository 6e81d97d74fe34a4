// Attention of at most 8 queries over K and V of int8, by tiles of these: S = K Qᵀ with Q as two digits of int8, and O += P V with P as
// two digits of 8 bits; both digits of 8 queries fill a tile. K is read in place; four rows of V are interleaved byte by
// byte. A query has a unit, and so have its weights of a block of keys: digits err by up to 2^-15 and 2^-17 of the largest, bf16 by 2^-9
// of each. Everything is internal to the file that includes it.
#pragma once

#include "cpu/attention_tiles.h"
#include "cpu/simd/integers.h"

namespace roofline::cpu {
namespace {

constexpr Index kBytes = kTileBytes;  // of a row of a tile: columns of K, and keys of V in fours

struct ByteProducts : InPlaceProducts<Int8> {
  static constexpr int kMostVectors = 1;
  static constexpr Index kQueries = kTile / 2;
  static constexpr float kBase = 256, kMostNumber = 127 * kBase + 127, kMostWeight = kBase * kBase - 1;
  static constexpr Index kPart = kBytes * kTile;  // scores of kBytes keys, whose place a tile of their digits takes
  static constexpr Index kUnits = kTileWords;     // where in the first part what a unit of weights counts lies

  static bool takes(const AttentionBlock& block) {
    return block.rows <= kQueries && (block.head_dim | block.rope_dim | block.value_dim) % kBytes == 0 && fits(block);
  }

  // The least power of two of which `most` is at most kMostNumber: of bf16 whatever is at least 1/128 of that stays as it is.
  static float unit_of(float most) {
    const float share = most * (1 / kMostNumber);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &share, sizeof bits);
    bits = (bits + 0x7FFFFF) & 0x7F800000;
    float unit;
    __builtin_memcpy(&unit, &bits, sizeof unit);
    return unit < 0x1p-110f ? 0x1p-110f : unit;
  }

  // chunk.q = [words of four numbers][digit][queries].
  static void queries(const Bf16* q, Index key_dim, float, const Chunk& chunk) {
    alignas(64) std::int8_t digits[2 * kQueries][kMostColumns] = {};
    store(chunk.unit, zero());
    for (Index row = 0; row < chunk.rows; ++row, q += key_dim) {
      Vec top = zero(), zeros = zero();  // NaN where a number is not finite
      for (Index d = 0; d < key_dim; d += kLanes) {
        const Vec number = load(q + d);
        top = max(top, max(number, sub(zero(), number))), zeros = add(zeros, sub(number, number));
      }
      const float unit = unit_of(reduce_max(top)), inverse = 1 / unit, odd = reduce_add(zeros);
      chunk.unit[row] = unit + odd;
      for (Index d = 0; d < (odd == 0 ? key_dim : 0); d += kLanes) {
        const Vec number = round(mul(load(q + d), set1(inverse)));
        const Vec first = round(fma(number, set1(1 / kBase), set1(0.5f / kBase)));  // the second is in [-128, 127]
        const auto put_bytes = [&](Vec numbers, std::int8_t* to) __attribute__((always_inline)) {
          alignas(64) float words[kLanes];
          store(words, numbers);
          for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::int8_t>(words[i]);
        };
        put_bytes(first, digits[row] + d);
        put_bytes(fma(first, set1(-kBase), number), digits[row + kQueries] + d);
      }
    }
    for (Index d = 0; d < key_dim; d += kBytes) {
      Vec words[kTile];
#pragma GCC unroll 16
      for (int row = 0; row < kTile; ++row) words[row] = load(reinterpret_cast<const float*>(digits[row] + d));
      put_transposed(words, chunk.q + d / kBytes * kTileWords, kTile);
    }
  }

  // The tiles 0 to 3, `step` floats apart.
  ROOFLINE_INLINE void store_four(float* to, Index step, Index row_bytes) {
    _tile_stored(0, to, row_bytes);
    _tile_stored(1, to + step, row_bytes);
    _tile_stored(2, to + 2 * step, row_bytes);
    _tile_stored(3, to + 3 * step, row_bytes);
    barrier();
  }

  template <int Vectors>
  static void begin(const Chunk& chunk, const Keys& keys, float* s) {
    const AttentionBlock& block = *keys.block;
    const Index steps = (block.head_dim + block.rope_dim) / kBytes, whole = in_pages(block) ? keys.n / kTile * kTile : 0;
    alignas(64) Int8 copies[kBytes * kMostColumns];  // of tiles of keys that do not lie in one piece, or are not all there
    alignas(64) float squares[2][kPart];             // [keys][digit][queries]
    const Vec unit = load(chunk.unit);
    const Prefetch k(chunk, keys, block.k, block.head_dim), rope(chunk, keys, block.rope, block.rope_dim);
    const Index lines = block.head_dim / kBytes, rope_lines = block.rope_dim / kBytes;
    // Some rows of the scores of the keys from `key` on, which have left the tiles.
    const auto combine = [&](Index key, Index begin, Index end) __attribute__((always_inline)) {
      for (Index row = begin; row < least(end, kBytes); ++row) {
        const Vec digits = of_words(load(squares[key / kBytes % 2] + row * kTile));
        Prefetch::fetch(k, (key + row) * lines, lines);
        Prefetch::fetch(rope, (key + row) * rope_lines, rope_lines);
        store(s + (key + row) * kTile, mul(unit, fma(digits, set1(kBase), _mm512_shuffle_f32x4(digits, digits, 0x4E))));
      }
    };
    const Index each = (kBytes + steps - 1) / steps;  // rows of these beside a step of the next
    for (Index key = 0; key < keys.n; key += kBytes) {
      Int8* copied = copies;
      Index done = 0;
      const auto add_columns = [&](const void* all, Index columns) __attribute__((always_inline)) {
        const float* at[4];
        for (Index tile = 0, first = key; tile < 4; ++tile, first += kTile) {
          at[tile] = reinterpret_cast<const float*>(copied);
          if (first < whole)
            at[tile] = reinterpret_cast<const float*>(row_of<Int8>(all, columns, block, keys.begin + first));
          else
            for (Index i = 0; i < kTile; ++i, copied += columns)
              __builtin_memcpy(copied, row_or_zeros(all, columns, keys, first + i), static_cast<std::size_t>(columns));
        }
        barrier();
        for (Index step = 0; step < columns / kBytes; ++step, ++done) {
          const Index d = step * kTile;
          _tile_loadd(6, chunk.q + done * kTileWords, kTileBytes);
          _tile_loadd(4, at[0] + d, columns);
          _tile_dpbssd(0, 4, 6);
          _tile_loadd(5, at[1] + d, columns);
          _tile_dpbssd(1, 5, 6);
          _tile_loadd(4, at[2] + d, columns);
          _tile_dpbssd(2, 4, 6);
          _tile_loadd(5, at[3] + d, columns);
          _tile_dpbssd(3, 5, 6);
          if (key > 0) combine(key - kBytes, done * each, (done + 1) * each);
        }
      };
      Square<true, true>::clear();
      add_columns(block.k, block.head_dim);
      if (block.rope_dim > 0) add_columns(block.rope, block.rope_dim);
      store_four(squares[key / kBytes % 2], kTileWords, kTileBytes);
    }
    combine((keys.n - 1) / kBytes * kBytes, 0, kBytes);
  }

  // None where V is K, whose lines are prefetched with scores.
  static Prefetch of_values(const Chunk& chunk, const Keys& keys) {
    return {chunk, keys, keys.block->v == keys.block->k ? nullptr : keys.block->v, keys.value_dim};
  }
  // Lines of a key of V that are prefetched while weights are made; the rest follows with values.
  static Index with_weights(Index columns) { return columns / kBytes / 2; }

  // s = tiles of the digits of the weights of kBytes keys, one part after the other: [digit][queries][words of four keys], of which the
  // second and the third change places; adds to the sums.
  template <int Vectors, int First, bool Masked>
  static void weigh(const Chunk& chunk, const Keys& keys, Index, Index, float* s, const Vec (&)[Vectors], bool) {
    const Vec scale = set1(keys.scale), neg_max = load(chunk.neg_max);
    Vec sums[2] = {load(chunk.sum), zero()}, tops[2] = {set1(1e-30f), zero()};
    const Index padded = round_up(keys.n, kBytes);
    for (Index key = keys.n; key < padded; ++key) store(s + key * kTile, set1(-kInfinity));
    const Prefetch v_after = of_values(chunk, keys);
    const Index lines = with_weights(keys.value_dim);
    for (Index key = 0; key < padded; key += 2) {
      Prefetch::fetch(v_after, key * lines, 2 * lines);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const Vec weight = exp2_of_weight(fma(load(s + (key + i) * kTile), scale, neg_max));
        store(s + (key + i) * kTile, weight);
        sums[i] = add(sums[i], weight), tops[i] = max(tops[i], weight);
      }
    }
    store(chunk.sum, add(sums[0], sums[1]));
    const Vec top = max(tops[0], tops[1]), inverse = div(set1(kMostWeight), top);
    const Vec magic = set1(kToWhole);
    const __m512i half = _mm512_set1_epi32(0xFFFF), lower = _mm512_set1_epi32(0x00FF00FF);
    for (Index key = 0; key < keys.n; key += kBytes, s += kPart) {
      Vec words[kTile];
#pragma GCC unroll 16
      for (int four = 0; four < kTile; ++four) {
        const auto whole = [&](int i) __attribute__((always_inline)) {
          return _mm512_castps_si512(fma(load(s + (4 * four + i) * kTile), inverse, magic));
        };
        const auto halves = [&](int i) __attribute__((always_inline)) {  // (a & c) | b
          return _mm512_ternarylogic_epi32(whole(i), _mm512_slli_epi32(whole(i + 1), 16), half, 0xEC);
        };
        const auto bytes = [&](__m512i even, __m512i odd) __attribute__((always_inline)) {  // (a & c) | (b & ~c)
          return _mm512_ternarylogic_epi32(even, odd, lower, 0xE4);
        };
        const __m512i one = halves(0), other = halves(2);
        const __m512i first = bytes(_mm512_srli_epi32(one, 8), other), second = bytes(one, _mm512_slli_epi32(other, 8));
        words[four] = _mm512_castsi512_ps(_mm512_inserti64x4(first, _mm512_castsi512_si256(second), 1));
      }
      put_transposed(words, s, kTile);
      if (key == 0) store(s + kUnits, div(top, set1(kMostWeight)));
    }
  }

  // Every 64 columns of chunk.out are in the order in which bytes are interleaved: four vectors hold four columns each of every
  // sixteen.
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, float* p) {
    const AttentionBlock& block = *keys.block;
    const Index steps = round_up(keys.n, kBytes) / kBytes, columns = keys.value_dim;
    const Prefetch v_after = of_values(chunk, keys);
    const Index lines = columns / kBytes, fetched = steps * kBytes * with_weights(columns);
    const Index beside = (4 * (lines - with_weights(columns)) + lines - 1) / lines;  // four keys
    const Int8* from[kMostKeys];
    for (Index key = 0; key < steps * kBytes; ++key) from[key] = row_or_zeros(block.v, columns, keys, key);
    alignas(64) float fours[2][kMostKeys * kTile];  // of kBytes columns, and of the next: [four keys][columns]
    alignas(64) float squares[2][kPart];            // [digit][queries][columns]
    const auto interleave = [&](Index d, Index step) __attribute__((always_inline)) {
      float* to = fours[d / kBytes % 2] + step * kPart;
      const Int8* const* at = from + step * kBytes;
#pragma GCC unroll 2
      for (Index four = 0; four < kTile; ++four, at += 4, to += kBytes) {
        const auto row = [&](int i) __attribute__((always_inline)) { return _mm512_loadu_si512(at[i] + d); };
        Prefetch::fetch(v_after, fetched + ((d / kBytes * steps + step) * kTile + four) * beside, beside);
        const __m512i even = _mm512_unpacklo_epi8(row(0), row(2)), later_even = _mm512_unpackhi_epi8(row(0), row(2));
        const __m512i odd = _mm512_unpacklo_epi8(row(1), row(3)), later_odd = _mm512_unpackhi_epi8(row(1), row(3));
        _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
        _mm512_store_si512(to + kTile, _mm512_unpackhi_epi16(even, odd));
        _mm512_store_si512(to + 2 * kTile, _mm512_unpacklo_epi16(later_even, later_odd));
        _mm512_store_si512(to + 3 * kTile, _mm512_unpackhi_epi16(later_even, later_odd));
      }
    };
    // Adds the columns from d on, which have left the tiles, of some queries to the results.
    const auto add_results = [&](Index d, Index begin, Index end) __attribute__((always_inline)) {
      const float* const square = squares[d / kBytes % 2];
      for (Index row = begin; row < least(end, chunk.rows); ++row)
#pragma GCC unroll 4
        for (Index column = 0; column < kBytes; column += kTile) {
          const float* const at = square + row * kBytes + column;
          float* const out = chunk.out + row * columns + d + column;
          const Vec sum = fma(of_words(load(at)), set1(kBase), of_words(load(at + kQueries * kBytes)));
          store(out, fma(sum, set1(p[kUnits + row]), load(out)));
        }
    };
    for (Index step = 0; step < steps; ++step) interleave(0, step);
    barrier();
    const Index each = (chunk.rows + steps - 1) / steps;
    for (Index d = 0; d < columns; d += kBytes) {
      const float* v = fours[d / kBytes % 2];
      Square<true, true>::clear();
      for (Index step = 0; step < steps; ++step, v += kPart) {
        _tile_loadd(4, p + step * kPart, kTileBytes);
        _tile_loadd(5, v, 4 * kTileBytes);
        _tile_dpbusd(0, 4, 5);
        _tile_loadd(6, v + kTile, 4 * kTileBytes);
        _tile_dpbusd(1, 4, 6);
        _tile_loadd(7, v + 2 * kTile, 4 * kTileBytes);
        _tile_dpbusd(2, 4, 7);
        _tile_loadd(5, v + 3 * kTile, 4 * kTileBytes);
        _tile_dpbusd(3, 4, 5);
        if (d + kBytes < columns) interleave(d + kBytes, step);
        if (d > 0) add_results(d - kBytes, step * each, (step + 1) * each);
      }
      store_four(squares[d / kBytes % 2], kTile, 4 * kTileBytes);
    }
    add_results(columns - kBytes, 0, chunk.rows);
  }

  template <class T>
  static void results(const Chunk& chunk, Index columns, Index lane, Vec share, T* out) {
    for (float* at = chunk.out; at < chunk.out + chunk.rows * columns; at += kBytes) {
      const auto both = [](const float* one, Vec& first, Vec& second) __attribute__((always_inline)) {
        const Vec a = load(one), b = load(one + kTile);
        first = _mm512_shuffle_f32x4(a, b, 0x44), second = _mm512_shuffle_f32x4(a, b, 0xEE);
      };
      Vec first[2], second[2];
      both(at, first[0], second[0]);
      both(at + 2 * kTile, first[1], second[1]);
      store(at, _mm512_shuffle_f32x4(first[0], first[1], 0x88));
      store(at + kTile, _mm512_shuffle_f32x4(first[0], first[1], 0xDD));
      store(at + 2 * kTile, _mm512_shuffle_f32x4(second[0], second[1], 0x88));
      store(at + 3 * kTile, _mm512_shuffle_f32x4(second[0], second[1], 0xDD));
    }
    InRows::results(chunk, columns, lane, share, out);
  }
};

}  // namespace
}  // namespace roofline::cpu
