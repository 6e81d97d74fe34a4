// Collectives over ranks, seen from one of them: all_reduce, all_gather, reduce_scatter and all_to_all. The parts that come from
// other ranks are tensors of the problem too: what those ranks hold is made from them, outside the clock.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

enum class Pattern : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

struct Collective {
  Pattern pattern;
  DType dtype;
  std::int64_t elements;            // of the whole tensor
  std::int64_t ranks;
  const void* x = nullptr;          // [elements]; all_gather: [chunk()]
  const void* received = nullptr;   // [ranks - 1, chunk()]: what each other rank has for this one
  const void* finished = nullptr;   // [ranks - 1, chunk()]; all_reduce: the sums of the other parts
  void* out = nullptr;              // [elements]; reduce_scatter: [chunk()]; all_reduce: x itself

  std::int64_t chunk() const { return elements / ranks + (elements % ranks != 0); }
};

template <Pattern pattern_>
struct CollectiveOf : Collective {
  static constexpr const char* op = pattern_ == Pattern::all_reduce       ? "all_reduce"
                                    : pattern_ == Pattern::all_gather     ? "all_gather"
                                    : pattern_ == Pattern::reduce_scatter ? "reduce_scatter"
                                                                          : "all_to_all";

  static CollectiveOf from(const Arguments& arguments) {
    CollectiveOf problem{};
    problem.pattern = pattern_;
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"elements", &problem.elements}, {"ranks", &problem.ranks}});
    const Shape whole = {problem.elements}, part = {problem.chunk()}, others = {problem.ranks - 1, problem.chunk()};
    const auto tensor = [&](const char* name, const Shape& shape) { return arguments.tensor(name, problem.dtype, shape).data; };
    problem.x = tensor("x", pattern_ == Pattern::all_gather ? part : whole);
    const bool sums = pattern_ == Pattern::all_reduce || pattern_ == Pattern::reduce_scatter;
    problem.received = tensor(sums ? "partial" : "others", others);
    if (pattern_ == Pattern::all_reduce) {
      problem.finished = tensor("finished", others);
      problem.out = const_cast<void*>(problem.x);
    } else {
      problem.out = tensor("out", pattern_ == Pattern::reduce_scatter ? part : whole);
    }
    return problem;
  }
};

}  // namespace roofline::ops
