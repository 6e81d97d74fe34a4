// Counter-based random numbers: element i of seed s is the same on every device and with any number of threads.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ROOFLINE_HOST_DEVICE __host__ __device__
#else
#define ROOFLINE_HOST_DEVICE
#endif

namespace roofline {

// SplitMix64's finaliser over a Weyl sequence (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
ROOFLINE_HOST_DEVICE inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = (seed ^ 0xD1B54A32D192ED03ull) + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Uniform in [-sqrt(3), sqrt(3)), so that the variance is 1.
ROOFLINE_HOST_DEVICE inline double random_uniform(std::uint64_t seed, std::uint64_t index) {
  constexpr double kSqrt3 = 1.7320508075688772;
  return (static_cast<double>(random_bits(seed, index) >> 11) * 0x1p-52 - 1.0) * kSqrt3;
}

// Rounded to nearest even in 8 bits, `fractions` to a power of two; step: between the subnormal numbers and the first normal ones.
ROOFLINE_HOST_DEVICE inline std::uint8_t to_fp8(double x, double step, int fractions) {
  const std::uint8_t sign = x < 0 ? 0x80 : 0;
  const double size = x < 0 ? -x : x;
  int exponent = 0;
  while (size >= step * 2 * fractions) step *= 2, ++exponent;
  const double steps = size / step;  // exact, since step is a power of two
  int whole = static_cast<int>(steps);
  const double rest = steps - whole;
  if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1)) ++whole;
  return static_cast<std::uint8_t>(sign + exponent * fractions + whole);  // a carry out of the fraction raises the exponent
}
// OCP 8-bit floating point: 4 bits of exponent biased by 7, 3 of fraction, |x| below 448; 5 biased by 15, 2 of fraction.
ROOFLINE_HOST_DEVICE inline std::uint8_t to_fp8_e4m3(double x) { return to_fp8(x, 0x1p-9, 8); }
ROOFLINE_HOST_DEVICE inline std::uint8_t to_fp8_e5m2(double x) { return to_fp8(x, 0x1p-16, 4); }

// A scale of a block in fp8_e8m0 (OCP Microscaling specification 1.0: an exponent biased by 127): 1/2, 1 or 2.
ROOFLINE_HOST_DEVICE inline std::uint8_t random_fp8_e8m0(std::uint64_t seed, std::uint64_t index) {
  return static_cast<std::uint8_t>(126 + random_bits(seed, index) % 3);
}

}  // namespace roofline
