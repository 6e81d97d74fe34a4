// Attention of few queries: a block of keys and values, and the sizes of tiles. Everything is internal to the file that includes it.
#pragma once

#include "cpu/decode_kernels.h"

#include "cpu/isa.h"
#include "cpu/simd/simd.h"
#if !defined(ROOFLINE_DOUBLES)
#include "cpu/simd/bytes.h"
#endif
#if defined(ROOFLINE_PAIRS)
#include "cpu/simd/integers.h"
#include "cpu/words.h"
#endif

namespace roofline::cpu {
namespace {

using Index = std::int64_t;

using Kernels = DecodeKernels<Number>;
using Part = DecodePart<Number>;

constexpr int kKeys = Kernels::kKeys;
constexpr int kPitch = kKeys + 4;       // scores of a row: a tile may write up to a vector more behind its last
constexpr Index kFewKeys = 64;          // of all rows, that are not worth these places
constexpr Index kRowNumbers = (8 << 10) / sizeof(Number);  // of queries, or results, that stay in L1
constexpr Index kScores = (12 << 10) / sizeof(Number);     // of a block that stay in L1
constexpr Index kBlockBytes = 64 << 10;  // keys and values that stay in L2 beside all queries and results

// Numbers in an element: two in a word where instructions multiply pairs of them, of values those of two keys.
template <class Element>
constexpr int kNumbers = 1;
#if defined(ROOFLINE_PAIRS)
template <>
constexpr int kNumbers<Bf16Pair> = 2;
template <>
constexpr int kNumbers<Int8Pair> = 2;
template <>
constexpr int kNumbers<Fp8Pair> = 2;
#endif
// Whether each number of an element is one byte.
template <class Element>
constexpr bool kBytes = sizeof(Element) == kNumbers<Element>;
// Whether bytes are widened in twos where registers do not hold all queries beside them, too: that takes a quarter fewer operations.
template <class Element>
constexpr bool kInTwos = false;
#if !defined(ROOFLINE_DOUBLES)
template <>
constexpr bool kInTwos<Fp8E4m3> = true;
#endif
// Whether rows are worked on in groups of 8 first, so that bytes are widened for all of them at once.
template <class Element>
constexpr bool kEights = kBytes<Element> && kNumbers<Element> == 2;
template <class Element>
ROOFLINE_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(ROOFLINE_PAIRS)
  if constexpr (kNumbers<Element> == 2) return add_bf16_pairs(a, b, c);
#endif
  return fma(a, b, c);
}

// Rows are worked on in groups of 4, the last of 2 or 1 where that is enough. Scores of a group lie [key][row].
// Keys of a tile of scores: as many sums as keep both multipliers busy.
template <int Rows>
constexpr int kTileKeys = Rows == 4 ? (kManyRegisters ? 4 : 3) : (kLanes > 8 ? kLanes : 8) / Rows;
// Whether tiles of results take many keys, whose weights are loaded each time: a store of such a vector takes the time of almost
// two multiply-adds on Zen 4. Shorter vectors make columns too narrow for that.
constexpr bool kLongTiles = sizeof(Vec) == 64;
constexpr Index kValueBytes = 8 << 10;  // of values that more rows, or columns, meet in L1
// A block is filled up to a multiple of keys that makes whole tiles and whole vectors of scores.
constexpr int kWhole = kLanes > 8 ? 16 : 24;
static_assert(Kernels::kStep % kWhole == 0 && kKeys % Kernels::kStep == 0);

template <int N>
struct Size {
  static constexpr int value = N;
};

// Calls work(row, constant of its size) for each group of rows in [first, last), where `rows` are all there are. Eight: groups of 8
// come first.
template <bool Eight = false, class Work>
ROOFLINE_INLINE void for_groups(Index first, Index last, Index rows, Work work) {
  Index row = first;
  if constexpr (Eight)
    for (; row < last && rows - row >= 7; row += 8) work(row, Size<8>{});
  for (; row < last; row += 4) {
    if (rows - row >= 3) work(row, Size<4>{});
    else if (rows - row == 2) work(row, Size<2>{});
    else work(row, Size<1>{});
  }
}

template <class Element>
struct RowsAt {
  const Element* base;
  const Index* at;
  __attribute__((always_inline)) const Element* operator[](Index i) const { return base + at[i]; }
};

// Into L1 or L2; the instruction takes a constant.
ROOFLINE_INLINE void prefetch(const void* line, bool to_l1) {
  to_l1 ? __builtin_prefetch(line, 0, 3) : __builtin_prefetch(line, 0, 2);
}

// How a kernel prefetches the lines ahead: with those that it reads, or, where two groups of rows read the same ones, some in each
// step of either.
enum Fetch : int { kNoFetch, kFetchToL2, kFetchToL1, kSpread };
template <int Where>
constexpr bool kBeside = Where == kFetchToL2 || Where == kFetchToL1;

// Keys of a block in the order in which they are taken.
template <class Element>
struct Block {
  const Element* k;
  const Element* v;
  const Element* rope;
  const Index* at;       // [whole]; elements from k, or v, to a key's row; the last again beyond n
  const Index* rope_at;  // [whole]; from rope
  Index n;
  Index whole;  // multiple of kWhole
  Index head_dim;
  Index rope_dim;
  Index lead;            // keys: how far ahead rows are prefetched, in whole steps of kWhole; 0: not at all
  const Index* next_at;  // [next_n], of the rows read next
  Index next_n;          // multiple of kWhole
  Number scale;          // of products
  bool to_l1;            // prefetches go to L1; else to L2
  Index apart;           // columns from one prefetch of a row to the next
  Cached::Element cached;  // what rows hold

  // Into L2 where lines that wait for memory would fill the few buffers of L1's misses, which bound what a core reads (Zen 4). Where
  // rows lie one behind the other its hardware fetches the lines between, and prefetches of them all would take its buffers.
  __attribute__((always_inline)) void fetch(const Element* row) const {
    for (Index d = 0; d < head_dim; d += apart) prefetch(row + d, to_l1);
  }

  // The rows to prefetch with those from a key, or a value, on. V follows the block's keys, and the next keys follow V.
  __attribute__((always_inline)) RowsAt<Element> after_keys(Index key) const {
    const Index then = key + lead, behind = then - whole;
    if (behind >= 0 && (v == k || behind >= whole)) return {k, at + key};
    return behind < 0 ? RowsAt<Element>{k, at + then} : RowsAt<Element>{v, at + behind};
  }
  __attribute__((always_inline)) RowsAt<Element> after_values(Index key) const {
    const Index then = key + lead, behind = then - whole;
    if (behind >= 0 && behind >= next_n) return {v, at + key};
    return behind < 0 ? RowsAt<Element>{v, at + then} : RowsAt<Element>{k, next_at + behind};
  }
};

// Calls work(how it prefetches), a constant.
template <class Element, class Work>
ROOFLINE_INLINE void fetching(const Block<Element>& block, Work work) {
  if (block.lead == 0) work(Size<kNoFetch>{});
  else if (block.to_l1) work(Size<kFetchToL1>{});
  else work(Size<kFetchToL2>{});
}

}  // namespace
}  // namespace roofline::cpu
