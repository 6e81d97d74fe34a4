// Attention of few queries over many keys of one instruction set: what a thread does with its range of keys. Keys and values lie in
// elements of 8, 16 or 32 bits, and scores, weights and sums are numbers of fp32; or all of them are of fp64.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

// A range of the keys of one KV head, and queries of the heads that share it.
template <class Number>
struct DecodePart {
  const Number* q;           // [whole(rows), words of head_dim + rope_dim], by DecodeKernels::take
  const void* k;             // [.., head_dim]
  const void* v;             // as k, and may be k
  const void* rope;          // [.., rope_dim]: more columns of the keys; null where rope_dim is 0
  Number* workspace;         // [workspace_numbers(rows, head_dim + rope_dim)], of the thread
  Number* out;               // [whole(rows), head_dim]; not divided by the sum
  Number* top;               // [whole(rows)]; highest score, in units of log2; -infinity where a row sees no key of the range
  Number* sum;               // [whole(rows)]; of 2^(score - top)
  std::int64_t rows;
  std::int64_t head_dim;
  std::int64_t rope_dim;
  std::int64_t first, last;  // of the range
  std::int64_t first_row;    // row r is query (first_row + r) mod seq_q
  std::int64_t seq_q;
  std::int64_t visible;      // keys up to the last that the first query sees
  std::int64_t growth;       // how many more each next query sees: 1 if causal, else 0
  std::int64_t window;       // keys that a query sees at most
  Number scale;              // of products, so that scores are in units of log2
  Number softcap;            // in these units; 0: none
  const std::int32_t* pages;   // page of every page_size keys, or null: key i is row i of k
  std::int64_t page_size;
  std::int64_t page_rows;      // rows of k from a page to the next
  Cached::Element element;     // of k, v and rope
  int streams = 1;             // places of the range that are read in turn: 1, 2, 4 or 8
  std::int64_t lead_bytes = 0;  // how far ahead values are prefetched while keys are read, and the next keys while values are
  bool to_l1 = false;           // every line of these goes to L1; else to L2
};

// The results of all ranges for the same rows: parts lie one after the other.
template <class Number>
struct DecodeParts {
  const Number* out;   // [parts, whole(rows), head_dim]
  Number* top;         // [parts, whole(rows)]; overwritten
  const Number* sum;   // [parts, whole(rows)]
  const float* sinks;  // of each seq_q rows of the KV head a score of no key, or null
  void* to;            // [rows, head_dim]
  float* logsumexp;    // [rows], or null
  std::int64_t parts;
  std::int64_t rows;
  std::int64_t head_dim;
  std::int64_t first_row;
  std::int64_t seq_q;
  Number unit;         // what an element of V counts
};

template <class Number>
struct DecodeKernels {
  static constexpr int kStep = 192;     // keys that ranges are multiples of
  static constexpr int kKeys = 768;     // of a block at most
  static constexpr int kMostRows = 64;  // so that queries and results stay in L2
  // Columns of a key at most where a vector holds four queries: keys that are widened for these take half of the smallest L1.
  static constexpr int kQuadColumns = 256;

  // to[rows, words of columns], a row every `pitch`, = from[rows, columns]. In fp64 only the first.
  void (*take[kElements])(const void* from, std::int64_t rows, std::int64_t columns, Number* to, std::int64_t pitch);
  void (*attend[Cached::elements])(const DecodePart<Number>&);
  void (*combine[kElements])(const DecodeParts<Number>&);
  int numbers = 1;  // of Q and K in a word: 2 of bf16, whose columns are even
  // Whether the kernels of whole rows, quicker than queries in lanes, take so many rows; null where words hold one number.
  bool (*in_whole_rows)(std::int64_t rows, std::int64_t words, std::int64_t rope_dim) = nullptr;

  // Scores, places of keys, queries as the kernels take them, and a few keys or values.
  static std::int64_t workspace_numbers(std::int64_t rows, std::int64_t key_dim) {
    return (whole(rows) + 12) * (kKeys + 4) + (whole(rows) + 24) * (key_dim + 64);
  }
  // Rows as they are worked on: 3 as 4. Results have as many.
  static std::int64_t whole(std::int64_t rows) { return rows + (rows % 4 == 3); }
};

ROOFLINE_DECLARE_TABLES(DecodeKernels<float>, decode);
ROOFLINE_DECLARE_TABLES(DecodeKernels<double>, decode_doubles);
// Products of bf16 pairs, for queries of bf16 and a cache of it or of bytes.
extern const DecodeKernels<float> decode_pairs_avx512_bf16;

}  // namespace roofline::cpu
