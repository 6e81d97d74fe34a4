// Row-wise operators, one thread's rows, in fp32 or 16 bits; registers hold fp32, of bf16 as twins. A row is read from memory by its
// first pass and from cache by the later ones; every result goes to memory once.
#include "cpu/rows_kernels.h"

#include "cpu/activations.h"
#include "cpu/isa.h"
#include "cpu/rows_stores.h"
#include "cpu/rows_totals.h"
#include "cpu/simd/narrow_bytes.h"
#include "cpu/simd/twins.h"

namespace roofline::cpu {
namespace {

// [r]: Powers of row r.
struct PowersOfRows {
  float factor[kLanes], base[kLanes];
};

// Powers of the largest of the first `of` elements of each row. Inlined, this short pass would be compiled for each kind of stores.
template <class T>
[[gnu::noinline, gnu::noclone]] void find_tops(const T* x, std::int64_t columns, int rows, std::int64_t of, PowersOfRows& found) {
  using V = VecOf<T>;
  constexpr auto kHigher = [](Vec a, Vec b) __attribute__((always_inline)) { return max(a, b); };
  Vec of_row[kLanes];
  for (int r = 0; r < rows; ++r) {
    V high[2] = {all<V>(-kInfinity), all<V>(-kInfinity)};
    accumulate<V>(0, of, high, [from = x + r * columns](V& state, std::int64_t i, int n) __attribute__((always_inline)) {
      state = each(kHigher, state, take<V>(from + i, n, -kInfinity));
    });
    of_row[r] = top_of(each(kHigher, high[0], high[1]));
  }
  for (int r = rows; r > 1 && r < kLanes; ++r) of_row[r] = of_row[0];
  const Powers powers(rows == 1 ? set1(reduce_max(of_row[0])) : reduce_max(of_row));
  store(found.factor, powers.factor), store(found.base, powers.base);
}

// Lane r: the sum of e^(x - top) over row r, which is kept. Each step (i, n) calls beside(r)(i, n) before it keeps its results.
template <class V, class T, class Beside>
ROOFLINE_INLINE Vec sum_powers(const T* x, std::int64_t columns, float* kept, std::int64_t stride, int rows, const PowersOfRows& of,
                               Beside beside) {
  return totals<V, 1, 2>(rows, columns, [&](int r) __attribute__((always_inline)) {
    return [from = x + r * columns, to = kept + r * stride, powers = Powers(of.factor[r], of.base[r]), also = beside(r)](
               auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
      const V e = exp2_of<T, true>(each([&](Vec a) __attribute__((always_inline)) { return powers(a); },
                                        take<V>(from + i, n, -kInfinity)));
      state.sum[0] = plus(state.sum[0], e);
      also(i, n);
      keep(to + i, n, e);
    };
  }).sum[0];
}

// The same for the tops of whole rows: rare, and so not inlined either.
template <class V, class T>
[[gnu::noinline, gnu::noclone]] void sum_powers_of_all(const T* x, std::int64_t columns, float* kept, std::int64_t stride, int rows,
                                                       float* sums) {
  PowersOfRows of;
  find_tops(x, columns, rows, columns, of);
  store(sums, sum_powers<V>(x, columns, kept, stride, rows, of, kNoneBeside));
}

// Two passes over rows: e^(x - top), kept in cache, and their sums; the quotients. The maximum of a row's first elements serves as
// its top, which takes no pass of its own. Where the sum shows that others are much larger, or that one is no number, the maximum of
// all is found and the first pass is done again.
template <class T, bool NonTemporal>
void softmax(const void* in, void* out, float* scratch, std::int64_t rows, std::int64_t columns) {
  using V = FourOf<T>;
  constexpr float kMostSum = sizeof(T) == sizeof(float) ? 0x1p20f : 0x1p100f;  // exponents above 20 would lose digits of fp32
  auto* x = static_cast<const T*>(in);
  auto* y = static_cast<T*>(out);
  const std::int64_t most = least(kLanes, softmax_together(columns)), step = most * columns;
  const std::int64_t stride = scratch ? kept_columns(columns) : columns;
  const auto kept = [=](std::int64_t row, int r) __attribute__((always_inline)) {
    return scratch ? scratch + r * stride : reinterpret_cast<float*>(y) + (row + r) * stride;  // without scratch y is of fp32
  };
  const std::int64_t few = least(columns, 2 * kLanes);
  PowersOfRows powers;
  if (rows > 0) find_tops(x, columns, static_cast<int>(least(most, rows)), few, powers);
  float scale[kLanes] = {};
  const auto first = [&](std::int64_t row, int some, auto beside, auto rest) __attribute__((always_inline)) {
    const T* const block = x + row * columns;
    float sums[kLanes];
    store(sums, sum_powers<V>(block, columns, kept(row, 0), stride, some, powers, [&](int r) __attribute__((always_inline)) {
            return [=, from = block + r * columns, also = beside(r)](std::int64_t i, int n) __attribute__((always_inline)) {
              fetch(from + step + i, n);
              if constexpr (NonTemporal) fetch<1>(from + i, n, 4 * kNearBytes);
              also(i, n);
            };
          }));
    rest();
    // While the sums are worked out: the next block has been fetched by now.
    if (row + most < rows) find_tops(block + step, columns, static_cast<int>(least(most, rows - row - most)), few, powers);
    if (bits_at_least(set1(kMostSum), load(sums)) != (std::uint32_t{1} << kLanes) - 1)
      sum_powers_of_all<V>(block, columns, kept(row, 0), stride, some, sums);
    store(scale, div(set1(1), load(sums)));
  };
  in_blocks<V, NonTemporal, 0>(y, most, rows, columns, first, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    return [from = kept(row, r), by = all<V>(scale[r])](std::int64_t i, int n) __attribute__((always_inline)) {
      return inexact(times(kept_at<V>(from + i, n), by));
    };
  });
}

// Lane r: 1 / sqrt(total / columns + eps). eps is not rounded to 0.
ROOFLINE_INLINE Vec over_root(Vec total, std::int64_t columns, double eps) {
  const Vec mean = mul(total, set1(1 / static_cast<float>(columns)));
  return div(set1(1), sqrt(add(mean, set1(static_cast<float>(eps < 0x1p-126 ? 0x1p-126 : eps)))));
}

// Two passes over rows: their sums of squares; x / sqrt(mean square + eps) * weight. Where there is a residual the first adds x to it,
// and the second reads it from cache.
template <class T, bool NonTemporal, bool Residual>
ROOFLINE_INLINE void norm_by_squares(const T* x, T* residual, const T* weight, T* y, std::int64_t rows, std::int64_t columns,
                                     double eps) {
  using V = VecOf<T>;
  constexpr int kStreams = Residual ? 4 : 3, kMostSets = NonTemporal ? 2 : kManyRegisters ? 4 : 8;
  const std::int64_t most = rows_of_block<NonTemporal, kStreams>(columns * sizeof(T)), step = most * columns;
  float scale[2][kLanes] = {};  // of blocks that begin at even rows, and at odd ones
  Pace pace;
  const auto first = [&](std::int64_t row, int some, auto beside, auto rest) __attribute__((always_inline)) {
    const auto found = totals<V, 1, kMostSets>(some, columns, [&](int r) __attribute__((always_inline)) {
      return [=, &pace, from = x + (row + r) * columns, sum = residual + (Residual ? (row + r) * columns : 0), also = beside(r)](
                 auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
        V value = take<V>(from + i, n, 0);
        if constexpr (NonTemporal) fetch_rows(from, i, n, step, pace);
        if constexpr (Residual) {
          value = plus(take<V>(sum + i, n, 0), value);
          if constexpr (NonTemporal) fetch_rows(sum, i, n, step, pace);
          give<false>(sum + i, n, value);
        }
        if constexpr (Residual)
          state.sum[0] = times_plus(value, value, state.sum[0]);
        else
          state.sum[0] = add_squares(state.sum[0], value, from + i, n);
        also(i, n);
      };
    });
    rest();
    store(scale[row & 1], over_root(found.sum[0], columns, eps));
  };
  in_blocks<V, NonTemporal, kStreams>(y, most, rows, columns, first, [&](std::int64_t row, int r) __attribute__((always_inline)) {
    return [weight, from = (Residual ? residual : x) + (row + r) * columns, by = set1(scale[row & 1][r])](std::int64_t i, int n)
               __attribute__((always_inline)) {
      return inexact(each([&](Vec a, Vec w) __attribute__((always_inline)) { return mul(mul(a, by), w); }, take<V>(from + i, n, 0),
                          take<V>(weight + i, n, 0)));
    };
  });
}

template <class T, bool NonTemporal>
void rms_norm(const void* x, const void* weight, void* y, std::int64_t rows, std::int64_t columns, double eps) {
  norm_by_squares<T, NonTemporal, false>(static_cast<const T*>(x), nullptr, static_cast<const T*>(weight), static_cast<T*>(y), rows,
                                         columns, eps);
}

template <class T, bool NonTemporal>
void residual_rms_norm(const void* x, const void* weight, void* residual, void* y, std::int64_t rows, std::int64_t columns,
                       double eps) {
  norm_by_squares<T, NonTemporal, true>(static_cast<const T*>(x), static_cast<T*>(residual), static_cast<const T*>(weight),
                                        static_cast<T*>(y), rows, columns, eps);
}

template <class V>
ROOFLINE_INLINE V less(V a, Vec b) {
  return each([&](Vec x) __attribute__((always_inline)) { return sub(x, b); }, a);
}

template <class T>
ROOFLINE_INLINE float first_of(const T* x) {
  float lanes[kLanes];
  store(lanes, get(x, 1, zero()));
  return lanes[0];
}

// The last pass over rows is (x - mean) / sqrt(variance + eps) * weight + bias. Before it, OnePass: the sums of d
// and d² together, d being x less the row's first element: the variance is a difference of two means, and without the shift a large
// mean would cancel it away. Else: the mean, then the mean square of the deviations from it.
template <class T, bool OnePass, bool NonTemporal>
void layer_norm(const void* in, const void* weight_, const void* bias_, void* out, std::int64_t rows, std::int64_t columns,
                double eps) {
  using V = VecOf<T>;
  auto* x = static_cast<const T*>(in);
  auto* y = static_cast<T*>(out);
  auto* weight = static_cast<const T*>(weight_);
  auto* bias = static_cast<const T*>(bias_);
  const Vec count = set1(static_cast<float>(columns));
  const std::int64_t most = rows_of_block<NonTemporal, 4>(columns * sizeof(T)), step = most * columns;
  constexpr int kSquareSets = NonTemporal || !kManyRegisters || kStep<V> > kLanes ? 8 : 4;
  float centre[4][kLanes] = {}, scale[4][kLanes] = {};  // [row % 4]: of the block that begins at that row
  Pace pace;
  const auto first = [&](std::int64_t row, int some, auto beside, auto rest) __attribute__((always_inline)) {
    const T* const block = x + row * columns;
    float shift[kLanes] = {};
    if constexpr (OnePass)
      for (int r = 0; r < some; ++r) shift[r] = first_of(block + r * columns);
    constexpr int kMostSets = NonTemporal ? 2 : OnePass ? 4 : kSquareSets;
    const auto sums = totals<V, 1 + OnePass, kMostSets>(some, columns, [&](int r) __attribute__((always_inline)) {
      return [=, &pace, from = block + r * columns, shift = shift[r], also = beside(r)](auto& state, std::int64_t i, int n)
                 __attribute__((always_inline)) {
        V d = take<V>(from + i, n, shift);
        if constexpr (NonTemporal) fetch_rows(from, i, n, step, pace);
        if constexpr (OnePass) {
          d = less(d, set1(shift));
          state.sum[1] = times_plus(d, d, state.sum[1]);
        }
        state.sum[0] = OnePass ? plus(state.sum[0], d) : add_numbers(state.sum[0], d, from + i, n);
        also(i, n);
      };
    });
    rest();
    const Vec mean = div(sums.sum[0], count);
    store(centre[row & 3], add(load(shift), mean));
    Vec squares;
    if constexpr (OnePass)
      squares = max(zero(), sub(sums.sum[1], mul(mean, sums.sum[0])));
    else
      squares = totals<V, 1, kSquareSets>(some, columns, [&](int r) __attribute__((always_inline)) {
        return [from = block + r * columns, mean = centre[row & 3][r]](auto& state, std::int64_t i, int n)
                   __attribute__((always_inline)) {
          const V d = less(take<V>(from + i, n, mean), set1(mean));
          state.sum[0] = times_plus(d, d, state.sum[0]);
        };
      }).sum[0];
    store(scale[row & 3], over_root(squares, columns, eps));
  };
  const auto result = [&](std::int64_t row, int r) __attribute__((always_inline)) {
    // Where results have 16 bits one rounding more, of the mean in units of the deviation, does not show.
    constexpr bool kFused = sizeof(T) == 2;
    const float middle = centre[row & 3][r], unit = scale[row & 3][r];
    return [=, from = x + (row + r) * columns, mean = set1(kFused ? -middle * unit : middle), one = set1(unit)](
               std::int64_t i, int n) __attribute__((always_inline)) {
      return inexact(each([&](Vec a, Vec w, Vec b) __attribute__((always_inline)) {
                            return fma(kFused ? fma(a, one, mean) : mul(sub(a, mean), one), w, b);
                          },
                          take<V>(from + i, n, 0), take<V>(weight + i, n, 0), take<V>(bias + i, n, 0)));
    };
  };
  const auto staged = [&](std::int64_t row, auto beside) __attribute__((always_inline)) {
    const auto sums = totals<V, 2, 4>(1, columns, [&](int) __attribute__((always_inline)) {
      return [from = x + least(row, rows - 1) * columns, before = x + (row > 0 ? row - 1 : 0) * columns,
              mean = centre[(row - 1) & 3][0], also = beside(0)](auto& state, std::int64_t i, int n) __attribute__((always_inline)) {
        state.sum[0] = add_numbers(state.sum[0], take<V>(from + i, n, 0), from + i, n);
        const V d = less(take<V>(before + i, n, mean), set1(mean));
        state.sum[1] = times_plus(d, d, state.sum[1]);
        also(i, n);
      };
    });
    store(centre[row & 3], div(sums.sum[0], count));
    store(scale[(row - 1) & 3], over_root(sums.sum[1], columns, eps));
  };
  if constexpr (OnePass)
    in_blocks<V, NonTemporal, 4>(y, most, rows, columns, first, result);
  else
    in_blocks<V, NonTemporal, 4>(y, most, rows, columns, first, result, staged);
}

// y[i] = of(x[i], ...) of every element, any of whose operands may be y.
template <class T, bool NonTemporal, class Of, class... X>
ROOFLINE_INLINE void map(void* y, std::int64_t n, Of of, const X*... x) {
  using V = std::conditional_t<(std::is_same_v<X, T> && ...), VecOf<T>, Vec>;
  write<V, NonTemporal>(static_cast<T*>(y), n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    return each(of, take<V>(x + i, lanes, 0)...);
  }, x...);
  if constexpr (NonTemporal) fence();
}

struct Relu { __attribute__((always_inline)) Vec operator()(Vec x) const { return max(zero(), x); } };  // NaN stays, in this order

template <class T, bool NonTemporal>
void relu(const void* x, void* y, std::int64_t n) {
  map<T, NonTemporal>(y, n, Relu(), static_cast<const T*>(x));
}

// One pass over a row; the bias stays in cache from row to row. One fence for all rows: it waits until every store has reached memory.
template <class T, bool NonTemporal>
void bias_relu(const void* in, const void* bias_, void* out, std::int64_t rows, std::int64_t columns) {
  using V = VecOf<T>;
  auto* x = static_cast<const T*>(in);
  auto* bias = static_cast<const T*>(bias_);
  auto* y = static_cast<T*>(out);
  for (; rows > 0; --rows, x += columns, y += columns)
    write<V, NonTemporal, true>(y, columns, [&](std::int64_t i, int n) __attribute__((always_inline)) {
      return each([](Vec a, Vec b) __attribute__((always_inline)) { return Relu()(add(a, b)); }, take<V>(x + i, n, 0), take<V>(bias + i, n, 0));
    }, x);
  if constexpr (NonTemporal) fence();
}

// The exponential that the other kernels use, alone: a load and a store beside some ten instructions of arithmetic.
[[maybe_unused]] void exp_of(const float* x, float* y, std::int64_t n) {
  map<float, false>(y, n, [](Vec a) __attribute__((always_inline)) { return exp(a); }, x);
}

template <class T, template <class> class Of, bool NonTemporal>
void activate(const void* in, void* y, std::int64_t n) {
  using V = FourOf<T>;
  auto* const x = static_cast<const T*>(in);
  const Of<T> of;
  write<V, NonTemporal, true>(static_cast<T*>(y), n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    return inexact(of(take<V>(x + i, lanes, 0)));
  }, x);
  if constexpr (NonTemporal) fence();
}

template <class T, bool NonTemporal>
void silu_mul(const void* gate, const void* up, void* y, std::int64_t n) {
  using V = std::conditional_t<sizeof(T) == sizeof(float), VecOf<T>, FourOf<T>>;
  auto *g = static_cast<const T*>(gate), *u = static_cast<const T*>(up);
  write<V, NonTemporal, true>(static_cast<T*>(y), n, [=](std::int64_t i, int lanes) __attribute__((always_inline)) {
    return inexact(times(silu_of<T>(take<V>(g + i, lanes, 0)), take<V>(u + i, lanes, 0)));
  }, g, u);
  if constexpr (NonTemporal) fence();
}

template <class From, class To, bool NonTemporal>
void convert(const void* x, void* y, std::int64_t n) {
  map<To, NonTemporal>(y, n, [](Vec a) __attribute__((always_inline)) { return a; }, static_cast<const From*>(x));
}

// What becomes of a part of a product's result.
template <class Of>
void finish(float* c, const float* bias, std::int64_t n) {
  const Of of;
  if (bias)
    map<float, false>(c, n, [&](Vec a, Vec b) __attribute__((always_inline)) { return of(add(a, b)); },
                      static_cast<const float*>(c), bias);
  else
    map<float, false>(c, n, of, static_cast<const float*>(c));
}
struct Nothing { __attribute__((always_inline)) Vec operator()(Vec x) const { return x; } };
struct Silu { __attribute__((always_inline)) Vec operator()(Vec x) const { return silu_of<float>(x); } };

#define ROOFLINE_BOTH(...) {__VA_ARGS__, false>, __VA_ARGS__, (kLanes > 1)>}  // the scalar set has no non-temporal stores

template <class T>
constexpr RowsKernels kRows = {
    ROOFLINE_BOTH(softmax<T),
    ROOFLINE_BOTH(rms_norm<T),
    ROOFLINE_BOTH(residual_rms_norm<T),
    ROOFLINE_BOTH(layer_norm<T, false),
    ROOFLINE_BOTH(layer_norm<T, true),
    ROOFLINE_BOTH(relu<T),
    ROOFLINE_BOTH(bias_relu<T),
    ROOFLINE_BOTH(activate<T, Gelu),
    ROOFLINE_BOTH(activate<T, GeluTanh),
    ROOFLINE_BOTH(silu_mul<T),
#if !defined(__AVX512BF16__)
    {ROOFLINE_BOTH(convert<T, float), ROOFLINE_BOTH(convert<T, Bf16), ROOFLINE_BOTH(convert<T, Fp16), ROOFLINE_BOTH(convert<T, Int8),
     ROOFLINE_BOTH(convert<T, Fp8E4m3), ROOFLINE_BOTH(convert<T, Fp8E5m2)},
#else
    {},
#endif
};

}  // namespace

#if defined(__AVX512BF16__)
extern const RowsTable ROOFLINE_TABLE(rows) = {{{}, kRows<Bf16>, {}}, nullptr, {}};
#else
extern const RowsTable ROOFLINE_TABLE(rows) = {
    {kRows<float>, kRows<Bf16>, kRows<Fp16>}, exp_of,
    {finish<Nothing>, finish<Relu>, finish<Gelu<float>>, finish<GeluTanh<float>>, finish<Silu>}};
#endif

}  // namespace roofline::cpu
