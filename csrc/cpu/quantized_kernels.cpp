// Products with weights of 8 and 4 bits in groups. Few rows take them apart in registers: the sum over a group of a times the numbers
// as they are stored, n, is put right once for each group, scale sum(a (n - zero)) = scale sum(a n) - scale zero sum(a), where sum(a)
// is the same for all columns. With 4 bits registers hold 1 + n / 16, and the rest is part of the zero point. Where a has 16
// bits itself it is rounded to 16-bit fixed point with a scale for each chunk of a group, and meets n, or 8 + n of 4 bits: two
// products in one instruction, at an error of 2^-16 of the largest. Where one instruction makes four products of 8 bits, a of fp32
// becomes three digits of these, at an error of 2^-23.9, and a of 16 bits two, where that is faster: they meet 8 + n, or 128 + n of
// 8 bits. For more rows a strip becomes fp32 as it is read from memory, or pairs of bf16 for the kernels that multiply these.
#include "cpu/quantized_groups.h"

namespace roofline::cpu {
namespace {

// The second and the third byte of n words of four change places: so b holds its rows.
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

// Every chunk of a as numbers of 16 bits times a scale, or of digits, in planes. Digits are the bytes of a number, all of them signed:
// half of the base is added to each, which carries into the one before, and is then taken away without a carry.
template <class B>
void fix(const float* a, std::uint32_t* words, float* scales, float* sums, Index rows, Index inner, Index group, Index chunk,
         bool zeros) {
  constexpr int kDigits = Groups<B>::kDigits;
  using Digit = std::conditional_t<kDigits == 1, std::uint16_t, std::uint8_t>;
  constexpr std::uint32_t kOnes = kDigits == 3 ? 0x010101 : kDigits == 2 ? 0x0101 : 0, kCarries = kOnes << (kDigitBits - 1);
  constexpr float kMost = kDigits == 1 ? 32767 : kOnes * 127 - 4;  // four roundings may add 2
  const Index padded = (group + 3) / 4 * 4, plane = (inner + group - 1) / group * padded + QuantizedPart::kPadding * B::kNumbers;
  auto* to = reinterpret_cast<Digit*>(words);
  constexpr Index kBlock = 16;
  alignas(64) float whole[kMostChunk<B> + kLanes + kBlock] = {};  // bits of these words
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
        const float scale = reduce_max(top) * (1 / kMost);
        const Vec inverse = set1(scale > 1e-37f ? 1 / scale : 0);
        for (Index i = 0; i < room; i += kLanes) {
          const Vec x = mul(i < n ? get(from + i, static_cast<int>(least(kLanes, n - i)), zero()) : zero(), inverse);
          Vec words;
          if constexpr (kDigits == 1) {
            words = add(x, set1(kToWhole));
            sum = add(sum, sub(words, set1(kToWhole)));
          } else {
            words = B::Sum::to_words(x);
            sum = add(sum, of_words(words));
          }
          store(whole + i, words);
        }
        // What a whole block writes too much, the next chunk overwrites, or it is padding.
        for (Index i = 0; i < room; i += kBlock)
#pragma GCC unroll 3
          for (int digit = 0; digit < kDigits; ++digit) {
            Digit block[kBlock];
            for (Index j = 0; j < kBlock; ++j) {
              std::uint32_t word;
              __builtin_memcpy(&word, whole + i + j, sizeof word);
              block[j] = static_cast<Digit>(((word + kCarries) ^ kCarries) >> (kDigits - 1 - digit) * kDigitBits);
            }
            if constexpr (kDigits > 1) in_order_of_rows(block, kBlock / 4);
            __builtin_memcpy(of_group + digit * plane + k - first + i, block, sizeof block);
          }
        *scales = scale, *sums = (zeros ? scale : scale * B::kOffset) * reduce_add(sum);
      }
    if (inner) *of_row += reduce_add(odd);
  }
}

template <class B, void (*Few)(const QuantizedPart&) = few<Groups<B>>>
constexpr FixedPoint fixed = {B::kNumbers, B::kDigits, Few, fix<B>};

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
    {{fixed<BytePairs>, fixed<ByteQuads<2>, nullptr>, fixed<ByteQuads<3>>},
     {fixed<NibblePairs>, fixed<MixedQuads<2>>, fixed<MixedQuads<3>>}},
#else
    {{fixed<BytePairs>}, {fixed<NibblePairs>}},
#endif
};

}  // namespace roofline::cpu
