// matmul: c = a b, the GEMM of the textbooks with M = rows, N = columns, K = inner.
#pragma once

#include "ops/scales.h"

namespace roofline::ops {

struct Matmul {
  static constexpr const char* op = "matmul";

  // 2^17 products of -128 by -128 leave an int32.
  static constexpr std::int64_t kMostInnerInt8 = (1 << 17) - 1;

  DType dtype;
  std::int64_t rows, columns, inner;
  const void* a = nullptr;  // [rows, inner]
  const void* b = nullptr;  // [inner, columns], constant
  void* c = nullptr;        // [rows, columns]; fp32 for fp16, bf16, tf32, fp8 and nvfp4, int32 for int8
  Scales scales;            // constant

  static DType result(DType dtype) { return dtype == DType::int8 ? DType::int32 : dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

  static Matmul from(const Arguments& arguments) {
    Matmul problem{};
    problem.dtype = arguments.dtype();
    problem.rows = arguments.dimension("rows");
    problem.columns = arguments.dimension("columns");
    problem.inner = arguments.dimension("inner");
    if (problem.dtype == DType::int8 && problem.inner > kMostInnerInt8)
      throw Error("matmul: inner must be below 2^17 for int8, so that sums fit in int32, got " + std::to_string(problem.inner));
    problem.a = arguments.tensor("a", problem.dtype, {problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.dtype, {problem.inner, problem.columns}).data;
    problem.c = arguments.tensor("c", result(problem.dtype), {problem.rows, problem.columns}).data;
    problem.scales = Scales::from(arguments, {}, problem.rows, problem.columns, problem.inner);
    return problem;
  }
};

}  // namespace roofline::ops
