// A step of Adam, one thread's range: all of it in registers between a load and a store of each tensor. Which elements a tensor has
// is asked at every access, in the same way every time, which costs nothing beside a square root and a division: no kernel for each
// of 54 combinations.
#include "cpu/adam_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

// Elements ahead that are fetched, within the range: another thread's lines are left where they are. Hardware alone follows so many
// streams, which are written too, less far: an Intel Xeon makes 53 instead of 60 GB/s of fp32. One line in four, into L2, starts
// hardware as well; every line into L1 takes the few buffers of its misses, and an AMD EPYC (family 25, model 17) loses a quarter.
constexpr std::int64_t kAhead = 1024;

// kVectors vectors of n elements each from `at` on; n is below kLanes only for one.
template <class T, int kVectors>
ROOFLINE_INLINE void read_as(const void* x, std::int64_t at, int n, bool fetch, Vec (&values)[kVectors]) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  if (fetch) {
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < kVectors * kLanes; i += kLine)
      if ((at + i) % (4 * kLine) == 0) __builtin_prefetch(static_cast<const T*>(x) + at + kAhead + i, 0, 2);
  }
#pragma GCC unroll 2
  for (int u = 0; u < kVectors; ++u) values[u] = get(static_cast<const T*>(x) + at + u * kLanes, n, zero());
}
template <int kVectors>
ROOFLINE_INLINE void read(const void* x, Element element, std::int64_t at, int n, bool fetch, Vec (&values)[kVectors]) {
  if (element == kFp32)
    read_as<float>(x, at, n, fetch, values);
  else if (element == kBf16)
    read_as<Bf16>(x, at, n, fetch, values);
  else
    read_as<Fp16>(x, at, n, fetch, values);
}

template <class T, bool NonTemporal, int kVectors>
ROOFLINE_INLINE void write_as(void* x, std::int64_t at, int n, const Vec (&values)[kVectors]) {
#pragma GCC unroll 2
  for (int u = 0; u < kVectors; ++u) {
    T* const to = static_cast<T*>(x) + at + u * kLanes;
    if (NonTemporal && n == kLanes)
      stream(to, values[u]);
    else
      put(to, n, values[u]);
  }
}
template <bool NonTemporal, int kVectors>
ROOFLINE_INLINE void write(void* x, Element element, std::int64_t at, int n, const Vec (&values)[kVectors]) {
  if (element == kFp32)
    write_as<float, NonTemporal>(x, at, n, values);
  else if (element == kBf16)
    write_as<Bf16, NonTemporal>(x, at, n, values);
  else
    write_as<Fp16, NonTemporal>(x, at, n, values);
}

template <bool NonTemporal>
void step(const AdamPart& given) {
  const AdamPart part = given;  // nothing that is stored can change it
  const Vec beta1 = set1(part.beta1), rest1 = set1(part.rest1), beta2 = set1(part.beta2), rest2 = set1(part.rest2);
  const Vec keep = set1(part.keep), step = set1(-part.step), root = set1(part.root), eps = set1(part.eps);
  void* const kept = part.master ? part.master : part.p;
  const Element of_kept = part.master ? kFp32 : part.parameter;
  const auto update = [&](auto& p, std::int64_t at, int n) __attribute__((always_inline)) {
    constexpr int kVectors = sizeof p / sizeof p[0];
    Vec g[kVectors], m[kVectors], v[kVectors];
    const bool fetch = at + kAhead + kVectors * kLanes <= part.elements;
    read(part.g, part.gradient, at, n, fetch, g);
    read(part.m, part.moment, at, n, fetch, m);
    read(part.v, part.moment, at, n, fetch, v);
    read(kept, of_kept, at, n, fetch, p);
#pragma GCC unroll 2
    for (int u = 0; u < kVectors; ++u) {
      m[u] = fma(beta1, m[u], mul(rest1, g[u]));
      v[u] = fma(beta2, max(v[u], sub(zero(), v[u])), mul(mul(rest2, g[u]), g[u]));
      p[u] = fma(step, div(m[u], fma(sqrt(v[u]), root, eps)), mul(keep, p[u]));
    }
    write<false>(part.m, part.moment, at, n, m);
    write<false>(part.v, part.moment, at, n, v);
    if (part.master) write<false>(part.master, kFp32, at, n, p);
    write<NonTemporal>(part.p, part.parameter, at, n, p);
  };
  Vec two[2], one[1];
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= part.elements; i += 2 * kLanes) update(two, i, kLanes);
  for (; i + kLanes <= part.elements; i += kLanes) update(one, i, kLanes);
  if (i < part.elements) update(one, i, static_cast<int>(part.elements - i));
  if constexpr (NonTemporal) fence();
}

}  // namespace

extern const AdamKernels ROOFLINE_TABLE(adam) = {{step<false>, step<true>}};

}  // namespace roofline::cpu
