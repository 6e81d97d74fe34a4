// What the tests of the CUDA backend over a runtime without a GPU (fake_cuda.h) and a stub of cuBLASLt have in common.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "cuda/device.h"
#include "cuda/kernels.h"
#include "cuda/libraries/cublas_lt.h"
#include "cuda/matmul/gemm.h"
#include "fake_cuda.h"
#include "fake_elements.h"
#include "stub_cublas_lt.h"
#include "thrown.h"

using namespace roofline;
using namespace roofline::cuda;
using fake::element;
using fake::set;

inline Stub& stub() {
  static Stub* const found = [] {
    void* handle = dlopen(STUB_CUBLAS_LT, RTLD_NOW);
    return reinterpret_cast<Stub* (*)()>(dlsym(handle, "stub_cublas_lt"))();
  }();
  return *found;
}

class OnFakeGpu : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    int* const live = stub().live;
    stub() = Stub();
    stub().live = live;
    if (static bool once = true; once) set_cublas_lt_path(STUB_CUBLAS_LT), once = false;
    stub().on_run = [](int which, long) {
      fake::runtime().clock_s += 1e-3;
      fake::loads(&stub().runs[which]);
    };
  }
  // Nothing is left of a device, whatever happened to it.
  void TearDown() override {
    EXPECT_EQ(fake::runtime().allocations.size(), 0u);
    EXPECT_EQ(fake::runtime().streams, 0);
    EXPECT_EQ(fake::runtime().events, 0);
    EXPECT_EQ(fake::runtime().pinned, 0);
    EXPECT_EQ(fake::runtime().graphs, 0);
    EXPECT_EQ(*stub().live, 0) << "descriptors of cuBLASLt";
  }
};

struct Operands {
  Operands(Backend& device, DType dtype, DType out, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k)
      : device(device) {
    a = take(batch * m * k * size_bytes(dtype));
    b = take(batch * k * n * size_bytes(dtype));
    c = take(batch * m * n * size_bytes(out));
    std::mt19937 generator(5);
    for (std::int64_t i = 0; i < batch * m * k; ++i) set(dtype, a, i, static_cast<int>(generator() % 7) - 3);
    for (std::int64_t i = 0; i < batch * k * n; ++i) set(dtype, b, i, static_cast<int>(generator() % 7) - 3);
  }
  ~Operands() {
    for (void* each : all) device.release(each, 0);
  }
  void* take(std::int64_t bytes) {
    all.push_back(device.allocate(static_cast<std::size_t>(bytes)));
    std::memset(all.back(), 0xFF, static_cast<std::size_t>(bytes));
    return all.back();
  }
  Backend& device;
  std::vector<void*> all;
  void *a, *b, *c;
};

inline Tensor tensor(const std::string& name, void* data, DType dtype, const Shape& shape) {
  return {name, data, dtype, shape, {}, Role::in};
}

inline const KernelEntry& kernel(const Backend& device, const std::string& op, DType dtype,
                                 const std::string& variant = "library") {
  for (const KernelEntry& each : device.kernels())
    if (each.op == op && each.dtype == dtype && each.variant == variant) return each;
  throw Error("no such kernel");
}

template <class T>
T fact(const std::vector<std::pair<std::string, Value>>& facts, const std::string& name) {
  for (const auto& [key, value] : facts)
    if (key == name) return std::get<T>(value);
  throw Error("there is no fact " + name);
}

inline void run(const Bound& bound, Backend& device) {
  for (const Step& step : bound.steps) step.launch(static_cast<Device&>(device));
}

// Whatever fails while `bind` plans, nothing of it is left; and binding again and again takes no memory. Returns what checks that,
// given what was done before.
inline std::function<void(const std::string&)> check_failures(Backend& device, const KernelEntry& kernel,
                                                              const Arguments& arguments, int times) {
  const auto settled = [before = fake::runtime().used_bytes, count = fake::runtime().allocations.size(),
                        events = fake::runtime().events](const std::string& after) {
    EXPECT_EQ(fake::runtime().used_bytes, before) << after;
    EXPECT_EQ(fake::runtime().allocations.size(), count) << after;
    EXPECT_EQ(fake::runtime().events, events) << after;
    EXPECT_EQ(*stub().live, 0) << after;
  };
  for (int i = 0; i < times; ++i) run(kernel.bind(arguments, device), device);
  settled("binds");
  for (const char* call : {"cudaMalloc", "cudaSetDevice", "cudaMemGetInfo", "cudaMemcpy2DAsync", "cudaMemcpyAsync", "cudaEventCreate",
                           "cudaEventRecord", "cudaEventSynchronize", "cudaEventElapsedTime"})
    for (int after = 0; after < 8; ++after) {
      fake::runtime().failures = {{call, {cudaErrorMemoryAllocation, after}}};
      try {
        kernel.bind(arguments, device);
      } catch (const Error&) {
      }
      settled(std::string(call) + " " + std::to_string(after));
    }
  fake::runtime().failures.clear();
  return settled;
}
