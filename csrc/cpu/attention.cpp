// attention on a CPU: naive with a score matrix in memory, tiled with blocks of queries that walk over their keys. split_kv is in
// decode.cpp.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cpu/attention_naive_kernels.h"
#include "cpu/attention_tiled_kernels.h"
#include "cpu/decode.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "cpu/share.h"
#include "ops/attention.h"

namespace roofline::cpu {
namespace {

using ops::Attention;

// A row of a tensor.
const void* at(const void* tensor, std::int64_t row, std::int64_t row_bytes) {
  return static_cast<const char*>(tensor) + row * row_bytes;
}
void* at(void* tensor, std::int64_t row, std::int64_t row_bytes) { return static_cast<char*>(tensor) + row * row_bytes; }

// Queries of one head that share K and V from the cache: a multiple of every set's register tile.
constexpr std::int64_t kNaiveQueries = 48;

Bound naive(const Attention& problem, Device& device) {
  const auto [isa, table] = choose<AttentionNaiveKernels>(ROOFLINE_TABLES(attention_naive));
  const Element element = element_of(problem.dtype, problem.op);
  const std::int64_t row_bytes = problem.head_dim * size_bytes(problem.dtype);
  const std::int64_t scores_elements = product({problem.batch, problem.heads, problem.seq_q, problem.seq_kv}, "attention: scores");
  const std::int64_t panel_bytes = whole_pages(table->workspace_floats(kNaiveQueries, problem.head_dim) * 4);  // of each thread
  const std::int64_t scores_bytes = whole_pages(product({scores_elements, 4}, "attention: bytes of the scores"));
  const std::int64_t workspace_bytes = scores_bytes + panel_bytes * device.threads();
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);  // scores [batch, heads, seq_q, seq_kv], then panels
  const std::int64_t blocks = (problem.seq_q + kNaiveQueries - 1) / kNaiveQueries;

  const auto part = [=](int worker, std::int64_t item) {
    const std::int64_t head = item / blocks;  // of batch x heads
    const std::int64_t kv_head = head / problem.group();
    const std::int64_t query = item % blocks * kNaiveQueries;
    const std::int64_t row = head * problem.seq_q + query;
    return AttentionRows{
        .q = at(problem.q, row, row_bytes),
        .k = at(problem.k, kv_head * problem.seq_kv, row_bytes),
        .v = at(problem.v, kv_head * problem.seq_kv, row_bytes),
        .scores = static_cast<float*>(memory.get()) + row * problem.seq_kv,
        .workspace = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + scores_bytes + worker * panel_bytes),
        .out = at(problem.out, row, row_bytes),
        .rows = std::min(kNaiveQueries, problem.seq_q - query),
        .seq_kv = problem.seq_kv,
        .head_dim = problem.head_dim,
        .visible = problem.visible(query),
        .growth = problem.causal ? 1 : 0,
        .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.head_dim))),
    };
  };
  const std::int64_t items = problem.batch * problem.heads * blocks;
  const auto pass = [=](void (*kernel)(const AttentionRows&)) {
    return [=](Queue& queue) { pool(queue).for_each(items, [&](int worker, std::int64_t item) { kernel(part(worker, item)); }); };
  };

  Bound bound;
  bound.plan.set("implementation", "naive/" + name(isa));
  bound.plan.set("query_block", kNaiveQueries);
  bound.plan.set("scores_elements", problem.pairs());
  bound.plan.set("workspace_bytes", workspace_bytes);
  bound.plan.set("threads", device.threads());
  bound.steps.push_back({"q·kᵀ", pass(table->scores[element])});
  bound.steps.push_back({"softmax", pass(table->softmax)});
  bound.steps.push_back({"p·v", pass(table->values[element])});
  return bound;
}

struct Tiling {
  std::int64_t query_block;
  std::int64_t kv_block;
};

// query_block: 128 queries per walk over K and V, or 64 where more with their results would take much of L2; fewer where threads
// would lack work, but narrower than a register tile only where they would have none. kv_block: as many keys as half of L2 holds of
// K, V and scores, at most 256, without remainder tiles.
Tiling plan_tiling(const Attention& problem, const AttentionTiledKernels& table, const Device& device) {
  const std::int64_t rows = problem.group() * problem.seq_q;
  const auto items = [&](std::int64_t block) { return problem.batch * problem.kv_heads * ((rows + block - 1) / block); };
  std::int64_t query_block = AttentionTiledKernels::kMaxQueryBlock;
  if (8 * query_block * problem.head_dim > device.caches().l2_bytes / 4) query_block = 64;
  while (query_block > table.tile_width && items(query_block) < 4 * device.threads()) query_block /= 2;
  while (query_block > table.lanes && items(query_block) < device.threads()) query_block /= 2;
  const std::int64_t key_bytes = 4 * table.tile_width + 2 * 4 * problem.head_dim;
  const std::int64_t step = 2 * table.tile_rows;
  const std::int64_t most = std::min<std::int64_t>(256, device.caches().l2_bytes / 2 / key_bytes) / step * step;
  const std::int64_t enough = (problem.seq_kv + step - 1) / step * step;
  return {query_block, std::max(step, std::min(most, enough))};
}

// Keys that any of these rows of a KV head's group sees.
std::int64_t most_keys(const Attention& problem, std::int64_t first, std::int64_t last) {
  const bool whole = last / problem.seq_q != first / problem.seq_q;  // they hold the last query of a head
  return problem.visible(whole ? problem.seq_q - 1 : last % problem.seq_q);
}

// Pairs of a query and a key that the kernel computes: whole vectors of queries, up to the last key that any of them sees.
std::int64_t computed_pairs(const Attention& problem, const AttentionTiledKernels& table, std::int64_t query_block) {
  const std::int64_t rows = problem.group() * problem.seq_q;
  std::int64_t pairs = 0;
  for (std::int64_t block = 0; block < rows; block += query_block) {
    const std::int64_t stop = std::min(block + query_block, rows);
    for (std::int64_t row = block; row < stop;) {
      const std::int64_t width = table.chunk(stop - row), last = std::min(row + width, stop) - 1;
      pairs += width * most_keys(problem, row, last);
      row = last + 1;
    }
  }
  return problem.batch * problem.kv_heads * pairs;
}

Bound tiled(const Attention& problem, Device& device) {
  const auto [isa, table] = choose<AttentionTiledKernels>(ROOFLINE_TABLES(attention_tiled));
  const Element element = element_of(problem.dtype, problem.op);
  const std::int64_t row_bytes = problem.head_dim * size_bytes(problem.dtype);
  const auto [query_block, kv_block] = plan_tiling(problem, *table, device);

  // Query heads that share a KV head lie side by side, so that their queries make up one run of rows.
  const std::int64_t rows = problem.group() * problem.seq_q;
  const std::int64_t blocks = (rows + query_block - 1) / query_block;
  // Within a KV head the blocks with the most keys come first: the last to start are then the shortest.
  auto order = std::make_shared<std::vector<std::int64_t>>(problem.causal ? blocks : 0);
  if (problem.causal) {
    const auto keys = [&, query_block = query_block](std::int64_t block) {
      return most_keys(problem, block * query_block, std::min((block + 1) * query_block, rows) - 1);
    };
    for (std::int64_t block = 0; block < blocks; ++block) (*order)[block] = block;
    std::stable_sort(order->begin(), order->end(), [&](std::int64_t a, std::int64_t b) { return keys(a) > keys(b); });
  }

  const std::int64_t thread_bytes = whole_pages(table->workspace_floats(query_block, kv_block, problem.head_dim, element) * 4);
  const std::int64_t workspace_bytes = thread_bytes * device.threads();
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);

  Bound bound;
  bound.plan.set("implementation", "tiled/" + name(isa));
  bound.plan.set("query_block", query_block);
  bound.plan.set("kv_block", kv_block);
  bound.plan.set("query_lanes", table->lanes);
  bound.plan.set("scores_elements", computed_pairs(problem, *table, query_block));
  bound.plan.set("workspace_bytes", workspace_bytes);
  bound.plan.set("threads", device.threads());
  const float scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(problem.head_dim)));
  const std::int64_t items = problem.batch * problem.kv_heads * blocks;
  bound.steps.push_back({"attention", [=, query_block = query_block, kv_block = kv_block, run = table->of[element]](Queue& queue) {
    pool(queue).for_each(items, [&](int worker, std::int64_t item) {
      const std::int64_t kv_head = item / blocks;  // of batch x kv_heads
      const std::int64_t block = problem.causal ? (*order)[item % blocks] : item % blocks;
      const std::int64_t first_row = block * query_block;
      run({
          .q = at(problem.q, kv_head * rows + first_row, row_bytes),
          .k = at(problem.k, kv_head * problem.seq_kv, row_bytes),
          .v = at(problem.v, kv_head * problem.seq_kv, row_bytes),
          .out = at(problem.out, kv_head * rows + first_row, row_bytes),
          .workspace = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + worker * thread_bytes),
          .rows = std::min(query_block, rows - first_row),
          .first_row = first_row,
          .seq_q = problem.seq_q,
          .seq_kv = problem.seq_kv,
          .head_dim = problem.head_dim,
          .kv_block = kv_block,
          .scale = scale,
          .causal = problem.causal,
      });
    });
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  std::vector<KernelEntry> all;
  for (const std::vector<KernelEntry>& variant : {
           floating_kernels("naive", "three passes; all scores are written to memory in fp32 and read back twice", naive),
           floating_kernels("tiled",
                            "a thread takes a block of queries of one KV head over all its keys; scores and running softmax "
                            "stay in the cache, only out is written",
                            tiled),
           floating_kernels("split_kv",
                            "for few queries: a thread takes a range of the keys of one KV head, read once; who ends the last "
                            "range adds up",
                            split_kv),
       })
    all.insert(all.end(), variant.begin(), variant.end());
  return all;
}

}  // namespace roofline::cpu
