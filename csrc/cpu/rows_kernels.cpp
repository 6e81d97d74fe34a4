// Row-wise operators, one thread's rows, in fp32 or 16 bits; registers hold fp32. A row is read from memory by its first pass and from cache by the later ones; every
// result goes to memory once. Sums run in fp32 over a block of a row, in vectors side by side, and in fp64 over its blocks, so
// that a long row costs no accuracy.
#include "cpu/rows_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

constexpr std::int64_t kBlock = 4096;  // elements summed in fp32: 64 to a lane of eight vectors of AVX2, so few roundings
constexpr std::int64_t kLineBytes = 64;

// n is a constant in all but the last vector of a row, as it is for `get`.
template <bool NonTemporal, class T>
ROOFLINE_INLINE void put(T* p, int n, Vec x) {
  if (n != kLanes)
    store_partial(p, n, x);
  else if constexpr (NonTemporal)
    stream(p, x);
  else
    store(p, x);
}

// step(state[], i, n) takes elements i to i + n of [first, last) into one of `Sets` independent states.
template <int Sets, class State, class Step>
ROOFLINE_INLINE void accumulate(std::int64_t first, std::int64_t last, State (&state)[Sets], Step step) {
  std::int64_t i = first;
  for (; i + Sets * kLanes <= last; i += Sets * kLanes) {
#pragma GCC unroll 8
    for (int s = 0; s < Sets; ++s) step(state[s], i + s * kLanes, kLanes);
  }
  for (; i + kLanes <= last; i += kLanes) step(state[0], i, kLanes);
  if (i < last) step(state[1], i, static_cast<int>(last - i));
}

template <int Sums>
struct Partial {
  Vec sum[Sums];
};

template <int Sums>
struct Total {
  double sum[Sums];
};

// Totals over [0, n) of what step adds to the vectors of its state.
template <int Sums, int Sets, class Step>
ROOFLINE_INLINE Total<Sums> totals(std::int64_t n, Step step) {
  Total<Sums> total = {};
  for (std::int64_t first = 0; first < n; first += kBlock) {
    Partial<Sums> state[Sets];
    for (Partial<Sums>& one : state)
      for (Vec& sum : one.sum) sum = zero();
    accumulate(first, n - first < kBlock ? n : first + kBlock, state, step);
    for (int k = 0; k < Sums; ++k) {
      for (int width = Sets / 2; width > 0; width /= 2)
        for (int s = 0; s < width; ++s) state[s].sum[k] = add(state[s].sum[k], state[s + width].sum[k]);
      total.sum[k] += reduce_add(state[0].sum[k]);
    }
  }
  return total;
}

// y[i] = value(i, n) over a row of any alignment: non-temporal stores write whole cache lines only.
template <bool NonTemporal, class T, class Value>
ROOFLINE_INLINE void write(T* y, std::int64_t n, Value value) {
  constexpr std::int64_t kLine = kLineBytes / sizeof(T);
  std::int64_t i = 0;
  const auto plainly = [&](std::int64_t last) __attribute__((always_inline)) {
    for (; i + 4 * kLanes <= last; i += 4 * kLanes) {
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) put<false>(y + i + u * kLanes, kLanes, value(i + u * kLanes, kLanes));
    }
    for (; i + kLanes <= last; i += kLanes) put<false>(y + i, kLanes, value(i, kLanes));
    if (i < last) put<false>(y + i, static_cast<int>(last - i), value(i, static_cast<int>(last - i)));
    i = last;
  };
  if constexpr (NonTemporal) {
    const auto head = static_cast<std::int64_t>((kLineBytes - reinterpret_cast<std::uintptr_t>(y) % kLineBytes) % kLineBytes / sizeof(T));
    plainly(head < n ? head : n);
    const std::int64_t lines = i + (n - i) / kLine * kLine;
    for (; i + 4 * kLine <= lines; i += 4 * kLine) {
#pragma GCC unroll 32
      for (int u = 0; u < 4 * kLine; u += kLanes) put<true>(y + i + u, kLanes, value(i + u, kLanes));
    }
    for (; i < lines; i += kLanes) put<true>(y + i, kLanes, value(i, kLanes));
  }
  plainly(n);
}

// e^d for d <= 0, 0 below e^-86; NaN stays NaN. The rounding of d log2 e costs |d| / 2 units in the last place, on values that are
// e^-|d| of the largest: a softmax does not see it, and exp's exact reduction would take twice the time.
ROOFLINE_INLINE Vec exp_of_negative(Vec d) {
  return select_less(d, set1(-86.0f), zero(), exp2_bounded(mul(d, set1(1.44269504f))));
}

// Three passes over a row: its maximum; e^(x - max), kept in cache, and their sum; the quotient, which goes to memory.
template <class T, bool NonTemporal>
void softmax(const void* in, void* out, float* scratch, std::int64_t rows, std::int64_t columns) {
  auto* x = static_cast<const T*>(in);
  auto* y = static_cast<T*>(out);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    Vec tops[8];
    for (Vec& top : tops) top = set1(-kInfinity);
    accumulate(0, columns, tops, [&](Vec& top, std::int64_t i, int n) __attribute__((always_inline)) {
      top = max(top, get(x + i, n, set1(-kInfinity)));
    });
    for (int s = 1; s < 8; ++s) tops[0] = max(tops[0], tops[s]);
    const Vec top = set1(reduce_max(tops[0]));
    float* kept = scratch;
    if constexpr (sizeof(T) == sizeof(float)) kept = scratch ? scratch : reinterpret_cast<float*>(y);
    const auto exps = totals<1, 4>(columns, [&](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      const Vec e = exp_of_negative(sub(get(x + i, n, set1(-kInfinity)), top));
      put<false>(kept + i, n, e);
      state.sum[0] = add(state.sum[0], e);
    });
    const Vec scale = set1(static_cast<float>(1 / exps.sum[0]));
    write<NonTemporal>(y, columns, [&](std::int64_t i, int n) __attribute__((always_inline)) {
      return mul(get(kept + i, n, zero()), scale);
    });
  }
  if constexpr (NonTemporal) fence();
}

// The last pass of the norms by mean square: x / sqrt(mean square + eps) * weight goes to memory.
template <bool NonTemporal, class T>
ROOFLINE_INLINE void scale_by_root(const T* x, const T* weight, T* y, std::int64_t columns, double squares, double eps) {
  const Vec scale = set1(static_cast<float>(1 / __builtin_sqrt(squares / static_cast<double>(columns) + eps)));
  write<NonTemporal>(y, columns, [&](std::int64_t i, int n) __attribute__((always_inline)) {
    return mul(mul(get(x + i, n, zero()), scale), get(weight + i, n, zero()));
  });
}

// Two passes over a row: the sum of squares; the result.
template <class T, bool NonTemporal>
void rms_norm(const void* in, const void* weight, void* out, std::int64_t rows, std::int64_t columns, double eps) {
  auto* x = static_cast<const T*>(in);
  auto* y = static_cast<T*>(out);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const auto squares = totals<1, 8>(columns, [&](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      const Vec value = get(x + i, n, zero());
      state.sum[0] = fma(value, value, state.sum[0]);
    });
    scale_by_root<NonTemporal>(x, static_cast<const T*>(weight), y, columns, squares.sum[0], eps);
  }
  if constexpr (NonTemporal) fence();
}

// As rms_norm; the first pass adds x to the residual, which it keeps in cache for the second.
template <class T, bool NonTemporal>
void residual_rms_norm(const void* in, const void* weight, void* kept, void* out, std::int64_t rows, std::int64_t columns, double eps) {
  auto* x = static_cast<const T*>(in);
  auto* residual = static_cast<T*>(kept);
  auto* y = static_cast<T*>(out);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, residual += columns, y += columns) {
    const auto squares = totals<1, 8>(columns, [&](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      const Vec value = add(get(residual + i, n, zero()), get(x + i, n, zero()));
      put<false>(residual + i, n, value);
      state.sum[0] = fma(value, value, state.sum[0]);
    });
    scale_by_root<NonTemporal>(static_cast<const T*>(residual), static_cast<const T*>(weight), y, columns, squares.sum[0], eps);
  }
  if constexpr (NonTemporal) fence();
}

// The last pass of layer_norm over a row: (x - mean) / sqrt(variance + eps) * weight + bias goes to memory.
template <bool NonTemporal, class T>
ROOFLINE_INLINE void normalise(const T* x, const T* weight, const T* bias, T* y, std::int64_t columns, float mean, double variance,
                               double eps) {
  const Vec centre = set1(mean);
  const Vec scale = set1(static_cast<float>(1 / __builtin_sqrt(variance + eps)));
  write<NonTemporal>(y, columns, [&](std::int64_t i, int n) __attribute__((always_inline)) {
    const Vec scaled = mul(sub(get(x + i, n, centre), centre), scale);
    return fma(scaled, get(weight + i, n, zero()), get(bias + i, n, zero()));
  });
}

// Three passes over a row: its mean; the mean square of the deviations from it; the result.
template <class T, bool NonTemporal>
void layer_norm_two_pass(const void* in, const void* weight, const void* bias, void* out, std::int64_t rows, std::int64_t columns,
                         double eps) {
  const auto count = static_cast<double>(columns);
  auto* x = static_cast<const T*>(in);
  auto* y = static_cast<T*>(out);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const auto sums = totals<1, 8>(columns, [&](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      state.sum[0] = add(state.sum[0], get(x + i, n, zero()));
    });
    const auto mean = static_cast<float>(sums.sum[0] / count);
    const auto squares = totals<1, 8>(columns, [&](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      const Vec deviation = sub(get(x + i, n, set1(mean)), set1(mean));
      state.sum[0] = fma(deviation, deviation, state.sum[0]);
    });
    normalise<NonTemporal>(x, static_cast<const T*>(weight), static_cast<const T*>(bias), y, columns, mean, squares.sum[0] / count, eps);
  }
  if constexpr (NonTemporal) fence();
}

template <class T>
ROOFLINE_INLINE float first_of(const T* x) {
  float lanes[kLanes];
  store(lanes, get(x, 1, zero()));
  return lanes[0];
}

// Two passes over a row: the sums of d and d² together; the result. d is x less the row's first element: the variance is a
// difference of two means, and without the shift a large mean would cancel it away.
template <class T, bool NonTemporal>
void layer_norm_one_pass(const void* in, const void* weight, const void* bias, void* out, std::int64_t rows, std::int64_t columns,
                         double eps) {
  const auto count = static_cast<double>(columns);
  auto* x = static_cast<const T*>(in);
  auto* y = static_cast<T*>(out);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const float shift = first_of(x);
    const auto sums = totals<2, 4>(columns, [&](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      const Vec d = sub(get(x + i, n, set1(shift)), set1(shift));
      state.sum[0] = add(state.sum[0], d);
      state.sum[1] = fma(d, d, state.sum[1]);
    });
    const double mean = sums.sum[0] / count;
    const double variance = sums.sum[1] / count - mean * mean;
    normalise<NonTemporal>(x, static_cast<const T*>(weight), static_cast<const T*>(bias), y, columns, static_cast<float>(shift + mean),
                           variance < 0 ? 0 : variance, eps);
  }
  if constexpr (NonTemporal) fence();
}

// y[i] = of(x[i], ...) of every element, any of whose operands may be y.
template <class T, bool NonTemporal, class Of, class... X>
ROOFLINE_INLINE void map(void* y, std::int64_t n, Of of, const X*... x) {
  write<NonTemporal>(static_cast<T*>(y), n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    return of(get(x + i, lanes, zero())...);
  });
  if constexpr (NonTemporal) fence();
}

ROOFLINE_INLINE Vec relu_of(Vec x) { return max(zero(), x); }  // in this order, so that NaN stays

template <class T, bool NonTemporal>
void relu(const void* x, void* y, std::int64_t n) {
  map<T, NonTemporal>(y, n, [](Vec a) __attribute__((always_inline)) { return relu_of(a); }, static_cast<const T*>(x));
}

// One pass over a row; the bias stays in cache from row to row.
template <class T, bool NonTemporal>
void bias_relu(const void* in, const void* bias, void* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    map<T, NonTemporal>(static_cast<T*>(out) + row * columns, columns,
                        [](Vec a, Vec b) __attribute__((always_inline)) { return relu_of(add(a, b)); },
                        static_cast<const T*>(in) + row * columns, static_cast<const T*>(bias));
}

// The exponential that the other kernels use, alone: a load and a store beside some ten instructions of arithmetic.
void exp_of(const float* x, float* y, std::int64_t n) {
  map<float, false>(y, n, [](Vec a) __attribute__((always_inline)) { return exp(a); }, x);
}

// The normal distribution's lower tail below -a, a >= 0, is e^(-a²/2) t Q(t) with t = 1 / (1 + 0.34 a). Q: minimax in relative
// error over a in [0, 14] (3.0e-8; 2.9e-7 evaluated in fp32).
constexpr float kTail[9] = {0.135620505f, 0.136112198f,  0.115197696f, 0.115359031f,  -0.0447181426f,
                            0.202182233f, -0.273132384f, 0.139499322f, -0.0261204429f};

// x (1 + erf(x / sqrt(2))) / 2 = max(x, 0) - |x| tail(|x|): no difference of near numbers where x is negative.
ROOFLINE_INLINE Vec gelu_of(Vec x) {
  // Beyond 12.9 the tail is below fp32's normal numbers, on which Intel's CPUs take a hundred cycles each: it counts as 0 there.
  const Vec most = set1(12.9f), size = max(x, sub(zero(), x)), a = min(size, most);
  const Vec t = div(set1(1.0f), fma(set1(0.34f), a, set1(1.0f)));
  Vec q = set1(kTail[8]);
#pragma GCC unroll 8
  for (int k = 7; k >= 0; --k) q = fma(q, t, set1(kTail[k]));
  const Vec tail = mul(mul(exp(mul(mul(a, a), set1(-0.5f))), t), q);
  return sub(max(zero(), x), select_less(size, most, mul(a, tail), zero()));
}

template <class T, bool NonTemporal>
void gelu(const void* x, void* y, std::int64_t n) {
  map<T, NonTemporal>(y, n, [](Vec a) __attribute__((always_inline)) { return gelu_of(a); }, static_cast<const T*>(x));
}

// a / (1 + e^-x). x is clamped to where exp is accurate: beyond, the quotient is below 1e-37, or 1.
ROOFLINE_INLINE Vec times_sigmoid(Vec a, Vec x) {
  const Vec e = exp(max(min(sub(zero(), x), set1(87.0f)), set1(-87.0f)));
  return div(a, add(set1(1.0f), e));
}

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x³). Below -10 it is less than fp32's normal numbers: 0.
template <class T, bool NonTemporal>
void gelu_tanh(const void* x, void* y, std::int64_t n) {
  map<T, NonTemporal>(y, n, [](Vec a) __attribute__((always_inline)) {
    const Vec twice_u = mul(mul(a, set1(1.5957691216f)), fma(mul(a, a), set1(0.044715f), set1(1.0f)));
    return select_less(a, set1(-10.0f), zero(), times_sigmoid(a, twice_u));
  }, static_cast<const T*>(x));
}

template <class T, bool NonTemporal>
void silu_mul(const void* gate, const void* up, void* y, std::int64_t n) {
  map<T, NonTemporal>(y, n, [](Vec g, Vec u) __attribute__((always_inline)) { return mul(times_sigmoid(g, g), u); },
                      static_cast<const T*>(gate), static_cast<const T*>(up));
}

template <class From, class To, bool NonTemporal>
void convert(const void* x, void* y, std::int64_t n) {
  map<To, NonTemporal>(y, n, [](Vec a) __attribute__((always_inline)) { return a; }, static_cast<const From*>(x));
}

#define ROOFLINE_BOTH(...) {__VA_ARGS__, false>, __VA_ARGS__, true>}

template <class T>
constexpr RowsKernels kRows = {
    ROOFLINE_BOTH(softmax<T),
    ROOFLINE_BOTH(rms_norm<T),
    ROOFLINE_BOTH(residual_rms_norm<T),
    ROOFLINE_BOTH(layer_norm_two_pass<T),
    ROOFLINE_BOTH(layer_norm_one_pass<T),
    ROOFLINE_BOTH(relu<T),
    ROOFLINE_BOTH(bias_relu<T),
    ROOFLINE_BOTH(gelu<T),
    ROOFLINE_BOTH(gelu_tanh<T),
    ROOFLINE_BOTH(silu_mul<T),
    {ROOFLINE_BOTH(convert<T, float), ROOFLINE_BOTH(convert<T, Bf16), ROOFLINE_BOTH(convert<T, Fp16)},
};

}  // namespace

extern const RowsTable ROOFLINE_TABLE(rows) = {{kRows<float>, kRows<Bf16>, kRows<Fp16>}, exp_of};

}  // namespace roofline::cpu
