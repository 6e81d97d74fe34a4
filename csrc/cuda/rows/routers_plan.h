// How a router's experts are shared out over lanes: plain arithmetic, so that it is tested where there is no GPU.
#pragma once

#include <cstdint>

namespace roofline::cuda {

constexpr int kListed = 8;       // the most that lists choose
constexpr int kFewestLanes = 4;  // so that a token's accesses cover halves of a 128-byte line
constexpr int kFewValues = 16;   // experts of a lane: of up to 64
constexpr int kMostValues = 32;  // of more

struct RouterPlan {
  bool listed = false;
  int values = 0;  // experts of a lane
  int lanes = 32;  // that share a token
};

constexpr RouterPlan plan_router(std::int64_t experts, std::int64_t chosen) {
  if (chosen > kListed || experts > 32 * kMostValues) return {};
  const int values = experts <= kFewestLanes * kFewValues ? kFewValues : kMostValues;
  int lanes = kFewestLanes;
  while (std::int64_t{lanes} * values < experts) lanes *= 2;
  return {true, values, lanes};
}

}  // namespace roofline::cuda
