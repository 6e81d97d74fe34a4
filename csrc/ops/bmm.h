// bmm: c[i] = a[i] b[i] for every i of the batch.
#pragma once

#include "ops/scales.h"

namespace roofline::ops {

struct Bmm {
  static constexpr const char* op = "bmm";

  DType dtype, out_dtype;
  std::int64_t batch, rows, columns, inner;
  const void* a = nullptr;  // [batch, rows, inner]
  const void* b = nullptr;  // [batch, inner, columns]
  void* c = nullptr;        // [batch, rows, columns] in out_dtype
  Scales scales;

  static Bmm from(const Arguments& arguments) {
    Bmm problem{};
    problem.dtype = arguments.dtype();
    problem.out_dtype = dtype_named(arguments.text("out_dtype"));
    arguments.dimensions({{"batch", &problem.batch}, {"rows", &problem.rows}, {"columns", &problem.columns},
                          {"inner", &problem.inner}});
    problem.a = arguments.tensor("a", problem.dtype, {problem.batch, problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.dtype, {problem.batch, problem.inner, problem.columns}).data;
    problem.c = arguments.tensor("c", problem.out_dtype, {problem.batch, problem.rows, problem.columns}).data;
    problem.scales = Scales::from(arguments, {problem.batch}, problem.rows, problem.columns, problem.inner);
    return problem;
  }
};

}  // namespace roofline::ops
