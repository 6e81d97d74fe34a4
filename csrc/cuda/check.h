// Every CUDA call goes through one of these: an error becomes an exception that names the call, its place and the code.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "core/error.h"

namespace roofline::cuda {

inline std::string describe(cudaError_t code) {
  return std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ")";
}

[[noreturn]] inline void fail(cudaError_t code, std::string_view call, std::string_view file, int line) {
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  const std::string text =
      "cuda: " + std::string(call) + " failed at " + std::string(file) + ":" + std::to_string(line) + ": " + describe(code);
  // Clears an ordinary error. One that came from a kernel stays: every later call in the process then fails with it.
  cudaGetLastError();
  const bool lost = cudaPeekAtLastError() != cudaSuccess || code == cudaErrorIllegalAddress || code == cudaErrorLaunchFailure ||
                    code == cudaErrorIllegalInstruction || code == cudaErrorMisalignedAddress || code == cudaErrorAssert;
  if (code == cudaErrorMemoryAllocation) throw OutOfMemory(text + "; use a smaller problem");
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorUnsupportedPtxVersion)
    throw Unsupported(text + "; rebuild on this machine, or with CUDAARCHS naming its architecture");
  throw Error(text + (lost ? "; the GPU's context is lost: start a new process" : ""));
}

inline void check(cudaError_t code, const char* call, const char* file, int line) {
  if (code != cudaSuccess) fail(code, call, file, line);
}

}  // namespace roofline::cuda

#define ROOFLINE_CUDA(call) ::roofline::cuda::check((call), #call, __FILE__, __LINE__)

// For destructors and release: the error is dropped, and does not surface at the next call either.
#define ROOFLINE_CUDA_NOEXCEPT(call)             \
  do {                                           \
    if ((call) != cudaSuccess) cudaGetLastError(); \
  } while (false)

// After <<<>>>: a launch returns nothing, so its refusal is read here. What goes wrong inside the kernel surfaces at the next wait.
#define ROOFLINE_CUDA_LAUNCHED(kernel) ::roofline::cuda::check(cudaGetLastError(), kernel, __FILE__, __LINE__)
