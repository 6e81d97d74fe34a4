// Loads with a chosen number of multiply-adds each, one thread's range.
//
// A tile of vectors is loaded, advanced together in registers and added to the sums; nothing else reaches memory. Its vectors are
// the independent chains that fill the multiply-add pipes: ten beside four sums and two factors in 16 registers, twenty beside
// eight in 32. Small numbers of multiply-adds are compiled one by one; larger ones run in rounds of eight, the rest step by step.
#include "cpu/mixed_intensity_kernels.h"

#include "cpu/isa.h"
#include "cpu/stream_vectors.h"

namespace roofline::cpu {
namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTile = 20, kSums = 8;
#else
constexpr int kTile = 10, kSums = 4;
#endif

// Loads x, whatever the compiler thinks of its use.
template <class X>
ROOFLINE_INLINE void touch(X x) {
#if defined(__aarch64__)
  asm volatile("" : : "w"(x));
#else
  asm volatile("" : : "v"(x));
#endif
}

// `steps` times y <- y + y alpha for all of a group. Known > 0: one less than it, unrolled. An instruction adds to the chain
// itself, so that no set needs a copy of it.
template <int Known, class X, int Size>
ROOFLINE_INLINE void advance(X (&y)[Size], X alpha, std::int64_t steps) {
  if constexpr (Known > 0) {
#pragma GCC unroll 8
    for (int step = 1; step < Known; ++step)
#pragma GCC unroll 32
      for (int i = 0; i < Size; ++i) y[i] = y[i] + y[i] * alpha;
  } else {
    for (std::int64_t round = steps / 8; round > 0; --round)
#pragma GCC unroll 8
      for (int step = 0; step < 8; ++step)
#pragma GCC unroll 32
        for (int i = 0; i < Size; ++i) y[i] = y[i] + y[i] * alpha;
    for (std::int64_t step = steps % 8; step > 0; --step)
#pragma GCC unroll 32
      for (int i = 0; i < Size; ++i) y[i] = y[i] + y[i] * alpha;
  }
}

// Adds the lanes of the sums, and begins them again.
template <class T, class X, int Size>
[[gnu::noinline]] double take(X (&sums)[Size]) {
  double total = 0;
  T lanes[sizeof(X) / sizeof(T)];
  for (X& x : sums) {
    __builtin_memcpy(lanes, &x, sizeof x);
    for (const T lane : lanes) total += lane;
    x = X{};
  }
  return total;
}

// One range. The first of each `Every` lines is computed on. Known: the number of multiply-adds; 0: that of the range.
template <class T, int Known, int Every>
double walk(const MixedRange& range) {
  constexpr std::int64_t kWidth = sizeof(V<T>) / sizeof(T);
  constexpr std::int64_t kLine = kLineBytes / sizeof(T);
  constexpr int kPerLine = static_cast<int>(kLine / kWidth);  // vectors
  // Whole lines where some are only loaded, at least eight vectors.
  constexpr int kVectors = Every == 1 ? kTile : 2 * (kPerLine > 4 ? kPerLine : 4);
  constexpr int kHalf = kVectors / 2;                         // vectors of a tile from each of two places
  constexpr std::int64_t kHalfSpan = kHalf * kWidth * Every;  // elements from one half's begin to the next's
  // With one or two multiply-adds the sums are on the critical path: as many as registers allow, and fewer chains beside them.
  constexpr bool kFew = Known == 2 && kTile == 10;
  constexpr int kGroup = kFew ? kHalf : kVectors;
  constexpr int kRunning = Known == 1 ? (Every == 1 ? kTile : 8) : kFew ? kHalf : kSums;
  const T* a = static_cast<const T*>(range.a);
  const T alpha = static_cast<T>(range.alpha), gamma = static_cast<T>(range.gamma);
  const V<T> alphas = V<T>{} + alpha, gammas = V<T>{} + gamma;
  const std::int64_t steps = range.multiply_adds - 1;
  // Two streams: the range's halves side by side, each advancing by half a tile. One: both halves of a tile follow each other.
  const std::int64_t tiles = range.n / kHalfSpan / 2;
  const std::int64_t second = range.streams == 2 ? tiles * kHalfSpan : kHalfSpan;
  const std::int64_t stride = range.streams == 2 ? kHalfSpan : 2 * kHalfSpan;
  V<T> sums[kRunning] = {};
  V<T> rest_sum[1] = {};
  T last_sum[1] = {};
  double total = 0;
  for (std::int64_t pass = 0; pass < range.passes; ++pass) {
    if (pass % kPassesPerTotal == kPassesPerTotal - 1) {
      V<T> kept[kRunning];  // a copy, so that the sums themselves need no address and stay in registers
      __builtin_memcpy(kept, sums, sizeof kept);
      total += take<T>(kept) + take<T>(rest_sum) + take<T>(last_sum);
      for (V<T>& x : sums) x = V<T>{};
    }
    const T* p = a;
    for (std::int64_t tile = 0; tile < tiles; ++tile, p += stride) {
      const T* q = p + second;
#pragma GCC unroll 2
      for (int first = 0; first < kVectors; first += kGroup) {
        V<T> y[kGroup];
#pragma GCC unroll 32
        for (int i = 0; i < kGroup; ++i) {
          const int vector = (first + i) % kHalf;
          const std::int64_t at = Every == 1 ? vector * kWidth : vector / kPerLine * kLine * Every + vector % kPerLine * kWidth;
          y[i] = get<V<T>>((first + i < kHalf ? p : q) + at);
        }
        if constexpr (Every > 1) {
#pragma GCC unroll 64
          for (int i = 0; i < kVectors * (Every - 1); ++i) {
            const int vector = i % (kHalf * (Every - 1)), line = vector / kPerLine;
            const std::int64_t at = (line / (Every - 1) * Every + line % (Every - 1) + 1) * kLine + vector % kPerLine * kWidth;
            touch(get<V<T>>((i < kHalf * (Every - 1) ? p : q) + at));
          }
        }
        advance<Known>(y, alphas, steps);
#pragma GCC unroll 32
        for (int i = 0; i < kGroup; ++i) sums[(first + i) % kRunning] += y[i] * gammas;
      }
    }
    // The rest: whole vectors, then elements.
    std::int64_t i = tiles * 2 * kHalfSpan;
    for (; i + kWidth <= range.n; i += kWidth) {
      V<T> y[1] = {get<V<T>>(a + i)};
      if (i / kLine % Every == 0) {
        advance<Known>(y, alphas, steps);
        rest_sum[0] += y[0] * gammas;
      } else {
        touch(y[0]);
      }
    }
    for (; i < range.n; ++i) {
      T y[1] = {a[i]};
      if (i / kLine % Every == 0) {
        advance<Known>(y, alpha, steps);
        last_sum[0] += y[0] * gamma;
      } else {
        touch(y[0]);
      }
    }
    asm volatile("" ::: "memory");  // every pass really happens
  }
  return total + take<T>(sums) + take<T>(rest_sum) + take<T>(last_sum);
}

template <class T>
double run(const MixedRange& range) {
  const bool one = range.multiply_adds == 1;
  switch (range.every) {
    case 2: return one ? walk<T, 1, 2>(range) : walk<T, 0, 2>(range);
    case 4: return one ? walk<T, 1, 4>(range) : walk<T, 0, 4>(range);
    case 8: return one ? walk<T, 1, 8>(range) : walk<T, 0, 8>(range);
    default: break;
  }
  switch (range.multiply_adds) {
    case 1: return walk<T, 1, 1>(range);
    case 2: return walk<T, 2, 1>(range);
    case 3: return walk<T, 3, 1>(range);
    case 4: return walk<T, 4, 1>(range);
    case 6: return walk<T, 6, 1>(range);
    case 8: return walk<T, 8, 1>(range);
    default: return walk<T, 0, 1>(range);
  }
}

}  // namespace

extern const MixedIntensityKernels ROOFLINE_TABLE(mixed_intensity) = {{run<float>, run<double>}};

}  // namespace roofline::cpu
