// Passes over tokens that other operators have among their steps: each binds one step.
#pragma once

#include "cuda/device.h"
#include "ops/tokens.h"

namespace roofline::cuda {

Bound bind_embedding(const ops::Embedding& problem, Device& device);

// out[t] = sum over j < routed of gates[t][j] rows[places[t][j]], and of rows[places[t][j]] for the others.
struct Combine {
  DType dtype;  // of rows and out
  std::int64_t tokens, d_model;
  int per_token, routed;
  const void* rows;            // [any, d_model]
  const std::int32_t* places;  // [tokens, per_token]
  const float* gates;          // [tokens, routed]
  void* out;                   // [tokens, d_model]
};

Bound bind_combine(const Combine& problem, Device& device);

}  // namespace roofline::cuda
