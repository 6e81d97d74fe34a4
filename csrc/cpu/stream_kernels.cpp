// Memory accesses, one thread's range. Eight vectors are in flight per step: eight of one address stream, or fewer of several.
#include "cpu/stream_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

enum Access { kRead, kWrite, kCopy, kScale, kAdd, kTriad };

constexpr int kVectorBytes = kLanes == 1 ? 0 : kLanes * 4;

template <class T, int Bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T>
struct VectorOf<T, 0> {
  typedef T type;  // the scalar set
};

template <class T>
using V = typename VectorOf<T, kVectorBytes>::type;

template <class T>
ROOFLINE_INLINE V<T> get(const T* p) {
  V<T> x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

template <bool NonTemporal, class T>
ROOFLINE_INLINE void put(T* p, V<T> x) {
  if constexpr (NonTemporal && sizeof(V<T>) == sizeof(Vec)) {
    Vec bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    stream(reinterpret_cast<float*>(p), bits);
  } else {
    __builtin_memcpy(p, &x, sizeof x);
  }
}

template <int Access, class T, class X>
ROOFLINE_INLINE X value(const T* a, const T* b, X factor, X (*at)(const T*)) {
  if constexpr (Access == kWrite) return factor;
  if constexpr (Access == kCopy) return at(a);
  if constexpr (Access == kScale) return factor * at(a);
  if constexpr (Access == kAdd) return at(a) + at(b);
  return at(a) + factor * at(b);
}

template <class T>
ROOFLINE_INLINE T one(const T* p) {
  return *p;
}

template <class T, int Access, bool NonTemporal, int Streams>
double walk(const StreamRange& range) {
  constexpr int kPerStream = 8 / Streams;
  constexpr std::int64_t kWidth = sizeof(V<T>) / sizeof(T);
  constexpr std::int64_t kStep = kPerStream * kWidth;
  // Parts begin on cache lines, so that non-temporal stores stay aligned and no line is shared.
  constexpr std::int64_t kLine = 64 / sizeof(T);
  constexpr std::int64_t kPart = kStep > kLine ? kStep : kLine;
  const T* a = static_cast<const T*>(range.a);
  const T* b = static_cast<const T*>(range.b);
  T* c = static_cast<T*>(range.c);
  const T factor = static_cast<T>(range.factor);
  const V<T> factors = V<T>{} + factor;
  const std::int64_t part = range.n / Streams / kPart * kPart;
  const std::int64_t walked = part * Streams;
  V<T> sums[8] = {};
  T tail{};
  for (std::int64_t pass = 0; pass < range.passes; ++pass) {
    for (std::int64_t i = 0; i < part; i += kStep) {
#pragma GCC unroll 8
      for (int s = 0; s < Streams; ++s) {
#pragma GCC unroll 8
        for (int u = 0; u < kPerStream; ++u) {
          const std::int64_t at = s * part + i + u * kWidth;
          if constexpr (Access == kRead)
            sums[s * kPerStream + u] += get(a + at);
          else
            put<NonTemporal>(c + at, value<Access, T, V<T>>(a + at, b + at, factors, get<T>));
        }
      }
    }
    for (std::int64_t i = walked; i < range.n; ++i) {
      if constexpr (Access == kRead)
        tail += a[i];
      else
        c[i] = value<Access, T, T>(a + i, b + i, factor, one<T>);
    }
    asm volatile("" ::: "memory");  // every pass really happens
  }
  if constexpr (NonTemporal) fence();
  if constexpr (Access != kRead) return 0;
  double sum = tail;
  T lanes[sizeof(V<T>) / sizeof(T)];
  for (const V<T>& x : sums) {
    __builtin_memcpy(lanes, &x, sizeof x);
    for (const T lane : lanes) sum += lane;
  }
  return sum;
}

template <class T, int Access, bool NonTemporal>
double run(const StreamRange& range) {
  switch (range.streams) {
    case 2: return walk<T, Access, NonTemporal, 2>(range);
    case 4: return walk<T, Access, NonTemporal, 4>(range);
    case 8: return walk<T, Access, NonTemporal, 8>(range);
    default: return walk<T, Access, NonTemporal, 1>(range);
  }
}

#define ROOFLINE_ACCESSES(T)                                                                              \
  {                                                                                                       \
    {run<T, kRead, false>, nullptr}, {run<T, kWrite, false>, run<T, kWrite, true>},                       \
        {run<T, kCopy, false>, run<T, kCopy, true>}, {run<T, kScale, false>, run<T, kScale, true>},       \
        {run<T, kAdd, false>, run<T, kAdd, true>}, { run<T, kTriad, false>, run<T, kTriad, true> }        \
  }

}  // namespace

extern const StreamKernels ROOFLINE_TABLE(stream) = {{ROOFLINE_ACCESSES(float), ROOFLINE_ACCESSES(double)}};

}  // namespace roofline::cpu
