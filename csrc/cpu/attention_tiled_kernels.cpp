// Attention by blocks of queries, with products in fp32.
#include "cpu/attention_blocks.h"
#if defined(ROOFLINE_SIMDE) || (defined(__AVX512F__) && defined(__AVX512DQ__))
#define ROOFLINE_ROWS
#include "cpu/attention_rows.h"
#endif

namespace roofline::cpu {
namespace {

#if defined(ROOFLINE_ROWS)
struct InPlace : PlainProducts {
  template <class T>
  ROOFLINE_INLINE Vec query_words(const T* q, int n, float scale) {
    return mul(get(q, n, zero()), set1(scale));
  }
  // Two vectors of columns of a value; not Whole: the first `some` columns.
  template <bool Whole>
  ROOFLINE_INLINE void values_of(const float* v, Index, int some, Vec (&values)[2]) {
#pragma GCC unroll 2
    for (int z = 0; z < 2; ++z)
      values[z] = Whole ? load(v + z * kLanes) : get(v + z * kLanes, static_cast<int>(most(0, least(kLanes, some - z * kLanes))), zero());
  }
};

// Whether so few queries, of such keys, lie in rows.
bool in_rows(Index rows, Index head_dim, Index rope_dim, Index, bool) {
  return rows <= kLanes && head_dim % kQuad == 0 && rope_dim % kQuad == 0;
}
constexpr auto kInRows = in_rows;
#else
constexpr bool (*kInRows)(Index, Index, Index, Index, bool) = nullptr;
#endif

template <class T>
void attend(const AttentionBlock& block) {
#if defined(ROOFLINE_ROWS)
  if (in_rows(block.rows, block.head_dim, block.rope_dim, block.value_dim, block.pages != nullptr))
    return tiled<T, RowProducts<InPlace>>(block);
  if (block.k == block.v) return tiled<T, RowValues<InPlace>>(block);
#endif
  tiled<T, PlainProducts>(block);
}

}  // namespace

extern const AttentionTiledKernels ROOFLINE_TABLE(attention_tiled) = {
    kLanes, kRows, kWidth, 1, 1, {attend<float>, attend<Bf16>, attend<Fp16>}, 4, true, kInRows};

}  // namespace roofline::cpu
