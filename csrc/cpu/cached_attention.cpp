// cached_attention on a CPU: what attention_split.cpp and attention_tiled.cpp do, over a cache of its own dtype, within windows,
// with sinks, in pages, of sequences of several lengths.
#include "cpu/attention.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "ops/cached_attention.h"

namespace roofline::cpu {
namespace {

using ops::CachedAttention;

AttentionTask task_of(const CachedAttention& problem) {
  AttentionTask task = common_task(problem, problem.kv_heads, problem.keys, problem.head_dim, problem.head_dim);
  task.kv_dtype = problem.kv_dtype;
  task.window = problem.window, task.page_size = problem.page_size, task.softcap = problem.softcap;
  task.q = problem.q, task.k = problem.k, task.v = problem.v, task.sinks = problem.sinks;
  task.pages = static_cast<const std::int32_t*>(problem.page_table);
  task.lengths = static_cast<const std::int32_t*>(problem.lengths);
  for (std::int64_t sequence = 0; problem.lengths && sequence < problem.batch; ++sequence)
    task.planned.push_back(problem.planned_keys(sequence));
  return task;
}

Bound split_kv(const CachedAttention& problem, Device& device) { return split_kv(task_of(problem), device); }
Bound tiled(const CachedAttention& problem, Device& device) { return tiled(task_of(problem), device); }

}  // namespace

std::vector<KernelEntry> cached_attention_kernels() {
  return joined({
      floating_kernels<CachedAttention>("tiled", tiled),
      floating_kernels<CachedAttention>("split_kv", split_kv),
      kernels_of<CachedAttention>({DType::fp64}, "tiled", "", tiled),
      kernels_of<CachedAttention>({DType::fp64}, "split_kv", "", split_kv),
  });
}

}  // namespace roofline::cpu
