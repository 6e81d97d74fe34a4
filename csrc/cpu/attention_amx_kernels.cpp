// Attention of bf16 by the tiles of AMX, 32 x 32 results in four of them: S = K Qᵀ, then O += P V for few queries of many
// columns, whose K and V are read where they lie, and Oᵀ += Vᵀ P for others, whose K and V are gathered as tiles: [16 keys]
// [16 words of head_dim] one after the other, [16 columns][16 pairs of keys] likewise; places beyond the last are 0. Q is rows of
// words with the queries side by side, and so is P until it is transposed. K and V of 8 bits are widened to bf16, exactly, except
// where few queries meet int8 as it lies (attention_bytes.h).
#include "cpu/attention_bytes.h"

namespace roofline::cpu {
namespace {

constexpr Index kAhead = 4096;  // elements by which prefetches lead the gathering of keys
// Bytes from a row of Q, or results, to the next, and from one of scores, or weights.
template <int Vectors>
constexpr Index kRow = 4 * Vectors * kLanes;
template <int Vectors>
constexpr Index kScoresRow = 4 * kPitch<Vectors>;

// A strip of c of `Vectors` tiles side by side.
template <int Vectors, bool Rows, bool Add>
ROOFLINE_INLINE void strip(const TileOperand& a, TileOperand b, Index steps, float* c, Index row) {
  using Tiles = Square<Rows, (Vectors > 1)>;
  for (Index column = 0; column < Vectors * kTile; column += 2 * kTile, b.at += 2 * kTile, b.other += 2 * kTile) {
    Add ? Tiles::load(c + column, row) : Tiles::clear();
    Tiles::add(a, b, steps, kNothing);
    Tiles::store(c + column, row);
  }
}

constexpr float kMostScore = 1 << 14;  // in units of log2

// The largest magnitude of numbers of bf16 that come in words of two. Infinity and NaN are larger than all others.
struct Largest {
  __m512i magnitudes = _mm512_setzero_si512();

  [[gnu::always_inline]] void meet(__m512i words) {
    magnitudes = _mm512_max_epu16(magnitudes, _mm512_and_si512(words, _mm512_set1_epi16(0x7FFF)));
  }
  float value() const {
    alignas(64) std::uint16_t all[2 * kTile];
    _mm512_store_si512(all, magnitudes);
    std::uint32_t bits = 0;
    for (const std::uint16_t each : all) bits = each > bits ? each : bits;
    bits <<= 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
};

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

// Oᵀ += Vᵀ P: K and V are gathered, and V is transposed, once for all chunks. Stored: an element of them.
template <class Stored>
struct LaneProducts : TileProducts, InLanes {
  static constexpr int kBelow = 7;
  static constexpr bool kApart = true;

  static void queries(const Bf16* q, Index key_dim, float scale, const Chunk& chunk) {
    TileProducts::queries(q, key_dim, scale, chunk);
    Largest largest;
    const Index n = chunk.rows * key_dim;
    for (Index i = 0; i < n; i += 2 * kTile) largest.meet(words_at(q + i, least(2 * kTile, n - i)));
    chunk.unit[0] = largest.value();
  }
  // Whether 256 times a score keeps its fraction in fp32, and no sums are asked for: those of rounded weights are too far off.
  static bool bounded(const Chunk& chunk, const Keys& keys) {
    const AttentionBlock& block = *keys.block;
    const float numbers = static_cast<float>(block.head_dim + block.rope_dim);
    return numbers * chunk.unit[0] * keys.largest * __builtin_fabsf(keys.scale) < kMostScore && !block.logsumexp && !block.top;
  }

  static float gather_keys(const AttentionBlock& block, Index begin, Index n, float* to, Index words) {
    Largest largest;
    for (Index i = 0; i < round_up(n, kKeys); ++i) {
      float* const tiles = to + i / kTile * kTile * words + i % kTile * kTile;
      Index word = 0;
      const auto whole_words = [&](const void* all, Index columns) __attribute__((always_inline)) {
        const Stored* const row = row_of<Stored>(all, columns, block, begin + i);
        for (Index d = 0; d + 2 * kTile <= columns; d += 2 * kTile, word += kTile) {
          if (!block.pages) __builtin_prefetch(row + d + kAhead, 0, 2);
          const __m512i numbers = words_at(row + d);
          largest.meet(numbers);
          _mm512_store_si512(tiles + word * kTile, numbers);
        }
      };
      if (i < n) whole_words(block.k, block.head_dim);
      if (i < n && block.head_dim == 2 * word) whole_words(block.rope, block.rope_dim);
      for (; word < words; word += kTile) {
        const Vec numbers = i < n ? some_words<Stored>(block, begin + i, 2 * word) : zero();
        largest.meet(_mm512_castps_si512(numbers));
        store(tiles + word * kTile, numbers);
      }
    }
    return largest.value();
  }
  static void gather_values(const AttentionBlock& block, Index begin, Index n, float* to) {
    const Index columns = block.value_dim, pitch = value_pitch(block, n);
    for (Index i = 0; i < n; i += kKeys) {
      const Stored* rows[kKeys];
      for (Index key = 0; key < kKeys; ++key)
        rows[key] = i + key < n ? row_of<Stored>(block.v, columns, block, begin + i + key) : nullptr;
      float* const tiles = to + i / kKeys * kTileWords;
      Index d = 0;
      for (; i + kKeys <= n && d + 2 * kTile <= columns; d += 2 * kTile)
        put_transposed(rows, d, tiles + d / kTile * pitch, tiles + (d / kTile + 1) * pitch);
      for (; d < columns; d += 2 * kTile) {
        const auto numbers = [&](const Stored* row) {
          return row ? words_at(row + d, least(2 * kTile, columns - d)) : _mm512_setzero_si512();
        };
        Vec words[2][kTile];
#pragma GCC unroll 16
        for (int pair = 0; pair < kTile; ++pair)
          pair_32(numbers(rows[2 * pair]), numbers(rows[2 * pair + 1]), words[0][pair], words[1][pair]);
        for (Index half = 0; half < 2 && d + half * kTile < columns; ++half)
          put_transposed(words[half], tiles + (d / kTile + half) * pitch, kTile);
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
      strip<Vectors, true, false>({k, k + kTile * keys.key_words, kTileBytes, kTileWords},
                                 {chunk.q, chunk.q + kTile, kRow<Vectors>, kTile * kRow<Vectors> / 4}, keys.key_words / kTile,
                                 s + key * kPitch<Vectors>, kScoresRow<Vectors>);
    }
    barrier();
  }
  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, const float* p) {
    const Index steps = round_up(keys.n, kKeys) / kKeys;
    const TileOperand weights = {p, p + kTile, kScoresRow<Vectors>, kTile * kPitch<Vectors>};
    barrier();
    for (Index d = 0; d < keys.value_dim; d += 2 * kTile) {
      const float* const v = keys.v + d / kTile * keys.value_pitch;
      const TileOperand values = {v, v + keys.value_pitch, kTileBytes, kTileWords};
      float* const out = chunk.out + d * Vectors * kTile;
      if (keys.value_dim - d > kTile)
        strip<Vectors, true, true>(values, weights, steps, out, kRow<Vectors>);
      else
        strip<Vectors, false, true>(values, weights, steps, out, kRow<Vectors>);
    }
    barrier();
  }
};

// O += P V: K and V are read where they lie. P is transposed, and V only paired, 32 columns at a time.
template <class Stored>
struct RowProducts : InPlaceProducts<Stored> {
  using Own = InPlaceProducts<Stored>;
  using Prefetch = typename Own::Prefetch;
  using Own::row_or_zeros;
  static constexpr bool kWidens = sizeof(Stored) == 1;  // then rows of K are copied as bf16, and V is widened while it is paired

  // Whether K and V lie in whole tiles, of so many columns that it pays: each chunk of queries reads and pairs V anew.
  static bool takes(const AttentionBlock& block) {
    const bool whole = (block.head_dim | block.rope_dim | block.value_dim) % kKeys == 0;
    return whole && 4 * block.rows <= block.value_dim && Own::fits(block) && (kWidens || Own::in_pages(block));
  }

  template <int Vectors>
  static void begin(const Chunk& chunk, const Keys& keys, float* s) {
    const AttentionBlock& block = *keys.block;
    constexpr Index kStep = kTile * kRow<Vectors> / 4;  // of Q
    // The keys from `whole` on are copied before they are multiplied, rows of K and then those of rope: some that fill no tile, or
    // kKeys at a time that are widened.
    const Index whole = kWidens ? 0 : keys.n / kTile * kTile;
    constexpr Index kCopied = kWidens ? kKeys : kTile;
    alignas(64) float copies[kCopied * kMostColumns / 2];
    float* const rope_copies = copies + kCopied * block.head_dim / 2;
    const auto copy = [&](Index first) __attribute__((always_inline)) {
      const auto copy_rows = [&](const void* all, Index columns, float* to) __attribute__((always_inline)) {
        for (Index i = 0; i < kCopied; ++i) {
          const Stored* const row = row_or_zeros(all, columns, keys, first + i);
          for (Index d = 0; d < columns; d += kKeys, to += kTile) _mm512_store_si512(to, words_at(row + d));
        }
      };
      copy_rows(block.k, block.head_dim, copies);
      if (block.rope_dim > 0) copy_rows(block.rope, block.rope_dim, rope_copies);
    };
    if (!kWidens && whole < keys.n) copy(whole);
    const auto tile_at = [&](const void* all, Index columns, Index key, const float* copied) __attribute__((always_inline)) {
      if (key >= whole) return copied + (kWidens ? key % kKeys : 0) * columns / 2;
      return reinterpret_cast<const float*>(Own::template row_of<Stored>(all, columns, block, keys.begin + key));
    };
    const Prefetch k(chunk, keys, block.k, block.head_dim), rope(chunk, keys, block.rope, block.rope_dim);
    const auto products = [&](auto both, Index key) __attribute__((always_inline)) {
      using Tiles = Square<both, (Vectors > 1)>;
      const auto add_columns = [&](const void* all, Index columns, const float* copied, const float* q, const Prefetch& after,
                                   Index lines) {
        const float *const one = tile_at(all, columns, key, copied), *const other = tile_at(all, columns, key + kTile, copied);
        const Index steps = columns / kKeys, each = lines / steps;
        Tiles::add({one, other, 2 * columns, kTile}, {q, q + kTile, kRow<Vectors>, kStep}, steps,
                   [&](Index step, Index quarter) __attribute__((always_inline)) {
                     Prefetch::fetch(after, key / kKeys * lines + step * each, each, quarter);
                   });
      };
      for (Index column = 0; column < Vectors * kTile; column += 2 * kTile) {
        const float* const q = chunk.q + column;
        Tiles::clear();
        add_columns(block.k, block.head_dim, copies, q, k, column == 0 ? k.lines / (block.k == block.v ? 2 : 1) : 0);
        if (block.rope_dim > 0)
          add_columns(block.rope, block.rope_dim, rope_copies, q + block.head_dim / kKeys * kStep, rope, column == 0 ? rope.lines : 0);
        Tiles::store(s + key * kPitch<Vectors> + column, kScoresRow<Vectors>);
      }
    };
    barrier();
    for (Index key = 0; key < keys.n; key += kKeys) {
      if constexpr (kWidens) copy(key), barrier();
      key + kTile < keys.n ? products(std::true_type{}, key) : products(std::false_type{}, key);
    }
    barrier();
  }

  template <int Vectors>
  static void transpose_weights(float* p, Index steps) {
    for (Index step = 0; step < steps; ++step)
      for (Index lane = 0; lane < Vectors * kTile; lane += kTile) {
        float* const tile = p + step * kTile * kPitch<Vectors> + lane;
        Vec words[kTile];
#pragma GCC unroll 16
        for (int i = 0; i < kTile; ++i) words[i] = load(tile + i * kPitch<Vectors>);
        put_transposed(words, tile, kPitch<Vectors>);
      }
  }

  template <int Vectors>
  static void values(const Chunk& chunk, const Keys& keys, float* p) {
    using Tiles = Square<(Vectors > 1), true>;
    const AttentionBlock& block = *keys.block;
    const Index steps = round_up(keys.n, kKeys) / kKeys, columns = keys.value_dim;
    const Prefetch v_after(chunk, keys, block.v, columns);
    const Index fetched = block.k == block.v ? steps * v_after.lines / 2 : 0;  // with products of K
    const Index each = (v_after.lines - fetched / steps) / (columns / kKeys);
    const Stored* rows[kMostKeys];
    for (Index key = 0; key < steps * kKeys; ++key) rows[key] = row_or_zeros(block.v, columns, keys, key);
    alignas(64) float paired[2][kMostKeys * kTile];  // of these columns, and of the next
    const auto pair = [&](Index d, Index step) __attribute__((always_inline)) {
      float* const to = paired[d / kKeys % 2] + step * 2 * kTileWords;
      const Stored* const* const from = rows + step * kKeys;
#pragma GCC unroll 16
      for (Index i = 0; i < kTile; ++i)
        pair_32(words_at(from[2 * i] + d), words_at(from[2 * i + 1] + d), to + i * 2 * kTile);
    };
    transpose_weights<Vectors>(p, steps);
    for (Index step = 0; step < steps; ++step) pair(0, step);
    barrier();
    for (Index d = 0; d < columns; d += kKeys) {
      const float* const v = paired[d / kKeys % 2];
      const auto beside = [&](Index step, Index quarter) __attribute__((always_inline)) {
        Prefetch::fetch(v_after, fetched + (d / kKeys * steps + step) * each, each, quarter);
        if (quarter == 3 && d + kKeys < columns) pair(d + kKeys, step);
      };
      for (Index row = 0; row < Vectors * kTile; row += 2 * kTile) {
        const TileOperand weights = {p + row, p + row + kTile, kScoresRow<Vectors>, kTile * kPitch<Vectors>};
        const TileOperand values = {v, v + kTile, 2 * kTileBytes, 2 * kTileWords};
        float* const out = chunk.out + row * columns + d;
        Tiles::load(out, 4 * columns);
        row == 0 ? Tiles::add(weights, values, steps, beside) : Tiles::add(weights, values, steps, kNothing);
        Tiles::store(out, 4 * columns);
      }
      barrier();
    }
  }
};

template <class Stored>
void tiled_of(const AttentionBlock& block) {
  AttentionBlock in_place = block;
  in_place.key_panel = in_place.value_panel = false;
  configure(kTile, kTile);
  if (std::is_same_v<Stored, Int8> && ByteProducts::takes(block))
    tiled<Bf16, ByteProducts>(in_place);
  else if (RowProducts<Stored>::takes(block))
    tiled<Bf16, RowProducts<Stored>>(in_place);
  else
    tiled<Bf16, LaneProducts<Stored>>(block);
  _tile_release();
}

void tiled_by_amx(const AttentionBlock& block) {
  block.element == Cached::int8       ? tiled_of<Int8>(block)
  : block.element == Cached::fp8_e4m3 ? tiled_of<Fp8E4m3>(block)
  : block.element == Cached::fp8_e5m2 ? tiled_of<Fp8E5m2>(block)
                                      : tiled_of<Bf16>(block);
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention) = {
    kLanes, kTile, kWidth, TileProducts::kNumbers, TileProducts::kColumns, {nullptr, tiled_by_amx, nullptr}, 4, TileProducts::kTrims};

}  // namespace roofline::cpu
