// What timed streams of fp32 and fp64 share: vectors of the set's size, and how often their sums go to fp64.
#pragma once

#include "cpu/elements.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

template <class T, int Bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T>
struct VectorOf<T, 0> {
  typedef T type;  // the scalar set
};
template <class T>
using V = typename VectorOf<T, kLanes == 1 ? 0 : kLanes * 4>::type;

template <class X, class T>
ROOFLINE_INLINE X get(const T* p) {
  X x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

// Passes over the same values make the same rounding errors. So that they do not grow with the square of the passes, sums go to fp64
// this often: of a read 20 cycles, which are lost among the loads of 32 passes.
constexpr std::int64_t kPassesPerTotal = 32;

}  // namespace
}  // namespace roofline::cpu
