// fork_join: nothing, on every thread of a device (or one empty launch): the floor below which no operator can be.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct ForkJoin {
  static constexpr const char* op = "fork_join";

  static ForkJoin from(const Arguments&) { return {}; }
};

}  // namespace roofline::ops
