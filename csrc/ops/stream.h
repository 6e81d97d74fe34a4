// stream: STREAM-like accesses to memory. a, b are read, c is written; which of them exist depends on `access`. An update is a
// scale whose a is c.
#pragma once

#include "core/arguments.h"

namespace roofline::ops {

struct Stream {
  static constexpr const char* op = "stream";

  enum class Access { read, write, copy, scale, add, triad };
  enum class Prefetch { none, nta, sparse };

  Access access;
  bool in_place;              // update: c = factor c
  DType dtype;
  std::int64_t elements;      // of each array
  std::int64_t passes;        // over the arrays in one launch
  std::int64_t streams;       // address streams per thread
  std::int64_t stride;        // in elements; read: 0, stride, 2 stride, ..., then 1, 1 + stride, ...: every element once
  std::string isa;            // instruction set to use; empty: the widest there is
  Prefetch prefetch;          // read: past the caches, for every line; or to L2, for one line in four
  std::int64_t in_flight_bytes;  // per multiprocessor of a GPU; 0: what serves best
  double factor;              // of scale, update and triad; the value that write stores
  const void* a = nullptr;    // [elements]; read, copy, scale, add, triad; c itself where in place
  const void* b = nullptr;    // [elements]; add, triad
  void* c = nullptr;          // [elements]; all but read
  double* sum = nullptr;      // [1]; read: the sum over all passes

  bool reads_a() const { return access != Access::write; }
  bool reads_b() const { return access == Access::add || access == Access::triad; }
  bool writes_c() const { return access != Access::read; }

  static Stream from(const Arguments& arguments) {
    Stream problem{};
    problem.in_place = arguments.text("access") == "update";
    problem.access = problem.in_place
                         ? Access::scale
                         : arguments.choice<Access>("access", {"read", "write", "copy", "scale", "add", "triad", "update"});
    problem.dtype = arguments.dtype();
    arguments.dimensions({{"elements", &problem.elements}, {"passes", &problem.passes}, {"streams", &problem.streams},
                          {"stride", &problem.stride}});
    problem.isa = arguments.text("isa");
    problem.in_flight_bytes = arguments.integer("in_flight_bytes");
    problem.prefetch = arguments.choice<Prefetch>("prefetch", {"none", "nta", "sparse"});
    const bool prefetched = problem.prefetch != Prefetch::none;
    if (problem.access != Access::read && (prefetched || problem.stride != 1))
      throw Error("stream: prefetch and stride are of read only, got access '" + arguments.text("access") + "'");
    if (problem.stride != 1 && (prefetched || problem.streams != 1))
      throw Error("stream: a strided read has one stream and no prefetch");
    problem.factor = arguments.number("factor");
    const Shape shape = {problem.elements};
    if (problem.writes_c()) problem.c = arguments.tensor("c", problem.dtype, shape).data;
    if (problem.reads_a()) problem.a = problem.in_place ? problem.c : arguments.tensor("a", problem.dtype, shape).data;
    if (problem.reads_b()) problem.b = arguments.tensor("b", problem.dtype, shape).data;
    if (!problem.writes_c()) problem.sum = arguments.tensor("sum", DType::fp64, {1}).as<double>();
    return problem;
  }
};

}  // namespace roofline::ops
