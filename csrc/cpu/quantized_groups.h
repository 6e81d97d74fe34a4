// Strips of groups of weights, in every way that kernels multiply them: what a strip holds where, how its numbers become those of
// registers, and how sums meet the scales of a group.
#pragma once

#include <algorithm>

#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

// Bytes of one stream that are on their way to the first cache: fewer arrive late. No whole number of pages.
constexpr Index kOfOneStream = 12800;
constexpr int kDigitBits = 8;

// in registers = kUnit n + kOffset, for the number n that is meant.
struct Bytes {
  static constexpr bool kWide = false;
  static constexpr int kNumbers = 1, kDigits = 1;  // of a word of a; words of a number
  static constexpr Index kRowBytes = kWidth;
  static constexpr float kUnit = 1, kOffset = 0;
  using Sum = Floats;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* const p = reinterpret_cast<const std::int8_t*>(b) + (base + u) * kWidth;
    low = widen_bytes(p), high = widen_bytes(p + kLanes);
  }
};

struct Nibbles {
  static constexpr bool kWide = false;
  static constexpr int kNumbers = 1, kDigits = 1;
  static constexpr Index kRowBytes = kLanes;  // four rows are kLanes words
  static constexpr float kUnit = 0.0625f, kOffset = 1.5f;  // 1 + (n + 8) / 16
  using Sum = Floats;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* const p = reinterpret_cast<const std::uint32_t*>(b + base * kRowBytes);
    const int at = u % 2 * 4 + u / 2 * 2;
    low = nibble(p, at), high = nibble(p, at + 1);
  }
};

// The same numbers in pairs of rows, for a in pairs of 16 bits. Their rows are pairs.
struct BytePairs : Int8Strip {
  static constexpr int kNumbers = 2, kDigits = 1;
  static constexpr float kUnit = 1, kOffset = 0;
};

struct NibblePairs {
  static constexpr bool kWide = false;
  static constexpr int kNumbers = 2, kDigits = 1;
  static constexpr Index kRowBytes = 2 * kLanes;
  static constexpr float kUnit = 1, kOffset = 8;
  using Sum = Integers;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* p = reinterpret_cast<const std::uint32_t*>(b + base * kRowBytes) + u / 2 * kLanes;
    asm("" : "+r"(p));  // else the compiler loads once for both rows, and keeps that on the stack
    low = nibble_pairs(p, u % 2 * 2), high = nibble_pairs(p, u % 2 * 2 + 1);
  }
};

template <class B>
constexpr bool kMixed = false;  // whether sums of the first half contain those of the second

#if defined(__AVX512VNNI__) || defined(ROOFLINE_SIMDE)
// Four rows in the bytes of words, for a in digits of 8 bits. Their rows are fours.
struct Quads : Integers {
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return in_order(add_byte_quads(b, a, c)); }
  ROOFLINE_INLINE Vec to_words(Vec x) { return words_of(x); }
  // Sums of products with one digit and with the one that follows it: of kMostChunk rows they are below 2^31.
  ROOFLINE_INLINE Vec joined(Vec first, Vec second) { return add_words(words_left(first, kDigitBits), second); }
};

template <int Digits>
struct ByteQuads : WideStrip<Quads> {
  static constexpr bool kWide = false;
  static constexpr int kNumbers = 4, kDigits = Digits;
  static constexpr float kUnit = 1, kOffset = 128;
};

template <int Digits>
struct NibbleQuads {
  static constexpr bool kWide = false;
  static constexpr int kNumbers = 4, kDigits = Digits;
  static constexpr Index kRowBytes = 4 * kLanes;
  static constexpr float kUnit = 1, kOffset = 8;
  using Sum = Quads;
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* const p = reinterpret_cast<const std::uint32_t*>(b + (base + u) * kRowBytes);
    low = nibble_quads(p, 0), high = nibble_quads(p, 1);
  }
};

// The same in fewer instructions: numbers of the first half keep 16 times those of the second, whose sums are subtracted at the end.
template <int Digits>
struct MixedQuads : NibbleQuads<Digits> {
  ROOFLINE_INLINE void read(const char* b, Index base, int u, Vec& low, Vec& high) {
    const auto* const p = reinterpret_cast<const std::uint32_t*>(b + (base + u) * NibbleQuads<Digits>::kRowBytes);
    low = in_order(load(reinterpret_cast<const float*>(p))), high = high_nibbles(low);
  }
};
template <int Digits>
constexpr bool kMixed<MixedQuads<Digits>> = true;
#endif

// Rows of b that `few` takes at a time, doubled up to twice: sums of 512 products of 16 bits and 8 still fit into 32.
template <class B>
constexpr Index kChunk = std::min<Index>(1024 * B::kNumbers / B::kRowBytes, B::kRowBytes == B::kNumbers * kWidth ? 128 : 1024);
template <class B>
constexpr Index kMostChunk = 4 * kChunk<B>;

ROOFLINE_INLINE Vec number(Stored stored, const char* p, Index at) {
  if (stored == Stored::fp32) return load(reinterpret_cast<const float*>(p) + at);
  if (stored == Stored::bf16) return load(reinterpret_cast<const Bf16*>(p) + at);
  return load(reinterpret_cast<const Fp16*>(p) + at);
}

template <class Strip>
struct Groups {
  using B = Strip;
  static constexpr int kNumbers = B::kNumbers;
  static constexpr bool kFixed = kNumbers > 1;
  static constexpr int kDigits = B::kDigits;
  static constexpr int kMostRows = kTileRows / kDigits;  // of a tile
  static constexpr Index kMostDirect = 0;  // scales are met as strips are widened
  static constexpr Index kRow = B::kRowBytes / kNumbers;  // bytes of a row of b

  ROOFLINE_INLINE Index row(const QuantizedPart& part) { return kWidth * (part.scale == Stored::fp32 ? 4 : 2); }  // bytes of scales
  ROOFLINE_INLINE Index header(const QuantizedPart& part) { return row(part) * (part.zeros ? 2 : 1); }
  ROOFLINE_INLINE Index padded(const QuantizedPart& part) { return (part.group + 3) / 4 * 4; }
  ROOFLINE_INLINE Index group_bytes(const QuantizedPart& part) { return header(part) + padded(part) * kRow; }
  ROOFLINE_INLINE const float* begun(const QuantizedPart&, const char*) { return nullptr; }
  ROOFLINE_INLINE Index bytes(const QuantizedPart& part) { return part.groups * group_bytes(part); }
  ROOFLINE_INLINE Index at(const QuantizedPart& part, Index k) {
    return k / part.group * group_bytes(part) + k % part.group / 4 * 4 * kRow;
  }
  ROOFLINE_INLINE Index end_of_group(const QuantizedPart& part, Index k) {
    return least((k / part.group + 1) * part.group, part.inner);
  }
  ROOFLINE_INLINE Index after_chunk(const QuantizedPart& part, Index k) {
    return least(k + (kChunk<B> << part.longer), end_of_group(part, k));
  }

  // Where b is one stream, a tile of rows meets a whole strip; the tiles that follow find it in the second cache. Strips that become
  // fp32 for several tiles stay in the first, chunk by chunk.
  ROOFLINE_INLINE bool meets_whole(const QuantizedPart& part) { return part.streams.count == 1 && (kFixed || part.rows <= kMostRows); }
  ROOFLINE_INLINE Index after(const QuantizedPart& part, Index k) { return meets_whole(part) ? part.inner : after_chunk(part, k); }

  // What a half of a strip's columns takes away from numbers in registers, and then multiplies, in a group that begins at p.
  ROOFLINE_INLINE void factors(const QuantizedPart& part, const char* p, int half, Vec& scale, Vec& origin) {
    const float times = kMixed<B> && half ? 16 : 1;
    scale = mul(number(part.scale, p, half * kLanes), set1(1 / (B::kUnit * times)));
    if (part.zeros)
      origin = fma(number(part.scale, p + row(part), half * kLanes), set1(B::kUnit * times), set1(B::kOffset * times));
    else
      origin = set1(kFixed ? times : B::kOffset);  // sums of fixed point are times the offset
  }

  struct Place {
    Index header, numbers, a, sum;  // where the group's header, its rows from k on, those of a, and the sum of these lie
  };
  ROOFLINE_INLINE Index sums_of_group(const QuantizedPart& part) { return ((part.group - 1) / kChunk<B> >> part.longer) + 1; }
  // Words from one plane of a to the next, and from one row to the next of a and of its sums.
  ROOFLINE_INLINE Index plane(const QuantizedPart& part) {
    return kFixed ? part.groups * padded(part) / kNumbers + QuantizedPart::kPadding : part.inner;
  }
  ROOFLINE_INLINE Index stride(const QuantizedPart& part) { return kDigits * plane(part); }
  ROOFLINE_INLINE Index sums_stride(const QuantizedPart& part) { return part.groups * sums_of_group(part); }
  ROOFLINE_INLINE Place place(const QuantizedPart& part, Index k) {
    const Index group = k / part.group, within = k - group * part.group, begin = group * group_bytes(part);
    return {begin, begin + header(part) + within / 4 * 4 * kRow, kFixed ? (group * padded(part) + within) / kNumbers : k,
            group * sums_of_group(part) + (within / kChunk<B> >> part.longer)};
  }

  // Where a group's first rows are next: what prefetches rows leaves out its header.
  ROOFLINE_INLINE void fetch_header(const QuantizedPart& part, const char* group, const char* numbers, Index ahead) {
    if (numbers == group + header(part))
      for (Index line = 0; line < header(part); line += 64) __builtin_prefetch(group + line + ahead, 0, 2);
  }

  // The sum of a row's products with a chunk, of which digit(i) is that of one digit.
  template <class F>
  ROOFLINE_INLINE Vec sum_of(const float* scale_of_a, const F& digit) {
    if constexpr (!kFixed) return digit(0);
    Vec sum;
    if constexpr (kDigits == 1) sum = of_words(digit(0));
    if constexpr (kDigits == 2) sum = of_words(B::Sum::joined(digit(0), digit(1)));
    if constexpr (kDigits == 3)
      sum = fma(of_words(digit(0)), set1(1 << 2 * kDigitBits), of_words(B::Sum::joined(digit(1), digit(2))));
    return mul(sum, set1(*scale_of_a));
  }

  // Adds the products with the chunks of rows [k, end), in registers while a tile meets one chunk after the other.
  template <int Rows>
  ROOFLINE_INLINE void add_in_registers(const QuantizedPart& part, const float* a, const float* sums_of_a, const char* strip, Index k,
                                        Index end, Vec (&into)[Rows][2]) {
    constexpr bool kLight = kDigits * Rows <= 3 && B::kRowBytes == 4 * kWidth;
    constexpr Index kManyRows = 16, kNear = 6144;  // hardware fetches these, as in add_product, but not where groups are short
    const bool whole = meets_whole(part);
    const Index step = sums_stride(part), ahead = whole ? kOfOneStream : in_flight(part), most = kChunk<B> << part.longer;
    const Place at = place(part, k);
    const char *group = strip + at.header, *b = strip + at.numbers;
    Plain<float> words{a + at.a, plane(part)};
    const float* sum_of_a = sums_of_a + at.sum;
    const float* scale_of_a = kFixed ? part.scales_of_a + (sum_of_a - part.sums) : sum_of_a;
    for (Index n, left = end_of_group(part, k) - k, rest = end - k; rest > 0; rest -= n) {
      n = least(most, left);
      const Index steps = (n + kNumbers - 1) / kNumbers;
      Vec sums[kDigits * Rows][2];
      if (kLight && whole && steps >= kManyRows) {
        multiply<B, 256>(words, b, steps, sums, kNear);
      } else {
        fetch_header(part, group, b, ahead);
        multiply<B, 64, 0, true>(words, b, steps, sums, ahead);
      }
      if constexpr (kMixed<B>)
#pragma GCC unroll 14
        for (auto& sum : sums) sum[0] = sub_words(sum[0], sum[1]);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Vec scale, origin;
        factors(part, group, half, scale, origin);
#pragma GCC unroll 14
        for (int r = 0; r < Rows; ++r) {
          const Vec sum = sum_of(scale_of_a + r * step, [&](int i) __attribute__((always_inline)) { return sums[kDigits * r + i][half]; });
          into[r][half] = fma(scale, sub(sum, mul(origin, set1(sum_of_a[r * step]))), into[r][half]);
        }
      }
      const Index padded = (n + 3) / 4 * 4;
      b += padded * kRow, words.a += kFixed ? padded / kNumbers : n, ++sum_of_a, ++scale_of_a, left -= n;
      if (!left) group = b, b += header(part), left = least(part.group, rest - n);
    }
  }

  template <int Rows>
  static void add_chunks(const QuantizedPart& part, const float* a, const float* sums_of_a, const char* strip, Index k, Index end,
                         float* into) {
    Vec sums[Rows][2];
    const auto each = [&](auto work) __attribute__((always_inline)) {
#pragma GCC unroll 14
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) work(sums[r][half], into + r * kWidth + half * kLanes);
    };
    each([](Vec& sum, const float* p) __attribute__((always_inline)) { sum = load(p); });
    // The fixed sizes of usual groups leave few instructions around the products with short ones.
    if (kFixed && part.scale == Stored::bf16 && !part.zeros && part.streams.count == 1) {
      QuantizedPart usual = part;
      usual.scale = Stored::bf16, usual.zeros = false, usual.streams.count = 1;
      add_in_registers<Rows>(usual, a, sums_of_a, strip, k, end, sums);
    } else {
      add_in_registers<Rows>(part, a, sums_of_a, strip, k, end, sums);
    }
    each([](const Vec& sum, float* p) __attribute__((always_inline)) { store(p, sum); });
  }

  template <int... Rows>
  struct OfGroups {
    static constexpr decltype(&add_chunks<1>) kAdd[] = {add_chunks<Rows + 1>...};
  };
  template <int... Rows>
  static OfGroups<Rows...> of_groups(std::integer_sequence<int, Rows...>);

  ROOFLINE_INLINE void add(const QuantizedPart& part, const char* strip, Index k, Index n, float* sums) {
    if (kFixed || part.rows <= kTileRows)
      return in_tiles(part.rows, [&](Index row, Index rows) {
        decltype(of_groups(std::make_integer_sequence<int, kMostRows>()))::kAdd[rows - 1](
            part, static_cast<const float*>(part.a) + row * stride(part), part.sums + row * sums_stride(part), strip, k, k + n,
            sums + row * kWidth);
      }, kMostRows);
    if constexpr (!kFixed) {
      alignas(64) float wide[kMostChunk<B> * kWidth];
      widen(part, strip, k, n, wide);
      add_rows<WideStrip<Floats>, false>(part, static_cast<const float*>(part.a) + k, reinterpret_cast<const char*>(wide), n, sums);
    }
  }

  // n rows of a strip from k on, in fp32.
  ROOFLINE_INLINE void widen(const QuantizedPart& part, const char* strip, Index k, Index n, float* wide) {
    for (Index i = k, end; i < k + n; i = end) {
      end = least(k + n, end_of_group(part, i));
      const Index group = i / part.group, first = i - group * part.group;
      const char* const from = strip + group * group_bytes(part);
      const char* const b = from + header(part);
      Vec scale[2], origin[2];
      for (int half = 0; half < 2; ++half) factors(part, from, half, scale[half], origin[half]);
      const auto one = [&](Index base, int u) __attribute__((always_inline)) {
        Vec now[2];
        B::read(b, base, u, now[0], now[1]);
        float* const p = wide + (i - k + base + u - first) * kWidth;
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) store(p + half * kLanes, mul(sub(now[half], origin[half]), scale[half]));
      };
      Index at = first;
      const Index last = first + end - i;
      for (; at % 4 && at < last; ++at) one(at / 4 * 4, static_cast<int>(at % 4));
      for (; at + 4 <= last; at += 4) {
        __builtin_prefetch(b + (at + n) * B::kRowBytes);
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) one(at, u);
      }
      for (; at < last; ++at) one(at / 4 * 4, static_cast<int>(at % 4));
    }
  }
};

}  // namespace
}  // namespace roofline::cpu
