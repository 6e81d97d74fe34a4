// Named ranges for Nsight Systems and Nsight Compute. NVTX is headers only: they look for the profiler's library, named in the
// environment, at the first range, and do nothing without one. Where the toolkit has no such headers, there are no ranges.
#pragma once

#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

namespace roofline::cuda::nvtx {

#if __has_include(<nvtx3/nvToolsExt.h>)
inline void push(const std::string& name) { nvtxRangePushA(("roofline: " + name).c_str()); }
inline void pop() noexcept { nvtxRangePop(); }
#else
inline void push(const std::string&) {}
inline void pop() noexcept {}
#endif

}  // namespace roofline::cuda::nvtx
