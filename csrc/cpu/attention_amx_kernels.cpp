// Attention of bf16 by the tiles of AMX: S = K Qᵀ and Oᵀ += Vᵀ P, 32 x 32 of them in four tiles. K and V are gathered as tiles: [16 keys]
// [16 words of head_dim] one after the other, [16 columns][16 pairs of keys] likewise; what is beyond the last is 0. Q and P are rows of
// words with the queries side by side, which is how a tile of them is loaded.
#include "cpu/amx_tiles.h"
#include "cpu/attention_words.h"

namespace roofline::cpu {
namespace {

constexpr Index kTileWords = kTile * kTile;
constexpr Index kKeys = 2 * kTile;  // of a tile of V, and of two of K
constexpr Index kAhead = 4096;      // elements by which prefetches lead the gathering of keys
// Bytes from a row of Q, or results, to the next, and from one of scores, or weights.
template <int Vectors>
constexpr Index kRow = 4 * Vectors * kLanes;
template <int Vectors>
constexpr Index kScoresRow = 4 * kPitch<Vectors>;

// 16 or 32 rows x 16 or 32 columns of c = or += the product of `steps` tiles. a: tiles one after the other, those of the second rows at
// `other`; b and c: rows b_row and c_row bytes apart.
template <bool Rows, bool Columns, bool Add>
ROOFLINE_INLINE void square(const float* a, const float* other, const float* b, Index b_row, Index steps, float* c, Index c_row) {
  float* const below = c + kTile * c_row / 4;
  if constexpr (Add) {
    _tile_loadd(0, c, c_row);
    if constexpr (Columns) _tile_loadd(1, c + kTile, c_row);
    if constexpr (Rows) _tile_loadd(2, below, c_row);
    if constexpr (Rows && Columns) _tile_loadd(3, below + kTile, c_row);
  } else {
    _tile_zero(0);
    if constexpr (Columns) _tile_zero(1);
    if constexpr (Rows) _tile_zero(2);
    if constexpr (Rows && Columns) _tile_zero(3);
  }
  for (Index step = 0; step < steps; ++step) {
    const float* const from = b + step * kTile * b_row / 4;
    _tile_loadd(4, a + step * kTileWords, kTileBytes);
    _tile_loadd(6, from, b_row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Columns) {
      _tile_loadd(7, from + kTile, b_row);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (Rows) {
      _tile_loadd(5, other + step * kTileWords, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (Columns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_row);
  if constexpr (Columns) _tile_stored(1, c + kTile, c_row);
  if constexpr (Rows) _tile_stored(2, below, c_row);
  if constexpr (Rows && Columns) _tile_stored(3, below + kTile, c_row);
}

// A strip of c, `Vectors` tiles wide.
template <int Vectors, bool Rows, bool Add>
ROOFLINE_INLINE void strip(const float* a, const float* other, const float* b, Index b_row, Index steps, float* c, Index c_row) {
  if constexpr (Vectors == 1)
    square<Rows, false, Add>(a, other, b, b_row, steps, c, c_row);
  else
    for (Index column = 0; column < Vectors * kTile; column += 2 * kTile)
      square<Rows, true, Add>(a, other, b + column, b_row, steps, c + column, c_row);
}

// to[rows][pitch] = (from[2 kLanes][width] scale)ᵀ.
template <class Whole>
ROOFLINE_INLINE void transpose_to_pairs(Whole whole, const float* from, Index width, Vec scale, Bf16* to, Index rows, Index pitch) {
  Vec square[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    alignas(Vec) Bf16 words[2 * kLanes];
    narrow_pairs<false>(words, mul(load(from + 2 * i * width), scale), mul(load(from + (2 * i + 1) * width), scale));
    square[i] = load(reinterpret_cast<const float*>(words));
  }
  transpose(square);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if (whole || i < rows) store(reinterpret_cast<float*>(to + i * pitch), square[i]);
}

// to[rows][columns] = (from[columns][width] scale)ᵀ, of at most kLanes rows.
template <class T>
void transpose_scaled_back(const Number* from, Index columns, Index width, Vec scale, T* to, Index rows) {
  for_rows(rows, [&](auto whole) __attribute__((always_inline)) {
    Index d = 0;
    if constexpr (kInPairs<T>)
      for (; d + 2 * kLanes <= columns; d += 2 * kLanes)
        transpose_to_pairs(whole, from + d * width, width, scale, to + d, rows, columns);
    const auto square_of = [&](int some) __attribute__((always_inline)) {
      Vec square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = i < some ? mul(load(from + (d + i) * width), scale) : zero();
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (whole || i < rows) put(to + i * columns + d, some, square[i]);
    };
    for (; d + kLanes <= columns; d += kLanes) square_of(kLanes);
    if (d < columns) square_of(static_cast<int>(columns - d));
  });
}

// Results with the queries in lanes: chunk.out [value_dim, width].
struct InLanes {
  static constexpr int kMostVectors = kVectors;

  template <int Vectors>
  static void shrink(const Chunk& chunk, Index columns, int z, Vec down) {
    for (Index d = 0; d < columns; ++d) {
      Number* const at = chunk.out + (d * Vectors + z) * kLanes;
      store(at, mul(load(at), down));
    }
  }
  template <class T>
  static void results(const Chunk& chunk, Index columns, Index lane, Vec share, T* out) {
    transpose_scaled_back(chunk.out + lane, columns, chunk.vectors * kLanes, share, out, chunk.rows - lane);
  }
};

struct TileProducts : WordProducts, InLanes {
  static constexpr Index kColumns = kTile, kKeyStep = kKeys;
  static constexpr bool kTrims = false;  // its tiles are two vectors wide
  static constexpr bool kBegins = false;

  static void queries(const Bf16* q, Index rows, Index key_dim, float scale, float* to, Index width) {
    WordProducts::queries(q, rows, key_dim, scale, to, width, AttentionTiledKernels::words(key_dim, kNumbers, kColumns));
  }
  static void gather_keys(const AttentionBlock& block, Index begin, Index n, float* to, Index words) {
    for (Index i = 0; i < round_up(n, kKeys); ++i) {
      float* const tiles = to + i / kTile * kTile * words + i % kTile * kTile;
      Index word = 0;
      const auto whole_words = [&](const void* all, Index columns) __attribute__((always_inline)) {
        const Bf16* const row = row_of(all, columns, block, begin + i);
        for (Index d = 0; d + 2 * kTile <= columns; d += 2 * kTile, word += kTile) {
          if (!block.pages) __builtin_prefetch(row + d + kAhead, 0, 2);
          store(tiles + word * kTile, load(reinterpret_cast<const float*>(row + d)));
        }
      };
      if (i < n) whole_words(block.k, block.head_dim);
      if (i < n && block.head_dim == 2 * word) whole_words(block.rope, block.rope_dim);
      for (; word < words; word += kTile) store(tiles + word * kTile, i < n ? some_words(block, begin + i, 2 * word) : zero());
    }
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, float* to) {
    const Index columns = block.value_dim, pitch = value_pitch(block, n);
    for (Index i = 0; i < n; i += kKeys) {
      const Bf16* rows[kKeys];
      for (Index key = 0; key < kKeys; ++key) rows[key] = i + key < n ? row_of(block.v, columns, block, begin + i + key) : nullptr;
      const auto put_tile = [&](Vec (&words)[kTile], Index d) __attribute__((always_inline)) {
        transpose(words);
        float* const tile = to + d / kTile * pitch + i / kKeys * kTileWords;
#pragma GCC unroll 16
        for (int column = 0; column < kTile; ++column) store(tile + column * kTile, words[column]);
      };
      Index d = 0;
      for (; i + kKeys <= n && d + 2 * kTile <= columns; d += 2 * kTile) {
        Vec words[2][kTile];
#pragma GCC unroll 16
        for (int pair = 0; pair < kTile; ++pair)
          pair_32(_mm512_loadu_si512(rows[2 * pair] + d), _mm512_loadu_si512(rows[2 * pair + 1] + d), words[0][pair],
                  words[1][pair]);
        put_tile(words[0], d);
        put_tile(words[1], d + kTile);
      }
      for (; d < columns; d += kTile) {
        Vec words[kTile];
#pragma GCC unroll 16
        for (int pair = 0; pair < kTile; ++pair) words[pair] = row_pair(rows[2 * pair], rows[2 * pair + 1], d, columns);
        put_tile(words, d);
      }
    }
  }
  // From the tiles of 16 columns to those of the next.
  static Index value_pitch(const AttentionBlock&, Index n) { return round_up(n, kKeys) / kKeys * kTileWords; }
  static Index value_plane(const AttentionBlock&, Index) { return 0; }
  static Index value_offset(const AttentionBlock&, Index lead) { return lead / kKeys * kTileWords; }

  template <int Vectors>
  static void begin(const Chunk& chunk, const Keys& keys, float* s) {
    barrier();
    for (Index key = 0; key < keys.n; key += kKeys) {
      const float* const k = keys.k + key * keys.key_words;
      strip<Vectors, true, false>(k, k + kTile * keys.key_words, chunk.q, kRow<Vectors>, keys.key_words / kTile,
                                 s + key * kPitch<Vectors>, kScoresRow<Vectors>);
    }
    barrier();
  }
  template <int Vectors, int First, bool Grow>
  static void scores(const Chunk&, const Keys&, const float*, Index from, Index to, const float* s, Vec* grow) {
    if constexpr (Grow)
      for (Index key = from; key < to; ++key)
#pragma GCC unroll 8
        for (int z = First; z < Vectors; ++z) grow[z] = max(grow[z], load(s + key * kPitch<Vectors> + z * kLanes));
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
        strip<Vectors, true, true>(v, v + keys.value_pitch, p, kScoresRow<Vectors>, steps, out, kRow<Vectors>);
      else
        strip<Vectors, false, true>(v, nullptr, p, kScoresRow<Vectors>, steps, out, kRow<Vectors>);
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
