// Sums over rows in fp32: in vectors side by side over a block of a row, and by compensated summation over its blocks, so that a long
// row costs no accuracy. A kernel file includes it.
#pragma once

#include <cstdint>

#include "cpu/simd/twins.h"

namespace roofline::cpu {
namespace {

// step(state[], i, n) takes elements i to i + n of [first, last) into one of `Sets` independent states.
template <class V, int Sets, class State, class Step>
ROOFLINE_INLINE void accumulate(std::int64_t first, std::int64_t last, State (&state)[Sets], Step step) {
  constexpr int kAtOnce = kStep<V>;
  std::int64_t i = first;
  if constexpr (Sets > 1)
    for (; i + Sets * kAtOnce <= last; i += Sets * kAtOnce) {
#pragma GCC unroll 8
      for (int s = 0; s < Sets; ++s) step(state[s], i + s * kAtOnce, kAtOnce);
    }
  for (; i + kAtOnce <= last; i += kAtOnce) step(state[0], i, kAtOnce);
  if (i < last) step(state[Sets - 1], i, static_cast<int>(last - i));
}

// As many independent states as hide the latency of an addition: half as many of twins.
template <class V, int Sets>
constexpr int kSets = kStep<V> == kLanes || Sets == 2 ? Sets : Sets / 2;

template <class V, int Sums>
struct Partial {
  V sum[Sums];
};
// Lane r: what belongs to row r.
template <int Sums>
using Totals = Partial<Vec, Sums>;

// What step adds over [0, n) to the sums of its state, one vector of each. What rounding takes from the sum of two blocks is kept and
// added at the end.
template <class V, int Sums, int Sets, class Step>
ROOFLINE_INLINE void total(std::int64_t n, Totals<Sums>& found, Step step) {
  constexpr std::int64_t kBlock = 64 * Sets * kStep<V>;  // summed in fp32: 64 to a lane, so few roundings
  Vec lost[Sums];
  for (std::int64_t first = 0; first < n; first += kBlock) {
    Partial<V, Sums> state[Sets];
    for (Partial<V, Sums>& one : state)
      for (V& part : one.sum) part = all<V>(0);
    accumulate<V>(first, least(n, first + kBlock), state, step);
    for (int k = 0; k < Sums; ++k) {
      for (int width = Sets / 2; width > 0; width /= 2)
        for (int s = 0; s < width; ++s) state[s].sum[k] = plus(state[s].sum[k], state[s + width].sum[k]);
      const Vec part = sum_of(state[0].sum[k]);
      if (first == 0) {
        found.sum[k] = part, lost[k] = zero();
      } else {
        const Vec both = add(found.sum[k], part), grown = sub(both, found.sum[k]);
        lost[k] = add(lost[k], add(sub(found.sum[k], sub(both, grown)), sub(part, grown)));
        found.sum[k] = both;
      }
    }
  }
  for (int k = 0; n > kBlock && k < Sums; ++k) found.sum[k] = add(found.sum[k], lost[k]);
}

// Lane r: the totals of what step(r) adds over row r. Rows of a few vectors have no use for many states, nor have steps that wait for
// memory.
template <class V, int Sums, int MostSets, class Step>
ROOFLINE_INLINE Totals<Sums> totals(int rows, std::int64_t columns, Step step) {
  Vec of_row[Sums][kLanes];
  for (int r = 0; r < rows; ++r) {
    Totals<Sums> one = {};
    if (MostSets == 2 || columns < 2 * MostSets * kStep<V>)
      total<V, Sums, kIsTwo<V> ? 1 : 2>(columns, one, step(r));
    else
      total<V, Sums, kSets<V, MostSets>>(columns, one, step(r));
    for (int k = 0; k < Sums; ++k) of_row[k][r] = one.sum[k];
  }
  for (int r = rows; r > 1 && r < kLanes; ++r)
    for (int k = 0; k < Sums; ++k) of_row[k][r] = zero();
  Totals<Sums> found;
  for (int k = 0; k < Sums; ++k) found.sum[k] = rows == 1 ? set1(reduce_add(of_row[k][0])) : reduce_add(of_row[k]);
  return found;
}

}  // namespace
}  // namespace roofline::cpu
