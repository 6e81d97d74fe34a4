// matmul: c = activation(a b + bias), the GEMM of the textbooks with M = rows, N = columns, K = inner.
#pragma once

#include "ops/scales.h"

namespace roofline::ops {

struct Matmul {
  static constexpr const char* op = "matmul";

  // 2^17 products of -128 by -128 leave an int32.
  static constexpr std::int64_t kMostInnerInt8 = (1 << 17) - 1;

  enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

  DType dtype;
  Activation activation;
  std::int64_t rows, columns, inner;
  const void* a = nullptr;  // [rows, inner]
  const void* b = nullptr;  // [inner, columns], constant
  const void* bias = nullptr;  // [columns] in the dtype of c, constant; or none
  void* c = nullptr;        // [rows, columns]; fp32 for fp16, bf16, tf32, fp8 and nvfp4, int32 for int8
  Scales scales;            // constant

  bool finished() const { return bias || activation != Activation::none; }
  static DType result(DType dtype) {
    return dtype == DType::int8 ? DType::int32 : dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  }

  static Matmul from(const Arguments& arguments) {
    Matmul problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"rows", &problem.rows}, {"columns", &problem.columns}, {"inner", &problem.inner}});
    if (problem.dtype == DType::int8 && problem.inner > kMostInnerInt8)
      throw Error("matmul: inner must be below 2^17 for int8, so that sums fit in int32, got " + std::to_string(problem.inner));
    problem.a = arguments.tensor("a", problem.dtype, {problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.dtype, {problem.inner, problem.columns}).data;
    problem.c = arguments.tensor("c", result(problem.dtype), {problem.rows, problem.columns}).data;
    problem.activation = arguments.choice<Activation>("activation", {"none", "relu", "gelu", "gelu_tanh", "silu"});
    if (arguments.flag("bias")) problem.bias = arguments.tensor("bias", result(problem.dtype), {problem.columns}).data;
    if (problem.finished() && result(problem.dtype) != DType::fp32)
      throw Error("matmul: bias and activation need a c in fp32, got a c in " + name(result(problem.dtype)));
    problem.scales = Scales::from(arguments, {}, problem.rows, problem.columns, problem.inner);
    return problem;
  }
};

}  // namespace roofline::ops
