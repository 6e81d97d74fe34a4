// Sums of products, activated for the next product: those of int8 with their scales, in int8, for which the activations need 16
// bits, and those of bf16 in bf16.
#include "cpu/ffn_kernels.h"

#include <type_traits>

#include "cpu/activations.h"
#include "cpu/simd/integers.h"
#include "cpu/simd/narrow_bytes.h"

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

// step(i, lanes) for all of n, four vectors at once.
template <class Step>
ROOFLINE_INLINE void each(Index n, Step step) {
  Index i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) step(i + u * kLanes, kLanes);
  }
  for (; i < n; i += kLanes) step(i, static_cast<int>(n - i < kLanes ? n - i : kLanes));
}

ROOFLINE_INLINE Vec scaled(const float* sums, const float* scale, Index i, int lanes) {
  return mul(of_words(get(sums + i, lanes, zero())), get(scale + i, lanes, zero()));
}

void scale(float* c, const float* scale, Index n) {
  each(n, [=](Index i, int lanes) __attribute__((always_inline)) { put(c + i, lanes, scaled(c, scale, i, lanes)); });
}

// x p(x), where p - 1/2 is odd and within 4.2 a polynomial in x² times x, beyond a constant: minimax, wrong by less than 2^-16 for
// all x in fp32. No exponential and no division, which take three times as long.
ROOFLINE_INLINE Vec times_step(Vec x, const float (&terms)[9]) {
  const Vec near = min(set1(4.2f), max(set1(-4.2f), x)), square = mul(near, near);
  Vec q = set1(terms[8]);
#pragma GCC unroll 8
  for (int k = 7; k >= 0; --k) q = fma(q, square, set1(terms[k]));
  return mul(x, fma(q, near, set1(0.5f)));
}

constexpr float kErf[9] = {0.398907423f, -0.0663603693f, 0.00983013026f, -0.00111414783f, 9.45743741e-05f,
                           -5.76076627e-06f, 2.34367221e-07f, -5.63331115e-09f, 5.99805899e-11f};
constexpr float kTanh[9] = {0.398899376f, -0.0666667372f, 0.0100442646f, -0.00117247668f, 0.000103068414f,
                            -6.48723017e-06f, 2.71056109e-07f, -6.64799238e-09f, 7.18399992e-11f};

struct Relu { ROOFLINE_INLINE Vec of(Vec x, Vec) { return max(zero(), x); } };
struct Erf { ROOFLINE_INLINE Vec of(Vec x, Vec) { return times_step(x, kErf); } };
struct Tanh { ROOFLINE_INLINE Vec of(Vec x, Vec) { return times_step(x, kTanh); } };
struct SwiGlu {  // up gate / (1 + e^-gate)
  ROOFLINE_INLINE Vec of(Vec x, Vec gate) {
    return div(mul(x, gate), add(set1(1.0f), exp2_bounded(min(set1(125.0f), mul(gate, set1(-1.44269504f))))));
  }
};

template <class Activation>
void quantize(const float* x, const float* scale, const float* gate, const float* gate_scale, float times, std::int8_t* y,
              Index n) {
  each(n, [=](Index i, int lanes) __attribute__((always_inline)) {
    Vec of_gate = zero();
    if constexpr (std::is_same_v<Activation, SwiGlu>) of_gate = scaled(gate, gate_scale, i, lanes);
    put(reinterpret_cast<Int8*>(y) + i, lanes, mul(Activation::of(scaled(x, scale, i, lanes), of_gate), set1(times)));
  });
}

struct SiluMul { ROOFLINE_INLINE Vec of(Vec x, Vec gate) { return mul(silu_of<Bf16>(gate), x); } };
template <class Activation>
struct Alone : Activation { __attribute__((always_inline)) Vec of(Vec x, Vec) const { return (*this)(x); } };

template <class Activation>
void activate(const float* x, const float* gate, void* y, Index n) {
  const Activation activation;
  each(n, [=](Index i, int lanes) __attribute__((always_inline)) {
    Vec of_gate = zero();
    if constexpr (std::is_same_v<Activation, SiluMul>) of_gate = get(gate + i, lanes, zero());
    put(static_cast<Bf16*>(y) + i, lanes, activation.of(get(x + i, lanes, zero()), of_gate));
  });
}

}  // namespace

extern const FfnKernels ROOFLINE_TABLE(ffn) = {
    scale,
    {quantize<Relu>, quantize<Erf>, quantize<Tanh>, quantize<SwiGlu>},
    {activate<Relu>, activate<Alone<Gelu<Bf16>>>, activate<Alone<GeluTanh<Bf16>>>, activate<SiluMul>},
};

}  // namespace roofline::cpu
