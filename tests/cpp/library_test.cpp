// The libraries' matrix products: the split, results against double with guard zones, and what is said where a library is missing.
// Libraries are found by soname here: put their folders in LD_LIBRARY_PATH. What is not there is skipped with its reason.
#include "cpu/library.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "cpu/gemm.h"
#include "cpu/kernels.h"
#include "ops/ffn.h"
#include "ops/matmul.h"
#include "thrown.h"

namespace roofline::cpu {
namespace {

constexpr std::int64_t kGuardBytes = 256;

double element(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::fp64: return static_cast<const double*>(data)[i];
    case DType::int32: return static_cast<const std::int32_t*>(data)[i];
    case DType::int8: return static_cast<const std::int8_t*>(data)[i];
    case DType::bf16: {
      const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[i]) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    default: return static_cast<const float*>(data)[i];
  }
}

// An array of a device with guard zones on both sides.
struct Guarded {
  Guarded(Device& device, DType dtype, std::int64_t elements) : size_bytes(elements * roofline::size_bytes(dtype)) {
    memory = workspace(device, size_bytes + 2 * kGuardBytes);
    std::memset(memory.get(), 0xA5, size_bytes + 2 * kGuardBytes);
  }
  unsigned char* data() const { return static_cast<unsigned char*>(memory.get()) + kGuardBytes; }
  bool intact() const {
    for (std::int64_t i = 1; i <= kGuardBytes; ++i)
      if (data()[-i] != 0xA5 || data()[size_bytes + i - 1] != 0xA5) return false;
    return true;
  }
  std::shared_ptr<void> memory;
  std::int64_t size_bytes;
};

// Empty where the result is right; `a_byte`, `b_byte`: what to fill int8 inputs with, instead of random numbers.
std::string wrong(Device& device, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t inner, int a_byte = -1,
                  int b_byte = -1) {
  const DType result = ops::Matmul::result(dtype);
  const Guarded a(device, dtype, rows * inner), b(device, dtype, inner * columns), c(device, result, rows * columns);
  device.fill(a.data(), dtype, rows * inner, Fill::uniform, 1);
  device.fill(b.data(), dtype, inner * columns, Fill::uniform, 2);
  if (a_byte >= 0) std::memset(a.data(), a_byte, a.size_bytes);
  if (b_byte >= 0) std::memset(b.data(), b_byte, b.size_bytes);
  const Gemm gemm = plan_gemm({dtype, rows, columns, inner, a.data(), b.data(), c.data()}, device);
  gemm.launch(device);
  gemm.launch(device);
  if (!c.intact()) return "it wrote outside c";
  const double eps = result == DType::fp64 ? 0x1p-52 : 0x1p-23;
  const double allowed = result == DType::int32 ? 0 : (2.0 * static_cast<double>(inner) + 16) * eps;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::int64_t k = 0; k < inner; ++k)
        sum += element(a.data(), dtype, row * inner + k) * element(b.data(), dtype, k * columns + column);
      const double found = element(c.data(), result, row * columns + column);
      if (!(std::abs(found - sum) <= allowed))
        return gemm.library_implementation + ": c[" + std::to_string(row) + ", " + std::to_string(column) + "] is " +
               std::to_string(found) + ", expected " + std::to_string(sum);
    }
  return "";
}

class Products : public testing::TestWithParam<DType> {};

TEST_P(Products, MatchDouble) {
  Device device(0);
  const std::int64_t shapes[][3] = {{1, 1, 1},       {1, 67, 64},  {1, 1031, 65}, {2, 2, 300},  {3, 5, 7},
                                    {17, 129, 65},   {64, 64, 64}, {127, 131, 137}, {500, 3, 5}, {3, 500, 9},
                                    {300, 1, 333},   {1, 1, 5003}, {33, 640, 100}};
  for (const auto& [rows, columns, inner] : shapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(inner));
    try {
      EXPECT_EQ(wrong(device, GetParam(), rows, columns, inner), "");
    } catch (const Unsupported& why) {
      GTEST_SKIP() << why.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Products, testing::Values(DType::fp32, DType::fp64, DType::bf16, DType::int8),
                         [](const auto& info) { return name(info.param); });

// The largest products, in sums that pass 2^24: neither 16-bit pairs nor a detour through fp32 may lose anything.
TEST(Products, Int8IsExactAtItsLimits) {
  Device device(0);
  for (const std::int64_t inner : {1, 2, 63, 4096})
    for (const int a : {0x80, 0x7F})
      for (const int b : {0x80, 0x7F}) try {
          EXPECT_EQ(wrong(device, DType::int8, 5, 130, inner, a, b), "") << inner << " " << a << " " << b;
        } catch (const Unsupported& why) {
          GTEST_SKIP() << why.what();
        }
}

TEST(Split, CoversEveryElementOnce) {
  for (const int threads : {1, 2, 3, 7, 16, 64})
    for (const std::int64_t rows : {1, 2, 5, 64, 333})
      for (const std::int64_t columns : {1, 63, 64, 65, 200, 1000})
        for (const std::int64_t inner : {1, 64, 5000}) {
          const Split split = split_gemm(rows, columns, inner, threads);
          EXPECT_LE(split.row_parts * split.column_parts, threads);
          std::vector<int> covered(rows * columns);
          for (const Block& block : split.blocks)
            for (std::int64_t row = block.row; row < block.row + block.rows; ++row)
              for (std::int64_t column = block.column; column < block.column + block.columns; ++column)
                ++covered[row * columns + column];
          EXPECT_EQ(std::set<int>(covered.begin(), covered.end()), std::set<int>{1}) << rows << " " << columns << " " << threads;
        }
}

TEST(Split, FollowsTheShape) {
  const Split decode = split_gemm(1, 4096, 4096, 8);  // one row: only columns can be shared
  EXPECT_EQ(decode.row_parts, 1);
  EXPECT_EQ(decode.column_parts, 8);
  const Split tall = split_gemm(100000, 64, 64, 8);
  EXPECT_EQ(tall.row_parts, 8);
  const Split square = split_gemm(4096, 4096, 4096, 2);  // whole rows of c
  EXPECT_EQ(square.row_parts, 2);
  EXPECT_EQ(square.column_parts, 1);
}

TEST(Split, KeepsIndicesOfACallIn32Bits) {
  const std::int64_t rows = (std::int64_t{1} << 33) + 5;
  std::int64_t next = 0;
  for (const Block& block : split_gemm(rows, 3, 64, 1).blocks) {
    EXPECT_EQ(block.row, next);
    EXPECT_LE(block.rows * 64, std::numeric_limits<std::int32_t>::max());
    next += block.rows;
  }
  EXPECT_EQ(next, rows);
}

// a b for a of [rows, inner] and b of [inner, columns].
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, std::int64_t rows, std::int64_t inner,
                            std::int64_t columns) {
  std::vector<double> c(rows * columns);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t j = 0; j < columns; ++j) c[i * columns + j] += a[i * inner + k] * b[k * columns + j];
  return c;
}

// Largest error of out in units of fp32's eps and out's size.
double ffn_error(Device& device, const std::string& activation, std::int64_t rows, std::int64_t d_model, std::int64_t d_ff) {
  Arguments arguments("ffn", DType::fp32);
  arguments.add("batch", std::int64_t{1});
  arguments.add("seq_q", rows);
  arguments.add("d_model", d_model);
  arguments.add("d_ff", d_ff);
  arguments.add("activation", activation);
  std::map<std::string, Guarded> arrays;
  std::uint64_t seed = 0;
  const auto add = [&](const char* name, const Shape& shape) {
    const std::int64_t elements = roofline::product(shape, name);
    const Guarded& array = arrays.try_emplace(name, device, DType::fp32, elements).first->second;
    if (std::string(name) != "out") device.fill(array.data(), DType::fp32, elements, Fill::uniform, ++seed);
    arguments.add(Tensor{name, array.data(), DType::fp32, shape, {}, Role::in});
  };
  add("x", {1, rows, d_model});
  add("w_up", {d_model, d_ff});
  add("w_gate", {d_model, d_ff});
  add("w_down", {d_ff, d_model});
  add("out", {1, rows, d_model});

  const Bound bound = ffn_kernels().front().bind(arguments, device);
  for (const Step& step : bound.steps)
    for (int repeat = 0; repeat < 3; ++repeat) step.launch(device);  // as when each step is timed alone

  const auto values = [&](const char* name) {
    const Guarded& array = arrays.at(name);
    EXPECT_TRUE(array.intact()) << name;
    const auto* data = reinterpret_cast<const float*>(array.data());
    return std::vector<double>(data, data + array.size_bytes / 4);
  };
  std::vector<double> hidden = product(values("x"), values("w_up"), rows, d_model, d_ff);
  const std::vector<double> gate = product(values("x"), values("w_gate"), rows, d_model, d_ff);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    hidden[i] = activation == "relu"   ? std::max(hidden[i], 0.0)
                : activation == "gelu" ? 0.5 * hidden[i] * (1 + std::erf(hidden[i] * std::sqrt(0.5)))
                                       : hidden[i] * gate[i] / (1 + std::exp(-gate[i]));
  const std::vector<double> expected = product(hidden, values("w_down"), rows, d_ff, d_model);
  const std::vector<double> out = values("out");
  const double size = std::sqrt(static_cast<double>(d_model * d_ff)) * (activation == "swiglu" ? std::sqrt(d_model) : 1);
  double worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) worst = std::fmax(worst, std::abs(out[i] - expected[i]) / (0x1p-23 * size));
  return worst;
}

TEST(Ffn, MatchesDoubleAndStepsRepeat) {
  Device device(0);
  for (const char* activation : {"relu", "gelu", "swiglu"})
    for (const auto& [rows, d_model, d_ff] : {std::tuple{1, 5, 7}, {13, 67, 131}, {1, 64, 200}}) try {
        EXPECT_LT(ffn_error(device, activation, rows, d_model, d_ff), 100) << activation << " " << rows;
      } catch (const Unsupported& why) {
        GTEST_SKIP() << why.what();
      }
}

TEST(Contract, NamesWhatIsWrong) {
  Arguments arguments("matmul", DType::int8);
  arguments.add("rows", std::int64_t{2});
  arguments.add("columns", std::int64_t{3});
  arguments.add("inner", std::int64_t{1} << 17);
  EXPECT_THROW(ops::Matmul::from(arguments), Error);  // sums could leave int32
  arguments.add("inner", std::int64_t{4});
  std::int8_t data[8] = {};
  arguments.add(Tensor{"a", data, DType::int8, {4, 2}, {}, Role::in});
  try {
    ops::Matmul::from(arguments);
    FAIL() << "a has the wrong shape";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'a' has shape [4, 2]; expected [2, 4]"), std::string::npos) << error.what();
  }
}

TEST(Missing, SaysWhyAndNamesTheCure) {
  const std::string gone = message<Unsupported>([] { open_openblas({"/nonexistent/libopenblas.so"}); });
  EXPECT_NE(gone.find("/nonexistent/libopenblas.so: cannot open"), std::string::npos) << gone;
  EXPECT_NE(gone.find("pip install scipy-openblas32"), std::string::npos) << gone;
  const std::string wrong = message<Unsupported>([] { open_openblas({"libm.so.6"}); });
  EXPECT_NE(wrong.find("libm.so.6: it has no symbol cblas_sgemm"), std::string::npos) << wrong;
  EXPECT_TRUE(::has(message<Unsupported>([] { open_openblas({}); }), "no file to try"));
}

TEST(LibraryPath, IsSetByKnownNameBeforeTheFirstUse) {
  EXPECT_THROW(set_library_path("mkl", "/lib/libmkl.so"), Error);
  EXPECT_THROW(set_library_path("onednn", ""), Error);
  for (const LibraryInfo& library : libraries()) {
    EXPECT_EQ(library.version.empty(), !library.missing.empty()) << library.name;
    EXPECT_EQ(library.path.empty(), !library.missing.empty()) << library.name;
    EXPECT_THROW(set_library_path(library.name, "/nonexistent/too-late.so"), Error);
  }
}

}  // namespace
}  // namespace roofline::cpu
