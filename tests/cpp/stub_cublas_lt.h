// What the stub of cuBLASLt is told to do, and what it was told.
#pragma once

#include "cuda/libraries/cublas_lt.h"

struct Stub {
  using Status = roofline::cuda::lt::Status;
  // Orders.
  std::size_t version = 130101;
  Status create = {}, heuristics = {};
  int proposals = 1;
  std::size_t workspace_bytes[16] = {};
  Status states[16] = {}, run[16] = {};  // of each proposal
  int split_k = 1;
  void (*on_run)(int which, long number) = nullptr;
  // Records.
  int handles = 0;
  long asked = 0;       // proposals, times
  int* live = nullptr;  // descriptors
  std::size_t workspace_limit = 0;
  unsigned alignment[4] = {};
  long runs[16] = {}, total_runs = 0;
  roofline::cuda::lt::Compute compute = {};
  roofline::cuda::lt::Type scale = {};
  int transa = 0, transb = 0;
  bool fast_accumulation = false, device_factors = false;
};
