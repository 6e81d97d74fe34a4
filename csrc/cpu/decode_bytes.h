// Attention of few queries in bf16 over keys and values of 8 bits, by products of pairs: tables make words of bf16 of 64 bytes at a
// time, for up to eight queries at once. A vector holds half as many columns of each of two keys, so that fewer sums of lanes remain
// at their end; of values, words of two keys come of bytes that are interleaved before they are widened. Everything is internal to
// the file that includes it.
#pragma once

#include "cpu/decode_block.h"
#include "cpu/simd/byte_pairs.h"

namespace roofline::cpu {
namespace {

constexpr Index kChunk = 32;    // columns of two keys in a vector of bytes
constexpr Index kColumns = 64;  // of a value in a vector of bytes

template <int Where>
ROOFLINE_INLINE void fetch(const void* line) {
  if constexpr (kBeside<Where>) prefetch(line, Where == kFetchToL1);
}

// fp8_e4m3 and fp8_e5m2 share one kernel and differ in their tables alone.
ROOFLINE_INLINE const BytesOfBf16& tables_of(Cached::Element element) {
  return element == Cached::int8 ? kBytesOfBf16<Int8> : element == Cached::fp8_e4m3 ? kBytesOfBf16<Fp8E4m3> : kBytesOfBf16<Fp8E5m2>;
}

template <class Element>
ROOFLINE_INLINE const std::int8_t* bytes_at(const Element* row) { return reinterpret_cast<const std::int8_t*>(row); }

// Transposes every [A][B] fours of numbers to [B][A]; the rest stays. `to` may be `from`.
template <int A, int B>
void swap_fours(const Number* from, Index numbers, Number* to) {
  constexpr Index kAll = A * B * 4;
  for (; numbers >= kAll; numbers -= kAll, from += kAll, to += kAll) {
    Number all[kAll];
    __builtin_memcpy(all, from, sizeof all);
    for (int a = 0; a < A; ++a)
      for (int b = 0; b < B; ++b) __builtin_memcpy(to + (b * A + a) * 4, all + (a * B + b) * 4, 4 * sizeof(Number));
  }
}

// Queries as these kernels read them, of each group [chunks][2][rows][kLanes]: chunks of columns of the key, then of rope. Two vectors
// of a chunk meet those of widen_64: both halves of either are the same columns.
ROOFLINE_INLINE Index chunk_numbers(Index words) { return (2 * words + kChunk - 1) / kChunk * kChunk; }
[[maybe_unused]] void take_chunks(const Part& part, Index rows, Number* to) {
  const Index dims[2] = {part.head_dim / 2, part.rope_dim / 2}, pitch = dims[0] + dims[1];
  for_groups<true>(0, rows, rows, [&](Index row, auto size) {
    const Number* from = part.q + row * pitch;
    for (const Index words : dims) {
      for (Index first = 0; first < words; first += kLanes)
        for (Index half = 0; half < 2; ++half)
          for (int r = 0; r < decltype(size)::value; ++r)
            for (int i = 0; i < kLanes; ++i) {
              const Index word = first + i % 8 / 4 * 8 + half * 4 + i % 4;
              *to++ = word < words ? from[r * pitch + word] : 0;
            }
      from += words;
    }
  });
}

// The first n <= kChunk columns of two keys, and zeros.
ROOFLINE_INLINE __m512i two_keys(const std::int8_t* one, const std::int8_t* other, Index n) {
  const auto half = [n](const std::int8_t* from) __attribute__((always_inline)) {
    return n == kChunk ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                       : _mm512_castsi512_si256(_mm512_maskz_loadu_epi8((__mmask64{1} << n) - 1, from));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(half(one)), half(other), 1);
}

// scores[n][Rows] of the keys [first, last).
template <int Rows, int Where, class Element>
[[gnu::noinline]] void score_bytes(const Number* q, const Block<Element>& block, Index first, Index last, Number* scores) {
  constexpr int kPairs = Rows == 1 ? 8 : 16 / Rows, kTile = 2 * kPairs;
  constexpr int kApart = Rows < 4 ? 4 / Rows : 1;  // keys of a pair, so that the scores of a vector come in order
  constexpr int kTogether = kPairs < 4 ? kPairs : 4;  // pairs, whose rows are read side by side: few, nearly in order
  const BytesOfBf16& tables = tables_of(block.cached);
  for (Index key = first; key < last; key += kTile) {
    Vec sums[kPairs * Rows];
#pragma GCC unroll 16
    for (Vec& sum : sums) sum = zero();
    const auto one_of = [](int pair) __attribute__((always_inline)) { return pair / kApart * 2 * kApart + pair % kApart; };
    [[maybe_unused]] const auto then = block.after_keys(key);
    [[maybe_unused]] Index ahead = 0, ahead_end = 0, ahead_byte = 0;  // the rows and the line to prefetch next, in order
    const auto fetch_line = [&]() __attribute__((always_inline)) {
      if (Where == kNoFetch || ahead == ahead_end) return;
      fetch<Where>(bytes_at(then[ahead]) + ahead_byte);
      ahead_byte += 64;
      if (ahead_byte >= 2 * block.head_dim) ahead_byte = 0, ++ahead;
    };
    const auto add_chunk = [&](int group, const Element* k, const Index* at, const Number* queries, Index d, Index n)
                               __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int pair = group; pair < group + kTogether; pair += 2) {
        Vec keys[2][2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          fetch_line();
          const int one = one_of(pair + i);
          const __m512i bytes = two_keys(bytes_at(k + at[one]) + d, bytes_at(k + at[one + kApart]) + d, n);
          widen_64<Element>(bytes, tables, keys[i][0], keys[i][1]);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half)
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) {
            const Vec query = load(queries + d * Rows + (half * Rows + r) * kLanes);
#pragma GCC unroll 2
            for (int i = 0; i < 2; ++i) {
              Vec& sum = sums[(pair + i) * Rows + r];
              sum = add_bf16_pairs(query, keys[i][half], sum);
            }
          }
      }
    };
    const auto add_columns = [&](int group, const Element* k, const Index* at, const Number* queries, Index columns)
                                 __attribute__((always_inline)) {
      Index d = 0;
      for (; d + kChunk <= columns; d += kChunk) add_chunk(group, k, at, queries, d, kChunk);
      if (d < columns) add_chunk(group, k, at, queries, d, columns - d);
    };
#pragma GCC unroll 2
    for (int group = 0; group < kPairs; group += kTogether) {
      ahead_end = 2 * (group + kTogether);
      add_columns(group, block.k, block.at + key, q, 2 * block.head_dim);
      if (block.rope_dim > 0)
        add_columns(group, block.rope, block.rope_at + key, q + chunk_numbers(block.head_dim) * Rows, 2 * block.rope_dim);
    }
    const auto four = [&](int i) __attribute__((always_inline)) {  // sums of four lanes of four of them
      const auto both = [](Vec a, Vec b) { return add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); };
      const Vec one = both(sums[i], sums[i + 1]), other = both(sums[i + 2], sums[i + 3]);
      return add(_mm512_shuffle_ps(one, other, 0x44), _mm512_shuffle_ps(one, other, 0xEE));
    };
#pragma GCC unroll 2
    for (int i = 0; i < kPairs * Rows; i += 8) {
      const Vec one = four(i), other = four(i + 4);
      Vec eight = add(_mm512_shuffle_f32x4(one, other, 0x88), _mm512_shuffle_f32x4(one, other, 0xDD));
      if constexpr (Rows == 8) eight = _mm512_shuffle_f32x4(eight, eight, 0xD8);
      store(scores + key * Rows + 2 * i, mul(eight, set1(block.scale)));
    }
  }
}

// Words of two values, `Vectors` of them from the vector `First` on, of the columns from d on, or of n < kColumns of them. Vector j
// holds columns 4 j to 4 j + 3 of every 16.
template <int First, int Vectors, class Element>
ROOFLINE_INLINE void load_columns(const Element* one, const Element* other, Index d, Index n, const BytesOfBf16& tables,
                                  Vec (&values)[Vectors]) {
#pragma GCC unroll 2
  for (int z = 0; z < Vectors; z += 4) {
    const auto row = [&](const Element* from) __attribute__((always_inline)) {
      const std::int8_t* const at = bytes_at(from) + d + z / 4 * kColumns;
      const __m512i bytes = n == kColumns ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8((__mmask64{1} << n) - 1, at);
      return _mm512_castps_si512(in_order(_mm512_castsi512_ps(bytes)));  // else the compiler loads it again for each operation
    };
    const __m512i a = row(one), b = row(other);
    if constexpr (First == 0) widen_64<Element>(_mm512_unpacklo_epi8(a, b), tables, values[z], values[z + 1]);
    constexpr int kSecond = Vectors > 2 ? 2 : 0;
    if constexpr (First + Vectors > 2)
      widen_64<Element>(_mm512_unpackhi_epi8(a, b), tables, values[z + kSecond], values[z + kSecond + 1]);
  }
}

// out[Rows][columns] += weights V of the values [first, last), in the columns of these vectors. Weights of a pair of keys lie `pitch`
// after those of the last.
template <int Rows, int First, int Vectors, int Where, class Element>
[[gnu::noinline]] void value_bytes(const Number* s, Index pitch, const Block<Element>& block, Index first, Index last, Index d, Index n,
                                   Number* out) {
  const Index columns = 2 * block.head_dim;
  const BytesOfBf16& tables = tables_of(block.cached);
  Vec acc[Rows][Vectors];
  const auto over_results = [&](auto work) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      Number* const at = out + r * columns + d;
      alignas(64) Number few[kColumns] = {};  // of n < kColumns, whose results lie in order
      const auto in_turn = [&](void* to, const void* from) __attribute__((always_inline)) {
        if (from == few) swap_fours<4, 4>(few, kColumns, few);
        __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(Number));
        if (to == few) swap_fours<4, 4>(few, kColumns, few);
      };
      if (n < kColumns) in_turn(few, at);
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) work(acc[r][z], (n < kColumns ? few : at) + (First + z) * kLanes);
      if (n < kColumns) in_turn(at, few);
    }
  };
  over_results([](Vec& sum, const Number* at) __attribute__((always_inline)) { sum = load(at); });
  Vec next[Vectors];
  const auto load_next = [&](Index key) __attribute__((always_inline)) {
    load_columns<First>(block.v + block.at[key], block.v + block.at[key + 1], d, n, tables, next);
  };
  load_next(first);
  for (Index whole = first; whole < last; whole += kWhole) {
    [[maybe_unused]] const auto then = block.after_values(whole);
    for (Index key = whole; key < least(whole + kWhole, last); key += 2) {
      Vec values[Vectors];
#pragma GCC unroll 8
      for (int z = 0; z < Vectors; ++z) values[z] = next[z];
      load_next(key + 2 < last ? key + 2 : key);  // while these are multiplied
#pragma GCC unroll 2
      for (int line = 0; line < (Vectors > 4 ? 2 : 1); ++line)
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) fetch<Where>(bytes_at(then[key - whole + i]) + d + line * 64);
      const Number* const weights = s + key / 2 * pitch;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Vec weight = set1(weights[r]);
#pragma GCC unroll 8
        for (int z = 0; z < Vectors; ++z) acc[r][z] = add_bf16_pairs(weight, values[z], acc[r][z]);
      }
    }
  }
  over_results([](Vec sum, Number* at) __attribute__((always_inline)) { store(at, sum); });
}

// Prefetches in the group of rows that reads first, and in no other.
template <class Element, class Work>
ROOFLINE_INLINE void fetching(const Block<Element>& block, bool reads, Work work) {
  reads ? fetching(block, work) : work(Size<kNoFetch>{});
}

// Calls work(row, constant of its size, first, last, whether it is the first to read) for all groups of rows, in turn over few keys.
template <class Work>
ROOFLINE_INLINE void over_keys(Index rows, Index n, Index few, Work work) {
  for (Index first = 0; first < n; first += few)
    for_groups<true>(0, rows, rows, [&](Index row, auto size) __attribute__((always_inline)) {
      work(row, size, first, least(first + few, n), row == 0);
    });
}

template <class Element>
void score_bytes(const Number* q, Index rows, const Block<Element>& block, Number* scores) {
  const Index pitch = chunk_numbers(block.head_dim) + chunk_numbers(block.rope_dim);
  const bool one_group = rows <= 4 || rows == 7 || rows == 8;
  over_keys(rows, block.n, one_group ? block.whole : kWhole, [&](Index row, auto size, Index first, Index last, bool reads) {
    fetching(block, reads, [&](auto where) __attribute__((always_inline)) {
      score_bytes<decltype(size)::value, decltype(where)::value>(q + row * pitch, block, first, last, scores + row * kPitch);
    });
  });
}

template <class Element>
void value_bytes(const Number* s, Index rows, const Block<Element>& block, Number* out) {
  const Index columns = 2 * block.head_dim, most_few = 4 * kWhole;
  const Index few = block.lead > 0 ? least(block.lead, most_few) : most_few;
  over_keys(rows, block.n, few, [&](Index row, auto size, Index first, Index last, bool reads) {
    constexpr int kRows = decltype(size)::value;
    const Number* const weights = s + row * kPitch;
    Number* const to = out + row * columns;
    fetching(block, reads, [&](auto where) __attribute__((always_inline)) {
      constexpr int kWhere = decltype(where)::value;
      Index d = 0;
      if constexpr (kRows == 1)
        for (; d + 2 * kColumns <= columns; d += 2 * kColumns)
          value_bytes<kRows, 0, 8, kWhere>(weights, kRows, block, first, last, d, kColumns, to);
      for (; d < columns; d += kColumns) {
        const Index n = least(kColumns, columns - d);
        value_bytes<kRows, 0, kRows < 8 ? 4 : 2, kWhere>(weights, kRows, block, first, last, d, n, to);
        if constexpr (kRows == 8) value_bytes<kRows, 2, 2, kNoFetch>(weights, kRows, block, first, last, d, n, to);
      }
    });
  });
}

}  // namespace
}  // namespace roofline::cpu
