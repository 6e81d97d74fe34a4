// The routers of one instruction set: each call does a contiguous range of tokens on one thread.
#pragma once

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/isa.h"

namespace roofline::cpu {

struct TopkPart {
  static constexpr std::int64_t kBlock = 64;      // scores that are compared at once: a bit of a word for each
  static constexpr int kTogether = 16;            // tokens that may be done together: as many as the widest vector has lanes
  static constexpr std::int64_t kMostExperts = 1024, kMostChosen = 16;  // of such tokens

  const void* logits;     // [tokens, experts]
  const float* bias;      // [experts]; null for none; of sigmoids
  float* weights;         // [tokens, chosen]
  std::int32_t* numbers;  // [tokens, chosen]; of experts
  float* scores;          // [rows(experts, chosen), pitch(experts)]
  float* picked;          // [chosen, kTogether]
  float* found;           // [chosen, kTogether]; the bits of experts
  double* candidates;     // [room]
  double* ordered;        // [room]
  std::int64_t room;      // at least chosen + 3 kBlock; with more candidates than fit only the best are kept
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t chosen;  // experts per token
  bool sigmoid;         // else softmax
  bool renormalise;

  static constexpr bool together(std::int64_t experts, std::int64_t chosen) {
    return experts <= kMostExperts && chosen <= kMostChosen;
  }
  static constexpr std::int64_t rows(std::int64_t experts, std::int64_t chosen) {
    return together(experts, chosen) ? kTogether : 1;
  }
  static constexpr std::int64_t pitch(std::int64_t experts) { return (experts + 2 * kBlock - 1) / (2 * kBlock) * 2 * kBlock; }
};

struct RoutersKernels {
  // A NaN is never chosen; where fewer are left than chosen, the expert is -1 and its weight NaN.
  void (*topk[kElements])(const TopkPart&);
};

ROOFLINE_DECLARE_TABLES(RoutersKernels, routers);

}  // namespace roofline::cpu
