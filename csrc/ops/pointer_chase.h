// pointer_chase: loads each of which waits for the one before, through a cycle over lines of 64 bytes: latency, nothing else.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct PointerChase {
  static constexpr const char* op = "pointer_chase";
  static constexpr std::int64_t kLineBytes = 64;

  std::int64_t lines;                   // of the cycle
  std::int64_t hops;                    // loads of one launch
  bool huge_pages;                      // asked for; false: refused
  const std::int32_t* order = nullptr;  // [lines]; a permutation: line order[i] leads to line order[i + 1], the last to the first
  std::int32_t* reached = nullptr;      // [1]; the line `hops` hops after order[0]

  std::int64_t size_bytes() const { return lines * kLineBytes; }

  static PointerChase from(const Arguments& arguments) {
    PointerChase problem{};
    const std::int64_t size = arguments.dimension("size_bytes");
    if (size % kLineBytes != 0) throw Error("pointer_chase: size_bytes must be a multiple of 64, got " + std::to_string(size));
    problem.lines = size / kLineBytes;
    if (problem.lines > std::numeric_limits<std::int32_t>::max())
      throw Error("pointer_chase: size_bytes " + std::to_string(size) +
                  " has more lines than int32 numbers them; the most is 128 GiB less 64");
    problem.hops = arguments.dimension("hops");
    problem.huge_pages = arguments.choice<bool>("pages", {"small", "huge"});
    problem.order = arguments.tensor("order", DType::int32, {problem.lines}).as<const std::int32_t>();
    problem.reached = arguments.tensor("reached", DType::int32, {1}).as<std::int32_t>();
    return problem;
  }
};

}  // namespace roofline::ops
