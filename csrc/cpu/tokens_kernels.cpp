// rope and embedding, one thread's range: they move memory, each element is read and written once.
#include "cpu/tokens_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

// -- rope ---------------------------------------------------------------------------------------------------------------------

template <class T>
ROOFLINE_INLINE void rotate(T* x, T* y, const float* cos, const float* sin, std::int64_t half) {
  const auto pairs = [&](std::int64_t i, int n) __attribute__((always_inline)) {
    const Vec left = get(x + i, n, zero()), right = get(y + i, n, zero());
    const Vec c = get(cos + i, n, zero()), s = get(sin + i, n, zero());
    put(x + i, n, sub(mul(left, c), mul(right, s)));
    put(y + i, n, fma(right, c, mul(left, s)));
  };
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) pairs(i, kLanes);
  if (i < half) pairs(i, static_cast<int>(half - i));
}

template <class T>
void widen(const void* from, std::int64_t first, std::int64_t n, float* to) {
  const T* const x = static_cast<const T*>(from) + first;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(x + i));
  if (i < n) store_partial(to + i, static_cast<int>(n - i), load_partial(x + i, static_cast<int>(n - i), zero()));
}

// n elements of a table from `first` on, in fp32: where they lie, or in `to`.
const float* in_fp32(const void* table, Element element, std::int64_t first, std::int64_t n, float* to) {
  if (element == kFp32) return static_cast<const float*>(table) + first;
  element == kBf16 ? widen<Bf16>(table, first, n, to) : widen<Fp16>(table, first, n, to);
  return to;
}

template <class T>
void rope(const RopePart& part) {
  const std::int64_t half = part.half, all = part.heads + part.kv_heads;
  std::int64_t token = part.first / all, head = part.first % all;
  for (std::int64_t at = part.first; at < part.last; ++token, head = 0) {
    const std::int64_t end = least(all, head + part.last - at);
    at += end - head;
    const float* const cos = in_fp32(part.cos, part.table, token * half, half, part.scratch);
    const float* const sin = in_fp32(part.sin, part.table, token * half, half, part.scratch + half);
    for (; head < end; ++head) {
      T* const x = head < part.heads ? static_cast<T*>(part.q) + (token * part.heads + head) * 2 * half
                                     : static_cast<T*>(part.k) + (token * part.kv_heads + head - part.heads) * 2 * half;
      rotate(x, x + half, cos, sin, half);
    }
  }
}

// -- embedding ----------------------------------------------------------------------------------------------------------------

constexpr int kLineBytes = 64;

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

// The hardware cannot know where the next row lies: while one is copied, the one this far behind it is fetched.
constexpr std::int64_t kAheadBytes = 2048;

template <bool NonTemporal>
void embedding(const EmbeddingPart& part) {
  const std::int64_t bytes = part.row_bytes, ahead = (kAheadBytes + bytes - 1) / bytes;
  char* to = part.out;
  for (std::int64_t token = 0; token < part.tokens; ++token, to += bytes) {
    const char* const from = part.table + part.ids[token] * bytes;
    const char* const next = part.table + part.ids[least(token + ahead, part.tokens - 1)] * bytes;
    std::int64_t i = 0;
    if constexpr (NonTemporal) {  // up to where a line of the result begins
      i = least(static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % kLineBytes), bytes);
      __builtin_prefetch(next);
      __builtin_memcpy(to, from, static_cast<std::size_t>(i));
    }
    for (; i + kLineBytes <= bytes; i += kLineBytes) {
      __builtin_prefetch(next + i);
      copy_line<NonTemporal>(to + i, from + i);
    }
    if (i < bytes) {
      __builtin_prefetch(next + bytes - 1);
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
