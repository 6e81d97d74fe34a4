// What attention by the tiles of AMX shares: the softmax meets scores with the queries side by side. Where K and V are read in place,
// prefetches of the rows that follow run beside products. Everything is internal to the file that includes it.
#pragma once

#include "cpu/amx_products.h"
#include "cpu/attention_words.h"
#include "cpu/simd/exp2_by_table.h"

namespace roofline::cpu {
namespace {

constexpr Index kKeys = kPairedRows;  // of a tile of V in pairs, and of two of K
constexpr Index kMostColumns = 1024;  // of rows of K and V that are read in place
constexpr Index kMostKeys = 256;      // of a block of these

struct TileProducts : WordProducts {
  static constexpr Index kColumns = kTile, kKeyStep = kKeys;
  static constexpr bool kTrims = false;  // its tiles are two vectors wide
  static constexpr bool kBegins = false;

  static void queries(const Bf16* q, Index key_dim, float, const Chunk& chunk) {
    WordProducts::queries(q, key_dim, chunk, AttentionTiledKernels::words(key_dim, kNumbers, kColumns));
  }
  static Index value_plane(const AttentionBlock&, Index) { return 0; }

  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk&, const Keys&, const float*, Index from, Index to, const float* s, Vec* grow) {
    if constexpr (Grow) {
      const auto meet = [&](Index key, Vec* high) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int z = First; z < Vectors; ++z) high[z] = max(high[z], load(s + key * kPitch<Vectors> + z * kLanes));
      };
      Vec others[3][Vectors];  // a chain for each of four keys
      for (Vec(&other)[Vectors] : others)
        for (int z = 0; z < Vectors; ++z) other[z] = set1(-kInfinity);
      for (; from + 4 <= to; from += 4) {
        meet(from, grow);
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) meet(from + i + 1, others[i]);
      }
      for (; from < to; ++from) meet(from, grow);
      for (const Vec(&other)[Vectors] : others)
        for (int z = First; z < Vectors; ++z) grow[z] = max(grow[z], other[z]);
    }
  }
  template <int Vectors, int First, bool Masked>
  static void weigh(const Chunk& chunk, const Keys& keys, Index from, Index to, float* s, const Vec (&)[Vectors], bool) {
    weigh_words<Vectors, First>(chunk, keys, from, round_up(to, kKeys), s);
  }

  // p[keys / 2][kPitch] = words of the weights by a table, zeros past the last key; adds these rounded weights to the sums. Returns
  // false, with sums and scores as they were, where a weight is 2 or more.
  template <int Vectors>
  static bool weigh_within(const Chunk& chunk, const Keys& keys, float* s, float* p) {
    const Index n = round_up(keys.n, kKeys);
    for (float* at = s + keys.n * kPitch<Vectors>; at < s + n * kPitch<Vectors>; at += kLanes) store(at, set1(-kInfinity));
    return keys.masked || keys.n < n ? weigh_pairs<Vectors, true>(chunk, keys.scale, n / 2, s, p)
                                     : weigh_pairs<Vectors, false>(chunk, keys.scale, n / 2, s, p);
  }
  template <int Vectors, bool Masked>
  static bool weigh_pairs(const Chunk& chunk, float scale, Index pairs, const float* s, float* p) {
    const Vec factor = set1(256 * scale);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    __m512i all = _mm512_setzero_si512();
    Vec sums[Vectors], less[Vectors];
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z)
      sums[z] = load(chunk.sum + z * kLanes), less[z] = fma(set1(256), load(chunk.neg_max + z * kLanes), set1(256 * 127 - kExp2Less));
    for (Index pair = 0; pair < pairs; ++pair, s += 2 * kPitch<Vectors>, p += kPitch<Vectors>)
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) {
        const Vec low = load(s + z * kLanes), high = load(s + kPitch<Vectors> + z * kLanes);
        const __m512i exponents = exponents_in_pairs(fma(low, factor, less[z]), fma(high, factor, less[z]));
        const __m512i words = exp2_by_table<Masked>(exponents);
        all = _mm512_or_si512(all, exponents);
        store(p + z * kLanes, _mm512_castsi512_ps(words));
        sums[z] = add(sums[z], add(_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)), _mm512_castsi512_ps(_mm512_and_si512(words, upper))));
      }
    if (_mm512_test_epi16_mask(all, _mm512_set1_epi16(-0x8000))) return false;
#pragma GCC unroll 8
    for (int z = 0; z < Vectors; ++z) store(chunk.sum + z * kLanes, sums[z]);
    return true;
  }
};

// Results with the queries in rows, of K and V that are read in place. Stored: an element of them.
template <class Stored>
struct InPlaceProducts : TileProducts, InRows {
  static bool fits(const AttentionBlock& block) {
    return block.head_dim + block.rope_dim <= kMostColumns && block.value_dim <= kMostColumns && block.kv_block <= kMostKeys;
  }
  // Whether no tile lies in two pages.
  static bool in_pages(const AttentionBlock& block) {
    return !block.pages || (block.page_size % kTile == 0 && block.first % kTile == 0 && block.window >= block.seq_kv);
  }

  static void gather_keys(const AttentionBlock&, Index, Index, float*, Index) {}
  static void gather_values(const AttentionBlock&, Index, Index, float*) {}
  static Index value_pitch(const AttentionBlock&, Index) { return 0; }
  static Index value_offset(const AttentionBlock&, Index) { return 0; }

  static const Stored* row_or_zeros(const void* all, Index columns, const Keys& keys, Index key) {
    static constexpr Stored kZeroRow[kMostColumns] = {};
    return key < keys.n ? row_of<Stored>(all, columns, *keys.block, keys.begin + key) : kZeroRow;
  }

  // The lines of the rows after those that a chunk meets, which the first chunk prefetches in order and few at a time: many at once hold
  // up the loads behind them.
  struct Prefetch {
    const char* at = nullptr;
    Index lines;  // of kKeys rows

    Prefetch(const Chunk& chunk, const Keys& keys, const void* all, Index columns)
        : lines(kKeys * columns * Index{sizeof(Stored)} / 64) {
      if (all && chunk.first == 0 && !keys.block->pages)
        at = static_cast<const char*>(all) + (keys.begin + keys.n) * columns * Index{sizeof(Stored)};
    }
    ROOFLINE_INLINE void fetch(const Prefetch& of, Index first, Index lines) {
      if (of.at)
        for (Index line = first; line < first + lines; ++line) __builtin_prefetch(of.at + line * 64, 0, 2);
    }
    ROOFLINE_INLINE void fetch(const Prefetch& of, Index first, Index lines, Index quarter) {
      if (of.at) fetch_quarter(of.at + first * 64, lines, quarter);
    }
  };
};

}  // namespace
}  // namespace roofline::cpu
