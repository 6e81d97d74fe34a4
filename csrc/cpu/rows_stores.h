// How row-wise operators store their results: as they are computed, or past the caches. A kernel file includes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/pace.h"
#include "cpu/rows_kernels.h"
#include "cpu/simd/twins.h"

namespace roofline::cpu {
namespace {

// The lines `ahead` bytes later, one in `Apart`, into L2: the few buffers of L1's misses serve non-temporal stores too.
template <int Level = 2, int Apart = 1, class X>
ROOFLINE_INLINE void fetch(const X* p, std::int64_t n, std::int64_t ahead = 0) {
  for (std::int64_t byte = 0; byte < n * std::int64_t{sizeof(X)}; byte += Apart * kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(p) + ahead + byte, 0, 4 - Level);
}
constexpr std::int64_t kNearBytes = 1024;

// `pace` once a cache line, where `choose_pace` found it no slower.
class Pace {
 public:
  // Called for the elements of T from the i-th on: runs once in 64 bytes of them.
  template <class T>
  __attribute__((always_inline)) inline void step(const T*, std::int64_t i) {
    if ((i * std::int64_t{sizeof(T)} & (kLineBytes - 1)) < below_) pace(chain_);
  }

 private:
  const std::int64_t below_ = paced_stores;  // 1 or 0
  std::int64_t chain_ = 1;
};

// What a first pass reads at p + i, a line of the next block of rows: into L2; and what it will read soon into L1.
template <class T>
ROOFLINE_INLINE void fetch_rows(const T* p, std::int64_t i, std::int64_t n, std::int64_t step, Pace& pace) {
  fetch(p + step + i, n);
  fetch<1>(p + i, n, 2 * kNearBytes);
  pace.step(p, i);
}

// y[i] = value(i, n) over a row of any alignment: non-temporal stores write whole cache lines only. Beside these, what value reads
// of each x is fetched: else memory would wait for reads and writes in turn. Long: value takes so many instructions, or reads so
// much else, that a core finds its loads too late to wait for L2, so that they are fetched into L1 too, unless fetches are sparse.
template <class V, bool NonTemporal, bool Long = false, class T, class Value, class... X>
ROOFLINE_INLINE void write(T* y, std::int64_t n, Value value, const X*... x) {
  constexpr std::int64_t kLine = kLineBytes / sizeof(T);
  constexpr int kAtOnce = kStep<V>;
  std::int64_t i = 0;
  const auto plainly = [&](std::int64_t last) __attribute__((always_inline)) {
    for (; i + kAtOnce <= last; i += kAtOnce) give<false>(y + i, kAtOnce, value(i, kAtOnce));
    if (i < last) give<false>(y + i, static_cast<int>(last - i), value(i, static_cast<int>(last - i)));
    i = last;
  };
  if constexpr (NonTemporal) {
    const auto head = static_cast<std::int64_t>((kLineBytes - reinterpret_cast<std::uintptr_t>(y) % kLineBytes) % kLineBytes / sizeof(T));
    const std::int64_t before = least(head, n), lines = before + (n - before) / kLine * kLine;
    // A pace serves loops that read as many bytes as they write; narrower results, two operands, long arithmetic
    // and sparse fetches gain nothing.
    constexpr bool kPaced = !Long && sizeof...(X) == 1 && ((sizeof(X) == sizeof(T)) && ...);
    [[maybe_unused]] Pace pace;
    // A loop for either: with a branch in one, gelu of fp32, whose tables take most registers, lost 6 % on Zen 5.
    const auto four_lines_each = [&](auto sparse) __attribute__((always_inline)) {
      for (const std::int64_t ahead = fetches_beside_stores.ahead; i + 4 * kLine <= lines; i += 4 * kLine) {
        (fetch<2, sparse ? 4 : 1>(x + i, 4 * kLine, ahead), ...);
        if constexpr (Long && !sparse) (fetch<1>(x + i, 4 * kLine, 2 * kNearBytes), ...);
#pragma GCC unroll 4
        for (int u = 0; u < 4 * kLine; u += kAtOnce) {
          if constexpr (kPaced && !sparse) pace.step(y, u);
          give<true>(y + i + u, kAtOnce, value(i + u, kAtOnce));
        }
      }
    };
    for (std::int64_t plain = before;; plain = n) {  // what is before the first whole line, and then what is behind the last
      plainly(plain);
      if (i == n) return;
      fetches_beside_stores.sparse ? four_lines_each(std::true_type()) : four_lines_each(std::false_type());
      constexpr int kFew = kAtOnce < kLine ? kAtOnce : kLine;
      for (; i < lines; i += kFew) give<true>(y + i, kFew, value(i, kFew));
    }
  } else {
    for (; i + 4 * kAtOnce <= n; i += 4 * kAtOnce) {
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) give<false>(y + i + u * kAtOnce, kAtOnce, value(i + u * kAtOnce, kAtOnce));
    }
    plainly(n);
  }
}

// Non-temporal stores of results, one after the other. Whole: every row is whole cache lines, so each vector is stored at once. Else
// vectors are written to a ring buffer in L1, and whole lines are stored from there.
template <bool Whole>
class Outgoing {
 public:
  explicit Outgoing(void* y)
      : lead_(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) % kLineBytes)), to_(static_cast<char*>(y) - lead_) {}

  // x is n elements of T, which belong at y + first: where those before ended.
  template <class T, class V>
  __attribute__((always_inline)) inline void put(std::int64_t first, int n, V x) {
    if constexpr (Whole) return give<true>(reinterpret_cast<T*>(to_) + first, n, x);
    if constexpr (kIsTwo<V>) {
      constexpr int kOne = kStep<decltype(x.first)>;
      put<T>(first, n < kOne ? n : kOne, x.first);
      if (n > kOne) put<T>(first + kOne, n - kOne, x.second);
    } else {
      const std::int64_t begin = lead_ + first * std::int64_t{sizeof(T)}, in_ring = begin & (kRingBytes - 1);
      give<false>(reinterpret_cast<T*>(ring_ + in_ring), n, x);
      if (in_ring > kRingBytes - kLineBytes) std::memcpy(ring_, ring_ + kRingBytes, kLineBytes);
      // A load from a line that is being stored would wait.
      if (begin - done_ >= kBehindBytes) next_vector();
    }
  }

  __attribute__((always_inline)) inline void finish(std::int64_t all_bytes) {
    const std::int64_t end = lead_ + all_bytes;
    if constexpr (!Whole) {
      while (end - done_ >= kVectorBytes) next_vector();
      plainly(done_ < lead_ ? lead_ : done_, end);
    }
    fence();
  }

 private:
  static constexpr std::int64_t kVectorBytes = kLanes * sizeof(float), kBehindBytes = 4 * kLineBytes, kRingBytes = 2048;

  __attribute__((always_inline)) inline void next_vector() {
    if (done_ >= lead_)
      stream(reinterpret_cast<float*>(to_ + done_), load(reinterpret_cast<const float*>(ring_ + (done_ & (kRingBytes - 1)))));
    else if (done_ + kVectorBytes > lead_)
      plainly(lead_, done_ + kVectorBytes);
    done_ += kVectorBytes;
  }
  __attribute__((always_inline)) inline void plainly(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin; i < end; ++i) to_[i] = ring_[i & (kRingBytes - 1)];
  }

  alignas(kLineBytes) char ring_[Whole ? kLineBytes : kRingBytes + kLineBytes];
  const std::int64_t lead_;  // bytes of the first line that are before y
  char* const to_;           // that line
  std::int64_t done_ = 0;    // bytes from there on that are in memory
};

// Where no results wait: beside and rest of `in_blocks`.
constexpr auto kNoneBeside = [](int) { return [](std::int64_t, int) {}; };
constexpr auto kNoRest = [] {};

constexpr std::int64_t kLongRowBytes = 1024;  // of rows that go through their passes one by one

// Whether L1 keeps what the steps of a row go through: so many streams of as many bytes.
constexpr bool fits_l1(std::int64_t streams, std::int64_t row_bytes) { return streams * row_bytes <= 48 << 10; }

// Passes over blocks of `most` rows. first(row, some, beside, rest): all passes but the last over `some` rows from `row` on; each step
// (i, n) of the first over the r-th of them calls beside(r)(i, n), and rest() follows it. result(row, r): of the r-th row of the block
// that begins at `row`, what gives n results from the i-th on; it is called before the next block's totals are stored, or, of
// blocks of one row, before those of the next but one. Streams: rows of memory that a row's steps go through, 0 where results wait
// elsewhere. Long rows are blocks of their own, and the first pass over one stores the results of one before it: of the last but
// one where L1 keeps three rows, so that nothing waits for the totals of the row between. With 16 registers fp32 was slower so.
// staged(row, beside), where an operator has three passes: the first pass over a long `row` side by side with the second pass over
// the row before it. It is also called for the row behind the last one.
template <class V, int Streams, class T, class First, class Result, class Staged>
ROOFLINE_INLINE void blocks_in_cache(T* y, std::int64_t most, std::int64_t rows, std::int64_t columns, First first, Result result,
                                     Staged staged) {
  constexpr bool kStaged = !std::is_same_v<Staged, std::nullptr_t>;
  const std::int64_t row_bytes = columns * std::int64_t{sizeof(T)};
  if ((kManyRegisters || sizeof(T) == 2) && Streams > 0 && row_bytes >= kLongRowBytes && rows > 2) {
    const auto each = [&](std::int64_t behind, std::int64_t end, auto all_but_last) __attribute__((always_inline)) {
      for (std::int64_t row = 0; row < behind; ++row) all_but_last(row, kNoneBeside);
      for (std::int64_t row = behind; row < end; ++row)
        all_but_last(row, [&](int) __attribute__((always_inline)) {
          return [value = result(row - behind, 0), to = y + (row - behind) * columns](std::int64_t i, int n)
                     __attribute__((always_inline)) {
            give<false>(to + i, n, value(i, n));
          };
        });
      for (std::int64_t row = end - behind; row < rows; ++row) write<V, false>(y + row * columns, columns, result(row, 0));
    };
    // fp32 takes fewer instructions per byte than 16-bit elements, so misses of L1 delay it more: half the bytes are too many.
    if constexpr (kStaged)
      if (fits_l1(2 * sizeof(T), row_bytes)) return each(3, rows + 1, staged);
    each(fits_l1((Streams + 2) * sizeof(T) / 2, row_bytes) ? 2 : 1, rows, [&](std::int64_t row, auto beside)
                                                                              __attribute__((always_inline)) {
      first(row, 1, beside, kNoRest);
    });
    return;
  }
  for (std::int64_t row = 0; row < rows; row += most) {
    const int some = static_cast<int>(least(most, rows - row));
    first(row, some, kNoneBeside, kNoRest);
    for (int r = 0; r < some; ++r) write<V, false>(y + (row + r) * columns, columns, result(row, r));
  }
}

// Rows of a block. Where results go past the caches: one long row, so that memory is read and written in order; two of those that L2
// keeps and L1 does not: see `blocks_in_turn`. Else as many as L1 keeps.
template <bool NonTemporal, int Streams>
constexpr std::int64_t rows_of_block(std::int64_t row_bytes) {
  if (NonTemporal && !fits_l1(Streams, row_bytes) && row_bytes <= 64 << 10) return 2;
  return NonTemporal && row_bytes >= kLongRowBytes ? 1 : least(kLanes, rows_together(row_bytes));
}

// The same with non-temporal stores: results of one block are stored while the first pass over the next one reads. Streams: rows
// of memory that a row's steps go through; where these do not fit into L1, rows of whole lines are stored from either end in turn, for
// it still holds the last of them. 0: result i is stored in step i. Pairs: of two rows side by side in every other step, so that what
// both read of a weight comes from L2 once.
template <class V, bool Whole, int Streams, bool Pairs, class T, class First, class Result>
ROOFLINE_INLINE void blocks_in_turn(T* y, std::int64_t most, std::int64_t rows, std::int64_t columns, First first, Result result) {
  Outgoing<Whole> outgoing(y);
  const auto put_rows = [&](std::int64_t row, int begin, int end) __attribute__((always_inline)) {
    for (int r = begin; r < end; ++r) {
      const auto value = result(row, r);
      for (std::int64_t i = 0; i < columns; i += kStep<V>) {
        const int n = static_cast<int>(least(kStep<V>, columns - i));
        outgoing.template put<T>((row + r) * columns + i, n, value(i, n));
      }
    }
  };
  const bool fits = fits_l1(Streams, columns * std::int64_t{sizeof(T)});
  bool backward = false;
  int waiting = 0;  // rows of the block before that are yet to be stored
  std::int64_t before = 0;
  for (std::int64_t row = 0; row < rows; row += most) {
    const int some = static_cast<int>(least(most, rows - row)), stored = Pairs && some < most ? 0 : some;
    backward = Whole && !fits && !backward;
    first(row, some, [&](int r) __attribute__((always_inline)) {
      const std::int64_t end = columns - kStep<V>;
      if constexpr (Pairs)
        return [&, any = waiting > 0 && stored > 0, at = before * columns, upper = result(before, 0), lower = result(before, 1),
                begin = backward ? end - r * columns / 2 : r * columns / 2, way = backward ? -1 : 1](std::int64_t i, int n)
                   __attribute__((always_inline)) {
          if (!any || i / kStep<V> % 2) return;
          i = begin + way * i / 2;
          const auto one = upper(i, n), other = lower(i, n);
          outgoing.template put<T>(at + i, n, one), outgoing.template put<T>(at + columns + i, n, other);
        };
      else
        return [&, any = waiting > 0, at = (before + r) * columns, value = result(before, r), begin = backward ? end : 0,
                way = backward ? -1 : 1](std::int64_t i, int n) __attribute__((always_inline)) {
          if constexpr (Whole && Streams > 0) i = begin + way * i;
          if (any) outgoing.template put<T>(at + i, n, value(i, n));
        };
    }, [&]() __attribute__((always_inline)) { put_rows(before, stored, waiting); });
    waiting = some, before = row;
  }
  put_rows(before, 0, waiting);
  outgoing.finish(rows * columns * sizeof(T));
}

template <class V, bool NonTemporal, int Streams, class T, class First, class Result, class Staged = std::nullptr_t>
ROOFLINE_INLINE void in_blocks(T* y, std::int64_t most, std::int64_t rows, std::int64_t columns, First first, Result result,
                               Staged staged = nullptr) {
  const std::int64_t row_bytes = columns * std::int64_t{sizeof(T)};
  const bool whole = reinterpret_cast<std::uintptr_t>(y) % kLineBytes == 0 && row_bytes % kLineBytes == 0;
  if constexpr (!NonTemporal)
    blocks_in_cache<V, Streams>(y, most, rows, columns, first, result, staged);
  else if (Streams > 0 && whole && most == 2 && !fits_l1(Streams, row_bytes) && columns % (2 * kStep<V>) == 0)
    blocks_in_turn<V, true, Streams, true>(y, most, rows, columns, first, result);
  else if (whole)
    blocks_in_turn<V, true, Streams, false>(y, most, rows, columns, first, result);
  else
    blocks_in_turn<V, false, 0, false>(y, most, rows, columns, first, result);
}

}  // namespace
}  // namespace roofline::cpu
