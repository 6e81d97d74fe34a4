// What the stub of NVML (stub_nvml.cpp) answers; the test changes it while the stub is asked.
#pragma once

#include <atomic>
#include <vector>

#include "cuda/libraries/nvml.h"

struct StubNvml {
  roofline::cuda::nv::Status init = roofline::cuda::nv::success, by_bus = roofline::cuda::nv::success;
  roofline::cuda::nv::Status everything = roofline::cuda::nv::success;  // of every question to a GPU
  std::atomic<unsigned> sm_mhz{1980}, memory_mhz{3201}, power_mw{600'000}, temperature_c{60};
  std::atomic<unsigned long long> reasons{0}, energy_mj{5'000'000};
  bool instant_power = true;
  std::vector<roofline::cuda::nv::Process> processes;
  std::atomic<int> readings{0};
};
