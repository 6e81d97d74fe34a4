// Binding kernels whose blocks take equal shares of the keys (KvSplit): attention of few queries, and mla_decode.
#pragma once

#include "cuda/attention/parts.cuh"
#include "cuda/launch.cuh"
#include "cuda/plan.h"
#include "ops/mla_decode.h"

namespace roofline::cuda {

// Sets what both kernels of mla_decode need, except the queries. chunk_rows: rows of a unit.
template <class Work>
void set_sizes(Work& work, const ops::MlaDecode& problem, int chunk_rows) {
  work.c = problem.c, work.k_rope = problem.k_rope, work.out = problem.out, work.causal = problem.causal;
  work.rows = static_cast<int>(problem.heads * problem.seq_q), work.seq_q = static_cast<int>(problem.seq_q);
  work.keys = static_cast<int>(problem.seq_kv), work.rank = static_cast<int>(problem.kv_lora_rank);
  work.rope_dim = static_cast<int>(problem.qk_rope_head_dim), work.row_chunks = static_cast<int>(ceil_div(work.rows, chunk_rows));
  work.scale = exponent_scale(problem.qk_nope_head_dim + problem.qk_rope_head_dim);
}

// work: all but its split, its parts and its slots. width: of a part's rows.
template <class Shape, class Work>
Bound bind_split(void (*kernel)(Work), Work work, std::int64_t units, std::int64_t width, const Buffers& buffers, Device& device) {
  const Properties& gpu = device.properties();
  const KernelFacts facts = kernel_facts(device, kernel, Shape::kThreads, buffers.shared_bytes);
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
  add_step(bound, {"attention", "a kernel of split_kv"}, kernel, facts,
           {work.split.blocks, Shape::kThreads, buffers.shared_bytes, memory}, work);
  return bound;
}

}  // namespace roofline::cuda
