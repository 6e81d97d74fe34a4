// mixed_intensity: one read of an array with a chosen number of multiply-adds per element, the kernel behind a measured roofline.
//
// For each element x of the lines that are computed on: y = x, then multiply_adds - 1 times y <- y + y alpha, then sum += y gamma.
// The first of every `every` lines of 64 bytes is computed on and the others are only loaded. alpha and gamma reach the kernels at
// run time. y shrinks by 2^-9 a step: every step shows in the sum, and the largest number of them leaves y far from denormal.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct MixedIntensity {
  static constexpr const char* op = "mixed_intensity";
  static constexpr double alpha = -0x1p-9, gamma = 0.75;
  static constexpr std::int64_t most = 16384;  // multiply_adds

  DType dtype;
  std::int64_t elements;
  std::int64_t passes;         // over the array in one launch
  std::int64_t multiply_adds;  // per element that is computed on
  std::int64_t every;          // 1, 2, 4 or 8 lines
  std::int64_t streams;        // address streams per thread, 1 or 2
  std::string isa;             // instruction set to use; empty: the widest there is
  const void* a;               // [elements]
  double* sum;                 // [1]: over all passes

  static MixedIntensity from(const Arguments& arguments) {
    MixedIntensity problem{};
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"elements", &problem.elements}, {"passes", &problem.passes}, {"multiply_adds", &problem.multiply_adds},
                          {"every", &problem.every}, {"streams", &problem.streams}});
    if (problem.every > 8 || (problem.every & (problem.every - 1)) != 0)
      throw Error("mixed_intensity: every must be one of 1, 2, 4, 8, got " + std::to_string(problem.every));
    if (problem.streams > 2) throw Error("mixed_intensity: streams must be one of 1, 2, got " + std::to_string(problem.streams));
    if (problem.multiply_adds > most)
      throw Error("mixed_intensity: multiply_adds must be at most 16384, got " + std::to_string(problem.multiply_adds));
    problem.isa = arguments.text("isa");
    problem.a = arguments.tensor("a", problem.dtype, {problem.elements}).data;
    problem.sum = arguments.tensor("sum", DType::fp64, {1}).as<double>();
    return problem;
  }
};

}  // namespace roofline::ops
