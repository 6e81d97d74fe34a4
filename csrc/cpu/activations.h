// Exponentials, and gelu, its approximation by tanh, and silu, of vectors. A kernel file includes it.
#pragma once

#include <tuple>
#include <type_traits>

#include "cpu/gelu_table.h"
#include "cpu/simd/twins.h"

namespace roofline::cpu {
namespace {

// Powers of e and 2. Each step is done for all vectors of x before the next one: a core looks some sixty instructions ahead, and
// would find those of one or two vectors there, which wait for each other.
template <class V, int Terms>
ROOFLINE_INLINE V polynomial(const float (&terms)[Terms], V x) {
  V sum = all<V>(terms[Terms - 1]);
#pragma GCC unroll 8
  for (int k = Terms - 2; k >= 0; --k) sum = times_plus(sum, x, all<V>(terms[k]));
  return sum;
}

// exp2_of: 2^x, as near as a result in elements T needs. ToZero: 0 where it is no normal number; else it may be denormal there, and
// infinite. exp2_within: the same for x from -126 to 125, and 0 of the last part of gelu's tables. NaN stays NaN.
#if defined(ROOFLINE_SCALE2_FLOOR)
template <class T, bool ToZero, class V>
ROOFLINE_INLINE V exp2_of(V x) {
  const V above = each([](Vec a) __attribute__((always_inline)) { return above_whole(a); }, x);
  const V power = polynomial(kExp2Above<T>, above);
  return each([](Vec p, Vec a) __attribute__((always_inline)) { return scale2_floor<ToZero>(p, a); }, power, x);
}
template <class T, class V>
ROOFLINE_INLINE V exp2_within(V x) {
  return exp2_of<T, false>(x);
}
#else
template <class V>
ROOFLINE_INLINE V times_exponent(V a, V n) {
  return each([](Vec b, Vec whole) __attribute__((always_inline)) { return plus_exponent(b, whole); }, a, n);
}
template <class T, class V>
ROOFLINE_INLINE V exp2_within(V x) {
  const V shifted = plus(x, all<V>(kToWhole));
  const V rest = each([](Vec a, Vec s) __attribute__((always_inline)) { return sub(a, sub(s, set1(kToWhole))); }, x, shifted);
  return times_exponent(polynomial(kExp2<T>, rest), shifted);
}
template <class T, bool ToZero, class V>
ROOFLINE_INLINE V exp2_of(V x) {
  const V power = exp2_within<T>(each([](Vec a) __attribute__((always_inline)) {
    return max(set1(-125.0f), min(set1(125.0f), a));  // in this order a NaN stays one
  }, x));
  if constexpr (!ToZero) return power;
  return each([](Vec a, Vec p) __attribute__((always_inline)) { return select_less(a, set1(-125.0f), zero(), p); }, x, power);
}
#endif

// e^x for x <= 88, at least e^-87; NaN stays NaN.
template <class V>
ROOFLINE_INLINE V exp_normal(V x) {
#if defined(ROOFLINE_SCALE2_FLOOR) || defined(ROOFLINE_SCALAR)
  return each([](Vec a) __attribute__((always_inline)) { return exp<false>(a); }, x);
#else
  constexpr float kLog2e = 1.44269502f, kLess = 1.92596299e-8f;  // which together are log2 e
  x = each([](Vec a) __attribute__((always_inline)) { return max(set1(-87.0f), a); }, x);
  const V shifted = times_plus(x, all<V>(kLog2e), all<V>(kToWhole));
  V rest = each([](Vec s) __attribute__((always_inline)) { return sub(set1(kToWhole), s); }, shifted);
  rest = times_plus(x, all<V>(kLess), times_plus(x, all<V>(kLog2e), rest));
  return times_exponent(polynomial(kExp2<float>, rest), shifted);
#endif
}

// The normal distribution's lower tail below -a, a >= 0, is e^(-a²/2) t Q(t) with t = 1 / (1 + kTailScale a). Q: minimax in relative
// error over a in [0, 14]: for fp32 3.0e-8 (2.9e-7 evaluated in fp32), for results of 16 bits 3.5e-5, a seventh of fp16's rounding.
template <class T>
constexpr float kTailScale = sizeof(T) == sizeof(float) ? 0.34f : 0.38f;
template <class T>
constexpr float kTail[5] = {0.151225139f, 0.157829468f, 0.0919797273f, 0.188876506f, -0.0899283688f};
template <>
constexpr float kTail<float>[9] = {0.135620505f, 0.136112198f,  0.115197696f, 0.115359031f,  -0.0447181426f,
                                   0.202182233f, -0.273132384f, 0.139499322f, -0.0261204429f};

// x (1 + erf(x / sqrt(2))) / 2 = max(x, 0) - |x| tail(|x|): no difference of near numbers where x is negative.
template <class T>
ROOFLINE_INLINE Vec gelu_of(Vec x) {
  constexpr int kTerms = sizeof(kTail<T>) / sizeof(float);
  // Beyond 12.9 the tail is below fp32's normal numbers, on which Intel's CPUs take a hundred cycles each: it counts as 0 there.
  const Vec most = set1(12.9f), size = abs(x), a = min(size, most);
  const Vec t = div(set1(1.0f), fma(set1(kTailScale<T>), a, set1(1.0f)));
  // Its even and its odd terms side by side: all in one chain would wait for each other.
  const Vec square = mul(t, t);
  Vec even = set1(kTail<T>[kTerms - 1]), odd = set1(kTail<T>[kTerms - 2]);
#pragma GCC unroll 4
  for (int k = kTerms - 3; k > 0; k -= 2) {
    even = fma(even, square, set1(kTail<T>[k]));
    odd = fma(odd, square, set1(kTail<T>[k - 1]));
  }
  const Vec q = fma(odd, t, fma(even, square, set1(kTail<T>[0])));
  // The rounding of a² costs as much as that of a² log2 e / 2: exp's exact reduction would gain nothing.
  const Vec tail = mul(mul(exp2_bounded(mul(mul(a, a), set1(-0.72134752f))), t), q);
  return sub(max(zero(), x), select_less(size, most, mul(a, tail), zero()));
}

// (x - top) log2 e in one operation: what rounds top log2 e, 64 at most, is the same for the row, whose quotients do not change.
// From 2^30 on numbers are 64 apart: e to the power of that is next to nothing, and 2 too.
struct Powers {
  static constexpr bool kFused = kLanes > 1;
  Vec factor, base;

  // top: of any number of rows.
  __attribute__((always_inline)) explicit Powers(Vec top)
      : factor(kFused ? select_less(abs(top), set1(0x1p30f), set1(1.44269504f), set1(1)) : set1(1.44269504f)),
        base(kFused ? mul(sub(zero(), top), factor) : top) {}
  __attribute__((always_inline)) Powers(float by, float from) : factor(set1(by)), base(set1(from)) {}
  __attribute__((always_inline)) Vec operator()(Vec x) const { return kFused ? fma(x, factor, base) : mul(sub(x, base), factor); }
};

// a / (1 + e^-x). Where results are fp32, x must be at least about -88. Where they have 16 bits, the exponent's reduction need not
// be exact.
template <class T, class V>
ROOFLINE_INLINE V times_sigmoid(V a, V x) {
  V e;
  if constexpr (sizeof(T) == sizeof(float))
    e = exp_normal(each([](Vec b) __attribute__((always_inline)) { return sub(zero(), b); }, x));
  else
    e = exp2_of<T, false>(times(x, all<V>(-1.44269504f)));
  return each([](Vec b, Vec c) __attribute__((always_inline)) { return div(b, add(set1(1.0f), c)); }, a, e);
}

// silu(x) = x / (1 + e^-x). Below -87 it is nearly 0, and x is clamped to -87, except where e^-x overflows to infinity, which makes
// the quotient 0.
template <class T, class V>
ROOFLINE_INLINE V silu_of(V x) {
#if defined(ROOFLINE_SCALE2_FLOOR)
  constexpr bool kBounded = sizeof(T) == sizeof(float);
#else
  constexpr bool kBounded = true;
#endif
  if constexpr (kBounded) x = each([](Vec a) __attribute__((always_inline)) { return max(set1(-87.0f), a); }, x);  // a NaN stays one
  return times_sigmoid<T>(x, x);
}

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x³). Below -10 it is less than fp32's normal numbers: 0.
template <class T>
ROOFLINE_INLINE Vec gelu_tanh_of(Vec a) {
  const Vec twice_u = mul(mul(a, set1(1.5957691216f)), fma(mul(a, a), set1(0.044715f), set1(1.0f)));
  return select_less(a, set1(-10.0f), zero(), times_sigmoid<T>(a, twice_u));
}

template <class T>
struct GeluByTail {
  template <class V>
  __attribute__((always_inline)) V operator()(V x) const {
    return each([](Vec a) __attribute__((always_inline)) { return gelu_of<T>(a); }, x);
  }
};
template <class T>
struct GeluBySigmoid {
  template <class V>
  __attribute__((always_inline)) V operator()(V x) const {
    return each([](Vec a) __attribute__((always_inline)) { return gelu_tanh_of<T>(a); }, x);
  }
};

// Either gelu, by its tables where registers can hold them.
#if defined(ROOFLINE_LOOK_UP)
template <class T, const GeluTables& Tables>
class GeluBy {
  static constexpr bool kEight = kLanes == 8, kLog = kEight || sizeof(T) == sizeof(float);
  static const auto& table() {
    if constexpr (sizeof(T) == sizeof(float))
      return Tables.of_fp32;
    else if constexpr (std::is_same_v<T, Bf16>)
      return std::get<kEight>(std::tie(Tables.of_bf16, Tables.eight_of_bf16));
    else
      return std::get<kEight>(std::tie(Tables.of_fp16, Tables.eight_of_fp16));
  }
  using Table = std::remove_reference_t<decltype(table())>;
  static constexpr int kTerms = Table::kTerms, kRegisters = Table::kParts / kLanes;

 public:
  __attribute__((always_inline)) GeluBy() {
    most_ = set1(table().most), per_unit_ = set1(table().per_unit);
#pragma GCC unroll 8
    for (int k = 0; k < kTerms; ++k)
      for (int part = 0; part < kRegisters; ++part) numbers_[k][part] = load(table().coefficients[k] + part * kLanes);
  }
  // Instruction by instruction of both halves of a Twin.
  template <class V>
  __attribute__((always_inline)) V operator()(V x) const {
    const V size = each([&](Vec a) __attribute__((always_inline)) { return least_size(a, most_); }, x);
    const V part = each([&](Vec a) __attribute__((always_inline)) {
      return fma(a, per_unit_, set1(kToWhole));
    }, size);
    V g = each([&](Vec p) __attribute__((always_inline)) { return look_up(numbers_[kTerms - 1], p); }, part);
#pragma GCC unroll 8
    for (int k = kTerms - 2; k >= 0; --k)
      g = each([&](Vec y, Vec a, Vec p) __attribute__((always_inline)) {
        return fma(y, a, look_up(numbers_[k], p));
      }, g, size, part);
    if constexpr (kLog) g = times(size, exp2_within<T>(g));
    return each([](Vec a, Vec y) __attribute__((always_inline)) { return sub(max(zero(), a), y); }, x, g);  // a NaN stays one
  }

 private:
  Vec most_, per_unit_, numbers_[kTerms][kRegisters];
};
// fp32 by parts of 8 would take 8 terms, whose look-ups and multiply-adds take longer than a division.
template <class T>
constexpr bool kByTable = kLanes > 8 || sizeof(T) < sizeof(float);
template <class T>
using Gelu = std::conditional_t<kByTable<T>, GeluBy<T, gelu_erf_tables>, GeluByTail<T>>;
template <class T>
using GeluTanh = std::conditional_t<kByTable<T>, GeluBy<T, gelu_tanh_tables>, GeluBySigmoid<T>>;
#else
template <class T>
using Gelu = GeluByTail<T>;
template <class T>
using GeluTanh = GeluBySigmoid<T>;
#endif

}  // namespace
}  // namespace roofline::cpu
