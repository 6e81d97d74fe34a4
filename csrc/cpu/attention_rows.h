// Attention over wide keys with AVX-512, as in latent attention. Scores of up to 16 queries: a vector holds four words of four
// queries, and is multiplied by four words of a key, broadcast. Each load serves several products, and sums are added up along four
// lanes, not along 16. Values of up to 64 queries: eight rows of weights are multiplied by two vectors of columns of V, which is read
// where it lies. Rows of V a power of two apart share few sets of L1 and come from L2, so each load of V has to serve many products.
// Everything is internal to the file that includes it.
#pragma once

#include "cpu/attention_blocks.h"

namespace roofline::cpu {
namespace {

constexpr int kQuad = 4;               // words of a query in a vector, and queries
constexpr int kTogether = kLanes / 2;  // rows of weights that meet values together

// Each step prefetches some of the numbers read next, for all at once would hold up the loads behind them. They go to the first
// cache: a busy memory drops prefetches into the second.
ROOFLINE_INLINE void fetch_numbers(const float* from, Index n) {
  for (Index i = 0; i < n; i += kLine) __builtin_prefetch(from + i);
}

// The queries of a chunk lie [words / 4][Quads][4 queries][4 words]: lanes 4 i to 4 i + 3 of vector z are of query Quads i + z.
template <class Products, int Quads, bool Grow>
struct QuadTiles {
  static constexpr int kSets = kQuad / Quads;  // of sums, so that few do not wait for one another
  const Keys& keys;
  const Chunk& chunk;
  const float* start;  // [kLanes]; of the sums
  Index from, to;      // words of a key that are multiplied: the first of them begin the sums, the others go on
  Index first;         // of these keys
  float* s;            // [keys.n, kPitch]
  Vec* grow;           // highest score above the old maximum

  // Lanes 4 i + j: the sum of lanes 4 i to 4 i + 3 of vector j.
  ROOFLINE_INLINE Vec sum_fours(Vec a, Vec b, Vec c, Vec d) {
    const auto both = [](Vec x, Vec y) { return add(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y)); };
    const Vec one = both(a, b), other = both(c, d);
    return add(_mm512_shuffle_ps(one, other, 0x44), _mm512_shuffle_ps(one, other, 0xEE));
  }

  template <int Rows>
  [[gnu::noinline]] void tile(Index at) const {
    const Index key = first + at;
    Vec acc[Rows][Quads], others[Rows][Quads];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int z = 0; z < Quads; ++z) acc[i][z] = others[i][z] = zero();
    const Index steps = (keys.key_words + kLanes - 1) / kLanes, each = (Rows * keys.with_scores[0].each + steps - 1) / steps;
    const float* const ahead = keys.with_scores[0].from + key * keys.with_scores[0].each;
    if (from == 0) fetch({keys.with_scores[1], keys.with_scores[2]}, key, key + Rows);
    const auto step = [&](const float* k, Index pitch, Index word, auto& sums) __attribute__((always_inline)) {
      Vec queries[Quads];
#pragma GCC unroll 4
      for (int z = 0; z < Quads; ++z) queries[z] = load(chunk.q + (word * Quads / kQuad + z) * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const Vec four = _mm512_broadcast_f32x4(_mm_loadu_ps(k + i * pitch));
#pragma GCC unroll 4
        for (int z = 0; z < Quads; ++z) sums[i][z] = Products::multiply_add(four, queries[z], sums[i][z]);
      }
    };
    Index word = from;
    const float* const k = keys.k + key * keys.key_words;
    for (const Index end = least(to, keys.key_words); word < end;) {
      fetch_numbers(ahead + word / kLanes * each, each);
      if (word + kLanes <= end)
#pragma GCC unroll 4
        for (int quad = 0; quad < kLanes; quad += kQuad)
          step(k + word + quad, keys.key_words, word + quad, kSets > 1 && quad % (2 * kQuad) ? others : acc);
      else
        for (Index quad = word; quad < end; quad += kQuad) step(k + quad, keys.key_words, quad, acc);
      word += kLanes;
    }
    const float* const rope = keys.rope + key * keys.rope_words;
    for (word = most(from, keys.key_words); word < to; word += kQuad) step(rope + word - keys.key_words, keys.rope_words, word, acc);
#pragma GCC unroll 8
    for (int i = 0; i < (kSets > 1 ? Rows : 0); ++i)
#pragma GCC unroll 4
      for (int z = 0; z < Quads; ++z) acc[i][z] = add(acc[i][z], others[i][z]);

    float* const sums = s + key * kPitch<1>;
    const float* const begin = from == 0 ? start : sums;
    const Index next = from == 0 ? 0 : kPitch<1>;
    const auto finish = [&](int i, Vec sum) __attribute__((always_inline)) {
      sum = add(sum, load(begin + i * next));
      store(sums + i * kPitch<1>, sum);
      if constexpr (Grow) *grow = max(*grow, sum);
    };
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i += kQuad / Quads) {
      if constexpr (Quads == kQuad) {
        finish(i, sum_fours(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
      } else {
        const bool two = i + 1 < Rows;
        const Vec both = sum_fours(acc[i][0], acc[i][1], two ? acc[i + two][0] : zero(), two ? acc[i + two][1] : zero());
        const __m512i of_first = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        const Vec in_turn = _mm512_permutexvar_ps(of_first, both);
        finish(i, _mm512_zextps256_ps512(_mm512_castps512_ps256(in_turn)));
        if (two) finish(i + 1, _mm512_zextps256_ps512(_mm512_extractf32x8_ps(in_turn, 1)));
      }
    }
  }
};

// Values by rows of weights. Base says how numbers are multiplied, and how values are read as words.
template <class Base>
struct RowValues : Base {
  static constexpr bool kBegins = false, kInRegisters = false, kFetchesWithScores = false;

  // Adds the products of kTogether rows of weights and two vectors of columns to `out`. Not Whole: the first `some` of these columns.
  template <int Vectors, bool Whole>
  ROOFLINE_INLINE void value_tile(const Keys& keys, const float* p, const float* v, float* out, int some, const float* ahead, Index each) {
    const int halves[2] = {Whole ? kLanes : static_cast<int>(least(kLanes, some)), Whole ? kLanes : static_cast<int>(most(0, some - kLanes))};
    const Index pitch = round_up(keys.value_dim, kLanes);
    Vec acc[kTogether][2];
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 2
      for (int z = 0; z < 2; ++z) {
        const float* const at = out + i * pitch + z * kLanes;
        acc[i][z] = Whole ? load(at) : get(at, halves[z], zero());
      }
    const auto step = [&](Index row, bool whole_word) __attribute__((always_inline)) {
      fetch_numbers(ahead + row * each, each);
      Vec values[2];
      Base::template values_of<Whole>(v + row * Base::kNumbers * keys.value_pitch, whole_word ? keys.value_pitch : 0, some, values);
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
        const Vec weight = set1(p[row * kPitch<Vectors> + i]);
#pragma GCC unroll 2
        for (int z = 0; z < 2; ++z) acc[i][z] = Base::multiply_add(values[z], weight, acc[i][z]);
      }
    };
    Index row = 0;
    for (; (row + 1) * Base::kNumbers <= keys.n; ++row) step(row, true);
    if (row * Base::kNumbers < keys.n) step(row, false);
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 2
      for (int z = 0; z < 2; ++z) {
        float* const at = out + i * pitch + z * kLanes;
        Whole ? store(at, acc[i][z]) : put(at, halves[z], acc[i][z]);
      }
  }
  template <int Vectors>
  [[gnu::noinline]] static void values(const Chunk& chunk, const Keys& keys, float* p) {
    constexpr Index kColumnsTogether = 2 * kLanes;
    const auto words = [](Index n) { return (n + Base::kNumbers - 1) / Base::kNumbers; };
    const Index rows = words(keys.n), columns = keys.value_dim;
    for (int z = 0; z + 1 < Vectors; ++z)  // of keys that only later vectors meet
      for (Index row = words(keys.ends[z]); row < rows; ++row) store(p + row * kPitch<Vectors> + z * kLanes, zero());
    const Index groups = (chunk.rows + kTogether - 1) / kTogether, tiles = groups * ((columns + kColumnsTogether - 1) / kColumnsTogether);
    const Index each = (keys.with_values[0].n + tiles * rows - 1) / (tiles * rows);
    const float* ahead = keys.with_values[0].from;
    for (Index d = 0; d < columns; d += kColumnsTogether)
      for (Index group = 0; group < groups; ++group, ahead += each * rows) {
        const int some = static_cast<int>(least(kColumnsTogether, columns - d));
        float* const out = chunk.out + group * kTogether * round_up(columns, kLanes) + d;
        const float *const v = keys.v + d / Base::kNumbers, *const weights = p + group * kTogether;
        some == kColumnsTogether ? value_tile<Vectors, true>(keys, weights, v, out, some, ahead, each)
                                 : value_tile<Vectors, false>(keys, weights, v, out, some, ahead, each);
      }
  }
};

// And scores of a vector of queries. Base also says how queries are read as words.
template <class Base>
struct RowProducts : RowValues<Base> {
  static constexpr bool kFetchesWithScores = true;
  static constexpr int kMostVectors = 1;

  static int quads(const Chunk& chunk) { return chunk.rows > kTogether ? 4 : 2; }

  template <class T>
  static void queries(const T* q, Index key_dim, float scale, const Chunk& chunk) {
    const Index words = key_dim / Base::kNumbers;
    const int vectors = quads(chunk);
    for (Index row = 0; row < vectors * kQuad; ++row)
      for (Index word = 0; word < words; word += kLanes) {
        const int n = static_cast<int>(least(kLanes, words - word));
        float some[kLanes] = {};
        if (row < chunk.rows) store(some, Base::query_words(q + row * key_dim + word * Base::kNumbers, n, scale));
        for (int i = 0; i < n; i += kQuad)
          __builtin_memcpy(chunk.q + ((word + i) / kQuad * vectors + row % vectors) * kLanes + row / vectors * kQuad, some + i,
                           kQuad * sizeof(float));
      }
  }

  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk& chunk, const Keys& keys, const float* start, Index first, Index last, float* s, Vec* grow) {
    quads(chunk) == 2 ? score<2, Grow>(chunk, keys, start, first, last, s, grow)
                      : score<4, Grow>(chunk, keys, start, first, last, s, grow);
  }
  template <int Quads, bool Grow>
  static void score(const Chunk& chunk, const Keys& keys, const float* start, Index first, Index last, float* s, Vec* grow) {
    const Index words = keys.key_words + keys.rope_words;
    const Index passes = (words * Quads * kQuad * Index{sizeof(float)} + kPassBytes - 1) / kPassBytes;
    for (Index pass = 0; pass < passes; ++pass) {
      const auto end = [&](Index passed) { return passed == passes ? words : words * passed / passes / kLanes * kLanes; };
      const auto tiles = [&](const auto& of) { for_tiles<kQuad>(last - first, of); };
      if (pass + 1 == passes)
        tiles(QuadTiles<Base, Quads, Grow>{keys, chunk, start, end(pass), words, first, s, grow});
      else
        tiles(QuadTiles<Base, Quads, false>{keys, chunk, start, end(pass), end(pass + 1), first, s, grow});
    }
  }
};

}  // namespace
}  // namespace roofline::cpu
