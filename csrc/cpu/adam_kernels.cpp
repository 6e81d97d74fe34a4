// A step of Adam, one thread's range, block by block. fp32 tensors are read and written where they lie; blocks of the others
// become fp32 in L1 and go back from there, so that one loop serves every combination of elements.
#include "cpu/adam_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"

namespace roofline::cpu {
namespace {

constexpr std::int64_t kBlock = 512;  // elements: four tensors of them in fp32 are 8 KiB

template <class T>
void widen(const T* x, std::int64_t n, float* y) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i));
  if (i < n) store_partial(y + i, static_cast<int>(n - i), load_partial(x + i, static_cast<int>(n - i), zero()));
}

template <bool NonTemporal, class T>
void narrow_to(const float* x, std::int64_t n, T* y) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    if constexpr (NonTemporal)
      stream(y + i, load(x + i));
    else
      store(y + i, load(x + i));
  }
  if (i < n) store_partial(y + i, static_cast<int>(n - i), load_partial(x + i, static_cast<int>(n - i), zero()));
}

// Elements `first` to first + n in fp32: where they lie, or in the block.
float* in_fp32(void* x, Element element, std::int64_t first, std::int64_t n, float* block) {
  if (element == kFp32) return static_cast<float*>(x) + first;
  if (element == kBf16)
    widen(static_cast<const Bf16*>(x) + first, n, block);
  else
    widen(static_cast<const Fp16*>(x) + first, n, block);
  return block;
}

// The way back, and to p from its master.
template <bool NonTemporal>
void put_back(const float* from, std::int64_t n, void* x, Element element, std::int64_t first) {
  if (element == kBf16)
    narrow_to<NonTemporal>(from, n, static_cast<Bf16*>(x) + first);
  else if (element == kFp16)
    narrow_to<NonTemporal>(from, n, static_cast<Fp16*>(x) + first);
  else if (float* const to = static_cast<float*>(x) + first; to != from)
    narrow_to<NonTemporal>(from, n, to);
}

// n elements in fp32.
ROOFLINE_INLINE void update(const AdamPart& part, const float* g, float* p, float* m, float* v, std::int64_t n) {
  const Vec beta1 = set1(part.beta1), rest1 = set1(part.rest1), beta2 = set1(part.beta2), rest2 = set1(part.rest2);
  const Vec keep = set1(part.keep), step = set1(-part.step), root = set1(part.root), eps = set1(part.eps);
  const auto some = [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    const Vec gradient = get(g + i, lanes, zero()), before = get(v + i, lanes, zero());
    const Vec first = fma(beta1, get(m + i, lanes, zero()), mul(rest1, gradient));
    const Vec second = fma(beta2, max(before, sub(zero(), before)), mul(mul(rest2, gradient), gradient));
    const Vec ratio = div(first, fma(sqrt(second), root, eps));
    put(m + i, lanes, first);
    put(v + i, lanes, second);
    put(p + i, lanes, fma(step, ratio, mul(keep, get(p + i, lanes, zero()))));
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) some(i, kLanes);
  if (i < n) some(i, static_cast<int>(n - i));
}

template <bool NonTemporal>
void step(const AdamPart& part) {
  alignas(64) float blocks[4][kBlock];
  for (std::int64_t first = 0; first < part.elements; first += kBlock) {
    const std::int64_t n = least(kBlock, part.elements - first);
    const float* const g = in_fp32(const_cast<void*>(part.g), part.gradient, first, n, blocks[0]);
    float* const p = part.master ? part.master + first : in_fp32(part.p, part.parameter, first, n, blocks[1]);
    float* const m = in_fp32(part.m, part.moment, first, n, blocks[2]);
    float* const v = in_fp32(part.v, part.moment, first, n, blocks[3]);
    update(part, g, p, m, v, n);
    put_back<false>(m, n, part.m, part.moment, first);
    put_back<false>(v, n, part.v, part.moment, first);
    put_back<NonTemporal>(p, n, part.p, part.parameter, first);
  }
  if constexpr (NonTemporal) fence();
}

}  // namespace

extern const AdamKernels ROOFLINE_TABLE(adam) = {{step<false>, step<true>}};

}  // namespace roofline::cpu
