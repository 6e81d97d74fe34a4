// The kernels over tokens of one instruction set: each call does a contiguous range on one thread.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// Heads of all tokens are counted through: those of q of a token, then its heads of k.
struct RopePart {
  void* q;                  // [tokens, heads, 2 half], in place
  void* k;                  // [tokens, kv_heads, 2 half], in place
  const void* cos;          // [tokens, half] in `table`
  const void* sin;          // [tokens, half] in `table`
  float* scratch;           // [2, half]: a token's cos and sin in fp32; unused where the table is, but for heads of bf16
  std::int64_t first, last;
  std::int64_t heads, kv_heads, half;
  Element table;
};

struct EmbeddingPart {
  const std::int32_t* ids;  // [tokens]
  const char* table;        // [vocabulary, row_bytes]
  char* out;                // [tokens, row_bytes]
  std::int64_t tokens;
  std::int64_t row_bytes;
};

struct TokensKernels {
  void (*rope[kElements][2])(const RopePart&);  // [0] q and k in a cache, [1] from memory
  void (*embedding[3])(const EmbeddingPart&);   // [0] plain stores, [1] non-temporal ones and rows fetched into L1, [2] into L2
};

ROOFLINE_DECLARE_TABLES(TokensKernels, tokens);

}  // namespace roofline::cpu
