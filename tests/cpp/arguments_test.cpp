// What a contract says of bad arguments: every message names the operator, the tensor or value, and what was expected.
#include "core/arguments.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "ops/core_to_core.h"
#include "ops/pointer_chase.h"
#include "ops/rows.h"
#include "ops/stream.h"
#include "thrown.h"

namespace roofline {
namespace {

float memory[64];

Tensor tensor(const std::string& name, Shape shape, DType dtype = DType::fp32) {
  return {name, memory, dtype, std::move(shape), {}, Role::in};
}

// A valid layer_norm of 3 rows of 4 columns, to be spoilt one thing at a time.
Arguments layer_norm() {
  Arguments all("layer_norm", DType::fp32);
  all.add("rows", std::int64_t{3});
  all.add("columns", std::int64_t{4});
  all.add("eps", 1e-5);
  all.add(tensor("x", {3, 4}));
  all.add(tensor("y", {3, 4}));
  all.add(tensor("weight", {4}));
  all.add(tensor("bias", {4}));
  return all;
}

std::string refusal(const Arguments& all) {
  return message<Error>([&] { ops::LayerNorm::from(all); });
}

TEST(Arguments, AreTakenOutAsTheyWerePutIn) {
  const auto problem = ops::LayerNorm::from(layer_norm());
  EXPECT_EQ(problem.rows, 3);
  EXPECT_EQ(problem.columns, 4);
  EXPECT_EQ(problem.row_bytes(), 16);
  EXPECT_DOUBLE_EQ(problem.eps, 1e-5);
  EXPECT_EQ(problem.x, memory);
  EXPECT_EQ(problem.bias, memory);
}

TEST(Arguments, MissingTensor) {
  Arguments all("layer_norm", DType::fp32);
  all.add("rows", std::int64_t{3});
  all.add("columns", std::int64_t{4});
  EXPECT_EQ(refusal(all), "layer_norm: tensor 'x' is missing; expected fp32 [3, 4]");
  all.add(tensor("x", {3, 4}));
  all.add(tensor("y", {3, 4}));
  all.add("eps", 1e-5);
  EXPECT_EQ(refusal(all), "layer_norm: tensor 'weight' is missing; expected fp32 [4]");
}

TEST(Arguments, WrongShape) {
  for (const char* name : {"x", "y"}) {
    Arguments all = layer_norm();
    all.add(tensor(name, {4, 3}));
    EXPECT_EQ(refusal(all), std::string("layer_norm: tensor '") + name + "' has shape [4, 3]; expected [3, 4]");
  }
  for (const char* name : {"weight", "bias"}) {
    Arguments all = layer_norm();
    all.add(tensor(name, {3}));
    EXPECT_EQ(refusal(all), std::string("layer_norm: tensor '") + name + "' has shape [3]; expected [4]");
  }
  Arguments all = layer_norm();
  all.add(tensor("x", {12}));
  EXPECT_EQ(refusal(all), "layer_norm: tensor 'x' has shape [12]; expected [3, 4]");
}

TEST(Arguments, WrongDtype) {
  Arguments all = layer_norm();
  all.add(tensor("bias", {4}, DType::fp16));
  EXPECT_EQ(refusal(all), "layer_norm: tensor 'bias' has dtype fp16; expected fp32");
}

TEST(Arguments, WrongStrides) {
  Arguments all = layer_norm();
  Tensor transposed = tensor("x", {3, 4});
  transposed.strides = {1, 3};
  all.add(transposed);
  EXPECT_EQ(refusal(all), "layer_norm: tensor 'x' has strides [1, 3]; expected C order (make it contiguous first)");
  Tensor dense = tensor("x", {3, 4});
  dense.strides = {4, 1};
  all.add(dense);
  EXPECT_NO_THROW(ops::LayerNorm::from(all));
}

TEST(Arguments, StridesOfDimensionsOfOneMeanNothing) {
  Tensor row = tensor("x", {1, 4});
  row.strides = {99, 1};
  EXPECT_TRUE(row.contiguous());
  Tensor column = tensor("x", {4, 1});
  column.strides = {1, 77};
  EXPECT_TRUE(column.contiguous());
}

TEST(Arguments, NoMemory) {
  Arguments all = layer_norm();
  Tensor empty = tensor("y", {3, 4});
  empty.data = nullptr;
  all.add(empty);
  EXPECT_EQ(refusal(all), "layer_norm: tensor 'y' has no memory");
}

TEST(Arguments, DimensionsAreAtLeastOne) {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-5}, std::numeric_limits<std::int64_t>::min()}) {
    Arguments all = layer_norm();
    all.add("rows", bad);
    EXPECT_EQ(refusal(all), "layer_norm: rows must be at least 1, got " + std::to_string(bad));
  }
}

TEST(Arguments, DimensionsThatOverflow) {
  Arguments all = layer_norm();
  all.add("rows", std::int64_t{1} << 32);
  all.add("columns", std::int64_t{1} << 31);
  const std::string said = refusal(all);  // 2^63 elements, and even 2^61 of four bytes would not do
  EXPECT_NE(said.find("layer_norm"), std::string::npos) << said;
  EXPECT_NE(said.find("more than 2^63"), std::string::npos) << said;
  all.add("columns", std::int64_t{1} << 29);
  EXPECT_NE(refusal(all).find("more than 2^63"), std::string::npos) << refusal(all);
  EXPECT_EQ(product({std::int64_t{1} << 31, std::int64_t{1} << 31}, "x"), std::int64_t{1} << 62);
  EXPECT_EQ(product({0, std::numeric_limits<std::int64_t>::max()}, "x"), 0);
  EXPECT_TRUE(has(message<Error>([] { product({-1}, "x"); }), "x: negative dimension in [-1]"));
}

TEST(Arguments, ValuesOfTheWrongKind) {
  Arguments all = layer_norm();
  all.add("rows", 3.0);
  EXPECT_EQ(refusal(all), "layer_norm: rows must be an integer");
  all = layer_norm();
  all.add("rows", std::string("3"));
  EXPECT_EQ(refusal(all), "layer_norm: rows must be an integer");
  all = layer_norm();
  all.add("eps", std::string("small"));
  EXPECT_EQ(refusal(all), "layer_norm: eps must be a number");
  all = layer_norm();
  all.add("eps", std::int64_t{1});  // a whole number is a number
  EXPECT_DOUBLE_EQ(ops::LayerNorm::from(all).eps, 1);
}

TEST(Arguments, MissingValue) {
  Arguments all("rms_norm", DType::fp32);
  EXPECT_EQ(message<Error>([&] { ops::RmsNorm::from(all); }), "rms_norm: value 'rows' is missing");
}

TEST(Arguments, UnknownWord) {
  Arguments all("stream", DType::fp32);
  EXPECT_EQ(message<Error>([&] { ops::Stream::from(all); }), "stream: value 'access' is missing");
  all.add("access", std::string("sideways"));
  EXPECT_TRUE(has(message<Error>([&] { ops::Stream::from(all); }), "access must be one of read, write"));
  all.add("access", std::int64_t{1});
  EXPECT_EQ(message<Error>([&] { ops::Stream::from(all); }), "stream: access must be a string");
}

TEST(Arguments, StreamTakesPrefetchAndStrideOfReadsOnly) {
  const auto refusal = [](const char* access, const char* prefetch, std::int64_t stride, std::int64_t streams) {
    Arguments all("stream", DType::fp32);
    all.add("access", std::string(access));
    all.add("prefetch", std::string(prefetch));
    all.add("isa", std::string());
    for (const auto& [name, value] :
         {std::pair{"elements", std::int64_t{12}}, {"passes", 1}, {"streams", streams}, {"stride", stride}})
      all.add(name, value);
    all.add("in_flight_bytes", std::int64_t{0});
    all.add("factor", 3.0);
    return message<Error>([&] { ops::Stream::from(all); });
  };
  EXPECT_EQ(refusal("read", "t0", 1, 1), "stream: prefetch must be one of none, nta, got 't0'");
  EXPECT_EQ(refusal("copy", "nta", 1, 1), "stream: prefetch and stride are of read only, got access 'copy'");
  EXPECT_EQ(refusal("triad", "none", 2, 1), "stream: prefetch and stride are of read only, got access 'triad'");
  EXPECT_EQ(refusal("read", "none", 2, 4), "stream: a strided read has one stream and no prefetch");
  EXPECT_EQ(refusal("read", "nta", 2, 1), "stream: a strided read has one stream and no prefetch");
  EXPECT_NE(refusal("read", "nta", 1, 8).find("tensor 'a' is missing"), std::string::npos);  // as far as the tensors
}

TEST(Arguments, RowContractsCheckTheirTensors) {
  Arguments all("x", DType::fp32);
  all.add("rows", std::int64_t{3});
  all.add("columns", std::int64_t{4});
  all.add("elements", std::int64_t{12});
  all.add("eps", 1e-6);
  EXPECT_TRUE(has(message<Error>([&] { ops::Softmax::from(all); }), "tensor 'x' is missing; expected fp32 [3, 4]"));
  EXPECT_TRUE(has(message<Error>([&] { ops::Relu::from(all); }), "tensor 'x' is missing; expected fp32 [12]"));
  all.add(tensor("x", {3, 4}));
  EXPECT_TRUE(has(message<Error>([&] { ops::Softmax::from(all); }), "tensor 'y' is missing; expected fp32 [3, 4]"));
  all.add(tensor("y", {3, 4}));
  EXPECT_EQ(ops::Softmax::from(all).columns, 4);
  EXPECT_TRUE(has(message<Error>([&] { ops::RmsNorm::from(all); }), "tensor 'weight' is missing; expected fp32 [4]"));
  EXPECT_TRUE(has(message<Error>([&] { ops::BiasRelu::from(all); }), "tensor 'bias' is missing; expected fp32 [4]"));
  all.add(tensor("x", {12}));
  all.add(tensor("y", {12}));
  EXPECT_EQ(ops::Relu::from(all).elements, 12);
}

TEST(Arguments, PointerChase) {
  Arguments all("pointer_chase", DType::int32);
  const auto refused = [&] { return message<Error>([&] { ops::PointerChase::from(all); }); };
  all.add("hops", std::int64_t{3});
  all.add("pages", std::string("huge"));
  all.add("size_bytes", std::int64_t{100});
  EXPECT_EQ(refused(), "pointer_chase: size_bytes must be a multiple of 64, got 100");
  all.add("size_bytes", std::int64_t{1} << 37);
  EXPECT_NE(refused().find("more lines than int32 numbers them"), std::string::npos) << refused();
  all.add("size_bytes", std::int64_t{256});
  EXPECT_EQ(refused(), "pointer_chase: tensor 'order' is missing; expected int32 [4]");
  all.add(tensor("order", {4}, DType::int32));
  EXPECT_EQ(refused(), "pointer_chase: tensor 'reached' is missing; expected int32 [1]");
  all.add(tensor("reached", {1}, DType::int32));
  EXPECT_EQ(ops::PointerChase::from(all).lines, 4);
  EXPECT_TRUE(ops::PointerChase::from(all).huge_pages);
  all.add("pages", std::string("giant"));
  EXPECT_EQ(refused(), "pointer_chase: pages must be one of small, huge, got 'giant'");
}

TEST(Arguments, CoreToCore) {
  Arguments all("core_to_core", DType::fp32);
  const auto refused = [&] { return message<Error>([&] { ops::CoreToCore::from(all); }); };
  all.add("first", std::int64_t{1});
  all.add("second", std::int64_t{1});
  all.add("rounds", std::int64_t{1} << 30);
  EXPECT_EQ(refused(), "core_to_core: first and second must be two different threads, got 1 and 1");
  all.add("second", std::int64_t{-1});
  EXPECT_EQ(refused(), "core_to_core: first and second must be two different threads, got 1 and -1");
  all.add("second", std::int64_t{0});
  EXPECT_EQ(refused(), "core_to_core: rounds must be below 2^30, got 1073741824");
  all.add("rounds", std::int64_t{5});
  EXPECT_EQ(refused(), "core_to_core: tensor 'handovers' is missing; expected int32 [1]");
  all.add(tensor("handovers", {1}, DType::int32));
  EXPECT_EQ(ops::CoreToCore::from(all).rounds, 5);
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
