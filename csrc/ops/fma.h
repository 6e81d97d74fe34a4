// fma: independent chains of multiply-adds held in registers, the probe of the compute roofs.
//
// Pattern fma: one step of a chain is acc <- acc + s w (3 * 5), with s = +1 and -1 in turn, beginning with +1, and w the products
// one step adds: 1 for fp64, fp32 and fp16, 2 for bf16 (accumulated in fp32) and int16, 4 for int8 (both in int32). So an even
// number of steps ends where it began, an odd one 15 w above.
// Pattern fma_add: acc <- acc + s (3 * 3 - 3), a multiply-add and an addition; an odd number of steps ends 6 above.
// Operands reach the kernels at run time, so that no compiler can fold them.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Fma {
  static constexpr const char* op = "fma";

  enum class Pattern { fma, fma_add };

  Pattern pattern;
  DType dtype;
  std::int64_t chains;
  std::int64_t steps;  // of each chain
  std::string isa;     // instruction set to use; empty: the widest there is
  const void* start;   // [chains], of the accumulator's dtype
  void* result;        // [chains]

  static DType accumulator(DType dtype) {
    return dtype == DType::bf16 ? DType::fp32 : dtype == DType::int8 || dtype == DType::int16 ? DType::int32 : dtype;
  }

  static Fma from(const Arguments& arguments) {
    Fma problem{};
    problem.pattern = arguments.choice<Pattern>("pattern", {"fma", "fma_add"});
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"chains", &problem.chains}, {"steps", &problem.steps}});
    problem.isa = arguments.text("isa");
    const DType accumulator = Fma::accumulator(problem.dtype);
    problem.start = arguments.tensor("start", accumulator, {problem.chains}).data;
    problem.result = arguments.tensor("result", accumulator, {problem.chains}).data;
    return problem;
  }
};

}  // namespace roofline::ops
