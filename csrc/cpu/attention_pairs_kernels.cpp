// Attention of bf16 by instructions that add two products to a sum, for sets that have them beside those of attention_tiled_kernels.cpp.
// K is broadcast as it lies, V from panels of words; denormals count as 0.
#include "cpu/attention_rows.h"
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

// V is read where it lies: pairs of values are made in registers.
struct InPlace : PairProducts {
  ROOFLINE_INLINE Vec query_words(const Bf16* q, int n, float) { return _mm512_castsi512_ps(words_at(q, 2 * Index{n})); }

  static void gather_values(const AttentionBlock&, Index, Index, float*) {}
  static Index value_pitch(const AttentionBlock& block, Index) { return block.value_dim / 2; }
  static Index value_plane(const AttentionBlock&, Index) { return 0; }
  static Index value_offset(const AttentionBlock& block, Index lead) { return lead * block.value_dim / 2; }

  // Words of two vectors of columns of a value and the one `pitch` after it, or zeros: Whole, in the order of pair_fours; else of the
  // first `some` columns.
  template <bool Whole>
  ROOFLINE_INLINE void values_of(const float* v, Index pitch, int some, Vec (&values)[2]) {
    const auto row = [&](const float* from) { return Whole ? _mm512_loadu_si512(from) : load_halves(from, some); };
    const __m512i one = row(v), next = pitch > 0 ? row(v + pitch) : _mm512_setzero_si512();
    Whole ? pair_fours(one, next, values[0], values[1]) : pair_32(one, next, values[0], values[1]);
  }
  template <class T>
  static void results(const Chunk& chunk, Index columns, Index lane, Vec share, T* out) {
    const Index pitch = round_up(columns, kLanes);
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
    for (Index row = lane; row < lane + kLanes; ++row)
      for (float* at = chunk.out + row * pitch; at + 2 * kLanes <= chunk.out + row * pitch + columns; at += 2 * kLanes) {
        const __m512d one = _mm512_castps_pd(load(at)), other = _mm512_castps_pd(load(at + kLanes));
        store(at, _mm512_castpd_ps(_mm512_permutex2var_pd(one, low, other)));
        store(at + kLanes, _mm512_castpd_ps(_mm512_permutex2var_pd(one, high, other)));
      }
    InRows::results(chunk, columns, lane, share, out);
  }
};

// Whether so few queries, of such keys, lie in rows.
bool in_rows(Index rows, Index head_dim, Index rope_dim, Index value_dim, bool pages) {
  return rows <= kLanes && head_dim % 8 == 0 && rope_dim % 8 == 0 && value_dim % 2 == 0 && !pages;
}

void attend(const AttentionBlock& block) {
  const bool few = in_rows(block.rows, block.head_dim, block.rope_dim, block.value_dim, block.pages != nullptr);
  // To pack values costs more than to pair them again for each eight of so few rows.
  const bool some = block.k == block.v && block.rows <= 64 && block.value_dim % 2 == 0 && !block.pages;
  if (!few && !some) return tiled<Bf16, PairProducts>(block);
  AttentionBlock own = block;
  own.value_panel = false;
  few ? tiled<Bf16, RowProducts<InPlace>>(own) : tiled<Bf16, RowValues<InPlace>>(own);
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_pairs) = {
    kLanes, kRows, kWidth, PairProducts::kNumbers, PairProducts::kColumns, {nullptr, attend, nullptr}, 4, PairProducts::kTrims, in_rows};

}  // namespace roofline::cpu
