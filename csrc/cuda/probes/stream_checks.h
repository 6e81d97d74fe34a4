// What stream's variants refuse.
#pragma once

#include <string>

#include "cuda/device.h"
#include "cuda/probes/stream_plan.h"
#include "ops/stream.h"

namespace roofline::cuda {

// Throws Unsupported for what only CPUs have.
inline void refuse_for_cpus(const ops::Stream& problem) {
  if (!problem.isa.empty() && problem.isa != "scalar")
    throw Unsupported("stream: isa '" + problem.isa + "' is an instruction set of CPUs; leave it empty or 'scalar' on a GPU");
  if (problem.prefetch != ops::Stream::Prefetch::none)
    throw Unsupported("stream: prefetches are instructions of CPUs; use prefetch none on a GPU");
  if (!is_in_flight(problem.in_flight_bytes))
    throw Error("stream: in_flight_bytes must be 0 or 32, 64, 96, 128 or 192 KiB, got " + std::to_string(problem.in_flight_bytes));
}

// Throws Unsupported where the problem asks for more than one contiguous stream of 128-bit accesses.
inline void refuse_but_vectors(const ops::Stream& problem, const char* variant) {
  const std::string here = std::string("stream: ") + variant + " ";
  if (problem.stride != 1 || problem.isa == "scalar")
    throw Unsupported(here + "moves whole lines; use plain for strides and single elements");
  if (problem.streams != 1) throw Unsupported(here + "has one address stream; use streams 1");
}

}  // namespace roofline::cuda
