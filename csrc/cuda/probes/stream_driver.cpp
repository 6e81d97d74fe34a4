// stream copy as the driver does it.
#include <cuda_runtime_api.h>

#include "cuda/check.h"
#include "cuda/kernels.h"
#include "cuda/probes/stream_checks.h"

namespace roofline::cuda {
namespace {

using ops::Stream;

Bound driver(const Stream& problem, Device& device) {
  refuse_for_cpus(problem);
  refuse_but_vectors(problem, "driver");
  if (problem.access != Stream::Access::copy) throw Unsupported("stream: the driver copies only; use access copy, or plain");
  if (problem.in_flight_bytes != 0) throw Unsupported("stream: the driver chooses its bytes in flight; leave in_flight_bytes 0");
  const auto size = static_cast<std::size_t>(problem.elements * size_bytes(problem.dtype));
  Bound bound = planned("driver", device);
  bound.steps.push_back({"stream", [=](Queue& queue) {
                           for (std::int64_t pass = 0; pass < problem.passes; ++pass)
                             ROOFLINE_CUDA(cudaMemcpyAsync(problem.c, problem.a, size, cudaMemcpyDeviceToDevice, stream(queue)));
                         }, problem.passes});
  return bound;
}

}  // namespace

std::vector<KernelEntry> stream_driver_kernels() { return kernels_of({DType::fp32, DType::fp64}, "driver", "", driver); }

}  // namespace roofline::cuda
