// A step of Adam of one instruction set: each call does a contiguous range of elements on one thread. ops/adam.h says what is
// computed.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

struct AdamPart {
  void* p;        // [elements] in `parameter`; written, and read where there is no master
  float* master;  // [elements], read and written; null for none
  const void* g;  // [elements] in `gradient`
  void* m;        // [elements] in `moment`, read and written
  void* v;        // [elements] in `moment`, read and written
  std::int64_t elements;
  Element parameter, gradient, moment;
  float beta1, rest1;      // rest: 1 - beta
  float beta2, rest2;
  float keep;              // 1 - rate decay, or 1
  float step, root, eps;   // p keep - step m / (sqrt(v) root + eps): root is the inverse of ops::Adam's
};

struct AdamKernels {
  // [1]: p is stored past the caches. It begins on a cache line then, and there is a master: without, its lines are read anyway.
  void (*step[2])(const AdamPart&);
};

ROOFLINE_DECLARE_TABLES(AdamKernels, adam);

}  // namespace roofline::cpu
