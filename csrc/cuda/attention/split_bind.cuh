// Binding kernels whose blocks take equal shares of the keys (KvSplit): attention of few queries, and mla_decode.
#pragma once

#include "cuda/attention/parts.cuh"
#include "cuda/launch.cuh"
#include "cuda/plan.h"

namespace roofline::cuda {

// work: all but its split, its parts and its slots. width: of a part's rows.
template <class Shape, class Work>
Bound bind_split(void (*kernel)(Work), Work work, std::int64_t units, std::int64_t width, const Buffers& buffers, Device& device) {
  const Properties& gpu = device.properties();
  allow_shared(device, kernel, buffers.shared_bytes);
  const KernelFacts facts = kernel_facts(device, kernel, Shape::kThreads, static_cast<std::size_t>(buffers.shared_bytes));
  const std::int64_t resident = std::int64_t{gpu.sms} * std::max(facts.blocks_per_sm, 1);
  work.slots = buffers.slots;
  const std::int64_t unit_steps = ceil_div(work.keys, Shape::kStepKeys);
  if (units > kMostSplitSteps / unit_steps)
    throw Unsupported("split_kv counts steps of " + std::to_string(Shape::kStepKeys) + " keys in 32 bits, got " +
                      std::to_string(units) + " times " + std::to_string(unit_steps) + "; use a smaller batch");
  work.split = plan_split(units, unit_steps, resident, Shape::kLeastSteps, Shape::kBusy);

  Bound bound = planned(std::string("split_kv/") + Shape::kArithmetic, device);
  bound.plan.set("query_block", Shape::kRows);
  bound.plan.set("kv_block", Shape::kStepKeys);
  bound.plan.set("kv_buffers", buffers.slots);
  const std::shared_ptr<void> memory = allocate_parts(work, Shape::kRows, width, device, bound.plan);
  record(bound.plan, "", facts, work.split.blocks, Shape::kThreads);
  const Grid grid = {work.split.blocks, Shape::kThreads, buffers.shared_bytes, memory};
  bound.steps.push_back({"attention", launching("a kernel of split_kv", kernel, grid, work)});
  return bound;
}

}  // namespace roofline::cuda
