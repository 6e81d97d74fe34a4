// Attention of bf16 by instructions that add two products to a sum, for sets that have them beside those of attention_tiled_kernels.cpp.
// K is broadcast as it lies, V from panels of words; denormals count as 0.
#include "cpu/attention_words.h"
#include "cpu/simd/integers.h"

namespace roofline::cpu {
namespace {

struct PairProducts : WordProducts, InRows {
  static constexpr Index kColumns = 1, kKeyStep = 2;
  static constexpr bool kSlow = true, kTrims = true, kBegins = true, kInRegisters = true;

  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }
  ROOFLINE_INLINE Vec multiply_add_lower(Vec a, Vec b, Vec c) { return add_bf16_pairs_lower(a, b, c); }

  static void queries(const Bf16* q, Index key_dim, float, const Chunk& chunk) {
    WordProducts::queries(q, key_dim, chunk, (key_dim + 1) / 2);
  }
  static void gather_keys(const AttentionBlock& block, Index begin, Index n, float* to, Index pitch) {
    for (Index i = 0; i < n; ++i)
      for (Index word = 0; word < pitch; word += kLanes)
        put(to + i * pitch + word, static_cast<int>(least(kLanes, pitch - word)), some_words(block, begin + i, 2 * word));
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, float* to) {
    const Index columns = block.value_dim, pitch = value_pitch(block, n);
    for (Index i = 0; i < n; i += 2, to += pitch) {
      const Bf16* const one = row_of(block.v, columns, block, begin + i);
      const Bf16* const next = i + 1 < n ? row_of(block.v, columns, block, begin + i + 1) : nullptr;
      for (Index d = 0; d < columns; d += pitch)
        pair_rows(one + d, next ? next + d : nullptr, least(pitch, columns - d), to + d / pitch * value_plane(block, n));
    }
  }
  // The columns of a register tile lie together, so that they pass through the first cache in one stream.
  static Index value_pitch(const AttentionBlock& block, Index) { return columns_together(block.value_dim); }
  static Index value_plane(const AttentionBlock& block, Index n) { return (n + 1) / 2 * value_pitch(block, n); }
  static Index value_offset(const AttentionBlock& block, Index lead) { return lead / 2 * value_pitch(block, 0); }

  template <int Vectors>
  static void begin(const Chunk&, const Keys&, float*) {}
  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk& chunk, const Keys& keys, const float* start, Index from, Index to, float* s, Vec* grow) {
    score_tiles<PairProducts, Vectors, First, Grow>(chunk, keys, start, from, to, s, grow);
  }
  template <int Vectors, int First, bool Masked>
  static void weigh(const Chunk& chunk, const Keys& keys, Index from, Index to, float* s, const Vec (&)[Vectors], bool) {
    weigh_words<Vectors, First>(chunk, keys, from, round_up(to, 2), s);
  }
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, float* p) {
    value_tiles<PairProducts>(chunk, keys, p, kPitch<Vectors>);
  }
};

constexpr int kTogether = kLanes / 2;  // rows of queries that meet two keys together

// Of wide keys. Queries lie in rows as keys do: the lanes of a sum are places along the key, added up at its end, so that a load of a
// key or a query serves several products. Results lie in rows too: pairs of values are made in registers, and nothing is packed.
struct RowProducts : WordProducts, InRows {
  static constexpr Index kColumns = 1, kKeyStep = 2;
  static constexpr bool kTrims = true, kBegins = false;
  static constexpr int kMostVectors = 1;

  static void queries(const Bf16* q, Index key_dim, float, const Chunk& chunk) {
    const Index rows = chunk.rows, width = chunk.vectors * kLanes;
    __builtin_memcpy(chunk.q, q, static_cast<std::size_t>(2 * rows * key_dim));
    __builtin_memset(chunk.q + rows * key_dim / 2, 0, static_cast<std::size_t>(2 * (width - rows) * key_dim));
  }
  static void gather_keys(const AttentionBlock&, Index, Index, float*, Index) {}
  static void gather_values(const AttentionBlock&, Index, Index, float*) {}
  static Index value_pitch(const AttentionBlock& block, Index) { return block.value_dim / 2; }
  static Index value_plane(const AttentionBlock&, Index) { return 0; }
  static Index value_offset(const AttentionBlock& block, Index lead) { return lead * block.value_dim / 2; }

  // Sums of so few rows take hardly longer than memory does. What is read next goes to the first cache: a busy memory drops
  // prefetches into the second. Each step prefetches some numbers of it, for all at once would hold up the loads behind them.
  ROOFLINE_INLINE void fetch_numbers(const float* from, Index n) {
    for (Index i = 0; i < n; i += kLine) __builtin_prefetch(from + i);
  }

  // sums[key][row] += products of words of kTogether queries, `pitch` apart, and of two keys, while `each` numbers from `ahead` on
  // are fetched every kLanes words.
  ROOFLINE_INLINE void multiply(Vec (&sums)[kLanes], const float* q, Index pitch, const float* one, const float* other, Index words,
                                const float* ahead, Index each) {
    const auto step = [&](Index word, auto read) __attribute__((always_inline)) {
      fetch_numbers(ahead + word / kLanes * each, each);
      const Vec a = read(one + word), b = read(other + word);
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
        const Vec x = read(q + i * pitch + word);
        sums[i] = add_bf16_pairs(a, x, sums[i]);
        sums[kTogether + i] = add_bf16_pairs(b, x, sums[kTogether + i]);
      }
    };
    Index word = 0;
    for (; word + kLanes <= words; word += kLanes) step(word, [](const float* p) __attribute__((always_inline)) { return load(p); });
    if (const int rest = static_cast<int>(words - word))
      step(word, [rest](const float* p) __attribute__((always_inline)) { return load_partial(p, rest, zero()); });
  }

  template <int Vectors>
  static void begin(const Chunk&, const Keys&, float*) {}
  template <int Vectors, int First, bool Grow>
  [[gnu::noinline]] static void scores(const Chunk& chunk, const Keys& keys, const float*, Index first, Index last, float* s, Vec* grow) {
    constexpr Index kChunk = Vectors * kLanes;
    const Index words = keys.key_words + keys.rope_words, groups = (chunk.rows + kTogether - 1) / kTogether;
    const Index steps = (keys.key_words + kLanes - 1) / kLanes;  // of a group
    const Index each = (2 * keys.with_scores[0].each + groups * steps - 1) / (groups * steps);
    const Ahead others[] = {keys.with_scores[1], keys.with_scores[2]};
    for (Index key = first; key < last; key += 2) {
      const Index next = least(key + 1, last - 1);
      fetch(others, key, next + 1);
      const float* ahead = keys.with_scores[0].from + key * keys.with_scores[0].each;
      const float *const k = keys.k + key * keys.key_words, *const other = keys.k + next * keys.key_words;
      const float *const rope = keys.rope + key * keys.rope_words, *const other_rope = keys.rope + next * keys.rope_words;
      for (Index row = 0; row < kChunk; row += kTogether) {
        Vec sums[kLanes] = {};
        if (row < chunk.rows) {
          const float* const q = chunk.q + row * words;
          multiply(sums, q, words, k, other, keys.key_words, ahead, each);
          ahead += steps * each;
          multiply(sums, q + keys.key_words, words, rope, other_rope, keys.rope_words, nullptr, 0);
        }
        const __m512d both = _mm512_castps_pd(reduce_add(sums));
        _mm256_storeu_pd(reinterpret_cast<double*>(s + next * kPitch<Vectors> + row), _mm512_extractf64x4_pd(both, 1));
        _mm256_storeu_pd(reinterpret_cast<double*>(s + key * kPitch<Vectors> + row), _mm512_castpd512_pd256(both));
      }
    }
    if constexpr (Grow)
      for (Index key = first; key < last; ++key)
#pragma GCC unroll 8
        for (int z = 0; z < Vectors; ++z) grow[z] = max(grow[z], load(s + key * kPitch<Vectors> + z * kLanes));
  }
  template <int Vectors, int First, bool Masked>
  static void weigh(const Chunk& chunk, const Keys& keys, Index from, Index to, float* s, const Vec (&)[Vectors], bool) {
    weigh_words<Vectors, First>(chunk, keys, from, round_up(to, 2), s);
  }

  // Adds the products of kTogether rows of weights and two vectors of columns to `out`. Not Whole: the first `some` of these columns.
  template <int Vectors, bool Whole>
  ROOFLINE_INLINE void value_tile(const Keys& keys, const float* p, const float* v, float* out, int some, const float* ahead, Index each) {
    const int halves[2] = {Whole ? kLanes : static_cast<int>(least(kLanes, some)), Whole ? kLanes : static_cast<int>(most(0, some - kLanes))};
    Vec acc[kTogether][2];
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 2
      for (int z = 0; z < 2; ++z) {
        const float* const at = out + i * round_up(keys.value_dim, kLanes) + z * kLanes;
        acc[i][z] = Whole ? load(at) : get(at, halves[z], zero());
      }
    const auto row_at = [&](Index key) __attribute__((always_inline)) {
      const float* const from = v + key * keys.value_pitch;
      return Whole ? _mm512_loadu_si512(from) : load_halves(from, some);
    };
    const auto step = [&](Index pair, __m512i one, __m512i other) __attribute__((always_inline)) {
      fetch_numbers(ahead + pair * each, each);
      Vec values[2];
      pair_32(one, other, values[0], values[1]);
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
        const Vec weight = set1(p[pair * kPitch<Vectors> + i]);
#pragma GCC unroll 2
        for (int z = 0; z < 2; ++z) acc[i][z] = add_bf16_pairs(values[z], weight, acc[i][z]);
      }
    };
    Index pair = 0;
    for (; 2 * pair + 2 <= keys.n; ++pair) step(pair, row_at(2 * pair), row_at(2 * pair + 1));
    if (2 * pair < keys.n) step(pair, row_at(2 * pair), _mm512_setzero_si512());
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 2
      for (int z = 0; z < 2; ++z) {
        float* const at = out + i * round_up(keys.value_dim, kLanes) + z * kLanes;
        Whole ? store(at, acc[i][z]) : put(at, halves[z], acc[i][z]);
      }
  }
  template <int Vectors>
  [[gnu::noinline]] static void values(const Chunk& chunk, const Keys& keys, const float* p) {
    constexpr Index kColumnsTogether = 2 * kLanes;
    const Index pairs = (keys.n + 1) / 2, columns = keys.value_dim;
    const Index groups = (chunk.rows + kTogether - 1) / kTogether, tiles = groups * ((columns + kColumnsTogether - 1) / kColumnsTogether);
    const Index each = (keys.with_values[0].n + tiles * pairs - 1) / (tiles * pairs);
    const float* ahead = keys.with_values[0].from;
    for (Index d = 0; d < columns; d += kColumnsTogether)
      for (Index group = 0; group < groups; ++group, ahead += each * pairs) {
        const int some = static_cast<int>(least(kColumnsTogether, columns - d));
        float* const out = chunk.out + group * kTogether * round_up(columns, kLanes) + d;
        const float *const v = keys.v + d / 2, *const weights = p + group * kTogether;
        if (some == kColumnsTogether)
          value_tile<Vectors, true>(keys, weights, v, out, some, ahead, each);
        else
          value_tile<Vectors, false>(keys, weights, v, out, some, ahead, each);
      }
  }
};

// Whether so few queries, of such keys, lie in rows.
bool in_rows(Index rows, Index head_dim, Index rope_dim, Index value_dim, bool pages) {
  constexpr Index kWide = 128;  // columns of a key from which on their products outweigh the sums of lanes at its end
  return rows <= kLanes && head_dim + rope_dim >= kWide && head_dim % 2 == 0 && rope_dim % 2 == 0 && value_dim % 2 == 0 && !pages;
}

void attend(const AttentionBlock& block) {
  if (!in_rows(block.rows, block.head_dim, block.rope_dim, block.value_dim, block.pages != nullptr)) return tiled<Bf16, PairProducts>(block);
  AttentionBlock own = block;
  own.value_panel = false;
  tiled<Bf16, RowProducts>(own);
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_pairs) = {
    kLanes, kRows, kWidth, PairProducts::kNumbers, PairProducts::kColumns, {nullptr, attend, nullptr}, 4, PairProducts::kTrims, in_rows};

}  // namespace roofline::cpu
