// What every plan records of a kernel, read off the compiled kernel itself. Reading it also loads the kernel, outside any gate.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/kernel.h"
#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/plan.h"

namespace roofline::cuda {

struct KernelFacts {
  int registers = 0;
  int shared_bytes = 0;  // static and dynamic, of one block
  int blocks_per_sm = 0;
};

// Lets a kernel take this much dynamic shared memory: more than 48 KB must be asked for. What another plan of the kernel was
// allowed stays: a launch with more than was asked for last is refused.
template <class F>
void allow_shared(const Device& device, F* kernel, std::int64_t shared_bytes) {
  device.use();
  const void* const of = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes{};
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, of));
  if (shared_bytes <= attributes.maxDynamicSharedSizeBytes) return;
  ROOFLINE_CUDA(cudaFuncSetAttribute(of, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
}

// Facts of a kernel in blocks of `threads`, with `shared_bytes` of dynamic shared memory, which it may take from now on.
template <class F>
KernelFacts kernel_facts(const Device& device, F* kernel, int threads, std::int64_t shared_bytes = 0) {
  device.use();
  if (shared_bytes > 0) allow_shared(device, kernel, shared_bytes);
  const std::size_t dynamic_bytes = static_cast<std::size_t>(shared_bytes);
  cudaFuncAttributes attributes{};
  ROOFLINE_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  KernelFacts facts;
  facts.registers = attributes.numRegs;
  facts.shared_bytes = static_cast<int>(attributes.sharedSizeBytes + dynamic_bytes);
  ROOFLINE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&facts.blocks_per_sm, kernel, threads, dynamic_bytes));
  return facts;
}

// of(T{}) with the element type T of a dtype whose arithmetic is in fp32.
template <class Of>
Bound by_dtype(DType dtype, Of of) {
  if (dtype == DType::fp32) return of(float{});
  if (dtype == DType::fp16) return of(__half{});
  if (dtype == DType::bf16) return of(__nv_bfloat16{});
  throw Unsupported("there is no kernel for elements of " + name(dtype));
}

// prefix: of the step, where a plan has several kernels ("softmax_").
inline void record(Plan& plan, const std::string& prefix, const KernelFacts& facts, std::int64_t grid, int threads) {
  plan.set(prefix + "grid", Value(grid));
  plan.set(prefix + "block", threads);
  plan.set(prefix + "registers", facts.registers);
  plan.set(prefix + "shared_bytes", facts.shared_bytes);
  plan.set(prefix + "blocks_per_sm", facts.blocks_per_sm);
}

#if defined(__CUDACC__)
struct Grid {
  std::int64_t blocks;
  int threads;
  std::int64_t shared_bytes = 0;  // dynamic
  std::shared_ptr<void> memory = nullptr;  // the launches own it
};

struct StepNames {
  const char* step;
  const char* kernel;  // as an error calls it
  std::string prefix = "";
};

// Adds a step that launches a kernel, and records the kernel's facts in the plan.
template <class... Parameters, class... Given>
void add_step(Bound& bound, const StepNames& names, void (*kernel)(Parameters...), const KernelFacts& facts, const Grid& grid,
              Given... given) {
  record(bound.plan, names.prefix, facts, grid.blocks, grid.threads);
  bound.steps.push_back({names.step, [=, name = names.kernel](Queue& queue) {
                           kernel<<<static_cast<unsigned>(grid.blocks), grid.threads, static_cast<std::size_t>(grid.shared_bytes),
                                    stream(queue)>>>(given...);
                           ROOFLINE_CUDA_LAUNCHED(name);
                         }});
}
#endif

}  // namespace roofline::cuda
