// fp64 vectors for kernel files that define ROOFLINE_DOUBLES: what the headers beside it name of fp32, in vectors that the compiler
// maps to any instruction set; parts of a vector by masks, where a set has these. Multiply-adds round once where the set has them.
#pragma once

#if defined(__AVX2__) && !defined(ROOFLINE_SIMDE)  // else the build has included an emulation already
#include <immintrin.h>
#endif

#include <utility>

namespace {

using Number = double;
#if defined(ROOFLINE_SIMDE) || (defined(__AVX512F__) && defined(__AVX512DQ__))
constexpr int kLanes = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 4;
#elif defined(__ARM_NEON) && !defined(ROOFLINE_SCALAR)
constexpr int kLanes = 2;
#else
#define ROOFLINE_ONE_DOUBLE
constexpr int kLanes = 1;
#endif
#if defined(ROOFLINE_ONE_DOUBLE)  // as a vector it would often go through memory
using Vec = double;
using Whole = std::uint64_t;  // sums and shifts of signed ones may not overflow
#else
typedef double Vec __attribute__((vector_size(8 * kLanes)));
typedef std::int64_t Whole __attribute__((vector_size(8 * kLanes)));
#endif

ROOFLINE_INLINE Vec zero() { return Vec{}; }
ROOFLINE_INLINE Vec set1(double x) { return x - Vec{}; }  // adding 0 would change the sign of -0
ROOFLINE_INLINE Vec load(const double* p) {
  Vec x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
ROOFLINE_INLINE void store(double* p, Vec x) { __builtin_memcpy(p, &x, sizeof x); }
#if defined(__AVX512F__) && !defined(ROOFLINE_SIMDE)
ROOFLINE_INLINE Vec load_partial(const double* p, int n, Vec other) {
  return _mm512_mask_loadu_pd(other, static_cast<__mmask8>((1u << n) - 1), p);
}
ROOFLINE_INLINE void store_partial(double* p, int n, Vec x) { _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), x); }
#elif defined(__AVX2__) && !defined(ROOFLINE_SIMDE)
ROOFLINE_INLINE Whole first(int n) { return Whole{0, 1, 2, 3} < n - Whole{}; }
ROOFLINE_INLINE Vec load_partial(const double* p, int n, Vec other) {
  return first(n) ? Vec(_mm256_maskload_pd(p, __m256i(first(n)))) : other;
}
ROOFLINE_INLINE void store_partial(double* p, int n, Vec x) { _mm256_maskstore_pd(p, __m256i(first(n)), x); }
#elif defined(ROOFLINE_ONE_DOUBLE)
ROOFLINE_INLINE Vec load_partial(const double* p, int n, Vec other) { return n > 0 ? *p : other; }
ROOFLINE_INLINE void store_partial(double* p, int n, Vec x) {
  if (n > 0) *p = x;
}
#else
ROOFLINE_INLINE Vec load_partial(const double* p, int n, Vec other) {
  for (int i = 0; i < kLanes; ++i) other[i] = i < n ? p[i] : other[i];
  return other;
}
ROOFLINE_INLINE void store_partial(double* p, int n, Vec x) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
}
#endif

ROOFLINE_INLINE Vec add(Vec a, Vec b) { return a + b; }
ROOFLINE_INLINE Vec sub(Vec a, Vec b) { return a - b; }
ROOFLINE_INLINE Vec mul(Vec a, Vec b) { return a * b; }
ROOFLINE_INLINE Vec div(Vec a, Vec b) { return a / b; }
ROOFLINE_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
ROOFLINE_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
ROOFLINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
// x where a < b, else y.
ROOFLINE_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) { return a < b ? x : y; }
#if defined(ROOFLINE_ONE_DOUBLE)
ROOFLINE_INLINE bool any_greater(Vec a, Vec b) { return a > b; }
ROOFLINE_INLINE double reduce_add(Vec a) { return a; }
ROOFLINE_INLINE double reduce_max(Vec a) { return a; }
ROOFLINE_INLINE void transpose(Vec (&)[kLanes]) {}
ROOFLINE_INLINE Vec reduce_add(const Vec (&rows)[kLanes]) { return rows[0]; }
#else
ROOFLINE_INLINE bool any_greater(Vec a, Vec b) {
  const Whole greater = a > b;
  std::int64_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= greater[i];
  return any != 0;
}
ROOFLINE_INLINE double reduce_add(Vec a) {
  double sum = a[0];
  for (int i = 1; i < kLanes; ++i) sum += a[i];
  return sum;
}
ROOFLINE_INLINE double reduce_max(Vec a) {
  double high = a[0];
  for (int i = 1; i < kLanes; ++i) high = a[i] > high ? a[i] : high;
  return high;
}

// Blocks of Size rows and columns change places: those above the diagonal with those below it.
template <int Size, std::size_t... Lane>
ROOFLINE_INLINE void exchange(Vec (&rows)[kLanes], std::index_sequence<Lane...> lanes) {
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) {
    if (i & Size) continue;
    const Vec above = rows[i], below = rows[i + Size];
    rows[i] = __builtin_shufflevector(above, below, (Lane & Size ? kLanes + Lane - Size : Lane)...);
    rows[i + Size] = __builtin_shufflevector(above, below, (Lane & Size ? kLanes + Lane : Lane + Size)...);
  }
  if constexpr (2 * Size < kLanes) exchange<2 * Size>(rows, lanes);
}
// Rows become columns.
ROOFLINE_INLINE void transpose(Vec (&rows)[kLanes]) {
  exchange<1>(rows, std::make_index_sequence<kLanes>());
}
// Lane i is the sum of row i.
ROOFLINE_INLINE Vec reduce_add(const Vec (&rows)[kLanes]) {
  Vec columns[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) columns[i] = rows[i];
  transpose(columns);
#pragma GCC unroll 8
  for (int i = 1; i < kLanes; ++i) columns[0] += columns[i];
  return columns[0];
}
#endif

// 2^f for |f| <= 0.5, degree 10, minimax in relative error (2.1e-16; 4e-16 evaluated in fp64).
constexpr double kExp2[11] = {1.0,
                              0.6931471805599497,
                              0.24022650695908768,
                              0.05550410866445883,
                              0.009618129108034596,
                              0.0013333558228561767,
                              0.00015403529961127076,
                              1.5252658116409854e-05,
                              1.3215662835959238e-06,
                              1.0208537929657404e-07,
                              7.037278846726901e-09};
ROOFLINE_INLINE Vec exp2_polynomial(Vec f) {
  Vec p = set1(kExp2[10]);
#pragma GCC unroll 10
  for (int i = 9; i >= 0; --i) p = fma(p, f, set1(kExp2[i]));
  return p;
}
// 2^x for x <= 1022, at least 2^-1021. Adding 1.5 2^52 rounds x to a whole number and leaves it in the low mantissa bits.
ROOFLINE_INLINE Vec exp2_bounded(Vec x) {
  const Vec magic = set1(6755399441055744.0);
  const Vec clamped = max(set1(-1021), x);  // in this order a NaN stays one
  const Vec shifted = clamped + magic, power = exp2_polynomial(clamped - (shifted - magic));
  return __builtin_bit_cast(Vec, __builtin_bit_cast(Whole, power) + (__builtin_bit_cast(Whole, shifted) << 52));
}
// 2^x, flushed to 0 below -1021 and saturating above 1022.
ROOFLINE_INLINE Vec exp2(Vec x) { return select_less(x, set1(-1021), zero(), exp2_bounded(min(set1(1022), x))); }

// tanh(x), within 4e-15 of itself: by powers of e, and where their difference would lose digits by Taylor's polynomial.
ROOFLINE_INLINE Vec tanh(Vec x) {
  constexpr double kTaylor[] = {-929569.0 / 638512875, 21844.0 / 6081075, -1382.0 / 155925, 62.0 / 2835,
                                -17.0 / 315,           2.0 / 15,          -1.0 / 3,         1.0};
  const Vec size = max(x, -x), square = x * x;
  Vec small = set1(kTaylor[0]);
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) small = fma(small, square, set1(kTaylor[i]));
  const Vec falling = exp2_bounded(size * -2.8853900817779268), large = (1 - falling) / (1 + falling);
  return select_less(size, set1(0.1), x * small, x < 0.0 ? -large : large);
}

}  // namespace
