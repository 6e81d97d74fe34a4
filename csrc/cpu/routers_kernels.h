// The routers of one instruction set: each call does a contiguous range of tokens on one thread.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

struct TopkPart {
  static constexpr std::int64_t kBlock = 64;  // scores that are compared at once: a bit of a word for each
  static constexpr int kTogether = 16;        // tokens that go through a step before the next one begins

  const void* logits;        // [tokens, experts]
  const float* bias;         // [experts]; null for none
  float* weights;            // [tokens, chosen]
  std::int32_t* numbers;     // [tokens, chosen]; of experts
  // Of as many tokens as are `together`, at most kTogether:
  float* scores;             // [together, experts up to whole blocks]
  float* sigmoids;           // [together, experts up to whole blocks]; where there is a bias
  float* picked;             // [chosen, kTogether]
  double* candidates;        // [together, room]
  double* ordered;           // [together, room]
  std::int64_t room;         // at least chosen + 3 kBlock; with more candidates than fit only the best are kept
  std::int64_t together;
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t chosen;       // experts per token
  bool renormalise;
};

struct RoutersKernels {
  // A NaN is never chosen; where fewer are left than chosen, the expert is -1 and its weight NaN.
  void (*topk_softmax[kElements])(const TopkPart&);
  void (*topk_sigmoid[kElements])(const TopkPart&);
};

ROOFLINE_DECLARE_TABLES(RoutersKernels, routers);

}  // namespace roofline::cpu
