// Elements of a test in fp32, bf16 or fp16: what lies before and after them must stay as it was.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "cpu/elements.h"

namespace roofline::cpu {

inline double value_of(float x) { return x; }
inline double value_of(double x) { return x; }
inline double value_of(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
inline double value_of(Fp16 x) {
  const int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
  const double finite = exponent ? (1024 + mantissa) * static_cast<double>(1u << exponent) * 0x1p-25 : mantissa * 0x1p-24;
  const double size = exponent < 31 ? finite : mantissa ? NAN : INFINITY;
  return x.bits >> 15 ? -size : size;
}
// fp8 by the bits of its fraction: 3 in E4M3, 2 in E5M2.
template <int Fraction>
struct Fp8 {
  std::uint8_t bits;
};
template <int Fraction>
double value_of(Fp8<Fraction> x) {
  constexpr int kOnes = 1 << Fraction, kLast = (128 >> Fraction) - 1, kBias = kLast / 2;
  const int exponent = x.bits >> Fraction & kLast, fraction = x.bits % kOnes;
  double size = exponent ? std::ldexp(kOnes + fraction, exponent - kBias - Fraction) : std::ldexp(fraction, 1 - kBias - Fraction);
  if (Fraction == 2 && exponent == kLast) size = fraction ? NAN : INFINITY;
  if ((x.bits & 127) == 127) size = NAN;
  return x.bits >> 7 ? -size : size;
}

// A random number of either sign between 1/4 and 4.
inline void make_random(float& x, std::uint64_t bits) {
  const float fraction = static_cast<float>(bits >> 41) / static_cast<float>(1 << 23);
  x = (bits & 4 ? -1 - fraction : 1 + fraction) * static_cast<float>(1u << (bits & 3)) / 4;
}
inline void make_random(double& x, std::uint64_t bits) {
  float narrow;
  make_random(narrow, bits);
  x = narrow * (1 + static_cast<double>(bits >> 20 & 0xFFFFF) * 0x1p-50);
}
inline void make_random(Bf16& x, std::uint64_t bits) {
  x.bits = static_cast<std::uint16_t>((bits & 1) << 15 | (125 + (bits >> 1 & 3)) << 7 | (bits >> 3 & 127));
}
inline void make_random(Fp16& x, std::uint64_t bits) {
  x.bits = static_cast<std::uint16_t>((bits & 1) << 15 | (13 + (bits >> 1 & 3)) << 10 | (bits >> 3 & 1023));
}

template <class T>
constexpr Element kElementOf = kFp32;
template <>
inline constexpr Element kElementOf<Bf16> = kBf16;
template <>
inline constexpr Element kElementOf<Fp16> = kFp16;

// The distance of neighbours over their size, at most.
inline double step_of(Element element) { return std::ldexp(1, element == kFp32 ? -23 : element == kBf16 ? -7 : -10); }

// n elements, `offset` of them past a cache line, between guard zones.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t n, std::int64_t offset = 0) : n_(n), memory_((n + offset) * sizeof(T) + 3 * kGuard, 0xA5) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kGuard);
    first_ = kGuard + static_cast<std::int64_t>((64 - address % 64) % 64) + offset * static_cast<std::int64_t>(sizeof(T));
  }
  std::int64_t size() const { return n_; }
  T* data() { return reinterpret_cast<T*>(memory_.data() + first_); }
  T& operator[](std::int64_t i) { return data()[i]; }
  double value(std::int64_t i) { return value_of(data()[i]); }
  std::vector<double> values() { return values(0, n_); }
  std::vector<double> values(std::int64_t first, std::int64_t n) {
    std::vector<double> all;
    for (std::int64_t i = first; i < first + n; ++i) all.push_back(value(i));
    return all;
  }
  void fill(std::uint64_t seed) {
    for (std::int64_t i = 0; i < n_; ++i) make_random(data()[i], random_bits(seed, i));
  }
  bool guarded() const {
    const auto kept = [](std::uint8_t byte) { return byte == 0xA5; };
    return std::all_of(memory_.begin(), memory_.begin() + first_, kept) &&
           std::all_of(memory_.begin() + first_ + n_ * static_cast<std::int64_t>(sizeof(T)), memory_.end(), kept);
  }
  bool operator==(const Guarded& other) const {
    return n_ == other.n_ && std::memcmp(memory_.data() + first_, other.memory_.data() + other.first_, n_ * sizeof(T)) == 0;
  }

 private:
  static constexpr std::int64_t kGuard = 128;
  std::int64_t n_;
  std::int64_t first_;
  std::vector<unsigned char> memory_;
};

class Floats : public Guarded<float> {
 public:
  using Guarded::Guarded;
  void fill(std::uint64_t seed, double scale = 1, double shift = 0) {
    for (std::int64_t i = 0; i < size(); ++i) data()[i] = static_cast<float>(random_uniform(seed, i) * scale + shift);
  }
};

}  // namespace roofline::cpu
