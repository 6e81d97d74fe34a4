// rope and embedding, one thread's range: they move memory, each element is read and written once.
#include "cpu/tokens_kernels.h"

#include "cpu/isa.h"
#include "cpu/rows_stores.h"

namespace roofline::cpu {
namespace {

// How far ahead of its use memory is read into L1, where the order of reads is none that hardware follows.
constexpr std::int64_t kAheadBytes = 8192;

// -- rope ---------------------------------------------------------------------------------------------------------------------

// Whether heads from memory are fetched into L1 line by line, and stores are paced: for fp32, which takes few instructions a line.
// Others are fetched into L2, a head at a time.
template <class T>
constexpr bool kLineByLine = sizeof(T) == sizeof(float);

// One head; cos and sin are in the order of registers, as far as they are whole. Heads are read in halves, out of the order that
// hardware follows. FromMemory: what lies `ahead` bytes later is fetched.
template <bool FromMemory, class T>
ROOFLINE_INLINE void rotate(T* x, const float* cos, const float* sin, std::int64_t half, std::int64_t ahead, Pace& pace) {
  constexpr int kWhole = kStep<VecOf<T>>;
  T* const y = x + half;
  if constexpr (FromMemory && !kLineByLine<T>) fetch(x, 2 * half, ahead);
  const auto pairs = [&](auto of, std::int64_t i, int n) __attribute__((always_inline)) {
    using V = decltype(of);
    if (FromMemory && kLineByLine<T> && (i * std::int64_t{sizeof(T)} & (kLineBytes - 1)) == 0) {
      fetch<1>(x + i, 1, ahead), fetch<1>(y + i, 1, ahead);
      pace.step(x, i);
    }
    const V left = take<V>(x + i, n, 0), right = take<V>(y + i, n, 0), c = kept_at<V>(cos + i, n), s = kept_at<V>(sin + i, n);
    give<false>(x + i, n, inexact(each([](Vec a, Vec b, Vec of_a, Vec of_b) __attribute__((always_inline)) {
      return sub(mul(a, of_a), mul(b, of_b));
    }, left, right, c, s)));
    give<false>(y + i, n, inexact(each([](Vec a, Vec b, Vec of_a, Vec of_b) __attribute__((always_inline)) {
      return fma(b, of_b, mul(a, of_a));
    }, left, right, s, c)));
  };
  std::int64_t i = 0;
  for (; i + kWhole <= half; i += kWhole) pairs(VecOf<T>{}, i, kWhole);
  for (; i + kLanes <= half; i += kLanes) pairs(Vec{}, i, kLanes);
  if (i < half) pairs(Vec{}, i, static_cast<int>(half - i));
}

// n numbers as fp32, in the order of the registers of elements T as far as they are whole.
template <class T, class From>
void widen(const void* from, std::int64_t first, std::int64_t n, float* to) {
  const From* const x = static_cast<const From*>(from) + first;
  std::int64_t i = 0;
  if constexpr (std::is_same_v<VecOf<T>, Twin>) {
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
#if defined(ROOFLINE_LOOK_UP_IN_TWO)  // a vector that is loaded soon would wait for all its scalar stores
      alignas(64) static constexpr std::uint32_t kEven[] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
      alignas(64) static constexpr std::uint32_t kOdd[] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
      const Vec both[] = {load(x + i), load(x + i + kLanes)};
      store(to + i, look_up(both, load(reinterpret_cast<const float*>(kEven))));
      store(to + i + kLanes, look_up(both, load(reinterpret_cast<const float*>(kOdd))));
#else
      float in_turn[2 * kLanes];
      store(in_turn, load(x + i)), store(in_turn + kLanes, load(x + i + kLanes));
      for (int pair = 0; pair < kLanes; ++pair) to[i + pair] = in_turn[2 * pair], to[i + kLanes + pair] = in_turn[2 * pair + 1];
#endif
    }
  }
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(x + i));
  if (i < n) store_partial(to + i, static_cast<int>(n - i), load_partial(x + i, static_cast<int>(n - i), zero()));
}

// n elements of a table from `first` on, in fp32: where they lie, or in `to`.
template <class T>
const float* in_fp32(const void* table, Element element, std::int64_t first, std::int64_t n, float* to) {
  if (element == kFp32 && !std::is_same_v<VecOf<T>, Twin>) return static_cast<const float*>(table) + first;
  element == kFp32 ? widen<T, float>(table, first, n, to)
                   : element == kBf16 ? widen<T, Bf16>(table, first, n, to) : widen<T, Fp16>(table, first, n, to);
  return to;
}

template <class T, bool FromMemory>
void rope(const RopePart& part) {
  const std::int64_t half = part.half, all = part.heads + part.kv_heads, table_bytes = half * (part.table == kFp32 ? 4 : 2);
  // Another thread's lines are left where they are: prefetches stay within this range of tokens.
  const std::int64_t last_token = (part.last - 1) / all, head_bytes = 2 * half * std::int64_t{sizeof(T)};
  Pace pace;
  std::int64_t token = part.first / all, head = part.first % all;
  for (std::int64_t at = part.first; at < part.last; ++token, head = 0) {
    const std::int64_t end = least(all, head + part.last - at);
    at += end - head;
    const float* const cos = in_fp32<T>(part.cos, part.table, token * half, half, part.scratch);
    const float* const sin = in_fp32<T>(part.sin, part.table, token * half, half, part.scratch + half);
    if (FromMemory && kLineByLine<T> && token < last_token) {
      fetch<1>(static_cast<const char*>(part.cos), table_bytes, (token + 1) * table_bytes);
      fetch<1>(static_cast<const char*>(part.sin), table_bytes, (token + 1) * table_bytes);
    }
    for (; head < end; ++head) {
      const bool of_q = head < part.heads;
      const std::int64_t heads = of_q ? part.heads : part.kv_heads, number = token * heads + head - (of_q ? 0 : part.heads);
      T* const x = static_cast<T*>(of_q ? part.q : part.k) + number * 2 * half;
      const std::int64_t left = (last_token * heads - number - 1) * head_bytes;
      rotate<FromMemory>(x, cos, sin, half, least(kLineByLine<T> ? kAheadBytes : heads * head_bytes, left > 0 ? left : 0), pace);
    }
  }
}

// -- embedding ----------------------------------------------------------------------------------------------------------------

template <bool NonTemporal>
ROOFLINE_INLINE void copy_line(char* to, const char* from) {
  if constexpr (kLanes == 1) {
    __builtin_memcpy(to, from, kLineBytes);
  } else {
    constexpr int kWidth = kLineBytes / sizeof(Vec);
    Vec x[kWidth];
#pragma GCC unroll 4
    for (int u = 0; u < kWidth; ++u) x[u] = load(reinterpret_cast<const float*>(from) + u * kLanes);
#pragma GCC unroll 4
    for (int u = 0; u < kWidth; ++u) {
      float* const at = reinterpret_cast<float*>(to) + u * kLanes;
      if constexpr (NonTemporal)
        stream(at, x[u]);
      else
        store(at, x[u]);
    }
  }
}

// The hardware cannot know where the next row lies: while one is copied, the one this far behind it is fetched into cache `Level`.
template <bool NonTemporal, int Level>
void embedding(const EmbeddingPart& part) {
  constexpr std::int64_t kAhead = NonTemporal && Level == 1 ? kAheadBytes : kAheadBytes / 2;
  const std::int64_t bytes = part.row_bytes, ahead = (kAhead + bytes - 1) / bytes;
  char* to = part.out;
  Pace pace;
  for (std::int64_t token = 0; token < part.tokens; ++token, to += bytes) {
    const char* const from = part.table + part.ids[token] * bytes;
    const char* const next = part.table + part.ids[least(token + ahead, part.tokens - 1)] * bytes;
    std::int64_t i = 0;
    if constexpr (NonTemporal) {  // up to where a line of the result begins
      i = least(static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % kLineBytes), bytes);
      fetch<Level>(next, 1);
      __builtin_memcpy(to, from, static_cast<std::size_t>(i));
    }
    for (; i + kLineBytes <= bytes; i += kLineBytes) {
      fetch<Level>(next + i, 1);
      if constexpr (NonTemporal) pace.step(to, 0);
      copy_line<NonTemporal>(to + i, from + i);
    }
    if (i < bytes) {
      fetch<Level>(next + bytes - 1, 1);
      __builtin_memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
    }
  }
  if constexpr (NonTemporal) fence();
}

}  // namespace

extern const TokensKernels ROOFLINE_TABLE(tokens) = {
    {{rope<float, false>, rope<float, true>}, {rope<Bf16, false>, rope<Bf16, true>}, {rope<Fp16, false>, rope<Fp16, true>}},
    {embedding<false, 1>, embedding<true, 1>, embedding<true, 2>},
};

}  // namespace roofline::cpu
