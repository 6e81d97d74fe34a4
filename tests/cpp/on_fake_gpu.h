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

// Tensors of a test, released with it.
struct Memory {
  explicit Memory(Backend& device) : device(device) {}
  Memory(const Memory&) = delete;
  ~Memory() {
    for (void* each : all) device.release(each, 0);
  }
  // Whole numbers from -span to span.
  void* random(DType dtype, std::int64_t elements, int span = 3) {
    void* const data = all.emplace_back(device.allocate(static_cast<std::size_t>(size_bytes(dtype, elements))));
    for (std::int64_t i = 0; i < elements; ++i) set(dtype, data, i, static_cast<int>(generator() % (2 * span + 1)) - span);
    return data;
  }
  // 1, 2 and 4, and of fp32 their negatives.
  void* scales(DType dtype, std::int64_t elements) {
    void* const data = all.emplace_back(device.allocate(static_cast<std::size_t>(size_bytes(dtype, elements))));
    for (std::int64_t i = 0; i < elements; ++i)
      set(dtype, data, i, std::ldexp(dtype == DType::fp32 && generator() % 2 ? -1.0 : 1.0, static_cast<int>(generator() % 3)));
    return data;
  }
  Backend& device;
  std::vector<void*> all;
  std::mt19937 generator{11};
};

struct Operands : Memory {
  Operands(Backend& device, DType dtype, DType out, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k)
      : Memory(device), a(random(dtype, batch * m * k)), b(random(dtype, batch * k * n)), c(random(out, batch * m * n)) {}
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

// Runs `work` with each call failing once: its first use, its second, and so on; after each run done(index of that use). Returns
// how often `work` threw an error that names the call.
template <class Work, class Done>
int fail_each(std::initializer_list<const char*> calls, int times, cudaError_t code, Work work, Done done) {
  int named = 0;
  for (const char* call : calls)
    for (int after = 0; after < times; ++after) {
      fake::runtime().failures = {{call, {code, after}}};
      try {
        work();
      } catch (const Error& error) {
        named += has(error.what(), call);
        const bool exact = typeid(error) == typeid(Error) && has(error.what(), call);
        EXPECT_TRUE(exact || code == cudaErrorMemoryAllocation) << error.what();
      }
      done(std::string(call) + " " + std::to_string(after));
    }
  fake::runtime().failures.clear();
  return named;
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
  fail_each({"cudaMalloc", "cudaSetDevice", "cudaMemGetInfo", "cudaMemcpy2DAsync", "cudaMemcpyAsync", "cudaEventCreate",
             "cudaEventRecord", "cudaEventSynchronize", "cudaEventElapsedTime"},
            8, cudaErrorMemoryAllocation, [&] { kernel.bind(arguments, device); }, settled);
  return settled;
}
