// Attention of bf16 by the tiles of AMX: S = K Qᵀ and Oᵀ += Vᵀ P, 32 x 32 of them in four tiles. K and V are gathered as tiles: [16 keys]
// [16 words of head_dim] one after the other, [16 columns][16 pairs of keys] likewise; what is beyond the last is 0. Q and P are rows of
// words with the queries side by side, which is how a tile of them is loaded.
#include "cpu/amx_tiles.h"
#include "cpu/attention_words.h"

namespace roofline::cpu {
namespace {

constexpr Index kTileWords = kTile * kTile;
constexpr Index kKeys = 2 * kTile;  // of a tile of V, and of two of K

// 16 or 32 rows x 16 or 32 columns of c = or += the product of `steps` tiles. a: tiles one after the other, those of the second rows at
// `other`; b and c: rows `width` words apart.
template <bool Rows, bool Columns, bool Add>
ROOFLINE_INLINE void square(const float* a, const float* other, const float* b, Index steps, float* c, Index width) {
  const Index row = 4 * width;
  float* const below = c + kTile * width;
  if constexpr (Add) {
    _tile_loadd(0, c, row);
    if constexpr (Columns) _tile_loadd(1, c + kTile, row);
    if constexpr (Rows) _tile_loadd(2, below, row);
    if constexpr (Rows && Columns) _tile_loadd(3, below + kTile, row);
  } else {
    _tile_zero(0);
    if constexpr (Columns) _tile_zero(1);
    if constexpr (Rows) _tile_zero(2);
    if constexpr (Rows && Columns) _tile_zero(3);
  }
  for (Index step = 0; step < steps; ++step) {
    const float* const from = b + step * kTile * width;
    _tile_loadd(4, a + step * kTileWords, kTileBytes);
    _tile_loadd(6, from, row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Columns) {
      _tile_loadd(7, from + kTile, row);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (Rows) {
      _tile_loadd(5, other + step * kTileWords, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (Columns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, row);
  if constexpr (Columns) _tile_stored(1, c + kTile, row);
  if constexpr (Rows) _tile_stored(2, below, row);
  if constexpr (Rows && Columns) _tile_stored(3, below + kTile, row);
}

// A strip of c, `Vectors` tiles wide.
template <int Vectors, bool Rows, bool Add>
ROOFLINE_INLINE void strip(const float* a, const float* other, const float* b, Index steps, float* c) {
  constexpr Index kChunk = Vectors * kTile;
  if constexpr (Vectors == 1)
    square<Rows, false, Add>(a, other, b, steps, c, kChunk);
  else
    for (Index column = 0; column < kChunk; column += 2 * kTile)
      square<Rows, true, Add>(a, other, b + column, steps, c + column, kChunk);
}

struct TileProducts : WordProducts {
  static constexpr Index kColumns = kTile, kKeyStep = kKeys;
  static constexpr bool kTrims = false;  // its tiles are two vectors wide
  static constexpr bool kBegins = false;

  static void queries(const Bf16* q, Index rows, Index key_dim, float scale, float* to, Index width) {
    WordProducts::queries(q, rows, key_dim, scale, to, width, AttentionTiledKernels::words(key_dim, kNumbers, kColumns));
  }
  static void gather_keys(const AttentionBlock& block, Index begin, Index n, float* to, Index words) {
    for (Index i = 0; i < round_up(n, kKeys); ++i)
      for (Index word = 0; word < words; word += kTile)
        store(to + i / kTile * kTile * words + word * kTile + i % kTile * kTile, i < n ? some_words(block, begin + i, 2 * word) : zero());
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, float* to) {
    const Index columns = block.value_dim, pitch = value_pitch(block, n);
    for (Index i = 0; i < n; i += kKeys) {
      const Bf16* rows[kKeys];
      for (Index key = 0; key < kKeys; ++key) rows[key] = i + key < n ? row_of(block.v, columns, block, begin + i + key) : nullptr;
      for (Index d = 0; d < columns; d += kTile) {
        Vec words[kTile];
#pragma GCC unroll 16
        for (int pair = 0; pair < kTile; ++pair) words[pair] = row_pair(rows[2 * pair], rows[2 * pair + 1], d, columns);
        transpose(words);
        float* const tile = to + d / kTile * pitch + i / kKeys * kTileWords;
#pragma GCC unroll 16
        for (int column = 0; column < kTile; ++column) store(tile + column * kTile, words[column]);
      }
    }
  }
  // From the tiles of 16 columns to those of the next.
  static Index value_pitch(const AttentionBlock&, Index n) { return round_up(n, kKeys) / kKeys * kTileWords; }
  static Index value_offset(const AttentionBlock&, Index lead) { return lead / kKeys * kTileWords; }

  template <int Vectors>
  static void begin(const Chunk& chunk, const Keys& keys, float* s) {
    barrier();
    for (Index key = 0; key < keys.n; key += kKeys) {
      const float* const k = keys.k + key * keys.key_words;
      strip<Vectors, true, false>(k, k + kTile * keys.key_words, chunk.q, keys.key_words / kTile, s + key * Vectors * kTile);
    }
    barrier();
  }
  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk&, const Keys&, const float*, Index from, Index to, const float* s, Vec* grow) {
    if constexpr (Grow)
      for (Index key = from; key < to; ++key)
#pragma GCC unroll 8
        for (int z = First; z < Vectors; ++z) grow[z] = max(grow[z], load(s + (key * Vectors + z) * kLanes));
  }
  template <int Vectors, int First, bool Masked>
  static void weigh(const Chunk& chunk, const Keys& keys, Index from, Index to, float* s, const Vec (&)[Vectors], bool) {
    weigh_words<Vectors, First>(chunk, keys, from, round_up(to, kKeys), s);
  }
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, const float* p) {
    const Index steps = round_up(keys.n, kKeys) / kKeys;
    barrier();
    for (Index d = 0; d < keys.value_dim; d += 2 * kTile) {
      const float* const v = keys.v + d / kTile * keys.value_pitch;
      float* const out = chunk.out + d * Vectors * kTile;
      if (keys.value_dim - d > kTile)
        strip<Vectors, true, true>(v, v + keys.value_pitch, p, steps, out);
      else
        strip<Vectors, false, true>(v, nullptr, p, steps, out);
    }
    barrier();
  }
};

void tiled_by_amx(const AttentionBlock& block) {
  configure(kTile, kTile);
  tiled<Bf16, TileProducts>(block);
  _tile_release();
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention) = {
    kLanes, kTile, kWidth, TileProducts::kNumbers, TileProducts::kColumns, {nullptr, tiled_by_amx, nullptr}, 4, TileProducts::kTrims};

}  // namespace roofline::cpu
