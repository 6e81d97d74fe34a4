// The row-wise, element-wise and token kernels of the CUDA backend, run thread by thread on the host: results against double, in
// tensors that begin anywhere, with guard zones around them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "cuda/attention/naive.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/matmul/grouped_routing.cuh"
#include "cuda/matmul/scale_kernels.cuh"
#include "cuda/matmul/transpose.cuh"
#include "cuda/probes/copy_kernel.cuh"
#include "cuda/probes/fma_kernels.cuh"
#include "cuda/rows/elementwise_kernels.cuh"
#include "cuda/rows/routers_kernels.cuh"
#include "cuda/rows/rows_kernels.cuh"
#include "cuda/rows/softmax_cluster.cuh"
#include "cuda/rows/tokens_kernels.cuh"
#include "emulated_gpu.h"
#include "guarded.h"
#include "reference.h"

// For Guarded::values.
double value_of(__half x) { return __half2float(x); }
double value_of(__nv_bfloat16 x) { return __bfloat162float(x); }

namespace {

using namespace roofline::cuda;
using roofline::DType;

template <class T>
constexpr DType dtype_of = sizeof(T) == 4              ? DType::fp32
                           : std::is_same_v<T, __half> ? DType::fp16
                                                       : DType::bf16;
template <class T>
constexpr double eps_of = sizeof(T) == 4              ? 0x1p-23
                          : std::is_same_v<T, __half> ? 0x1p-10
                                                      : 0x1p-7;

// A tensor of any element, `shift` of them past a cache line.
template <class T>
struct Guarded : roofline::cpu::Guarded<T> {
  explicit Guarded(std::int64_t elements, int shift = 0)
      : roofline::cpu::Guarded<T>(elements, shift), count(elements), data(roofline::cpu::Guarded<T>::data()) {}
  Guarded& random(unsigned seed, double scale = 1.7) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> any(static_cast<float>(-scale), static_cast<float>(scale));
    for (std::int64_t i = 0; i < count; ++i) data[i] = from_float<T>(any(generator));
    return *this;
  }
  double operator[](std::int64_t i) const { return to_float(data[i]); }
  std::int64_t count;
  T* data;
};

struct RowCase {
  std::int64_t rows, columns;
  int shift = 0, y_shift = 0;  // of x and y, in elements
};

void PrintTo(const RowCase& c, std::ostream* out) { *out << c.rows << "x" << c.columns << "+" << c.shift << "," << c.y_shift; }

std::vector<RowCase> row_cases() {
  return {{1, 1},         {5, 1},    {3, 16},    {7, 31},    {70, 8},         {13, 64},       {2, 127},
          {5, 1000},      {2, 2048}, {3, 2056},  {2, 4097},  {3, 4096, 8},    {9, 129, 3, 3}, {3, 520, 1, 1},
          {5, 136, 0, 2}, {2, 9000}, {1, 20480}, {1, 40000}, {1, 70001, 5, 5}};
}

template <class T>
RowsWork work_for(const RowCase& c, const RowPlan& plan, const void* x, const void* y, float eps = 0) {
  const bool alike = (reinterpret_cast<std::uintptr_t>(x) ^ reinterpret_cast<std::uintptr_t>(y)) % 16 == 0;
  return {c.rows, c.columns, plan.team, alike, eps};
}

// May this case be kept in registers? As rows.cu decides.
template <class T>
bool may_keep(const RowCase& c, const void* x, const void* y) {
  return (reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y)) % 16 == 0 && c.columns % Pack<T>::kLanes == 0;
}

template <class T>
class Rows : public testing::Test {};
using Types = testing::Types<float, __half, __nv_bfloat16>;
TYPED_TEST_SUITE(Rows, Types);

// Runs kept (where it may be) and looped, and hands each to `check`.
template <class T, class Launch>
void both(const RowCase& c, const void* x, const void* y, int kept_chunks, Launch launch) {
  for (const bool keep : {true, false}) {
    const RowPlan plan = plan_row(c.columns, sizeof(T), keep && may_keep<T>(c, x, y), kept_chunks);
    if (keep && !plan.kept) continue;
    SCOPED_TRACE(std::string(plan.kept ? "kept " : "looped ") + testing::PrintToString(c));
    launch(plan, std::min<std::int64_t>(3, (c.rows + plan.rows_per_block() - 1) / plan.rows_per_block()));
    if (testing::Test::HasFailure()) return;
  }
}

TYPED_TEST(Rows, Softmax) {
  using T = TypeParam;
  for (const RowCase& c : row_cases()) {
    Guarded<T> x(c.rows * c.columns, c.shift);
    x.random(1);
    Guarded<T> y(c.rows * c.columns, c.y_shift ? c.y_shift : c.shift);
    const auto check = [&](auto kernel, std::int64_t grid, int threads, const RowsWork& work) {
      std::memset(static_cast<void*>(y.data), 0xFF, c.rows * c.columns * sizeof(T));
      emulated::launch(grid, threads, kernel, x.data, y.data, work);
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const std::vector<double> want = reference::softmax(x.values(row * c.columns, c.columns));
        for (std::int64_t i = 0; i < c.columns; ++i)
          ASSERT_NEAR(y[row * c.columns + i], want[i], 4 * eps_of<T> * (want[i] + 1e-3)) << row << " " << i;
      }
      ASSERT_TRUE(y.guarded());
    };
    both<T>(c, x.data, y.data, kKeptChunks, [&](const RowPlan& plan, std::int64_t grid) {
      const RowsWork work = work_for<T>(c, plan, x.data, y.data);
      check(softmax_of<T>(plan), grid, plan.threads, work);
      // A cluster of one block.
      if (plan.kept && c.columns <= kClusterElements * kClusterThreads)
        check(softmax_cluster<T>, grid, kClusterThreads, work);
    });
  }
}

TYPED_TEST(Rows, SoftmaxOfExtremes) {
  using T = TypeParam;
  // A row with -inf, one of huge numbers, one with a NaN.
  const RowCase c = {3, 24};
  Guarded<T> x(72), y(72);
  x.random(2, 100);
  x.data[5] = from_float<T>(-INFINITY);
  for (int i = 24; i < 48; ++i) x.data[i] = from_float<T>(60000.f);
  x.data[60] = from_float<T>(NAN);
  const auto check = [&] {
    EXPECT_EQ(y[5], 0.0);
    for (int i = 24; i < 48; ++i) EXPECT_NEAR(y[i], 1.0 / 24, eps_of<T>);
    for (int i = 48; i < 72; ++i) EXPECT_TRUE(std::isnan(y[i]));
  };
  both<T>(c, x.data, y.data, kKeptChunks, [&](const RowPlan& plan, std::int64_t grid) {
    emulated::launch(grid, plan.threads, softmax_of<T>(plan), x.data, y.data, work_for<T>(c, plan, x.data, y.data));
    check();
  });
  // Most threads of a cluster's block see -inf alone here.
  emulated::launch(1, 64, softmax_cluster<T>, x.data, y.data, RowsWork{c.rows, c.columns, 64, true, 0.f});
  check();
}

// The mean of a row, and the inverse roots of its variance and of its mean square.
struct RowMoments {
  double mean = 0, scale, root;
};
RowMoments row_moments(const std::vector<double>& row, double eps) {
  const double n = static_cast<double>(row.size());
  RowMoments of;
  double squares = 0, deviations = 0;
  for (const double x : row) of.mean += x / n, squares += x * x / n;
  for (const double x : row) deviations += (x - of.mean) * (x - of.mean) / n;
  of.scale = 1 / std::sqrt(deviations + eps), of.root = 1 / std::sqrt(squares + eps);
  return of;
}

TYPED_TEST(Rows, Normalisations) {
  using T = TypeParam;
  constexpr float kEps = 1e-3f;
  for (const RowCase& c : row_cases()) {
    const int y_shift = c.y_shift ? c.y_shift : c.shift;
    Guarded<T> x(c.rows * c.columns, c.shift), y(c.rows * c.columns, y_shift), residual(c.rows * c.columns, c.shift);
    Guarded<T> weight(c.columns), bias(c.columns);
    x.random(3), weight.random(4), bias.random(5);
    const auto at = [&](std::int64_t row, std::int64_t i) { return x[row * c.columns + i]; };
    const auto compare = [&](auto want, double slack) {
      for (std::int64_t row = 0; row < c.rows; ++row)
        for (std::int64_t i = 0; i < c.columns; ++i)
          ASSERT_NEAR(y[row * c.columns + i], want(row, i), slack * eps_of<T> * (1 + std::abs(want(row, i)))) << row << " " << i;
      ASSERT_TRUE(y.guarded());
    };
    std::vector<RowMoments> of;
    for (std::int64_t row = 0; row < c.rows; ++row) of.push_back(row_moments(x.values(row * c.columns, c.columns), kEps));
    both<T>(c, x.data, y.data, kKeptChunks, [&](const RowPlan& plan, std::int64_t grid) {
      const RowsWork work = work_for<T>(c, plan, x.data, y.data, kEps);
      std::memset(static_cast<void*>(y.data), 0xFF, c.rows * c.columns * sizeof(T));
      emulated::launch(grid, plan.threads, rms_norm_of<T>(plan), x.data, weight.data, static_cast<T*>(nullptr), y.data, work);
      compare([&](std::int64_t row, std::int64_t i) { return at(row, i) * of[row].root * weight[i]; }, 4);
      std::memset(static_cast<void*>(y.data), 0xFF, c.rows * c.columns * sizeof(T));
      emulated::launch(grid, plan.threads, layer_norm_of<T>(plan), x.data, weight.data, bias.data, y.data, work);
      compare([&](std::int64_t row, std::int64_t i) { return (at(row, i) - of[row].mean) * of[row].scale * weight[i] + bias[i]; },
              40);
      if (!plan.kept) {
        emulated::launch(grid, plan.threads, bias_relu_rows<T>, x.data, bias.data, y.data, work);
        compare([&](std::int64_t row, std::int64_t i) { return std::max(0.0, at(row, i) + bias[i]); }, 2);
      }
    });
    both<T>(c, x.data, y.data, kKeptPairs, [&](const RowPlan& plan, std::int64_t grid) {
      const RowsWork work = work_for<T>(c, plan, x.data, y.data, kEps);
      residual.random(6);
      std::vector<double> total(c.rows * c.columns);
      for (std::int64_t i = 0; i < c.rows * c.columns; ++i)
        total[i] = to_float(from_float<T>(static_cast<float>(x[i] + residual[i])));
      std::memset(static_cast<void*>(y.data), 0xFF, c.rows * c.columns * sizeof(T));
      emulated::launch(grid, plan.threads, plan.kept ? rms_norm_kept<T, true, kKeptPairs> : rms_norm_looped<T, true>, x.data,
                       weight.data, residual.data, y.data, work);
      for (std::int64_t row = 0; row < c.rows; ++row)
        of[row] = row_moments({total.begin() + row * c.columns, total.begin() + (row + 1) * c.columns}, kEps);
      compare([&](std::int64_t row, std::int64_t i) { return total[row * c.columns + i] * of[row].root * weight[i]; }, 4);
      for (std::int64_t i = 0; i < c.rows * c.columns; ++i) ASSERT_EQ(residual[i], total[i]);
      ASSERT_TRUE(residual.guarded());
    });
  }
}

// x itself has lost three digits, and what is left must not be lost in the variance, nor where warps' moments come together.
TEST(LayerNorm, OfAMeanOfAThousandDeviations) {
  for (const RowCase& c : {RowCase{3, 64}, {2, 2056}, {2, 4096}, {1, 16384}, {2, 4097}}) {
    Guarded<float> x(c.rows * c.columns), y(c.rows * c.columns), weight(c.columns), bias(c.columns);
    x.random(3), weight.random(4), bias.random(5);
    for (std::int64_t i = 0; i < x.count; ++i) x.data[i] += 1000.f;
    both<float>(c, x.data, y.data, kKeptChunks, [&](const RowPlan& plan, std::int64_t grid) {
      emulated::launch(grid, plan.threads, layer_norm_of<float>(plan), x.data, weight.data, bias.data, y.data,
                       work_for<float>(c, plan, x.data, y.data, 1e-5f));
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const RowMoments of = row_moments(x.values(row * c.columns, c.columns), 1e-5);
        for (std::int64_t i = 0; i < c.columns; ++i)
          ASSERT_NEAR(y[row * c.columns + i], (x[row * c.columns + i] - of.mean) * of.scale * weight[i] + bias[i], 1e-3)
              << row << " " << i;
      }
    });
  }
}

template <class F, class T>
void check_map(double (*want)(double), double slack) {
  for (const int n : {1, 2, 15, 17, 64, 4099, 9001})
    for (const auto& [shift, y_shift] : std::vector<std::pair<int, int>>{{0, 0}, {1, 1}, {0, 1}}) {
      Guarded<T> x(n, shift), y(n, y_shift);
      x.random(7, 6);
      if (n > 20) x.data[3] = from_float<T>(40.f), x.data[4] = from_float<T>(-40.f);
      const bool vectors = (reinterpret_cast<std::uintptr_t>(x.data) ^ reinterpret_cast<std::uintptr_t>(y.data)) % 16 == 0;
      emulated::launch(n / Pack<T>::kLanes / kElementThreads + 1, kElementThreads, map_kernel<F, T>, x.data, y.data,
                       Run<T>(x.data, n, vectors));
      for (int i = 0; i < n; ++i)
        ASSERT_NEAR(y[i], want(x[i]), slack * eps_of<T> * (0.1 + std::abs(want(x[i])))) << n << " " << i << " " << x[i];
      ASSERT_TRUE(y.guarded());
    }
}

TYPED_TEST(Rows, Elements) {
  using T = TypeParam;
  check_map<Relu, T>(reference::relu, 0);
  Guarded<T> own(4099, 1);  // in place
  own.random(7, 6);
  const std::vector<T> before(own.data, own.data + 4099);
  emulated::launch(5, kElementThreads, map_kernel<Relu, T>, own.data, own.data, Run<T>(own.data, 4099, true));
  for (int i = 0; i < 4099; ++i) ASSERT_EQ(own[i], std::max(to_float(before[i]), 0.f)) << i;
  ASSERT_TRUE(own.guarded());
  check_map<GeluErf, T>(reference::gelu, 8);
  check_map<GeluTanh, T>(reference::gelu_tanh, 8);
  for (const int shift : {0, 1}) {
    Guarded<T> gate(3001, shift), up(3001, shift), y(3001);
    gate.random(8, 6), up.random(9);
    emulated::launch(3, kElementThreads, map2_kernel<SiluMul, T>, gate.data, up.data, y.data,
                     Run<T>(gate.data, 3001, shift == 0), std::int64_t{3001}, Divisor(3));
    for (int i = 0; i < 3001; ++i) {
      const double want = reference::silu(gate[i]) * up[i];
      ASSERT_NEAR(y[i], want, 4 * eps_of<T> * (0.1 + std::abs(want)));
    }
    ASSERT_TRUE(y.guarded());
  }
  // Halves of longer rows: columns that fill vectors and that do not.
  for (const std::int64_t columns : {std::int64_t{9}, std::int64_t{64}, std::int64_t{5000}, std::int64_t{8192}}) {
    const std::int64_t rows = 3, segments = columns / Pack<T>::kLanes / kElementThreads + 1;
    Guarded<T> both(static_cast<int>(rows * 2 * columns)), y(static_cast<int>(rows * columns));
    both.random(8, 6);
    emulated::launch(rows * segments, kElementThreads, map2_kernel<SiluMul, T>, both.data + columns, both.data, y.data,
                     Run<T>(both.data + columns, columns, columns % 8 == 0), 2 * columns, Divisor(static_cast<int>(segments)));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < columns; ++i) {
        const double want = reference::silu(both[row * 2 * columns + columns + i]) * both[row * 2 * columns + i];
        ASSERT_NEAR(y[row * columns + i], want, 4 * eps_of<T> * (0.1 + std::abs(want))) << row << " " << i;
      }
    ASSERT_TRUE(y.guarded());
  }
}

TYPED_TEST(Rows, Probabilities) {
  using T = TypeParam;
  for (const bool causal : {false, true})
    for (const auto& [seq_q, seq_kv] :
         {std::array<std::int64_t, 2>{1, 1}, {1, 37}, {3, 5}, {7, 64}, {4, 67}, {5, 1100}, {2, 2048}, {130, 131}}) {
      const std::int64_t rows = 2 * seq_q;
      Guarded<float> scores(rows * seq_kv);
      Guarded<T> p(rows * seq_kv);
      scores.random(3, 9);
      // What the product leaves in masked places must not matter.
      for (std::int64_t i = 0; causal && i < rows; ++i)
        for (std::int64_t j = i % seq_q + seq_kv - seq_q + 1; j < seq_kv; ++j) scores.data[i * seq_kv + j] = NAN;
      const RowPlan plan = plan_row(seq_kv, 4, false);
      emulated::launch(2, plan.threads, probabilities_kernel<T>, scores.data, p.data, seq_q, causal,
                       RowsWork{rows, seq_kv, plan.team, true, 0.f});
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t visible = causal ? i % seq_q + seq_kv - seq_q + 1 : seq_kv;
        std::vector<double> want = reference::softmax(scores.values(i * seq_kv, visible));
        want.resize(static_cast<std::size_t>(seq_kv));
        for (std::int64_t j = 0; j < seq_kv; ++j)
          ASSERT_NEAR(p[i * seq_kv + j], want[j], 4 * eps_of<T> * want[j] + 1e-7)
              << causal << " " << seq_kv << " " << i << " " << j;
      }
      ASSERT_TRUE(p.guarded());
    }
}

struct Naive {
  std::int64_t heads, kv_heads, seq_q, seq_kv, head_dim;
  bool causal;
};

void PrintTo(const Naive& c, std::ostream* out) {
  *out << c.heads << "/" << c.kv_heads << " heads, " << c.seq_q << "x" << c.seq_kv << "x" << c.head_dim << " causal " << c.causal;
}

TYPED_TEST(Rows, NaiveAttention) {
  using T = TypeParam;
  for (const Naive& c : {Naive{1, 1, 1, 1, 1, false}, {2, 1, 1, 70, 17, true}, {2, 2, 3, 1, 64, false}, {4, 2, 37, 41, 17, true},
                         {1, 1, 129, 200, 65, true}, {2, 1, 131, 67, 40, false}, {2, 1, 65, 131, 130, true}}) {
    SCOPED_TRACE(testing::PrintToString(c));
    const NaiveShape shape = {c.heads, c.kv_heads, c.seq_q, c.seq_kv, c.head_dim, c.heads / c.kv_heads, c.causal};
    Guarded<T> q(c.heads * c.seq_q * c.head_dim), k(c.kv_heads * c.seq_kv * c.head_dim), v(c.kv_heads * c.seq_kv * c.head_dim);
    Guarded<T> out(c.heads * c.seq_q * c.head_dim);
    Guarded<float> scores(c.heads * c.seq_q * c.seq_kv);
    q.random(1), k.random(2), v.random(3);
    // A score that is read before it is written, and an element that is left out, are not numbers.
    std::fill(scores.data, scores.data + scores.count, NAN);
    std::fill(out.data, out.data + out.count, from_float<T>(NAN));
    const TileGrid score_tiles = tile_grid(c.heads, c.seq_q, c.seq_kv, kNaiveQueries, kNaiveKeys);
    const TileGrid value_tiles = tile_grid(c.heads, c.seq_q, c.head_dim, kNaiveQueries, kNaiveValues);
    const auto grid = [&](std::int64_t tiles) { return std::min<std::int64_t>(tiles, 2); };
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
    const T *const queries = q.data, *const keys = k.data, *const values = v.data;
    emulated::launch(grid(score_tiles.tiles()), kNaiveThreads, scores_kernel<T>, queries, keys, scores.data, shape, score_tiles,
                     scale);
    emulated::launch(grid(c.heads * c.seq_q), kNaiveThreads, softmax_kernel, scores.data, shape);
    const float* const p = scores.data;
    emulated::launch(grid(value_tiles.tiles()), kNaiveThreads, values_kernel<T>, p, values, out.data, shape, value_tiles);
    const std::vector<double> of_q = q.values(), of_k = k.values(), of_v = v.values();
    for (std::int64_t head = 0; head < c.heads; ++head)
      for (std::int64_t i = 0; i < c.seq_q; ++i) {
        const std::int64_t seen = c.causal ? i + c.seq_kv - c.seq_q + 1 : c.seq_kv, row = head * c.seq_q + i;
        const std::int64_t first_key = head / shape.group * c.seq_kv;
        const std::vector<double> want = reference::attend(&of_q[row * c.head_dim], &of_k[first_key * c.head_dim],
                                                           &of_v[first_key * c.head_dim], 0, seen, c.head_dim);
        for (std::int64_t d = 0; d < c.head_dim; ++d)
          ASSERT_NEAR(out[row * c.head_dim + d], want[d], eps_of<T> * std::abs(want[d]) + 3e-6) << head << " " << i << " " << d;
        for (std::int64_t j = seen; j < c.seq_kv; ++j) ASSERT_TRUE(std::isnan(scores[row * c.seq_kv + j])) << "a masked score";
      }
    ASSERT_TRUE(out.guarded() && scores.guarded());
  }
}

// Matrices of elements, `to_word` of them to a T.
template <class T, class Kernel>
void check_transpose(Kernel kernel, int to_word = 1) {
  const auto element = [&](const std::vector<T>& all, std::int64_t i) {
    return to_word == 1 ? all[i] : static_cast<T>(all[i / 2] >> i % 2 * 4 & 15);
  };
  const std::int64_t least = to_word;
  for (const auto& [matrices, rows, columns] :
       {std::array<std::int64_t, 3>{1, least, least}, {3, 66, 8}, {2, 64, 128}, {1, 4, 130}, {3, 64 + least, 6 + least}})
    for (const int blocks : {1, 5}) {
      std::vector<T> from(static_cast<std::size_t>(matrices * rows * columns / to_word)), to(from.size() + 1, T(77));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i * 37 + 1);
      emulated::launch(blocks, kTransposeThreads, kernel, from.data(), to.data(),
                       tile_grid(matrices, rows, columns, kTransposeSide, kTransposeSide), rows, columns);
      for (std::int64_t m = 0; m < matrices; ++m)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            ASSERT_EQ(element(to, m * rows * columns + j * rows + i), element(from, m * rows * columns + i * columns + j))
                << m << " " << i << " " << j;
      ASSERT_EQ(to.back(), T(77));
    }
}

TEST(Transpose, EverySize) {
  check_transpose<std::uint8_t>(transpose_nibbles_kernel, 2);
  check_transpose<std::uint8_t>(transpose_kernel<std::uint8_t>);
  check_transpose<std::uint16_t>(transpose_kernel<std::uint16_t>);
  check_transpose<std::uint32_t>(transpose_kernel<std::uint32_t>);
  check_transpose<std::uint64_t>(transpose_kernel<std::uint64_t>);
}

TEST(Copy, EveryByteOnce) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{15}, std::int64_t{16}, std::int64_t{4096}, std::int64_t{100'003}})
    for (const int blocks : {1, 3}) {
      std::vector<uint4> from(static_cast<std::size_t>(size / 16 + 2)), to(from.size());
      auto* const source = reinterpret_cast<std::uint8_t*>(from.data());
      auto* const target = reinterpret_cast<std::uint8_t*>(to.data());
      for (std::int64_t i = 0; i < size; ++i) source[i] = static_cast<std::uint8_t>(1 + i % 255);
      emulated::launch(blocks, kCopyThreads, copy_kernel, to.data(), from.data(), size);
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(target[i], source[i]) << i << " of " << size;
      for (std::int64_t i = size; i < size + 16; ++i) ASSERT_EQ(target[i], 0) << i << " past " << size;
    }
}

TEST(Routing, EveryRowStandsWithItsExpertOnce) {
  std::mt19937 generator(9);
  for (const auto& [tokens, experts, routed, shared, tile_rows] :
       {std::array<int, 5>{1, 1, 1, 0, 16}, {7, 5, 2, 0, 16}, {300, 3, 1, 2, 64}, {513, 2500, 8, 1, 16}, {64, 4095, 3, 1, 64}}) {
    const int per_token = routed + shared, all = experts + shared, rows = tokens * per_token;
    std::vector<std::int32_t> chosen;
    for (int i = 0; i < tokens * routed; ++i) chosen.push_back(static_cast<std::int32_t>(generator() % experts));
    std::vector<std::int32_t> token(rows, -1), places(rows, -1);
    std::vector<RowTile> tiles(most_tiles(rows, all, tile_rows) + 1, RowTile{-1, -1, -1, -1, -1, -1});
    std::int32_t count = -1;
    RouteWork work = {chosen.data(), tokens,       routed,        per_token,    experts, all,
                      tile_rows,     token.data(), places.data(), tiles.data(), &count};
    for (int again = 0; again < 2; ++again) emulated::launch(1, kRouteThreads, route_kernel, work);
    const auto expert_of = [&](int i) {
      return i % per_token < routed ? chosen[i / per_token * routed + i % per_token] : experts + i % per_token - routed;
    };
    std::vector<int> of_row(rows, -1), counts(all, 0);
    for (int i = 0; i < rows; ++i) {
      ASSERT_TRUE(places[i] >= 0 && places[i] < rows);
      ASSERT_EQ(of_row[places[i]], -1) << "two of one place";
      of_row[places[i]] = expert_of(i), ++counts[expert_of(i)];
      ASSERT_EQ(token[places[i]], i / per_token);
    }
    for (int row = 1; row < rows; ++row) ASSERT_LE(of_row[row - 1], of_row[row]);
    int tile = 0, row = 0;
    for (int expert = 0; expert < all; ++expert) {
      const int of = (counts[expert] + tile_rows - 1) / tile_rows, begin = tile;
      for (int i = 0; i < of; ++i, ++tile) {
        const RowTile& found = tiles[tile];
        ASSERT_EQ(
            (std::array<int, 6>{found.expert, found.first, found.rows, found.index, found.of, found.first_tile}),
            (std::array<int, 6>{expert, row + i * tile_rows, std::min(tile_rows, counts[expert] - i * tile_rows), i, of, begin}));
      }
      row += counts[expert];
    }
    ASSERT_EQ(count, tile);
    ASSERT_EQ(tiles[tile].expert, -1) << "no tile too many";
  }
}

// By the figure in cuBLASLt's reference: tiles of 128 rows by 4 blocks; in one, byte 0 is row 0, byte 4 row 32, byte 16 row 1.
TEST(Scales, TilesHoldEveryScaleOnce) {
  for (const auto& [rows, blocks] : {std::array<std::int64_t, 2>{1, 1}, {128, 4}, {129, 5}, {300, 9}})
    for (const bool turned : {false, true}) {
      std::vector<std::uint8_t> from(static_cast<std::size_t>(rows * blocks));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(1 + i % 251);
      std::vector<std::uint8_t> to(static_cast<std::size_t>(tiled_scale_bytes(rows, blocks)) + 1, 77);
      emulated::launch(3, kScaleThreads, tile_scales_kernel, from.data(), to.data(), rows, blocks, turned ? 1 : blocks,
                       turned ? rows : 1);
      std::vector<std::uint8_t> want(to.size(), 0);
      want.back() = 77;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t block = 0; block < blocks; ++block)
          want[reference::tiled(row, block, blocks)] = from[turned ? block * rows + row : row * blocks + block];
      ASSERT_EQ(to, want) << rows << " x " << blocks;
    }
  EXPECT_EQ(tiled_scale_bytes(128, 4), 512);
  EXPECT_EQ(tiled_scale_bytes(129, 5), 2048);
}

TEST(Scales, SquaresLieAlongInnerInFours) {
  for (const auto& [blocks, columns] : {std::array<std::int64_t, 2>{1, 1}, {4, 3}, {5, 7}}) {
    std::vector<float> from(static_cast<std::size_t>(blocks * columns)),
        to(static_cast<std::size_t>(columns * (blocks + 3) / 4 * 4 + 64), 77.f);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
    emulated::launch(2, kScaleThreads, square_scales_kernel, from.data(), to.data(), blocks, columns);
    const std::int64_t pitch = blocks <= 4 ? 4 : 8;
    ASSERT_EQ(square_scale_pitch(blocks), pitch);
    for (std::int64_t column = 0; column < columns; ++column)
      for (std::int64_t block = 0; block < pitch; ++block)
        ASSERT_EQ(to[column * pitch + block], block < blocks ? from[block * columns + column] : 0.f) << column << " " << block;
    ASSERT_EQ(to[columns * pitch], 77.f);
  }
  const float a = 3, b = -0.5f;
  float factors[2] = {7, 7};
  emulated::launch(1, 1, product_factors_kernel, &a, &b, factors);
  EXPECT_EQ(factors[0], -1.5f);
  EXPECT_EQ(factors[1], 0.f);
}

// The 16-bit gelu leaves room for its own approximation.
TEST(Elements, GeluTail) {
  for (double x = 0; x < 8; x += 0.01)
    EXPECT_NEAR(gelu_tail(static_cast<float>(x)), 0.5 * std::erfc(x * std::sqrt(0.5)), 2e-7);
}

TYPED_TEST(Rows, ConvertToEveryDtype) {
  using T = TypeParam;
  const auto to = [&](auto zero) {
    using U = decltype(zero);
    Guarded<T> x(4003);
    Guarded<U> y(4003);
    x.random(10);
    for (const std::int64_t groups : {std::int64_t{0}, std::int64_t{4003 / kGroup}}) {
      std::memset(static_cast<void*>(y.data), 0xFF, 4003 * sizeof(U));
      emulated::launch(2, kElementThreads, convert_kernel, AnyTensor{x.data, dtype_of<T>}, AnyTensor{y.data, dtype_of<U>},
                       std::int64_t{4003}, groups);
      for (int i = 0; i < 4003; ++i) ASSERT_EQ(y[i], to_float(from_float<U>(static_cast<float>(x[i]))));
      ASSERT_TRUE(y.guarded());
    }
  };
  to(0.f), to(__half{}), to(__nv_bfloat16{});
}

template <class P, class G, class M>
void check_adam(bool master, bool decayed, bool vectors) {
  constexpr int kN = 2051;
  Guarded<P> p(kN);
  Guarded<G> g(kN);
  Guarded<M> m(kN), v(kN);
  Guarded<float> kept(kN);
  p.random(11), g.random(12), m.random(13), v.random(14), kept.random(15);
  AdamWork work{};
  work.p = {p.data, dtype_of<P>}, work.g = {g.data, dtype_of<G>};
  work.m = {m.data, dtype_of<M>}, work.v = {v.data, dtype_of<M>};
  work.master = {master ? kept.data : nullptr, DType::fp32};
  work.elements = kN, work.groups = vectors ? kN / kGroup : 0;
  work.beta1 = 0.9f, work.beta2 = 0.999f, work.keep = decayed ? 0.99f : 1.f;
  work.step = 0.01f, work.root = 0.0316f, work.eps = 1e-8f;
  const std::vector<double> p0 = master ? kept.values() : p.values(), g0 = g.values(), m0 = m.values(), v0 = v.values();
  emulated::launch(2, kElementThreads, adam_kernel, work);
  for (int i = 0; i < kN; ++i) {
    const double m1 = 0.9 * m0[i] + 0.1 * g0[i], v1 = 0.999 * std::abs(v0[i]) + 0.001 * g0[i] * g0[i];
    const double p1 = p0[i] * (decayed ? 0.99 : 1.0) - 0.01 * (m1 / (std::sqrt(v1) / 0.0316 + 1e-8));
    ASSERT_NEAR(m[i], m1, 2 * eps_of<M>) << i;
    ASSERT_NEAR(v[i], v1, 2 * eps_of<M>) << i;
    ASSERT_NEAR(p[i], p1, 2 * eps_of<P> * (1 + std::abs(p1))) << i;
    if (master) {
      ASSERT_NEAR(kept[i], p1, 2e-6 * (1 + std::abs(p1))) << i;
    }
  }
  EXPECT_TRUE(p.guarded() && g.guarded() && m.guarded() && v.guarded() && kept.guarded());
}

TEST(Adam, EveryCombinationThatDiffers) {
  for (const bool vectors : {true, false}) {
    check_adam<__nv_bfloat16, __nv_bfloat16, float>(true, true, vectors);
    check_adam<float, __half, float>(false, false, vectors);
    check_adam<__half, float, __nv_bfloat16>(true, false, vectors);
    check_adam<float, float, __half>(false, true, vectors);
  }
}

template <class T, class U, int Width>
void check_rope(int tokens, int heads, int kv_heads, int half) {
  Guarded<T> q(std::int64_t{tokens} * heads * 2 * half), k(std::int64_t{tokens} * kv_heads * 2 * half);
  Guarded<U> cos(tokens * half), sin(tokens * half);
  q.random(16), k.random(17), cos.random(18), sin.random(19);
  const std::vector<double> q0 = q.values(), k0 = k.values();
  RopeWork work{};
  work.cos = {cos.data, dtype_of<U>}, work.sin = {sin.data, dtype_of<U>};
  work.tokens = tokens, work.heads = heads, work.kv_heads = kv_heads, work.half = half;
  const int parts = half / Width, per_token = (heads + kv_heads) * parts;
  work.parts = Divisor(parts), work.per_token = Divisor(per_token);
  work.step_tokens = 2 * kElementThreads / per_token, work.step_items = 2 * kElementThreads % per_token;
  emulated::launch(2, kElementThreads, rope_kernel<T, Width>, q.data, k.data, work);
  const auto check = [&](const Guarded<T>& now, const std::vector<double>& before, int all) {
    for (int token = 0; token < tokens; ++token)
      for (int head = 0; head < all; ++head)
        for (int i = 0; i < half; ++i) {
          const std::int64_t at = (std::int64_t{token} * all + head) * 2 * half + i;
          const double c = cos[token * half + i], s = sin[token * half + i], x = before[at], y = before[at + half];
          ASSERT_NEAR(now[at], x * c - y * s, 4 * eps_of<T>) << token << " " << head << " " << i;
          ASSERT_NEAR(now[at + half], y * c + x * s, 4 * eps_of<T>) << token << " " << head << " " << i;
        }
    ASSERT_TRUE(now.guarded());
  };
  check(q, q0, heads);
  check(k, k0, kv_heads);
}

TYPED_TEST(Rows, Rope) {
  using T = TypeParam;
  constexpr int kLanes = Pack<T>::kLanes;
  check_rope<T, float, kLanes>(7, 4, 2, 64);
  check_rope<T, __half, kLanes>(3, 1, 1, 8);
  check_rope<T, __nv_bfloat16, kLanes>(37, 3, 1, 16);
  check_rope<T, float, 1>(5, 3, 1, 3);
  check_rope<T, __nv_bfloat16, 1>(1, 1, 1, 1);
}

TEST(Divisor, IsExact) {
  constexpr int kLast = 2147483647;
  std::mt19937 generator(1);
  for (int round = 0; round < 3000; ++round) {
    const int any = static_cast<int>(generator() >> (1 + round % 31)) | 1;
    const int by = round < 200 ? round + 1 : round < 230 ? 1 << (round - 200) : any;
    const Divisor divisor(by);
    for (const int multiple : {1, 2, 3, kLast / by, static_cast<int>(generator() % (kLast / by)) + 1})
      for (const std::int64_t n : {std::int64_t{by} * multiple - 1, std::int64_t{by} * multiple, std::int64_t{kLast}})
        if (n <= kLast) {
          ASSERT_EQ(quotient(static_cast<int>(n), divisor), n / by) << n << " by " << by;
        }
  }
}

TEST(Embedding, RowsOfEveryWord) {
  const auto check = [](auto zero, int words) {
    using Word = decltype(zero);
    constexpr int kVocabulary = 11, kTokens = 23;
    Guarded<std::int32_t> ids(kTokens);
    std::vector<Word> table(kVocabulary * words);
    for (int i = 0; i < kTokens; ++i) ids.data[i] = i * 7 % kVocabulary;
    for (std::size_t i = 0; i < table.size() * sizeof(Word); ++i)
      reinterpret_cast<unsigned char*>(table.data())[i] = static_cast<unsigned char>(i * 37);
    std::vector<Word> out(kTokens * words + 1);
    std::memset(static_cast<void*>(&out.back()), 0xA5, sizeof(Word));
    emulated::launch(2, kElementThreads, embedding_kernel<Word>, ids.data, table.data(), out.data(), std::int64_t{kTokens},
                     std::int64_t{words});
    for (int token = 0; token < kTokens; ++token)
      ASSERT_EQ(std::memcmp(&out[token * words], &table[ids.data[token] * words], words * sizeof(Word)), 0) << token;
    const unsigned char guard = 0xA5;
    EXPECT_EQ(std::memcmp(&out.back(), &guard, 1), 0);
  };
  for (const int words : {1, 3, 128, 300}) check(uint4{}, words), check(std::uint32_t{}, words), check(std::uint16_t{}, words);
}

template <class T, int Width>
void check_combine(int tokens, int per_token, int routed, int d_model) {
  Guarded<T> rows(std::int64_t{tokens} * per_token * d_model), out(std::int64_t{tokens} * d_model);
  Guarded<float> gates(std::int64_t{tokens} * routed);
  rows.random(4), gates.random(5);
  std::vector<std::int32_t> places(static_cast<std::size_t>(tokens * per_token));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int32_t>(places.size() - 1 - i);
  emulated::launch(2, kElementThreads, combine_kernel<T, Width>, rows.data, out.data,
                   CombineWork{places.data(), gates.data, tokens, d_model / Width, per_token, routed});
  for (int token = 0; token < tokens; ++token)
    for (int d = 0; d < d_model; ++d) {
      double want = 0;
      for (int j = 0; j < per_token; ++j)
        want += (j < routed ? gates[token * routed + j] : 1.f) * rows[places[token * per_token + j] * d_model + d];
      ASSERT_NEAR(out[token * d_model + d], want, 8 * eps_of<T> * (0.5 + std::abs(want))) << token << " " << d;
    }
  ASSERT_TRUE(out.guarded());
}

TYPED_TEST(Rows, Combine) {
  using T = TypeParam;
  constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  for (const auto& [tokens, per_token, routed] : {std::array<int, 3>{1, 1, 1}, {5, 3, 3}, {40, 9, 8}})
    check_combine<T, kLanes>(tokens, per_token, routed, 64), check_combine<T, 1>(tokens, per_token, routed, 13);
}

// Runs listed (where it may be) and picked.
template <class T, bool Sigmoid>
void check_topk(int tokens, int experts, int chosen, bool renormalise, bool biased, int shift = 0, double step = 0) {
  Guarded<T> logits(std::int64_t{tokens} * experts, shift);
  Guarded<float> bias(experts), weights(std::int64_t{tokens} * chosen);
  Guarded<std::int32_t> found(std::int64_t{tokens} * chosen);
  logits.random(20), bias.random(21);
  if (step > 0)  // many equal scores
    for (std::int64_t i = 0; i < logits.count; ++i) logits.data[i] = from_float<T>(std::round(logits[i] / step) * step);
  if (tokens > 1)
    for (int i = 0; i < experts; ++i) logits.data[experts + i] = from_float<T>(i % 2 ? 0.f : -0.f);  // all equal
  const RouterPlan plan = plan_router(experts, chosen);
  for (const bool listed : {true, false}) {
    if (listed && !plan.listed) continue;
    SCOPED_TRACE((listed ? "listed " : "picked ") + std::to_string(experts));
    std::memset(static_cast<void*>(weights.data), 0xFF, weights.count * sizeof(float));
    std::memset(static_cast<void*>(found.data), 0xFF, found.count * sizeof(int));
    const TopkWork work = {tokens, experts, chosen, renormalise, Sigmoid && biased ? bias.data : nullptr, listed ? plan.lanes : 32,
                           shift == 0 && experts % Pack<T>::kLanes == 0};
    const auto few = topk_listed<T, Sigmoid, kFewValues>, most = topk_listed<T, Sigmoid, kMostValues>;
    emulated::launch(2, kTopkThreads, listed ? (plan.values == kFewValues ? few : most) : topk_picked<T, Sigmoid>, logits.data,
                     weights.data, found.data, work);
    for (int token = 0; token < tokens; ++token) {
      const reference::Topk want =
          reference::topk(logits.values(std::int64_t{token} * experts, experts), chosen, Sigmoid, work.bias, renormalise);
      for (int i = 0; i < chosen; ++i) {
        const std::int64_t at = std::int64_t{token} * chosen + i;
        ASSERT_EQ(found.data[at], want.numbers[i]) << token << " " << i;
        ASSERT_NEAR(weights[at], want.weights[i], 4e-6 * want.weights[i] + 1e-7);
      }
    }
    EXPECT_TRUE(weights.guarded() && found.guarded());
  }
}

TYPED_TEST(Rows, Routers) {
  using T = TypeParam;
  for (const bool renormalise : {false, true}) {
    check_topk<T, false>(1, 1, 1, renormalise, false);
    check_topk<T, false>(9, 7, 7, renormalise, false);
    check_topk<T, false>(70, 64, 6, renormalise, false);
    check_topk<T, false>(70, 128, 8, renormalise, false);
    check_topk<T, false>(40, 128, 8, renormalise, false, 1);
    check_topk<T, false>(40, 128, 8, renormalise, false, 0, 0.25);
    check_topk<T, false>(3, 256, 40, renormalise, false);
    check_topk<T, false>(2, 300, 8, renormalise, false);
    check_topk<T, false>(5, 1024, 3, renormalise, false);
    check_topk<T, true>(5, 128, 8, renormalise, true);
    check_topk<T, true>(3, 257, 8, renormalise, true);
    check_topk<T, true>(3, 17, 17, renormalise, false);
    check_topk<T, true>(3, 17, 4, renormalise, false);
  }
}

// Scores that differ in their lowest bit alone, in the order in which that decides and in the other.
TEST(Routers, NeighboursInFp32) {
  for (const int chosen : {1, 3, 7, 8})
    for (const float near : {1.f, -1.f, 1e-30f})
      for (const int direction : {1, -1}) {
        constexpr int kExperts = 128;
        Guarded<float> logits(2 * kExperts), weights(2 * chosen);
        Guarded<std::int32_t> found(2 * chosen);
        for (int i = 0; i < 2 * kExperts; ++i) {
          float x = near;
          for (int step = 0; step < i % kExperts; ++step) x = std::nextafter(x, direction * INFINITY);
          logits.data[i] = x;
        }
        emulated::launch(1, kTopkThreads, topk_listed<float, false, kMostValues>, logits.data, weights.data, found.data,
                         TopkWork{2, kExperts, chosen, true, nullptr, 4, true});
        for (int i = 0; i < 2 * chosen; ++i)
          ASSERT_EQ(found.data[i], direction > 0 ? kExperts - 1 - i % chosen : i % chosen) << near << " " << chosen;
      }
}

TEST(Routers, NanIsNeverChosenAndInfinityIs) {
  for (const bool listed : {true, false}) {
    constexpr int kExperts = 128, kChosen = 4;
    Guarded<float> logits(3 * kExperts), weights(3 * kChosen);
    Guarded<std::int32_t> found(3 * kChosen);
    for (int i = 0; i < 3 * kExperts; ++i) logits.data[i] = i % kExperts % 5 ? -INFINITY : static_cast<float>(i % kExperts);
    logits.data[70] = NAN, logits.data[71] = -NAN;
    for (int i = kExperts; i < 2 * kExperts; ++i) logits.data[i] = i == kExperts + 9 ? 1.f : i % 3 ? NAN : -NAN;
    logits.data[2 * kExperts + 5] = 3e38f;
    const auto run = [&](auto of_listed, auto of_picked) {
      emulated::launch(1, kTopkThreads, listed ? of_listed : of_picked, logits.data, weights.data, found.data,
                       TopkWork{3, kExperts, kChosen, false, nullptr, listed ? 4 : 32, true});
    };
    run(topk_listed<float, false, kMostValues>, topk_picked<float, false>);
    for (int i = 0; i < kChosen; ++i) {
      EXPECT_EQ(found.data[i], i == 0 ? 125 : 125 - 5 * i);
      EXPECT_TRUE(std::isnan(weights[i]) && std::isnan(weights[kChosen + i]));
      EXPECT_EQ(found.data[kChosen + i], i == 0 ? 9 : -1);
    }
    EXPECT_EQ(found.data[2 * kChosen], 5);
    EXPECT_EQ(weights[2 * kChosen], 1);
    EXPECT_EQ(weights[2 * kChosen + 1], 0);
    run(topk_listed<float, true, kMostValues>, topk_picked<float, true>);
    EXPECT_EQ(found.data[0], 20);  // the first of those that are 1
    EXPECT_EQ(found.data[kChosen], 9);
    EXPECT_TRUE(weights[kChosen] > 0.7 && std::isnan(weights[kChosen + 1]));
  }
}

TEST(RouterPlan, EveryExpertHasALane) {
  for (std::int64_t experts = 1; experts <= 1024; ++experts) {
    const RouterPlan plan = plan_router(experts, 1);
    ASSERT_TRUE(plan.listed);
    ASSERT_GE(plan.values * plan.lanes, experts);
    ASSERT_TRUE(plan.lanes >= kFewestLanes && 32 % plan.lanes == 0);
  }
  EXPECT_EQ(plan_router(128, 8).lanes, 4);
  EXPECT_FALSE(plan_router(1025, 1).listed);
  EXPECT_FALSE(plan_router(128, 9).listed);
}

// -- the plan -----------------------------------------------------------------------------------------------------------------

TEST(RowPlan, EveryRowFitsItsTeam) {
  for (const int element : {2, 4})
    for (const int kept : {kKeptChunks, kKeptPairs, kLoopedChunks})
      for (std::int64_t columns = 1; columns < 100000; columns += columns < 300 ? 1 : 257)
        for (const bool keep : {true, false}) {
          const RowPlan plan = plan_row(columns, element, keep, kept);
          ASSERT_EQ(plan.threads % plan.team, 0);
          ASSERT_LE(plan.threads, kMostTeam);
          ASSERT_TRUE(plan.team % 32 == 0 || 32 % plan.team == 0) << plan.team;
          ASSERT_TRUE(plan.team <= 32 || plan.team == plan.threads);
          ASSERT_EQ(plan.threads % 32, 0);
          if (plan.kept) {
            ASSERT_LE(plan.chunks, kept);
            ASSERT_GE(std::int64_t{plan.team} * plan.chunks * (16 / element), columns);
          }
          if (!keep) {
            ASSERT_FALSE(plan.kept);
          }
        }
  for (const int element : {2, 4})
    for (std::int64_t chunks = 1; chunks <= 8192 * element; chunks += 97) {
      const ClusterPlan plan = plan_cluster(chunks * 16 / element, element);
      ASSERT_TRUE(plan.blocks >= 2 && plan.blocks <= kMostCluster && plan.threads <= kClusterThreads);
      ASSERT_LE(ceil_div(chunks, plan.blocks), kClusterElements * element / 16 * plan.threads);
      ASSERT_EQ(plan.shared_bytes, ceil_div(chunks, plan.blocks) * 16);
    }
  EXPECT_EQ(plan_cluster(131072, 4).blocks, 8);
  EXPECT_EQ(plan_cluster(262144, 4).blocks, 16);
  EXPECT_EQ(plan_cluster(262148, 4).blocks, 0);
  EXPECT_TRUE(plan_row(32768, 2, true).kept);
  EXPECT_FALSE(plan_row(32776, 2, true).kept);
  EXPECT_EQ(plan_row(128, 2, true).team, 4);  // 128 columns of 16 bits: a quarter of a warp has each row
  EXPECT_EQ(plan_row(1024, 2, true).team, 32);
  EXPECT_EQ(plan_row(8192, 2, true).team, 256);
  EXPECT_EQ(plan_row(16384, 2, true).chunks, kFewChunks);
  EXPECT_EQ(plan_row(16392, 2, true).chunks, kKeptChunks);
  // Looped: as many threads as have four vectors each, as far as a block goes; of short rows several to a block.
  EXPECT_EQ(plan_row(4097, 2, false).team, 160);
  EXPECT_EQ(plan_row(100000, 2, false).team, kLoopedTeam);
  EXPECT_EQ(plan_row(4096, 2, false, kLoopedChunks).team, 128);
  EXPECT_EQ(plan_row(128, 4, false, kLoopedChunks).rows_per_block(), 16);
}

// Every chain ends at its start after an even number of steps, and 15 above after an odd one: rounded once, at the larger of both.
template <class V>
void expect_chains(double eps) {
  using T = typename V::Element;
  for (const auto& [chains, steps] : {std::pair{1, 1}, {7, 2}, {385, 16}, {4097, 33}, {9001, 48}}) {
    Guarded<T> start(chains), result(chains);
    std::mt19937 generator(chains);
    std::uniform_real_distribution<float> any(-1.7f, 1.7f);
    for (int i = 0; i < chains; ++i) start.data[i] = T(any(generator));
    emulated::launch(2, kFmaThreads, fma_kernel<V>, start.data, result.data, std::int64_t{chains}, std::int64_t{steps}, T(3.f),
                     T(5.f), T(-5.f));
    ASSERT_TRUE(result.guarded());
    for (int i = 0; i < chains; ++i)
      ASSERT_NEAR(static_cast<double>(result.data[i]), static_cast<double>(start.data[i]) + steps % 2 * 15, 17 * eps)
          << chains << " chains, " << steps << " steps, chain " << i;
  }
}

TEST(Fma, ChainsEndWhereTheirStepsLead) {
  expect_chains<Lane<float>>(0x1p-24);
  expect_chains<Lane<double>>(0x1p-53);
  expect_chains<FloatLanes>(0x1p-24);
  expect_chains<HalfLanes>(0x1p-11);
}

TEST(Emulator, SeesAShuffleAndABarrier) {
  static float seen[64];
  emulated::launch(1, 64, [] {
    const float sum = [] {
      float x = static_cast<float>(threadIdx.x);
      for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, half);
      return x;
    }();
    static float shared[64];
    shared[threadIdx.x] = sum;
    __syncthreads();
    seen[threadIdx.x] = shared[63 - threadIdx.x];
  });
  for (int i = 0; i < 64; ++i) EXPECT_EQ(seen[i], i < 32 ? 1520.f : 496.f);
}

}  // namespace
