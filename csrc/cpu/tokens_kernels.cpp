// rope and embedding, one thread's range: they move memory, each element is read and written once.
#include "cpu/tokens_kernels.h"

#include "cpu/isa.h"
#include "cpu/rows_stores.h"

namespace roofline::cpu {
namespace {

// -- rope ---------------------------------------------------------------------------------------------------------------------

// One head; cos and sin are in the order of registers, as far as they are whole. It is read in halves, out of the order that hardware
// follows: the head that lies `ahead` bytes later is fetched into L2, where that is not 0.
template <class T>
ROOFLINE_INLINE void rotate(T* x, const float* cos, const float* sin, std::int64_t half, std::int64_t ahead) {
  constexpr int kWhole = kStep<VecOf<T>>;
  T* const y = x + half;
  if (ahead) fetch(x, 2 * half, ahead);
  const auto pairs = [&](auto of, std::int64_t i, int n) __attribute__((always_inline)) {
    using V = decltype(of);
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
#if defined(ROOFLINE_LOOK_UP)  // a vector that is loaded soon would wait for all its scalar stores
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

template <class T>
void rope(const RopePart& part) {
  const std::int64_t half = part.half, all = part.heads + part.kv_heads;
  const std::int64_t last_token = (part.last - 1) / all;
  std::int64_t token = part.first / all, head = part.first % all;
  for (std::int64_t at = part.first; at < part.last; ++token, head = 0) {
    const std::int64_t end = least(all, head + part.last - at);
    at += end - head;
    const float* const cos = in_fp32<T>(part.cos, part.table, token * half, half, part.scratch);
    const float* const sin = in_fp32<T>(part.sin, part.table, token * half, half, part.scratch + half);
    for (; head < end; ++head) {
      const bool of_q = head < part.heads;
      const std::int64_t heads = of_q ? part.heads : part.kv_heads, number = token * heads + head - (of_q ? 0 : part.heads);
      T* const x = static_cast<T*>(of_q ? part.q : part.k) + number * 2 * half;
      // The same head of the next token, where that is whole in this range: another thread's lines are left where they are.
      const std::int64_t ahead = token + 1 < last_token ? heads * 2 * half * std::int64_t{sizeof(T)} : 0;
      rotate(x, cos, sin, half, ahead);
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

// The hardware cannot know where the next row lies: while one is copied, the one this far behind it is fetched. Into L2 where
// results bypass the caches: on an Intel Xeon the few buffers of L1's misses serve such stores too.
constexpr std::int64_t kAheadBytes = 4096;
template <bool NonTemporal>
void embedding(const EmbeddingPart& part) {
  const std::int64_t bytes = part.row_bytes, ahead = (kAheadBytes + bytes - 1) / bytes;
  constexpr int kLevel = NonTemporal ? 2 : 1;
  char* to = part.out;
  Pace pace;
  for (std::int64_t token = 0; token < part.tokens; ++token, to += bytes) {
    const char* const from = part.table + part.ids[token] * bytes;
    const char* const next = part.table + part.ids[least(token + ahead, part.tokens - 1)] * bytes;
    std::int64_t i = 0;
    if constexpr (NonTemporal) {  // up to where a line of the result begins
      i = least(static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % kLineBytes), bytes);
      fetch<kLevel>(next, 1);
      __builtin_memcpy(to, from, static_cast<std::size_t>(i));
    }
    for (; i + kLineBytes <= bytes; i += kLineBytes) {
      fetch<kLevel>(next + i, 1);
      if constexpr (NonTemporal) pace.step(to, 0);
      copy_line<NonTemporal>(to + i, from + i);
    }
    if (i < bytes) {
      fetch<kLevel>(next + bytes - 1, 1);
      __builtin_memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
    }
  }
  if constexpr (NonTemporal) fence();
}

}  // namespace

extern const TokensKernels ROOFLINE_TABLE(tokens) = {
    {rope<float>, rope<Bf16>, rope<Fp16>},
    {embedding<false>, embedding<true>},
};

}  // namespace roofline::cpu
