// attention on a CPU: naive with a score matrix in memory. tiled is in attention_tiled.cpp, split_kv in attention_split.cpp.
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/attention.h"
#include "cpu/attention_naive_kernels.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "cpu/share.h"
#include "ops/attention.h"

namespace roofline::cpu {
namespace {

using ops::Attention;

// Queries of one head that share K and V from the cache: a multiple of every set's register tile.
constexpr std::int64_t kNaiveQueries = 48;

Bound naive(const Attention& problem, Device& device) {
  const bool doubles = problem.dtype == DType::fp64;
  const auto [isa, table] = doubles ? choose<AttentionNaiveKernels>(ROOFLINE_TABLES(attention_naive_doubles))
                                    : choose<AttentionNaiveKernels>(ROOFLINE_TABLES(attention_naive));
  const Element element = doubles ? kFp32 : element_of(problem.dtype, problem.op);
  const std::int64_t score_bytes = table->number_bytes, row_bytes = problem.head_dim * size_bytes(problem.dtype);
  const std::int64_t scores_elements = product({problem.batch, problem.heads, problem.seq_q, problem.seq_kv}, "attention: scores");
  const std::int64_t panel_numbers = table->workspace_numbers(kNaiveQueries, problem.head_dim);  // of a thread
  const std::int64_t panel_bytes = whole_pages(panel_numbers * score_bytes);
  const std::int64_t scores_bytes = whole_pages(product({scores_elements, score_bytes}, "attention: bytes of the scores"));
  const std::int64_t workspace_bytes = scores_bytes + panel_bytes * device.threads();
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);  // scores [batch, heads, seq_q, seq_kv], then panels
  const std::int64_t blocks = (problem.seq_q + kNaiveQueries - 1) / kNaiveQueries;

  const auto part = [=](int worker, std::int64_t item) {
    const std::int64_t head = item / blocks;  // of batch x heads
    const std::int64_t kv_head = head / problem.group();
    const std::int64_t query = item % blocks * kNaiveQueries;
    const std::int64_t row = head * problem.seq_q + query;
    return AttentionRows{
        .q = at(problem.q, row * row_bytes),
        .k = at(problem.k, kv_head * problem.seq_kv * row_bytes),
        .v = at(problem.v, kv_head * problem.seq_kv * row_bytes),
        .scores = at(memory.get(), row * problem.seq_kv * score_bytes),
        .workspace = at(memory.get(), scores_bytes + worker * panel_bytes),
        .out = at(problem.out, row * row_bytes),
        .logsumexp = problem.logsumexp ? problem.logsumexp + row : nullptr,
        .rows = std::min(kNaiveQueries, problem.seq_q - query),
        .seq_kv = problem.seq_kv,
        .head_dim = problem.head_dim,
        .visible = problem.visible(query),
        .growth = problem.causal ? 1 : 0,
        .scale = 1 / std::sqrt(static_cast<double>(problem.head_dim)),
    };
  };
  const std::int64_t items = problem.batch * problem.heads * blocks;
  const auto pass = [=](void (*kernel)(const AttentionRows&)) {
    return [=](Queue& queue) { pool(queue).for_each(items, [&](int worker, std::int64_t item) { kernel(part(worker, item)); }); };
  };

  Bound bound = planned("naive/" + name(isa), device);
  bound.plan.set("query_block", kNaiveQueries);
  bound.plan.set("scores_elements", problem.pairs());
  if (doubles) bound.plan.set("scores_dtype", "fp64");
  bound.plan.set("workspace_bytes", workspace_bytes);
  bound.steps.push_back({"q·kᵀ", pass(table->scores[element])});
  bound.steps.push_back({"softmax", pass(table->softmax)});
  bound.steps.push_back({"p·v", pass(table->values[element])});
  return bound;
}

AttentionTask task_of(const Attention& problem) {
  AttentionTask task = common_task(problem, problem.kv_heads, problem.seq_kv, problem.head_dim, problem.head_dim);
  task.causal = problem.causal;
  task.q = problem.q, task.k = problem.k, task.v = problem.v, task.logsumexp = problem.logsumexp;
  return task;
}

Bound split_kv(const Attention& problem, Device& device) { return split_kv(task_of(problem), device); }
Bound tiled(const Attention& problem, Device& device) { return tiled(task_of(problem), device); }

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  return joined({
      floating_kernels("naive", naive),
      floating_kernels<Attention>("tiled", tiled),
      floating_kernels<Attention>("split_kv", split_kv),
      kernels_of({DType::fp64}, "naive", "", naive),
      kernels_of<Attention>({DType::fp64}, "tiled", "", tiled),
      kernels_of<Attention>({DType::fp64}, "split_kv", "", split_kv),
  });
}

}  // namespace roofline::cpu
