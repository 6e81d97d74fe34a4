// Binding the routers of a mixture of experts (cuda/rows/routers_kernels.cuh): experts listed, or picked one by one.
#include "cuda/kernels.h"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "cuda/rows/routers_kernels.cuh"
#include "ops/tokens.h"

namespace roofline::cuda {
namespace {

template <class T, bool Sigmoid>
Bound topk(const ops::Topk& problem, const void* bias, Device& device) {
  if (problem.experts > (std::int64_t{1} << 30))
    throw Unsupported("topk: experts is " + std::to_string(problem.experts) + "; the CUDA kernel takes up to 2^30");
  const RouterPlan plan = plan_router(problem.experts, problem.experts_per_token);
  const auto listed = plan.values == kFewValues ? topk_listed<T, Sigmoid, kFewValues> : topk_listed<T, Sigmoid, kMostValues>;
  const auto kernel = plan.listed ? listed : topk_picked<T, Sigmoid>;
  const KernelFacts facts = kernel_facts(device, kernel, kTopkThreads);
  // Few experts are done with too soon for blocks to be handed out one by one.
  const std::int64_t tiles = ceil_div(problem.tokens, kTopkThreads / plan.lanes);
  const std::int64_t grid =
      plan.values == kMostValues ? passing_grid(tiles) : persistent_grid(tiles, device.properties().sms, facts.blocks_per_sm);
  const TopkWork work = {problem.tokens,
                         static_cast<int>(problem.experts),
                         static_cast<int>(problem.experts_per_token),
                         problem.renormalise,
                         static_cast<const float*>(bias),
                         plan.lanes,
                         problem.experts % Pack<T>::kLanes == 0 && aligned(problem.logits)};
  // Renormalised weights need the exponentials of the chosen alone; picking takes those of all.
  const bool of_all = !plan.listed || Sigmoid || !problem.renormalise;
  Bound bound = planned(plan.listed ? "listed" : "picked", device);
  add_step(bound, {"topk", "a router"}, kernel, facts, {grid, kTopkThreads}, static_cast<const T*>(problem.logits),
           static_cast<float*>(problem.weights), static_cast<std::int32_t*>(problem.chosen), work);
  bound.plan.set("lanes_per_token", plan.lanes);
  bound.plan.set("vector_bytes", plan.listed && work.vectors ? 16 : static_cast<int>(sizeof(T)));
  bound.plan.set("exponentials", Value(problem.tokens * (of_all ? problem.experts : problem.experts_per_token)));
  bound.plan.set("workspace_bytes", 0);
  return bound;
}

Bound topk_softmax(const ops::TopkSoftmax& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return topk<decltype(type), false>(problem, nullptr, device); });
}

Bound topk_sigmoid(const ops::TopkSigmoid& problem, Device& device) {
  return by_dtype(problem.dtype, [&](auto type) { return topk<decltype(type), true>(problem, problem.bias, device); });
}

}  // namespace

std::vector<KernelEntry> topk_softmax_kernels() { return floating_kernels("fused", topk_softmax); }
std::vector<KernelEntry> topk_sigmoid_kernels() { return floating_kernels("fused", topk_sigmoid); }

}  // namespace roofline::cuda
