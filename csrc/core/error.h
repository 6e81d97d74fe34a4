// Errors that cross the border to Python. One message each: the fault, its place and its cure.
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

// Throws Unsupported where there is a reason.
inline void refuse(const std::string& op, const std::string& reason) {
  if (!reason.empty()) throw Unsupported(op + ": " + reason);
}

struct OutOfMemory : Error {
  using Error::Error;
};

// The caller interrupted a measurement; what was finished before is kept by the caller.
struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("cancelled") {}
};

}  // namespace roofline
