// adam: one step of the optimiser over all parameters, in place (Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter,
// arXiv:1711.05101):
//   m = beta1 m + (1 - beta1) g,  v = beta2 |v| + (1 - beta2) g²,  p = p (1 - rate decay) - step m / (sqrt(v) / root + eps)
#pragma once

#include <cmath>

#include "core/arguments.h"

namespace roofline::ops {

struct Adam {
  static constexpr const char* op = "adam";

  // As Kingma and Ba propose, at the first step: step and root undo that m and v begin at 0.
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kRate = 1e-3, kEps = 1e-8, kDecay = 1e-2;
  static double step() { return kRate / (1 - kBeta1); }
  static double root() { return std::sqrt(1 - kBeta2); }

  DType dtype, gradient_dtype, moment_dtype;
  std::int64_t elements;
  bool decayed;             // with weight decay
  void* p = nullptr;        // [elements] in dtype; written, and read where there is no master
  void* master = nullptr;   // [elements] in fp32, read and written; null for none
  const void* g = nullptr;  // [elements] in gradient_dtype
  void* m = nullptr;        // [elements] in moment_dtype, read and written
  void* v = nullptr;        // [elements] in moment_dtype, read and written

  static Adam from(const Arguments& arguments) {
    Adam problem{};
    problem.dtype = arguments.dtype();
    const auto floating = [&](const char* field) {
      const DType dtype = dtype_named(arguments.text(field));
      if (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16)
        throw Error(std::string("adam: ") + field + " must be one of fp32, fp16, bf16, got '" + name(dtype) + "'");
      return dtype;
    };
    problem.gradient_dtype = floating("gradient_dtype");
    problem.moment_dtype = floating("moment_dtype");
    problem.elements = arguments.dimension("elements");
    problem.decayed = arguments.flag("decayed");
    const Shape shape = {problem.elements};
    product({problem.elements, 4}, arguments.op());
    problem.p = arguments.tensor("p", problem.dtype, shape).data;
    if (arguments.flag("master")) problem.master = arguments.tensor("master", DType::fp32, shape).data;
    problem.g = arguments.tensor("g", problem.gradient_dtype, shape).data;
    problem.m = arguments.tensor("m", problem.moment_dtype, shape).data;
    problem.v = arguments.tensor("v", problem.moment_dtype, shape).data;
    return problem;
  }
};

}  // namespace roofline::ops
