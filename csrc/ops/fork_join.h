// fork_join: nothing, on every thread of a device (or by empty launches): the floor below which no operator can be.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct ForkJoin {
  static constexpr const char* op = "fork_join";

  std::int64_t calls;  // one after the other in one launch

  static ForkJoin from(const Arguments& arguments) { return {arguments.dimension("calls")}; }
};

}  // namespace roofline::ops
