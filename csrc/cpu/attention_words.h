// What attention by products of bf16 needs: a word is two numbers, of Q and K along head_dim, of P and V two keys. Scores come raw, for
// a scaled query would be rounded; weights are rounded to bf16. For AVX-512. Everything is internal to the file that includes it.
#pragma once

#include "cpu/attention_blocks.h"
#include "cpu/words.h"

namespace roofline::cpu {
namespace {

struct WordProducts {
  static constexpr bool kRaw = true, kInRegisters = false;
  static constexpr Index kNumbers = 2;
  static constexpr int kBelow = 0;
  static constexpr bool kApart = false, kFetchesWithScores = true;

  static void queries(const Bf16* q, Index key_dim, const Chunk& chunk, Index words) {
    transpose_words(q, chunk.rows, key_dim, chunk.q, chunk.vectors * kLanes, words);
  }

  // Where the columns of a key lie.
  template <class T = Bf16>
  static const T* row_of(const void* all, Index columns, const AttentionBlock& block, Index key) {
    if (block.pages) key = block.pages[key / block.page_size] * block.page_rows + key % block.page_size;
    return static_cast<const T*>(all) + key * columns;
  }

  // The numbers [first, first + 32) of a key as words; past the last one zeros.
  template <class T = Bf16>
  static Vec some_words(const AttentionBlock& block, Index key, Index first) {
    const Index columns = block.head_dim, n = most(0, least(2 * kLanes, columns - first));
    const T* const from = row_of<T>(block.k, columns, block, key) + first;
    if (n == 2 * kLanes || block.rope_dim == 0) return _mm512_castsi512_ps(words_at(from, n));
    alignas(64) T numbers[2 * kLanes] = {};
    const Index begin = first + n - columns, rest = least(2 * kLanes - n, block.rope_dim - begin);  // of rope
    const auto copy = [](T* to, const T* at, Index some) {
      if (some > 0) __builtin_memcpy(to, at, static_cast<std::size_t>(some) * sizeof(T));
    };
    copy(numbers, from, n);
    copy(numbers + n, row_of<T>(block.rope, block.rope_dim, block, key) + begin, rest);
    return _mm512_castsi512_ps(words_at(numbers));
  }

  // 2^x as exp2_bounded, but of degree 3 (minimax in relative error, 7.5e-5): weights are rounded to 2^-9 of themselves.
  ROOFLINE_INLINE Vec exp2_of_weight(Vec x) {
    const Vec clamped = max(set1(-125.0f), x), whole = round(clamped), f = sub(clamped, whole);
    Vec p = fma(set1(0.0551716711f), f, set1(0.242611125f));
    p = fma(p, f, set1(0.693260992f));
    return _mm512_scalef_ps(fma(p, f, set1(0.999928067f)), whole);
  }

  // Words of two weights each, rounded half up, as none is negative.
  ROOFLINE_INLINE Vec words_of(Vec low, Vec high) {
    alignas(64) static constexpr std::uint16_t kUpperHalves[] = {1,  33, 3,  35, 5,  37, 7,  39, 9,  41, 11, 43, 13, 45, 15, 47,
                                                                 17, 49, 19, 51, 21, 53, 23, 55, 25, 57, 27, 59, 29, 61, 31, 63};
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i lower = _mm512_add_epi32(_mm512_castps_si512(low), half);
    const __m512i upper = _mm512_add_epi32(_mm512_castps_si512(high), half);
    return _mm512_castsi512_ps(_mm512_permutex2var_epi16(lower, _mm512_load_si512(kUpperHalves), upper));
  }
  // p = words of the weights of a tile's vector z of queries; adds to their sums.
  template <int Vectors, int Rows>
  ROOFLINE_INLINE void weigh_tile(const Chunk& chunk, const Keys& keys, int z, const Vec (&scores)[Rows][Vectors], float* p) {
    const Vec scale = set1(keys.scale), neg_max = load(chunk.neg_max + z * kLanes);
    Vec sum = load(chunk.sum + z * kLanes);
#pragma GCC unroll 8
    for (int row = 0; row < Rows / 2; ++row) {
      const Vec low = exp2_of_weight(fma(scores[2 * row][z], scale, neg_max));
      const Vec high = exp2_of_weight(fma(scores[2 * row + 1][z], scale, neg_max));
      sum = add(sum, add(low, high));
      store(p + row * kPitch<Vectors> + z * kLanes, words_of(low, high));
    }
    store(chunk.sum + z * kLanes, sum);
  }

  // s[from / 2, to / 2][kPitch] = words of the weights 2^(s scale - maximum) of two keys each, zeros past the last key; adds to the
  // sums. `from` and `to` are even.
  template <int Vectors, int First>
  static void weigh_words(const Chunk& chunk, const Keys& keys, Index from, Index to, float* s) {
    const Vec scale = set1(keys.scale);
    Vec sums[Vectors], neg_max[Vectors];
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) sums[z] = load(chunk.sum + z * kLanes), neg_max[z] = load(chunk.neg_max + z * kLanes);
    const auto weigh_row = [&](Index row, auto keys_of_row) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int z = First; z < Vectors; ++z) {
        const float* const at = s + 2 * row * kPitch<Vectors> + z * kLanes;
        Vec low = zero(), high = zero();
        if (keys_of_row > 0) low = exp2_of_weight(fma(load(at), scale, neg_max[z]));
        if (keys_of_row > 1) high = exp2_of_weight(fma(load(at + kPitch<Vectors>), scale, neg_max[z]));
        sums[z] = add(sums[z], add(low, high));
        store(s + row * kPitch<Vectors> + z * kLanes, words_of(low, high));
      }
    };
    Index row = from / 2;
    for (const Index both = least(to, keys.n) / 2; row < both; ++row) weigh_row(row, Constant<2>{});
    for (; row < to / 2; ++row) 2 * row < keys.n ? weigh_row(row, Constant<1>{}) : weigh_row(row, Constant<0>{});
#pragma GCC unroll 8
    for (int z = First; z < Vectors; ++z) store(chunk.sum + z * kLanes, sums[z]);
  }
};

}  // namespace
}  // namespace roofline::cpu
