// What no caller from Python can give a contract (tests/test_contracts.py has the rest), shapes that overflow, and dtypes.
#include "core/arguments.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "ops/rows.h"
#include "thrown.h"

namespace roofline {
namespace {

TEST(Arguments, NoMemory) {
  Arguments all("relu", DType::fp32);
  all.add("elements", std::int64_t{12});
  all.add(Tensor{"x", nullptr, DType::fp32, {12}, {}, Role::in});
  EXPECT_EQ(message<Error>([&] { ops::Relu::from(all); }), "relu: tensor 'x' has no memory");
}

TEST(Arguments, Products) {
  EXPECT_EQ(product({std::int64_t{1} << 31, std::int64_t{1} << 31}, "x"), std::int64_t{1} << 62);
  EXPECT_EQ(product({0, std::numeric_limits<std::int64_t>::max()}, "x"), 0);
  EXPECT_TRUE(has(message<Error>([] { product({-1}, "x"); }), "x: negative dimension in [-1]"));
}

TEST(DTypes, HaveOneSpelling) {
  for (const DTypeInfo& known : kDTypes) {
    EXPECT_EQ(dtype_named(std::string(known.name)), known.dtype);
    EXPECT_EQ(info(known.dtype).name, known.name);
    EXPECT_EQ(size_bytes(known.dtype, 24), 3 * known.bits);
  }
  EXPECT_EQ(size_bytes(DType::fp64), 8);
  EXPECT_EQ(size_bytes(DType::int8), 1);
  EXPECT_EQ(message<Error>([] { size_bytes(DType::nvfp4); }), "elements of 4 bits have no size in bytes");
  for (const auto& [elements, bytes] : {std::pair{0, 0}, {1, 1}, {2, 1}, {3, 2}, {15, 8}, {16, 8}, {17, 9}}) {
    EXPECT_EQ(size_bytes(DType::int4, elements), bytes);
    EXPECT_EQ(size_bytes(DType::bf16, elements), 2 * elements);
  }
  EXPECT_EQ(message<Error>([] { dtype_named("float"); }), "unknown dtype 'float': use one of fp64, fp32, fp16, bf16, int32, int8, "
                                                      "fp8_e4m3, tf32, int4, nvfp4, fp8_e8m0, fp8_e5m2, int16");
}

}  // namespace
}  // namespace roofline
