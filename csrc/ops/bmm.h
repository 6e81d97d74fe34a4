// bmm: c[i] = a[i] b[i] for every i of the batch. Operands may have scales, in fp32.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Bmm {
  static constexpr const char* op = "bmm";

  // tensor: one for a, one for b; row: one for each row of a and column of b; block: one for each scale_block along inner of those.
  enum class Scales { none, tensor, row, block };

  DType dtype, out_dtype;
  std::int64_t batch, rows, columns, inner;
  Scales scales;
  std::int64_t scale_block;
  const void* a = nullptr;        // [batch, rows, inner]
  const void* b = nullptr;        // [batch, inner, columns]
  const void* a_scale = nullptr;  // [1], [batch, rows] or [batch, rows, scale_blocks()]
  const void* b_scale = nullptr;  // [1], [batch, columns] or [batch, scale_blocks(), columns]
  void* c = nullptr;              // [batch, rows, columns] in out_dtype

  std::int64_t scale_blocks() const { return (inner + scale_block - 1) / scale_block; }

  static Bmm from(const Arguments& arguments) {
    Bmm problem{};
    problem.dtype = arguments.dtype();
    problem.out_dtype = dtype_named(arguments.text("out_dtype"));
    problem.batch = arguments.dimension("batch");
    problem.rows = arguments.dimension("rows");
    problem.columns = arguments.dimension("columns");
    problem.inner = arguments.dimension("inner");
    problem.a = arguments.tensor("a", problem.dtype, {problem.batch, problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.dtype, {problem.batch, problem.inner, problem.columns}).data;
    problem.c = arguments.tensor("c", problem.out_dtype, {problem.batch, problem.rows, problem.columns}).data;
    const std::string& scales = arguments.text("scales");
    if (scales == "none") return problem;
    if (arguments.integer("scale_bits") != 32)
      throw Unsupported("bmm: kernels take scales in fp32, got scale_bits " + std::to_string(arguments.integer("scale_bits")));
    Shape a = {1}, b = {1};
    if (scales == "tensor") {
      problem.scales = Scales::tensor;
    } else if (scales == "row") {
      problem.scales = Scales::row;
      a = {problem.batch, problem.rows}, b = {problem.batch, problem.columns};
    } else if (scales == "block") {
      problem.scales = Scales::block;
      problem.scale_block = arguments.dimension("scale_block");
      a = {problem.batch, problem.rows, problem.scale_blocks()}, b = {problem.batch, problem.scale_blocks(), problem.columns};
    } else {
      throw Unsupported("bmm: there is no kernel for scales " + scales + "; use none, tensor, row or block");
    }
    problem.a_scale = arguments.tensor("a_scale", DType::fp32, a).data;
    problem.b_scale = arguments.tensor("b_scale", DType::fp32, b).data;
    return problem;
  }
};

}  // namespace roofline::ops
