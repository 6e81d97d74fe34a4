// mma: products of tiles held in registers or shared memory, the probe of the tensor units.
//
// c[t] <- c[t] + a[step mod 2][t] bᵀ[t], from c[t] = 0 and for every step in turn. With a[1] = -a[0], as the probe has it, an odd
// number of steps gives a product and an even one zeros. b is stored as the units read it, the inner dimension last.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Mma {
  static constexpr const char* op = "mma";

  DType dtype;
  DType accumulator;
  std::int64_t tiles;  // independent of each other
  std::int64_t rows, columns, inner;  // of one tile
  std::int64_t steps;
  const void* a;  // [2, tiles, rows, inner]
  const void* b;  // [tiles, columns, inner]
  void* c;        // [tiles, rows, columns], of the accumulator's dtype

  // What sums are kept in where nothing is said.
  static DType usual_accumulator(DType dtype) {
    const bool whole = dtype == DType::int8 || dtype == DType::int4;
    return dtype == DType::fp64 ? DType::fp64 : whole ? DType::int32 : DType::fp32;
  }

  static Mma from(const Arguments& arguments) {
    Mma problem{};
    problem.dtype = arguments.dtype();
    const std::string& accumulator = arguments.text("accumulator");
    problem.accumulator = accumulator.empty() ? usual_accumulator(problem.dtype) : dtype_named(accumulator);
    arguments.dimensions({{"tiles", &problem.tiles}, {"rows", &problem.rows}, {"columns", &problem.columns},
                          {"inner", &problem.inner}, {"steps", &problem.steps}});
    problem.a = arguments.tensor("a", problem.dtype, {2, problem.tiles, problem.rows, problem.inner}).data;
    problem.b = arguments.tensor("b", problem.dtype, {problem.tiles, problem.columns, problem.inner}).data;
    problem.c = arguments.tensor("c", problem.accumulator, {problem.tiles, problem.rows, problem.columns}).data;
    return problem;
  }
};

}  // namespace roofline::ops
