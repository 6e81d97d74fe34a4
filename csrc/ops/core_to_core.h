// core_to_core: two threads hand one cache line back and forth.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct CoreToCore {
  static constexpr const char* op = "core_to_core";

  std::int64_t first, second;         // the threads, numbered from 0
  std::int64_t rounds;                // there and back, in one launch
  std::int32_t* handovers = nullptr;  // [1]; how often the line was handed over: 2 * rounds

  static CoreToCore from(const Arguments& arguments) {
    CoreToCore problem{};
    problem.first = arguments.integer("first");
    problem.second = arguments.integer("second");
    if (problem.first < 0 || problem.second < 0 || problem.first == problem.second)
      throw Error("core_to_core: first and second must be two different threads, got " + std::to_string(problem.first) + " and " +
                  std::to_string(problem.second));
    problem.rounds = arguments.dimension("rounds");
    if (problem.rounds > std::numeric_limits<std::int32_t>::max() / 2)
      throw Error("core_to_core: rounds must be below 2^30, got " + std::to_string(problem.rounds));
    problem.handovers = arguments.tensor("handovers", DType::int32, {1}).as<std::int32_t>();
    return problem;
  }
};

}  // namespace roofline::ops
