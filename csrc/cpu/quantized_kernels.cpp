// Products with weights of 8 and 4 bits in groups. Few rows take them apart in registers: the sum over a group of a times the numbers
// as they are stored, n, is put right once for each group, scale sum(a (n - zero)) = scale sum(a n) - scale zero sum(a), where sum(a)
// is the same for all columns. Of 4 bits what is in registers is 1 + n / 16, and the rest is part of the zero point. Where a has 16
// bits itself it is rounded to 16-bit fixed point with a scale for each chunk of a group, and meets n, or 8 + n of 4 bits: two
// products in one instruction, at an error of 2^-16 of the largest. Where one instruction makes four products of 8 bits, a of fp32
// becomes three digits of these, at an error of 2^-23.9, and a of 16 bits two, where that is faster: they meet 8 + n, or 128 + n of
// 8 bits. For more rows a strip becomes fp32 as it is read from memory, or pairs of bf16 for the kernels that multiply these.
#include "cpu/gemm_strips.h"

namespace roofline::cpu {
namespace {

constexpr float kBase = 254;  // of digits: what is left of a rounded number is at most half of it, which 8 bits hold

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
    const auto* const p = reinterpret_cast<const std::uint32_t*>(b + base * kRowBytes) + u / 2 * kLanes;
    low = nibble_pairs(p, u % 2 * 2), high = nibble_pairs(p, u % 2 * 2 + 1);
  }
};

#if defined(__AVX512VNNI__) || defined(ROOFLINE_SIMDE)
// Four rows in the bytes of words, for a in digits of 8 bits. Their rows are fours.
struct Quads : Integers {
  ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return in_order(add_byte_quads(b, a, c)); }
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
#endif

template <class B>
constexpr Index kChunk = 1024 * B::kNumbers / B::kRowBytes;  // rows of b that `few` takes at a time, doubled up to twice
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

  // Where b is one stream, one tile of rows meets a whole strip, and several meet in turn what stays in the first cache.
  ROOFLINE_INLINE bool is_met_once(const QuantizedPart& part) { return part.streams.count == 1 && part.rows <= kMostRows; }
  ROOFLINE_INLINE Index after(const QuantizedPart& part, Index k) {
    if (is_met_once(part)) return part.inner;
    Index end = after_chunk(part, k);
    while (kFixed && part.streams.count == 1 && end < part.inner && end - k < 2 * kMostChunk<B>) end = after_chunk(part, end);
    return end;
  }

  // What a half of a strip's columns takes away from what is in registers, and then multiplies, in a group that begins at p.
  ROOFLINE_INLINE void factors(const QuantizedPart& part, const char* p, int half, Vec& scale, Vec& origin) {
    const Vec zero_point = part.zeros ? number(part.scale, p + row(part), half * kLanes) : zero();
    scale = mul(number(part.scale, p, half * kLanes), set1(1 / B::kUnit));
    origin = fma(zero_point, set1(B::kUnit), set1(B::kOffset));
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

  // Adds the product with a chunk, which lies `at` its place, in registers while a tile meets one chunk after the other.
  template <int Rows>
  ROOFLINE_INLINE void add_chunk(const QuantizedPart& part, const float* a, const float* sums_of_a, const char* strip,
                                 const Place& at, Index n, Vec (&into)[Rows][2]) {
    constexpr bool kLight = kDigits * Rows <= 3 && B::kRowBytes == 4 * kWidth;
    constexpr Index kManyRows = 16, kNear = 6144;  // hardware fetches these, as in add_product, but not where groups are short
    const Index step = sums_stride(part), ahead = is_met_once(part) ? kShorter : in_flight(part);
    const char* const group = strip + at.header;
    const char* const b = strip + at.numbers;
    const Plain<float> words{a + at.a, plane(part)};
    Vec sums[kDigits * Rows][2];
    if (kLight && is_met_once(part) && n >= kManyRows) {
      multiply<B, 256>(words, b, n, sums, kNear);
    } else {
      if (b == group + header(part))  // the group's first rows: `multiply` prefetches rows, and no header
        for (Index line = 0; line < header(part); line += 64) __builtin_prefetch(group + line + ahead, 0, 2);
      multiply<B, 64>(words, b, n, sums, ahead);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Vec scale, origin;
      factors(part, group, half, scale, origin);
#pragma GCC unroll 14
      for (int r = 0; r < Rows; ++r) {
        const Index of_a = at.sum + r * step;
        Vec sum = sums[kDigits * r][half];
        if constexpr (kFixed) {
          sum = of_words(sum);
#pragma GCC unroll 2
          for (int i = 1; i < kDigits; ++i) sum = fma(sum, set1(kBase), of_words(sums[kDigits * r + i][half]));
          sum = mul(sum, set1(part.scales_of_a[sums_of_a - part.sums + of_a]));
        }
        into[r][half] = fma(scale, sub(sum, mul(origin, set1(sums_of_a[of_a]))), into[r][half]);
      }
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
    for (Index next; k < end; k = next) {
      next = after_chunk(part, k);
      add_chunk<Rows>(part, a, sums_of_a, strip, place(part, k), (next - k + kNumbers - 1) / kNumbers, sums);
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

// Of n words of four bytes the second and the third change places: so b holds its rows.
ROOFLINE_INLINE void in_order_of_rows(std::uint8_t* bytes, Index n) {
  for (Index i = 0; i < n; ++i) {
    std::uint32_t word;
    __builtin_memcpy(&word, bytes + 4 * i, sizeof word);
    word = (word & 0xFF0000FFu) | (word & 0xFF00u) << 8 | (word >> 8 & 0xFF00u);
    __builtin_memcpy(bytes + 4 * i, &word, sizeof word);
  }
}

template <class B>
void widen(const QuantizedPart& part, const char* strip, Index k, Index n, float* wide) {
  B::widen(part, strip, k, n, wide);
}

void add_up(const float* a, float* sums, Index rows, Index inner, Index group, Index chunk) {
  for (Index row = 0; row < rows; ++row)
    for (Index first = 0; first < inner; first += group)
      for (Index k = first; k < first + group; k += chunk, ++sums) {
        const Index last = least(least(k + chunk, first + group), inner);
        Vec sum = zero();
        for (Index i = k; i < last; i += kLanes) sum = add(sum, get(a + row * inner + i, static_cast<int>(least(kLanes, last - i)), zero()));
        *sums = reduce_add(sum);
      }
}

// Every chunk of a as numbers of 16 bits times a scale, or of three digits, in planes. Adding 1.5 2^23 leaves a rounded number in
// the last bits of a float.
template <class B>
void fix(const float* a, std::uint32_t* words, float* scales, float* sums, Index rows, Index inner, Index group, Index chunk) {
  constexpr int kDigits = Groups<B>::kDigits;
  using Digit = std::conditional_t<kDigits == 1, std::uint16_t, std::uint8_t>;
  constexpr float kUnits = kDigits == 1 ? 1 : kDigits == 2 ? kBase : kBase * kBase;  // of the first digit
  const Vec magic = set1(12582912.0f);
  const Index padded = (group + 3) / 4 * 4, plane = (inner + group - 1) / group * padded + QuantizedPart::kPadding * B::kNumbers;
  auto* to = reinterpret_cast<Digit*>(words);
  alignas(64) float all[kDigits][kMostChunk<B> + kLanes];
  alignas(64) Digit low[kMostChunk<B> + kLanes];  // bits of these words
  for (Index row = 0; row < rows; ++row, to += kDigits * plane) {
    Vec odd = zero();  // NaN where a number is not finite
    float* const of_row = scales;
    Digit* of_group = to;
    for (Index first = 0; first < inner; first += group, of_group += padded)
      for (Index k = first; k < first + group; k += chunk, ++scales, ++sums) {
        const float* const from = a + row * inner + k;
        const Index n = least(least(chunk, first + group - k), inner - k), room = least(chunk, first + padded - k);
        Vec top = zero(), sum = zero();
        for (Index i = 0; i < n; i += kLanes) {
          const Vec x = get(from + i, static_cast<int>(least(kLanes, n - i)), zero());
          top = max(top, max(x, sub(zero(), x)));
          odd = add(odd, sub(x, x));
        }
        const float scale = reduce_max(top) * (1 / (kUnits * (kDigits == 1 ? 32767.0f : 127.0f)));
        const Vec inverse = set1(scale > 1e-37f ? 1 / (scale * kUnits) : 0);
        for (Index i = 0; i < room; i += kLanes) {
          const Vec x = i < n ? get(from + i, static_cast<int>(least(kLanes, n - i)), zero()) : zero();
          Vec rest = mul(x, inverse), whole = zero();
#pragma GCC unroll 3
          for (int digit = 0; digit < kDigits; ++digit) {
            const Vec rounded = add(rest, magic), number = sub(rounded, magic);
            store(all[digit] + i, rounded);
            whole = fma(whole, set1(kBase), number);
            rest = mul(sub(rest, number), set1(kBase));
          }
          sum = add(sum, whole);
        }
        for (int digit = 0; digit < kDigits; ++digit) {
          for (Index i = 0; i < room; ++i) {
            std::uint32_t word;
            __builtin_memcpy(&word, all[digit] + i, sizeof word);
            low[i] = static_cast<Digit>(word);
          }
          if constexpr (kDigits > 1) in_order_of_rows(low, room / 4);
          __builtin_memcpy(of_group + digit * plane + k - first, low, static_cast<std::size_t>(room) * sizeof(Digit));
        }
        *scales = scale, *sums = scale * reduce_add(sum);
      }
    if (inner) *of_row += reduce_add(odd);
  }
}

template <class B>
constexpr FixedPoint fixed = {B::kNumbers, B::kDigits, few<Groups<B>>, fix<B>};

}  // namespace

extern const QuantizedKernels ROOFLINE_TABLE(quantized) = {
    kWidth,
    kTileRows,
    {kChunk<Bytes>, kChunk<Nibbles>},
    {few<Groups<Bytes>>, few<Groups<Nibbles>>},
    {block<Groups<Bytes>>, block<Groups<Nibbles>>},
    {widen<Groups<Bytes>>, widen<Groups<Nibbles>>},
    add_up,
#if defined(__AVX512VNNI__) || defined(ROOFLINE_SIMDE)
    {{fixed<BytePairs>, fixed<ByteQuads<2>>, fixed<ByteQuads<3>>},
     {fixed<NibblePairs>, fixed<NibbleQuads<2>>, fixed<NibbleQuads<3>>}},
#else
    {{fixed<BytePairs>}, {fixed<NibblePairs>}},
#endif
};

}  // namespace roofline::cpu
