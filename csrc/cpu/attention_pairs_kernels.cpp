// Attention of bf16 by instructions that add two products to a sum, for sets that have them beside those of attention_tiled_kernels.cpp.
// K is broadcast as it lies, V from panels of words; denormals count as 0.
#include "cpu/attention_words.h"
#include "cpu/simd/integers.h"

namespace roofline::cpu {
namespace {

struct PairProducts : WordProducts {
  static constexpr Index kColumns = 1, kKeyStep = 2;
  static constexpr bool kSlow = true, kTrims = true;

  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return add_bf16_pairs(a, b, c); }

  static void queries(const Bf16* q, Index rows, Index key_dim, float scale, float* to, Index width) {
    WordProducts::queries(q, rows, key_dim, scale, to, width, (key_dim + 1) / 2);
  }
  static void gather_keys(const AttentionBlock& block, Index begin, Index n, float* to, Index pitch) {
    for (Index i = 0; i < n; ++i)
      for (Index word = 0; word < pitch; word += kLanes)
        put(to + i * pitch + word, static_cast<int>(least(kLanes, pitch - word)), some_words(block, begin + i, 2 * word));
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, float* to) {
    const Index columns = block.value_dim, pitch = value_pitch(block, n);
    for (Index i = 0; i < n; i += 2) {
      const Bf16* const one = row_of(block.v, columns, block, begin + i);
      const Bf16* const next = i + 1 < n ? row_of(block.v, columns, block, begin + i + 1) : nullptr;
      pair_rows(one, next, columns, to + i / 2 * pitch);
    }
  }
  // A line more, so that a column's words do not meet in few places of the first cache.
  static Index value_pitch(const AttentionBlock& block, Index) { return block.value_dim + kLanes; }
  static Index value_offset(const AttentionBlock& block, Index lead) { return lead / 2 * value_pitch(block, 0); }

  template <int Vectors>
  static void begin(const Chunk&, const Keys&, float*) {}
  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk& chunk, const Keys& keys, const float* start, Index from, Index to, float* s, Vec* grow) {
    score_tiles<PairProducts, Vectors, First, Grow>(chunk, keys, start, from, to, s, grow);
  }
  template <int Vectors, int First>
  static void weigh(const Chunk& chunk, const Keys& keys, Index from, Index to, float* s, const Vec (&)[Vectors], bool) {
    weigh_words<Vectors, First>(chunk, keys, from, round_up(to, 2), s);
  }
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, const float* p) {
    for_tiles<kTileRows<Vectors>>(keys.value_dim, ValueTiles<PairProducts, Vectors>{keys, chunk, p});
  }
};

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_pairs) = {
    kLanes, kRows, kWidth, PairProducts::kNumbers, PairProducts::kColumns, {nullptr, tiled<Bf16, PairProducts>, nullptr}};

}  // namespace roofline::cpu
