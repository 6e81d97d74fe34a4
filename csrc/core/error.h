// Errors that cross the border to Python. One message each: what is wrong, where, and what to change.
#pragma once

#include <stdexcept>
#include <string>

namespace roofline {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This device, build or library cannot do it; the message says why and, where there is one, the cure.
struct Unsupported : Error {
  using Error::Error;
};

struct OutOfMemory : Error {
  using Error::Error;
};

// The caller interrupted a measurement; what was finished before is kept by the caller.
struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("cancelled") {}
};

}  // namespace roofline
