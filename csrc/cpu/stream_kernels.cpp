// Memory accesses, one thread's range, walked as one address stream or as several side by side.
//
// A pass may be as short as 100 cycles (a set in L1), so nothing but a pointer changes between two: the sums stay in registers.
#include "cpu/stream_kernels.h"

#include "cpu/isa.h"
#include "cpu/pace.h"
#include "cpu/stream_vectors.h"

namespace roofline::cpu {
namespace {

// Assembly for what the compiler must not rearrange; the emulation of a set has no registers for it.
#if defined(__x86_64__) && !defined(ROOFLINE_SIMDE)
#define ROOFLINE_ASM
#endif

enum Access { kRead, kWrite, kCopy, kScale, kAdd, kTriad, kLoad };
enum Store { kPlain, kNonTemporal, kPaced };

// Sums of a read. Cores load two or three vectors a cycle and add two, 3 to 4 cycles after each other; those that load three
// (Golden Cove) take the third addition on a port that has only multiply-adds. So the later sums are 1 x + sum: with 32 vectors
// a step, six sums of three additions and seven of two multiply-adds keep every chain below 12 cycles, and all of it fits 16
// registers. The scalar set has no multiply-add.
constexpr int kSums = 13;
constexpr int kAdded = kLanes == 1 ? kSums : 6;

// Prefetches of a read: past the caches for every line (on Zen 3, 128 to 512 bytes ahead serve best with 8 streams, and 2048 lose
// a tenth), or to L2 for one line in four, which leaves the buffers of L1's misses to the hardware's prefetchers.
template <Prefetch Kind>
constexpr std::int64_t kApartBytes = Kind == Prefetch::sparse ? 4 * kLineBytes : kLineBytes;
template <Prefetch Kind, int Streams>
constexpr std::int64_t kAheadBytes = Kind == Prefetch::sparse ? 8192 / Streams : 512;

// Keeps a product out of a fused multiply-add.
template <class X>
ROOFLINE_INLINE X unfused(X product) {
#if defined(ROOFLINE_ASM)
  asm("" : "+v"(product));
#endif
  return product;
}

template <bool NonTemporal, class X, class T>
ROOFLINE_INLINE void put(T* p, X x) {
  if constexpr (NonTemporal && sizeof(X) == sizeof(Vec)) {
    Vec bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    stream(reinterpret_cast<float*>(p), bits);
  } else {
    __builtin_memcpy(p, &x, sizeof x);
  }
}

// sum += *p, in this order and these registers. Left to the compiler, loads change places (62 instead of 64 B/cycle from L1 on
// Zen 3), and scalar sums wandered into integer registers (half the rate).
template <bool Fused, class X, class T>
ROOFLINE_INLINE void accumulate(X& sum, const T* p, [[maybe_unused]] X one) {
#if defined(ROOFLINE_ASM)
  typedef X Unaligned __attribute__((may_alias, aligned(alignof(T))));
  const Unaligned& x = *reinterpret_cast<const Unaligned*>(p);
#if defined(ROOFLINE_SCALAR)
  if constexpr (sizeof(T) == 4)
    asm volatile("addss %1, %0" : "+x"(sum) : "m"(x));
  else
    asm volatile("addsd %1, %0" : "+x"(sum) : "m"(x));
#else
  if constexpr (Fused && sizeof(T) == 4)
    asm volatile("vfmadd231ps %1, %2, %0" : "+v"(sum) : "m"(x), "v"(one));
  else if constexpr (Fused)
    asm volatile("vfmadd231pd %1, %2, %0" : "+v"(sum) : "m"(x), "v"(one));
  else if constexpr (sizeof(T) == 4)
    asm volatile("vaddps %1, %0, %0" : "+v"(sum) : "m"(x));
  else
    asm volatile("vaddpd %1, %0, %0" : "+v"(sum) : "m"(x));
#endif
#else
  sum += get<X>(p);
#endif
}

// A load into a register that nobody uses. Additions take ports from the loads of cores that have as many of one as of the other.
template <class X, class T>
ROOFLINE_INLINE void load_only(const T* p) {
#if defined(ROOFLINE_ASM)
  typedef X Unaligned __attribute__((may_alias, aligned(alignof(T))));
  const Unaligned& from = *reinterpret_cast<const Unaligned*>(p);
  X unused;
#if defined(ROOFLINE_SCALAR)
#define ROOFLINE_VEX ""
#else
#define ROOFLINE_VEX "v"
#endif
  if constexpr (sizeof(X) == 4)
    asm volatile(ROOFLINE_VEX "movss %1, %0" : "=x"(unused) : "m"(from));
  else if constexpr (sizeof(X) == 8)
    asm volatile(ROOFLINE_VEX "movsd %1, %0" : "=x"(unused) : "m"(from));
  else
    asm volatile("vmovups %1, %0" : "=v"(unused) : "m"(from));
#elif defined(__aarch64__)
  typedef X Unaligned __attribute__((may_alias, aligned(alignof(T))));
  const Unaligned& from = *reinterpret_cast<const Unaligned*>(p);
  X unused;
  if constexpr (sizeof(X) == 16)
    asm volatile("ldr %q0, %1" : "=w"(unused) : "m"(from));
  else if constexpr (sizeof(X) == 8)
    asm volatile("ldr %d0, %1" : "=w"(unused) : "m"(from));
  else
    asm volatile("ldr %s0, %1" : "=w"(unused) : "m"(from));
#else
  X x = get<X>(p);
  asm volatile("" : : "m"(x));
#endif
}

template <class T>
struct Totals {
  static constexpr int kWidth = sizeof(V<T>) / sizeof(T);
  typename VectorOf<double, kLanes == 1 ? 0 : kWidth * 8>::type wide{};
  double rest = 0;

  // Adds the sums, and begins them again.
  [[gnu::always_inline]] void take(V<T> (&sums)[kSums]) {
    V<T> all = sums[0];
#pragma GCC unroll 16
    for (int k = 1; k < kSums; ++k) all += sums[k];
    if constexpr (kWidth == 1)
      wide += all;
    else
      wide += __builtin_convertvector(all, decltype(wide));
#pragma GCC unroll 16
    for (int k = 0; k < kSums; ++k) sums[k] = V<T>{};
  }

  [[gnu::always_inline]] double value() const {
    double sum = rest;
    double lanes[kWidth];
    __builtin_memcpy(lanes, &wide, sizeof lanes);
    for (const double lane : lanes) sum += lane;
    return sum;
  }
};

// A product and a sum, not a multiply-add: with both operands from memory, the latter makes 64 instead of 95 B/cycle on Zen 3.
template <int Access, class X, class T>
ROOFLINE_INLINE X value(const T* a, const T* b, X factor) {
  if constexpr (Access == kWrite) return factor;
  if constexpr (Access == kCopy) return get<X>(a);
  if constexpr (Access == kScale) return factor * get<X>(a);
  if constexpr (Access == kAdd) return get<X>(a) + get<X>(b);
  return get<X>(a) + unfused(factor * get<X>(b));
}

template <class T, int Access, int Stores, int Streams, Prefetch Kind>
double walk(const StreamRange& range) {
  // Vectors of each stream per step. Prefetchers learn the stride of an instruction: with 32 loads in turn, 2 KiB apart, one stream
  // from L3 gave 107 instead of 121 GB/s on Zen 5, and two threads 280 instead of 500 GB/s from L2. Sums need all their registers.
  constexpr int kPerStream = Access == kLoad ? 8 : (Access == kRead ? 32 : 16) / Streams;
  constexpr std::int64_t kWidth = sizeof(V<T>) / sizeof(T);
  constexpr std::int64_t kStep = kPerStream * kWidth;
  // Streams begin on cache lines, so that non-temporal stores stay aligned and no line is shared.
  constexpr std::int64_t kLine = kLineBytes / sizeof(T);
  constexpr std::int64_t kPart = kStep > kLine ? kStep : kLine;
  const T* a = static_cast<const T*>(range.a);
  const T* b = static_cast<const T*>(range.b);
  T* c = static_cast<T*>(range.c);
  const T factor = static_cast<T>(range.factor);
  const V<T> factors = V<T>{} + factor;
  const V<T> one = V<T>{} + 1;
  const std::int64_t n = range.n;
  std::int64_t part = n / Streams;
  // Long streams begin a part of a page after each other: at the same place of their pages, they would compete for the same sets
  // of L1, and loads of one would wait for stores of another whose address has the same low 12 bits.
  constexpr std::int64_t kPage = 4096 / sizeof(T);
  if (Streams > 1 && part >= 64 * kPage)
    part = (part / kPage - 1) * kPage + kPage / Streams;
  else
    part = part / kPart * kPart;
  V<T> sums[kSums] = {};
  Totals<T> totals;
  [[maybe_unused]] std::int64_t chain = 1;
  for (std::int64_t pass = 0; pass < range.passes; ++pass) {
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c));  // might be other arrays: every pass really happens
    for (std::int64_t i = 0; i < part; i += kStep) {
#pragma GCC unroll 8
      for (int s = 0; s < Streams; ++s) {
#pragma GCC unroll 32
        for (int u = 0; u < kPerStream; ++u) {
          const std::int64_t at = s * part + i + u * kWidth;
          if constexpr (Kind != Prefetch::none) {
            if (u * kWidth * sizeof(T) % kApartBytes<Kind> == 0)
              __builtin_prefetch(reinterpret_cast<const char*>(a + at) + kAheadBytes<Kind, Streams>, 0,
                                 Kind == Prefetch::sparse ? 2 : 0);
          }
          if constexpr (Access == kRead) {
            const int k = (s * kPerStream + u) % kSums;
            k < kAdded ? accumulate<false>(sums[k], a + at, one) : accumulate<true>(sums[k], a + at, one);
          } else if constexpr (Access == kLoad) {
            load_only<V<T>>(a + at);
          } else {
            if constexpr (Stores == kPaced)
              if (u * kWidth % kLine == 0) pace(chain);
            put<Stores != kPlain>(c + at, value<Access, V<T>>(a + at, b + at, factors));
          }
        }
      }
    }
    std::int64_t i = Streams * part;
#pragma GCC unroll 1
    for (; i + kWidth <= n; i += kWidth) {
      if constexpr (Access == kRead)
        accumulate<false>(sums[0], a + i, one);
      else if constexpr (Access == kLoad)
        load_only<V<T>>(a + i);
      else
        put<Stores != kPlain>(c + i, value<Access, V<T>>(a + i, b + i, factors));
    }
#pragma GCC unroll 1
    for (; i < n; ++i) {
      if constexpr (Access == kRead)
        totals.rest += a[i];
      else if constexpr (Access == kLoad)
        load_only<T>(a + i);
      else
        c[i] = value<Access, T>(a + i, b + i, factor);
    }
    if constexpr (Access == kRead) {
      if ((pass + 1) % kPassesPerTotal == 0) totals.take(sums);
    }
  }
  if constexpr (Stores != kPlain) fence();
  totals.take(sums);
  return totals.value();
}

template <class T, int Access, int Stores, Prefetch Kind>
double with_streams(const StreamRange& range) {
  switch (range.streams) {
    case 2: return walk<T, Access, Stores, 2, Kind>(range);
    case 4: return walk<T, Access, Stores, 4, Kind>(range);
    case 8: return walk<T, Access, Stores, 8, Kind>(range);
    default: return walk<T, Access, Stores, 1, Kind>(range);
  }
}

template <class T, int Access, int Stores>
double run(const StreamRange& range) {
  if constexpr (Access == kRead || Access == kLoad) {
    if (range.prefetch == Prefetch::nta) return with_streams<T, Access, Stores, Prefetch::nta>(range);
    if (range.prefetch == Prefetch::sparse) return with_streams<T, Access, Stores, Prefetch::sparse>(range);
  }
  return with_streams<T, Access, Stores, Prefetch::none>(range);
}

#if defined(ROOFLINE_SCALAR)

// Elements 0, stride, 2 stride, ..., then 1, 1 + stride, ...: each once. One load per element.
template <class T>
double strided(const StreamRange& range) {
  T sums[kSums] = {};
  Totals<T> totals;
  const T* a = static_cast<const T*>(range.a);
  const std::int64_t stride = range.stride;
  for (std::int64_t pass = 0; pass < range.passes; ++pass) {
    asm volatile("" : "+r"(a));  // might be another array: every pass really happens
    for (std::int64_t first = 0; first < stride && first < range.n; ++first) {
      const T* p = a + first;
      std::int64_t left = (range.n - first + stride - 1) / stride;
      for (; left >= kSums; left -= kSums, p += kSums * stride) {
#pragma GCC unroll 16
        for (int k = 0; k < kSums; ++k) accumulate<false>(sums[k], p + k * stride, T{1});
      }
#pragma GCC unroll 1
      for (; left > 0; --left, p += stride) accumulate<false>(sums[0], p, T{1});
    }
    if ((pass + 1) % kPassesPerTotal == 0) totals.take(sums);
  }
  totals.take(sums);
  return totals.value();
}
#define ROOFLINE_STRIDED {strided<float>, strided<double>}

#else
#define ROOFLINE_STRIDED {nullptr, nullptr}
#endif

#define ROOFLINE_STORES(T, Access) {run<T, Access, kPlain>, run<T, Access, kNonTemporal>, run<T, Access, kPaced>}
#define ROOFLINE_WRITES(T) {run<T, kWrite, kPlain>, run<T, kWrite, kNonTemporal>}
#define ROOFLINE_ACCESSES(T)                                                                                       \
  {                                                                                                                \
    {run<T, kRead, kPlain>}, ROOFLINE_WRITES(T), ROOFLINE_STORES(T, kCopy), ROOFLINE_STORES(T, kScale),            \
        ROOFLINE_STORES(T, kAdd), ROOFLINE_STORES(T, kTriad)                                                       \
  }

}  // namespace

extern const StreamKernels ROOFLINE_TABLE(stream) = {
    {ROOFLINE_ACCESSES(float), ROOFLINE_ACCESSES(double)}, ROOFLINE_STRIDED, {run<float, kLoad, kPlain>, run<double, kLoad, kPlain>}};

}  // namespace roofline::cpu
