// Whole numbers in the bits of fp32 vectors: what products of int8 and weights of few bits need beside cpu/simd/simd.h. Loads,
// stores, set1 and transpose keep bits as they are.
//
// add_words: int32. add_pairs: c + the two products of 16-bit numbers of every lane of a and b, int32. widen_pairs_of_bytes: 2
// kLanes int8 numbers in 16 bits each. widen_bytes: kLanes int8 numbers in fp32. of_words: int32 in fp32. nibble: of each of kLanes
// words the 4 bits n from bit 4 at on, as 1 + n / 16 in fp32: they become the first bits of a fraction. nibble_pairs: of both
// halves of each word the 4 bits from bit 4 at on, in 16 bits each.
#pragma once

#include "cpu/simd/simd.h"

namespace {

constexpr std::uint32_t kOne = 0x3F800000u;  // 1 in fp32
constexpr int kFraction = 19;                // where the first 4 bits of a fraction lie

// A compiler that adds whole numbers in another order, as it may, keeps products of many steps at once, and runs out of registers.
ROOFLINE_INLINE Vec in_order(Vec sum) {
#if defined(__x86_64__) && !defined(ROOFLINE_SIMDE)
  asm("" : "+v"(sum));
#elif defined(__aarch64__)
  asm("" : "+w"(sum));
#endif
  return sum;
}

#if defined(ROOFLINE_SIMDE) || (defined(__AVX512F__) && defined(__AVX512DQ__))

ROOFLINE_INLINE Vec add_words(Vec a, Vec b) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
ROOFLINE_INLINE Vec add_pairs(Vec a, Vec b, Vec c) {
#if defined(__AVX512VNNI__) && !defined(ROOFLINE_SIMDE)
  asm("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));  // from an intrinsic the compiler moves sums between registers
  return c;
#else
  return in_order(add_words(c, _mm512_castsi512_ps(_mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b)))));
#endif
}
#if defined(ROOFLINE_SIMDE) || defined(__AVX512VNNI__)
// c + the four products of 8-bit numbers of every lane of a, unsigned, and b, int32.
ROOFLINE_INLINE Vec add_byte_quads(Vec a, Vec b, Vec c) {
  return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(c), _mm512_castps_si512(a), _mm512_castps_si512(b)));
}
// Four numbers of int8, loaded as unsigned ones that are 128 more.
struct Int8Quad {
  std::uint32_t bits;
};
ROOFLINE_INLINE Vec load(const Int8Quad* p) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128)));
}
ROOFLINE_INLINE Vec load_partial(const Int8Quad* p, int n, Vec other) {
  const __m512i words = _mm512_xor_si512(_mm512_maskz_loadu_epi32(first(n), p), _mm512_set1_epi8(-128));
  return _mm512_mask_mov_ps(other, first(n), _mm512_castsi512_ps(words));
}
ROOFLINE_INLINE Vec set1(Int8Quad x) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_set1_epi32(static_cast<int>(x.bits)), _mm512_set1_epi8(-128)));
}
// Numbers rounded to int32; int32 times 2^bits.
ROOFLINE_INLINE Vec words_of(Vec x) { return _mm512_castsi512_ps(_mm512_cvtps_epi32(x)); }
ROOFLINE_INLINE Vec words_left(Vec x, int bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), static_cast<unsigned>(bits)));
}
// The low (half 0) or the high (half 1) 4 bits of each byte of kLanes words.
ROOFLINE_INLINE Vec nibble_quads(const std::uint32_t* p, int half) {
  const __m512i words = _mm512_loadu_si512(p), moved = half ? _mm512_srli_epi16(words, 4) : words;
  return _mm512_castsi512_ps(_mm512_and_si512(moved, _mm512_set1_epi8(15)));
}
// The high 4 bits of each byte in their place, so 16 times as large.
ROOFLINE_INLINE Vec high_nibbles(Vec x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi8(-16)));
}
ROOFLINE_INLINE Vec sub_words(Vec a, Vec b) {
  return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
#endif
#if defined(ROOFLINE_SIMDE) || defined(__AVX512BF16__)
// c + the two products of bf16 numbers of every lane of a and b.
ROOFLINE_INLINE Vec add_bf16_pairs(Vec a, Vec b, Vec c) {
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
// The same of the lower half.
ROOFLINE_INLINE Vec add_bf16_pairs_lower(Vec a, Vec b, Vec c) {
#if defined(ROOFLINE_SIMDE)
  return add_bf16_pairs(a, b, c);
#else
  const auto lower = [](Vec x) { return reinterpret_cast<__m256bh>(_mm512_castps512_ps256(x)); };
  return _mm512_castps256_ps512(_mm256_dpbf16_ps(_mm512_castps512_ps256(c), lower(a), lower(b)));
#endif
}
// Two numbers, loaded as words of bf16.
struct Bf16Pair {
  Bf16 numbers[2];
};
struct Int8Pair {
  std::int8_t numbers[2];
};
struct Fp8Pair {
  std::uint8_t numbers[2];
};
ROOFLINE_INLINE Vec load(const Bf16Pair* p) { return load(reinterpret_cast<const float*>(p)); }
ROOFLINE_INLINE Vec load_partial(const Bf16Pair* p, int n, Vec other) {
  return load_partial(reinterpret_cast<const float*>(p), n, other);
}
// The upper halves of words.
ROOFLINE_INLINE __m512i upper_halves(__m512i low, __m512i high) {
  alignas(64) static constexpr std::uint16_t kOdd[] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(low, _mm512_load_si512(kOdd), high);
}
ROOFLINE_INLINE Vec load(const Int8Pair* p) {
  const auto sixteen = [](const Int8Pair* from) __attribute__((always_inline)) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
  };
  return _mm512_castsi512_ps(upper_halves(sixteen(p), sixteen(p + 8)));
}
#endif
ROOFLINE_INLINE Vec widen_pairs_of_bytes(const std::int8_t* p) {
  return _mm512_castsi512_ps(_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
ROOFLINE_INLINE Vec widen_bytes(const std::int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
ROOFLINE_INLINE Vec of_words(Vec x) { return _mm512_cvtepi32_ps(_mm512_castps_si512(x)); }
ROOFLINE_INLINE Vec nibble_pairs(const std::uint32_t* p, int at) {
  const __m512i moved = _mm512_srli_epi16(_mm512_loadu_si512(p), 4 * at);
  return _mm512_castsi512_ps(at == 3 ? moved : _mm512_and_si512(moved, _mm512_set1_epi16(15)));
}
ROOFLINE_INLINE Vec nibble(const std::uint32_t* p, int at) {
  const __m512i words = _mm512_loadu_si512(p);
  const int left = kFraction - 4 * at;
  const __m512i moved =
      left >= 0 ? _mm512_slli_epi32(words, left >= 0 ? left : 0) : _mm512_srli_epi32(words, left >= 0 ? 0 : -left);
  const __m512i fraction = _mm512_and_si512(moved, _mm512_set1_epi32(15 << kFraction));
  return _mm512_castsi512_ps(_mm512_or_si512(fraction, _mm512_set1_epi32(static_cast<int>(kOne))));
}

#elif defined(__AVX2__)

ROOFLINE_INLINE Vec add_words(Vec a, Vec b) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
ROOFLINE_INLINE Vec add_pairs(Vec a, Vec b, Vec c) {
  return in_order(add_words(c, _mm256_castsi256_ps(_mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b)))));
}
ROOFLINE_INLINE Vec widen_pairs_of_bytes(const std::int8_t* p) {
  return _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
ROOFLINE_INLINE Vec widen_bytes(const std::int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
ROOFLINE_INLINE Vec of_words(Vec x) { return _mm256_cvtepi32_ps(_mm256_castps_si256(x)); }
ROOFLINE_INLINE Vec nibble_pairs(const std::uint32_t* p, int at) {
  const __m256i moved = _mm256_srli_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 4 * at);
  return _mm256_castsi256_ps(at == 3 ? moved : _mm256_and_si256(moved, _mm256_set1_epi16(15)));
}
ROOFLINE_INLINE Vec nibble(const std::uint32_t* p, int at) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const int left = kFraction - 4 * at;
  const __m256i moved = left >= 0 ? _mm256_slli_epi32(words, left) : _mm256_srli_epi32(words, -left);
  const __m256i fraction = _mm256_and_si256(moved, _mm256_set1_epi32(15 << kFraction));
  return _mm256_castsi256_ps(_mm256_or_si256(fraction, _mm256_set1_epi32(static_cast<int>(kOne))));
}

#elif defined(__ARM_NEON) && !defined(ROOFLINE_SCALAR)

ROOFLINE_INLINE Vec add_words(Vec a, Vec b) {
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b)));
}
ROOFLINE_INLINE Vec add_pairs(Vec a, Vec b, Vec c) {
  const int16x8_t x = vreinterpretq_s16_f32(a), y = vreinterpretq_s16_f32(b);
  const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
  return in_order(vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(c), vpaddq_s32(low, high))));
}
ROOFLINE_INLINE Vec widen_pairs_of_bytes(const std::int8_t* p) { return vreinterpretq_f32_s16(vmovl_s8(vld1_s8(p))); }
ROOFLINE_INLINE Vec widen_bytes(const std::int8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}
ROOFLINE_INLINE Vec of_words(Vec x) { return vcvtq_f32_s32(vreinterpretq_s32_f32(x)); }
ROOFLINE_INLINE Vec nibble_pairs(const std::uint32_t* p, int at) {
  const uint16x8_t moved = vshlq_u16(vreinterpretq_u16_u32(vld1q_u32(p)), vdupq_n_s16(static_cast<std::int16_t>(-4 * at)));
  return vreinterpretq_f32_u16(vandq_u16(moved, vdupq_n_u16(15)));
}
ROOFLINE_INLINE Vec nibble(const std::uint32_t* p, int at) {
  const uint32x4_t moved = vshlq_u32(vld1q_u32(p), vdupq_n_s32(kFraction - 4 * at));  // to the right where negative
  return vreinterpretq_f32_u32(vorrq_u32(vandq_u32(moved, vdupq_n_u32(15u << kFraction)), vdupq_n_u32(kOne)));
}

#else

ROOFLINE_INLINE std::uint32_t bits_of(Vec x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
ROOFLINE_INLINE Vec of_bits(std::uint32_t bits) {
  Vec x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
ROOFLINE_INLINE Vec add_words(Vec a, Vec b) { return of_bits(bits_of(a) + bits_of(b)); }
ROOFLINE_INLINE Vec add_pairs(Vec a, Vec b, Vec c) {
  const std::uint32_t x = bits_of(a), y = bits_of(b);
  const int low = static_cast<std::int16_t>(x) * static_cast<std::int16_t>(y);
  const int high = static_cast<std::int16_t>(x >> 16) * static_cast<std::int16_t>(y >> 16);
  return of_bits(bits_of(c) + static_cast<std::uint32_t>(low + high));
}
ROOFLINE_INLINE Vec widen_pairs_of_bytes(const std::int8_t* p) {
  return of_bits(static_cast<std::uint16_t>(p[0]) | static_cast<std::uint32_t>(static_cast<std::uint16_t>(p[1])) << 16);
}
ROOFLINE_INLINE Vec widen_bytes(const std::int8_t* p) { return static_cast<float>(*p); }
ROOFLINE_INLINE Vec of_words(Vec x) { return static_cast<float>(static_cast<std::int32_t>(bits_of(x))); }
ROOFLINE_INLINE Vec nibble_pairs(const std::uint32_t* p, int at) { return of_bits(*p >> 4 * at & 0x000F000F); }
ROOFLINE_INLINE Vec nibble(const std::uint32_t* p, int at) { return of_bits((*p >> 4 * at & 15) << kFraction | kOne); }

#endif

}  // namespace
