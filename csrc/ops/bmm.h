// bmm: c[i] = a[i] b[i] for every i of the batch. Operands without scales.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Bmm {
  static constexpr const char* op = "bmm";

  DType dtype, out_dtype;
  std::int64_t batch, rows, columns, inner;
  const void* a = nullptr;  // [batch, rows, inner]
  const void* b = nullptr;  // [batch, inner, columns]
  void* c = nullptr;        // [batch, rows, columns] in out_dtype

  static Bmm from(const Arguments& arguments) {
    Bmm problem{};
    problem.dtype = arguments.dtype();
    problem.out_dtype = dtype_named(arguments.text("out_dtype"));
    problem.batch = arguments.dimension("batch");
    problem.rows = arguments.dimension("rows");
    problem.columns = arguments.dimension("columns");
    problem.inner = arguments.dimension("inner");
    if (arguments.text("scales") != "none")
      throw Unsupported("bmm: there is no kernel for scales " + arguments.text("scales") + "; use scales none");
    problem.a = arguments.tensor("a", problem.dtype, {problem.batch, problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.dtype, {problem.batch, problem.inner, problem.columns}).data;
    problem.c = arguments.tensor("c", problem.out_dtype, {problem.batch, problem.rows, problem.columns}).data;
    return problem;
  }
};

}  // namespace roofline::ops
