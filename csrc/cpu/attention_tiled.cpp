// Attention by blocks of queries that walk over their keys: the plan, and who takes which block.
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/attention.h"
#include "cpu/attention_tiled_kernels.h"
#include "cpu/device.h"
#include "cpu/share.h"

namespace roofline::cpu {

using Table = AttentionTiledKernels;

Choice<Table> choose_tiled(DType dtype, Element queries, Cached::Element cache) {
  if (dtype == DType::fp64) return choose<Table>(ROOFLINE_TABLES(attention_doubles));
  const bool bf16 = queries == kBf16 && cache == Cached::bf16, bytes = queries == kBf16 && Cached::bytes(cache) == 1;
  if (ROOFLINE_HAVE_amx && (bf16 || bytes) && has(Isa::amx)) return {Isa::amx, &attention_amx};  // bytes are exact in bf16
  if (ROOFLINE_HAVE_avx512_bf16 && bf16 && has_fast_bf16_pairs()) return {Isa::avx512_bf16, &attention_pairs_avx512_bf16};
  return choose<Table>(ROOFLINE_TABLES(attention_tiled));
}

std::int64_t kv_block_of(const AttentionTask& task, const Table& table, const Device& device) {
  const std::int64_t columns = task.head_dim + task.rope_dim + task.value_dim;
  const std::int64_t key_bytes = table.word_bytes * table.tile_width + table.word_bytes / table.numbers * columns;
  const std::int64_t step = 2 * table.tile_rows;
  const std::int64_t weights = device.caches().l1_bytes * 2 / 3 / (table.word_bytes / table.numbers * table.tile_width);
  const std::int64_t longest = weights >= 128 ? std::min<std::int64_t>(weights, 256) : 256;
  const std::int64_t most = std::min(longest, device.caches().l2_bytes / 2 / key_bytes) / step * step;
  const std::int64_t enough = (task.keys + step - 1) / step * step;
  return std::max(step, std::min(most, enough));
}

AttentionBlock common_block(const AttentionTask& task, const Table& table, Cached::Element cache, std::int64_t kv_block) {
  AttentionBlock block{};
  block.page_size = task.page_size, block.page_rows = task.kv_heads * task.page_size;
  block.seq_q = task.seq_q, block.causal = task.causal;
  block.head_dim = task.head_dim, block.rope_dim = task.rope_dim, block.value_dim = task.value_dim;
  block.kv_block = kv_block;
  block.element = cache;
  block.key_panel = table.gathers_keys(cache, task.head_dim + task.rope_dim, task.rope_dim, task.pages);
  block.value_panel = table.gathers_values(cache, task.value_dim, task.pages);
  block.scale = 1.4426950408889634 * task.scale * Cached::unit(cache), block.softcap = 1.4426950408889634 * task.softcap;
  return block;
}

AttentionBlock block_of(const AttentionBlock& common, const AttentionTask& task, std::int64_t head) {
  const std::int64_t sequence = head / task.kv_heads, first_key = task.first_key(head), size = size_bytes(task.kv_dtype);
  AttentionBlock block = common;
  block.k = at(task.k, first_key * task.head_dim * size), block.v = at(task.v, first_key * task.value_dim * size);
  block.rope = at(task.rope, sequence * task.keys * task.rope_dim * size);
  block.pages = task.pages ? task.pages + sequence * task.pages_each() : nullptr;
  block.seq_kv = task.keys_of(sequence);
  block.window = task.window > 0 ? task.window : block.seq_kv;
  return block;
}

namespace {

struct Tiling {
  std::int64_t query_block;
  std::int64_t kv_block;
};

// query_block: 128 queries per walk over K and V, or 256 where a walk gathers them; at least 64 where they take more than a quarter
// of L2 with their results; fewer where threads would lack work, but narrower than a register tile only where they would have none.
Tiling plan_tiling(const AttentionTask& task, const Table& table, const Device& device, bool gathers) {
  const auto items = [&](std::int64_t block) { return task.batch * task.kv_heads * ((task.rows + block - 1) / block); };
  const std::int64_t columns = task.head_dim + task.rope_dim + task.value_dim;
  std::int64_t query_block = gathers ? Table::kMaxQueryBlock : 128;
  while (query_block > 64 && table.word_bytes * query_block * columns > device.caches().l2_bytes / 4) query_block /= 2;
  while (query_block > table.tile_width && items(query_block) < 4 * device.threads()) query_block /= 2;
  while (query_block > table.lanes && items(query_block) < device.threads()) query_block /= 2;
  return {query_block, kv_block_of(task, table, device)};
}

// How many keys the rows [first, last] of a KV head's group see, from the first to the last key that any of them sees.
std::int64_t keys_met(const AttentionTask& task, std::int64_t keys, std::int64_t first, std::int64_t last) {
  if (!task.causal) return keys;
  const bool ends = last / task.seq_q != first / task.seq_q;  // they hold the last query of a head, and the first of the next
  const std::int64_t lowest = ends ? 0 : first % task.seq_q, highest = ends ? task.seq_q - 1 : last % task.seq_q;
  const std::int64_t before = keys - task.seq_q + 1;  // keys that the first query sees
  const std::int64_t from = task.window > 0 ? std::max<std::int64_t>(0, before + lowest - task.window) : 0;
  return before + highest - from;
}

struct Work {
  std::int64_t pairs = 0;  // of a query and a key that are computed: whole vectors of queries, with keys up to the last they see
  std::int64_t keys = 0;   // that blocks of queries meet
};

Work work_of(const AttentionTask& task, const Table& table, std::int64_t query_block) {
  Work each_length, all;
  std::int64_t before = -1;
  for (std::int64_t sequence = 0; sequence < task.batch; ++sequence) {
    const std::int64_t keys = task.planned_keys(sequence);
    if (keys != before) {
      each_length = {};
      for (std::int64_t block = 0; block < task.rows; block += query_block) {
        const std::int64_t stop = std::min(block + query_block, task.rows);
        each_length.keys += keys_met(task, keys, block, stop - 1);
        for (std::int64_t row = block; row < stop;) {
          const std::int64_t width = table.chunk(stop - row), step = table.trims ? table.lanes : width;
          for (std::int64_t end = row + step; end <= row + width; end += step)
            each_length.pairs += step * keys_met(task, keys, row, std::min(end, stop) - 1);
          row += width;
        }
      }
      before = keys;
    }
    all.pairs += task.kv_heads * each_length.pairs;
    all.keys += task.kv_heads * each_length.keys;
  }
  return all;
}

// kv_block, or fewer keys where whole rows of V do not fit in L1 and a register tile reads some of their columns: these lie in few
// of L1's sets. Cores with fast units wait for L2 then (Zen 5: 0.84 instead of 0.91 of the peak with 128 columns of fp32).
std::int64_t quickest_block(const AttentionTask& task, const Table& table, Device& device, std::int64_t kv_block) {
  constexpr std::int64_t kRows = 128, kKeys = 1024;  // of the trial
  const std::int64_t step = 2 * table.tile_rows, row_bytes = task.value_dim * table.word_bytes;
  const std::int64_t fitting = std::max(device.caches().l1_bytes * 5 / 6 / row_bytes / step, std::int64_t{1}) * step;
  if (task.value_dim <= table.tile_width || 4 * fitting > 3 * kv_block || task.k == task.v) return kv_block;
  const std::int64_t each[] = {kv_block, fitting};
  const std::string what = "keys of a block of " + std::to_string(task.head_dim + task.rope_dim) + " + " + std::to_string(task.value_dim) +
                           " columns x " + name(task.dtype);
  return each[device.quickest(what, std::size(each), [&]() -> Device::Trial {
    const auto [own, memory] = trial_task(task, kRows, kKeys, device);
    const std::vector<Bound> bound = {tiled(own, device, kv_block), tiled(own, device, fitting)};
    return {{}, [memory = memory, bound, &device](int candidate) { bound[candidate].steps[0].launch(device); }};
  })];
}

}  // namespace

Bound tiled(const AttentionTask& task, Device& device, std::int64_t given_block) {
  const Element queries = queries_of(task);
  const Cached::Element cache = cache_of(task);
  const auto [isa, table] = choose_tiled(task.dtype, queries, cache);
  const std::int64_t key_dim = task.head_dim + task.rope_dim;
  const std::int64_t query_bytes = size_bytes(task.dtype), cache_bytes = size_bytes(task.kv_dtype);
  const bool value_panel = table->gathers_values(cache, task.value_dim, task.pages != nullptr);
  const bool key_panel = table->gathers_keys(cache, key_dim, task.rope_dim, task.pages != nullptr);
  const auto [query_block, usual_block] = plan_tiling(task, *table, device, value_panel);
  const std::int64_t kv_block = given_block ? given_block : value_panel ? usual_block : quickest_block(task, *table, device, usual_block);

  // Query heads that share a KV head lie side by side, so that their queries make up one run of rows.
  const std::int64_t rows = task.rows;
  const std::int64_t blocks = (rows + query_block - 1) / query_block;
  // Within a KV head the blocks with the most keys come first: the last to start are then the shortest.
  auto order = std::make_shared<std::vector<std::int64_t>>(task.causal ? blocks : 0);
  if (task.causal) {
    const auto keys = [&, query_block = query_block](std::int64_t block) {
      return keys_met(task, task.keys, block * query_block, std::min((block + 1) * query_block, rows) - 1);
    };
    for (std::int64_t block = 0; block < blocks; ++block) (*order)[block] = block;
    std::stable_sort(order->begin(), order->end(), [&](std::int64_t a, std::int64_t b) { return keys(a) > keys(b); });
  }

  const std::int64_t words = table->workspace_words(query_block, kv_block, key_dim, task.value_dim, key_panel, value_panel);
  const std::int64_t thread_bytes = whole_pages(words * table->word_bytes);
  const std::int64_t workspace_bytes = thread_bytes * device.threads();
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  const Work work = work_of(task, *table, query_block);

  Bound bound = planned("tiled/" + name(isa), device);
  bound.plan.set("query_block", query_block);
  bound.plan.set("kv_block", kv_block);
  bound.plan.set("query_lanes", table->lanes);
  bound.plan.set("scores_elements", work.pairs);
  bound.plan.set("keys_met", work.keys);
  bound.plan.set("panel_elements", work.keys * (key_panel * key_dim + value_panel * task.value_dim));
  bound.plan.set("workspace_bytes", workspace_bytes);
  const std::int64_t items = task.batch * task.kv_heads * blocks;
  const AttentionBlock common = common_block(task, *table, cache, kv_block);
  bound.steps.push_back({"attention", [=, query_block = query_block, run = table->of[queries]](Queue& queue) {
    pool(queue).for_each(items, [&](int worker, std::int64_t item) {
      const auto first_row_of = [&](std::int64_t i) { return (task.causal ? (*order)[i % blocks] : i % blocks) * query_block; };
      const auto k_of = [&](std::int64_t i) { return at(task.k, task.first_key(i / blocks) * task.head_dim * cache_bytes); };
      const auto q_of = [&](std::int64_t i) { return at(task.q, (i / blocks * rows + first_row_of(i)) * key_dim * query_bytes); };
      const std::int64_t head = item / blocks;  // of batch x kv_heads
      const std::int64_t first_row = first_row_of(item), row = head * rows + first_row;
      AttentionBlock block = block_of(common, task, head);
      block.q = q_of(item), block.out = at(task.out, row * task.value_dim * query_bytes);
      block.logsumexp = task.logsumexp ? task.logsumexp + row : nullptr;
      block.sinks = task.sinks ? task.sinks + head % task.kv_heads * task.group() : nullptr;
      block.workspace = at(memory.get(), worker * thread_bytes);
      block.rows = std::min(query_block, rows - first_row), block.first_row = first_row;
      block.unit = Cached::unit(cache);
      if (item + 1 < items) block.next_q = q_of(item + 1), block.next_k = k_of(item + 1);
      run(block);
    });
  }});
  return bound;
}

}  // namespace roofline::cpu
