// fork_join on a GPU: empty kernels, the floor below which no operator can be, in the four ways that a host can ask for them.
#include "ops/fork_join.h"

#include <cuda_runtime_api.h>

#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_kernels.h"
#include "cuda/kernels.h"

namespace roofline::cuda {
namespace {

using ops::ForkJoin;

// Nodes of one graph: what enqueuing the graph itself costs is spread over them, and instantiating it takes milliseconds.
constexpr std::int64_t kMostNodes = 1024;

Bound plan(const char* variant, const Device& device) {
  Bound bound = planned(variant, device);
  bound.plan.set("grid", 1);
  bound.plan.set("block", 1);
  return bound;
}

Bound launches(const char* variant, const ForkJoin& problem, Device& device, bool host_timed, bool wait) {
  Bound bound = plan(variant, device);
  bound.host_timed = host_timed;
  bound.steps.push_back({"fork_join", [calls = problem.calls, wait](Queue& queue) {
                           for (std::int64_t i = 0; i < calls; ++i) {
                             launch_empty(stream(queue));
                             ROOFLINE_CUDA_LAUNCHED("empty_kernel");
                             if (wait) ROOFLINE_CUDA(cudaStreamSynchronize(stream(queue)));
                           }
                         }, problem.calls});
  return bound;
}

Bound pool(const ForkJoin& problem, Device& device) { return launches("pool", problem, device, false, false); }
Bound call(const ForkJoin& problem, Device& device) { return launches("call", problem, device, true, false); }
Bound synchronised(const ForkJoin& problem, Device& device) { return launches("synchronised", problem, device, true, true); }

// A chain of empty kernels, instantiated once.
std::shared_ptr<CUgraphExec_st> chain(std::int64_t nodes, const Device& device) {
  device.use();
  cudaGraph_t made = nullptr;
  ROOFLINE_CUDA(cudaGraphCreate(&made, 0));
  const std::shared_ptr<CUgraph_st> graph(made, [](cudaGraph_t g) { ROOFLINE_CUDA_NOEXCEPT(cudaGraphDestroy(g)); });
  cudaKernelNodeParams empty{};
  empty.func = empty_kernel_address();
  empty.gridDim = empty.blockDim = dim3(1, 1, 1);
  cudaGraphNode_t last = nullptr;
  for (std::int64_t i = 0; i < nodes; ++i) {
    cudaGraphNode_t node = nullptr;
    ROOFLINE_CUDA(cudaGraphAddKernelNode(&node, made, i ? &last : nullptr, i ? 1 : 0, &empty));
    last = node;
  }
  cudaGraphExec_t ready = nullptr;
  ROOFLINE_CUDA(cudaGraphInstantiateWithFlags(&ready, made, 0));
  const std::shared_ptr<CUgraphExec_st> chained(ready, [](cudaGraphExec_t g) { ROOFLINE_CUDA_NOEXCEPT(cudaGraphExecDestroy(g)); });
  // Outside any gate and clock: else the first launch does it, and takes memory for it.
  ROOFLINE_CUDA(cudaGraphUpload(ready, device.stream()));
  ROOFLINE_CUDA(cudaStreamSynchronize(device.stream()));
  return chained;
}

Bound graph(const ForkJoin& problem, Device& device) {
  if (problem.calls > kMostNodes)
    throw Unsupported("fork_join: calls is " + std::to_string(problem.calls) + "; a graph here has at most " +
                      std::to_string(kMostNodes) + " nodes");
  const auto ready = chain(problem.calls, device);
  Bound bound = plan("graph", device);
  bound.plan.set("graph_nodes", Value(problem.calls));
  bound.steps.push_back(
      {"fork_join", [ready](Queue& queue) { ROOFLINE_CUDA(cudaGraphLaunch(ready.get(), stream(queue))); }, problem.calls});
  return bound;
}

}  // namespace

std::vector<KernelEntry> fork_join_kernels() {
  return {entry("call", DType::fp32, "", call), entry("synchronised", DType::fp32, "", synchronised),
          entry("graph", DType::fp32, "", graph), entry("pool", DType::fp32, "", pool)};
}

}  // namespace roofline::cuda
