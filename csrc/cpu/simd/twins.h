// Vectors of bf16 as twins: the even elements in one vector, the odd ones in another. They are halves of 32-bit words in memory, so
// that loading takes a shift and a mask, and storing a shift and a blend: no shuffles, of which a core does fewer in a cycle. A
// kernel file includes it where the order of elements in registers does not matter.
#pragma once

#include <type_traits>

#include "cpu/simd/simd.h"

#pragma GCC diagnostic ignored "-Wignored-attributes"  // a vector as a template's argument is no more than its type

namespace {

struct Twin {
  Vec even, odd;
};
struct InexactTwin : Twin {};  // as Rounded says

// Two vectors that go through long arithmetic side by side, so that the instructions of one fill what those of the other wait.
template <class V>
struct Two {
  V first, second;
};
template <class V>
constexpr bool kIsTwo = false;
template <class V>
constexpr bool kIsTwo<Two<V>> = true;

// What registers hold of elements T, and how many of them.
template <class T>
using VecOf = std::conditional_t<std::is_same_v<T, Bf16> && (kLanes > 1), Twin, Vec>;
template <class V>
constexpr int kStep = std::is_base_of_v<Twin, V> ? 2 * kLanes : kLanes;
template <class V>
constexpr int kStep<Two<V>> = 2 * kStep<V>;
// Four vectors of elements T, or two where there are registers for no more.
template <class T, class V = VecOf<T>, class Some = std::conditional_t<std::is_same_v<V, Twin> || kLanes == 1, V, Two<V>>>
using FourOf = std::conditional_t<kManyRegisters, Two<Some>, Some>;

// f of each half.
template <class F, class... X>
ROOFLINE_INLINE auto each(F f, const X&... x) {
  if constexpr ((kIsTwo<X> || ...))
    return Two<decltype(each(f, x.first...))>{each(f, x.first...), each(f, x.second...)};
  else if constexpr ((std::is_same_v<X, Twin> || ...))
    return Twin{f(x.even...), f(x.odd...)};
  else
    return f(x...);
}

template <class V>
ROOFLINE_INLINE V all(float x) {
  if constexpr (kIsTwo<V>)
    return V{all<decltype(V::first)>(x), all<decltype(V::second)>(x)};
  else if constexpr (std::is_same_v<V, Twin>)
    return Twin{set1(x), set1(x)};
  else
    return set1(x);
}

// The first n elements, 1 <= n <= kStep<V>, the others `other`.
template <class V, class T>
ROOFLINE_INLINE V take(const T* p, int n, float other) {
  if constexpr (kIsTwo<V>) {
    using One = decltype(V::first);
    constexpr int kOne = kStep<One>;
    return V{take<One>(p, n < kOne ? n : kOne, other), n > kOne ? take<One>(p + kOne, n - kOne, other) : all<One>(other)};
  } else if constexpr (std::is_same_v<V, Twin>) {
    Twin x;
    if (n == kStep<Twin>) {
      widen_pairs(reinterpret_cast<const std::uint32_t*>(p), x.even, x.odd);
      return x;
    }
    widen_pairs_partial(p, n, set1(other), x.even, x.odd);
    return x;
  } else {
    return get(p, n, set1(other));
  }
}

// The vector about to be stored is no exact result.
ROOFLINE_INLINE Vec inexact(Vec x) { return x; }
ROOFLINE_INLINE InexactTwin inexact(Twin x) { return {x}; }
template <class V>
ROOFLINE_INLINE auto inexact(Two<V> x) {
  return Two<decltype(inexact(x.first))>{inexact(x.first), inexact(x.second)};
}

template <bool NonTemporal, class T, class V>
ROOFLINE_INLINE void give(T* p, int n, V x) {
  if constexpr (kIsTwo<V>) {
    constexpr int kOne = kStep<decltype(V::first)>;
    give<NonTemporal>(p, n < kOne ? n : kOne, x.first);
    if (n > kOne) give<NonTemporal>(p + kOne, n - kOne, x.second);
  } else if constexpr (std::is_base_of_v<Twin, V>) {
    constexpr Rounded kFrom = std::is_same_v<V, Twin> ? Rounded::of_bf16 : Rounded::inexact;
    n == kStep<Twin> ? narrow_pairs<NonTemporal, kFrom>(p, x.even, x.odd) : narrow_pairs_partial(p, n, x.even, x.odd);
  } else if (n != kLanes) {
    store_partial(p, n, x);
  } else if constexpr (NonTemporal) {
    stream(p, x);
  } else {
    store(p, x);
  }
}

// fp32 in memory, in the order of registers.
ROOFLINE_INLINE void keep(float* p, int n, Vec x) { put(p, n, x); }
ROOFLINE_INLINE void keep(float* p, int, Twin x) { store(p, x.even), store(p + kLanes, x.odd); }
template <class V>
ROOFLINE_INLINE void keep(float* p, int n, Two<V> x) {
  keep(p, n < kStep<V> ? n : kStep<V>, x.first);
  if (n > kStep<V>) keep(p + kStep<V>, n - kStep<V>, x.second);
}
template <class V>
ROOFLINE_INLINE V kept_at(const float* p, int n) {
  if constexpr (kIsTwo<V>) {
    using One = decltype(V::first);
    constexpr int kOne = kStep<One>;
    return V{kept_at<One>(p, n < kOne ? n : kOne), n > kOne ? kept_at<One>(p + kOne, n - kOne) : all<One>(0)};
  } else if constexpr (std::is_same_v<V, Twin>)
    return Twin{load(p), load(p + kLanes)};
  else
    return get(p, n, zero());
}

template <class V>
ROOFLINE_INLINE V plus(V a, V b) {
  return each([](Vec x, Vec y) __attribute__((always_inline)) { return add(x, y); }, a, b);
}
template <class V>
ROOFLINE_INLINE V times(V a, V b) {
  return each([](Vec x, Vec y) __attribute__((always_inline)) { return mul(x, y); }, a, b);
}
// a b + c
template <class V>
ROOFLINE_INLINE V times_plus(V a, V b, V c) {
  return each([](Vec x, Vec y, Vec z) __attribute__((always_inline)) { return fma(x, y, z); }, a, b, c);
}

// sum and the squares of the n numbers that value came of.
template <class V, class T>
ROOFLINE_INLINE V add_squares(V sum, V value, [[maybe_unused]] const T* p, [[maybe_unused]] int n) {
#if defined(__AVX512BF16__) && !defined(ROOFLINE_SIMDE)  // denormals count as 0, and so do their squares
  if constexpr (std::is_same_v<V, Twin>)
    if (n == kStep<Twin>) return {plus_pairs(sum.even, p, p), sum.odd};
#endif
  return times_plus(value, value, sum);
}

// sum and the n numbers that value came of.
template <class V, class T>
ROOFLINE_INLINE V add_numbers(V sum, V value, [[maybe_unused]] const T* p, [[maybe_unused]] int n) {
#if defined(__AVX512BF16__) && !defined(ROOFLINE_SIMDE)
  alignas(64) static constexpr std::uint32_t kOnes[] = {
      0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80,
      0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
  if constexpr (std::is_same_v<V, Twin>)
    if (n == kStep<Twin>) return {plus_pairs(sum.even, p, reinterpret_cast<const T*>(kOnes)), sum.odd};
#endif
  return plus(sum, value);
}

ROOFLINE_INLINE Vec sum_of(Vec x) { return x; }
ROOFLINE_INLINE Vec sum_of(Twin x) { return add(x.even, x.odd); }
ROOFLINE_INLINE Vec top_of(Vec x) { return x; }
ROOFLINE_INLINE Vec top_of(Twin x) { return max(x.even, x.odd); }
template <class V>
ROOFLINE_INLINE Vec sum_of(Two<V> x) {
  return add(sum_of(x.first), sum_of(x.second));
}
template <class V>
ROOFLINE_INLINE Vec top_of(Two<V> x) {
  return max(top_of(x.first), top_of(x.second));
}

}  // namespace
