// Attention of few queries: ranges of keys, each read once by one thread, whose results the last one adds up. Rows that fill a
// vector are bound by arithmetic: the kernels of `tiled`, with queries in lanes or in words, take them.
#include "cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cpu/decode_kernels.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

// Into how many ranges the keys are split: `each` for every thread, so that threads end together, as long as a range has two blocks;
// one for every thread as long as a range has one block.
std::int64_t ranges_of_keys(std::int64_t keys, std::int64_t units, std::int64_t each, const Device& device) {
  const std::int64_t blocks = std::max<std::int64_t>(keys / DecodeKernels<float>::kStep, 1);
  const std::int64_t wanted = parts_of(each * device.threads(), units), least = parts_of(device.threads(), units);
  return std::min(wanted, std::max(blocks / 2, std::min(blocks, least)));
}

// Rows at a time; more of them are bound by arithmetic, and meet each range anew. AMX gathers tiles of keys once for as many rows
// as half of L2 holds with their results.
constexpr std::int64_t kMostRows = DecodeKernels<float>::kMostRows;
constexpr std::int64_t kMostQueries = 8;
constexpr std::int64_t kLeastWordRows = 12;    // of words: that fill enough of a vector's lanes
constexpr std::int64_t kLeastRows = 5;         // of queries that lie in rows, where no kernel of whole rows takes them
constexpr std::int64_t kLeastNarrowRows = 13;  // the same in fp32, of keys up to kQuadColumns wide
constexpr std::int64_t kLeastSharing = 3;      // the same where V is K
constexpr std::int64_t kLeastInTiles = 8;      // of AMX, where the cache is in one piece
constexpr std::int64_t kLeastWideInTiles = 5;  // the same where V is K, or the cache has bytes

// How a thread reads its range of keys: in how many address streams, how far ahead it prefetches, and into L1 or L2. The quickest
// way differs between CPUs: on Zen 3 eight streams without prefetches, on Zen 4 two or four with prefetches into L2, on Zen 5 one or
// two with prefetches into L1. The first is taken unless another is quicker from memory: on Zen 5 it is a fifth quicker than
// others from L3.
struct Reading {
  int streams;
  std::int64_t lead_bytes;
  bool to_l1 = false;
};
constexpr Reading kReadings[] = {{1, 4 << 10, true}, {1, 8 << 10, true}, {1, 12 << 10, true},
                                 {2, 4 << 10, true}, {2, 8 << 10, true}, {2, 16 << 10, true},
                                 {2, 4 << 10},       {4, 8 << 10},       {1, 0},              {8, 0}};
constexpr std::int64_t kTrialBytes = 8 << 20, kTrialKeys = 1 << 17;  // of keys and values, at most; fewer say little of it
constexpr std::int64_t kLeastBytes = 128 << 10;                      // that are worth a trial

}  // namespace

Element queries_of(const AttentionTask& task) {
  return task.dtype == DType::fp64 ? kFp32 : element_of(task.dtype, task.op.c_str());
}

Cached::Element cache_of(const AttentionTask& task) {
  if ((task.dtype == DType::fp64) != (task.kv_dtype == DType::fp64))
    throw Unsupported(task.op + ": the CPU kernels take keys and values in fp64 with queries in fp64 and no others, got queries in " +
                      name(task.dtype) + " and keys in " + name(task.kv_dtype));
  switch (task.kv_dtype) {
    case DType::fp32: return Cached::fp32;
    case DType::bf16: return Cached::bf16;
    case DType::fp16: return Cached::fp16;
    case DType::int8: return Cached::int8;
    case DType::fp8_e4m3: return Cached::fp8_e4m3;
    case DType::fp8_e5m2: return Cached::fp8_e5m2;
    case DType::fp64: return Cached::fp32;
    default:
      throw Unsupported(task.op + ": the CPU kernels take keys and values in fp32, bf16, fp16, int8, fp8_e4m3 and fp8_e5m2, not " +
                        name(task.kv_dtype));
  }
}

TrialTask trial_task(const AttentionTask& task, std::int64_t rows, std::int64_t keys, Device& device) {
  TrialTask own = {{.op = task.op, .dtype = task.dtype, .kv_dtype = task.kv_dtype, .batch = 1, .kv_heads = device.threads(),
                    .rows = rows, .seq_q = 1, .keys = keys, .head_dim = task.head_dim, .rope_dim = task.rope_dim,
                    .value_dim = task.value_dim, .causal = false, .scale = task.scale}, {}};
  const auto filled = [&](DType dtype, std::int64_t elements) {
    own.memory.push_back(workspace(device, elements * size_bytes(dtype)));
    device.fill(own.memory.back().get(), dtype, elements, Fill::uniform, 0);
    return own.memory.back().get();
  };
  AttentionTask& t = own.task;
  t.k = filled(t.kv_dtype, t.kv_heads * keys * t.head_dim);
  t.v = task.k == task.v ? t.k : filled(t.kv_dtype, t.kv_heads * keys * t.value_dim);
  t.rope = filled(t.kv_dtype, keys * t.rope_dim);
  t.q = filled(t.dtype, t.kv_heads * rows * (t.head_dim + t.rope_dim));  // with q_rope, or with its columns
  t.q_rope = filled(t.dtype, t.kv_heads * rows * t.rope_dim);
  t.out = filled(t.dtype, t.kv_heads * rows * t.value_dim);
  return own;
}

namespace {

// fixed: the reading of a trial, whose queries are then not in lanes.
template <class Number>
Bound split_in(const AttentionTask& task, Device& device, Choice<DecodeKernels<Number>> choice, const Reading* fixed = nullptr);

// The quickest for `rows` queries of a KV head, found on a cache in one piece: bind does not know the places of pages. Small pages are
// slower to read in any order: on Zen 5 a plain sum over shuffled blocks of 4 KiB reaches 0.64 of its rate over memory in order.
template <class Number>
Reading quickest_reading(const AttentionTask& task, std::int64_t rows, Device& device, Choice<DecodeKernels<Number>> choice) {
  const std::int64_t element = size_bytes(task.kv_dtype);
  const std::int64_t key_bytes = ((task.k == task.v ? 1 : 2) * task.head_dim + task.rope_dim) * element;
  if (task.batch * task.kv_heads * task.keys * key_bytes < kLeastBytes) return kReadings[0];
  const std::string what = "reading of " + std::to_string(task.head_dim) + " x " + name(task.kv_dtype) + " for " + std::to_string(rows) +
                           " x " + name(task.dtype) + (task.rope_dim > 0 ? " of latents" : "");
  return kReadings[device.quickest(what, std::size(kReadings), [&]() -> Device::Trial {
    const std::int64_t keys = std::clamp<std::int64_t>(kTrialBytes / device.threads() / key_bytes, 1, kTrialKeys);
    const auto [own, memory] = trial_task(task, rows, keys, device);
    std::vector<Bound> each;
    for (const Reading& reading : kReadings) each.push_back(split_in(own, device, choice, &reading));
    const std::int64_t size = own.kv_heads * own.keys * task.head_dim * element;
    return {{{own.k, size}, {own.v, size}},
            [memory = memory, each, &device](int candidate) { each[candidate].steps[0].launch(device); }};
  })];
}

template <class Number>
Bound split_in(const AttentionTask& task, Device& device, Choice<DecodeKernels<Number>> choice, const Reading* fixed) {
  using Kernels = DecodeKernels<Number>;
  constexpr std::int64_t kBytes = sizeof(Number);
  if (task.seq_q > kMostQueries)
    throw Unsupported(task.op + ": split_kv takes seq_q up to " + std::to_string(kMostQueries) + ", got " +
                      std::to_string(task.seq_q) + "; use another variant, or fewer queries at a time");
  const Element queries = queries_of(task);
  const Cached::Element cache = cache_of(task);
  const auto [isa, table] = choice;
  const auto [lanes_isa, lanes_table] = choose_tiled(task.dtype, queries, cache);
  const std::int64_t heads = task.batch * task.kv_heads;
  const std::int64_t head_dim = task.head_dim, rope_dim = task.rope_dim, key_dim = head_dim + rope_dim;
  const std::int64_t key_words = lanes_table->words(key_dim, lanes_table->numbers, lanes_table->columns);
  const std::int64_t row_bytes = lanes_table->word_bytes * (key_words + head_dim);  // of a query and its results
  const std::int64_t fitting = device.caches().l2_bytes / 2 / row_bytes / kMostRows * kMostRows;
  const std::int64_t together =
      lanes_table->columns > 1 ? std::clamp<std::int64_t>(fitting, kMostRows, AttentionTiledKernels::kMaxQueryBlock) : kMostRows;
  const std::int64_t chunks = (task.rows + together - 1) / together;
  const std::int64_t most_rows = (task.rows + chunks - 1) / chunks;  // of a chunk
  const bool pages = task.pages != nullptr;
  const bool in_rows = lanes_table->in_rows && lanes_table->in_rows(most_rows, head_dim, rope_dim, head_dim, pages);
  const bool shares = task.k == task.v;
  const bool in_tiles = lanes_table->columns > 1, wide = shares || Cached::bytes(cache) == 1;
  const std::int64_t least_in_words = in_tiles && wide ? kLeastWideInTiles : in_tiles && !pages ? kLeastInTiles : kLeastWordRows;
  const std::int64_t least_words = !in_rows ? least_in_words : shares ? kLeastSharing : kLeastRows;
  const std::int64_t lanes = lanes_table->lanes, least_rows = key_dim > Kernels::kQuadColumns ? kLeastRows : kLeastNarrowRows;
  // Tiles of one vector load about as much as they multiply: that pays where it is dear to widen numbers again for a few rows.
  const std::int64_t vectors = cache == Cached::fp8_e4m3 ? 1 : 2;
  const bool fills = lanes > 1 && most_rows >= vectors * lanes && 4 * most_rows >= 3 * lanes_table->chunk(most_rows);
  const bool in_order = cache == Cached::bf16 && table->in_whole_rows && table->in_whole_rows(most_rows, head_dim / 2, rope_dim);
  const bool in_lanes = !fixed && std::is_same_v<Number, float> &&
                        (lanes_table->numbers > 1 ? most_rows >= least_words && !in_order
                                                   : (fills || (in_rows && most_rows >= least_rows)) && table->numbers == 1);
  const std::int64_t parts = ranges_of_keys(task.keys, heads * chunks, in_lanes ? 2 : 8, device);
  const std::int64_t whole_rows = Kernels::whole(most_rows);
  const std::int64_t query_numbers = (whole_rows * key_dim + 15) / 16 * 16;  // what follows is aligned
  // Ranges of keys are whole steps, and as long as one another; so are the blocks of a range.
  const std::int64_t step = in_lanes ? 2 * lanes_table->tile_rows : Kernels::kStep;
  const std::int64_t most_block = std::min<std::int64_t>(kv_block_of(task, *lanes_table, device), Kernels::kStep);
  const std::int64_t range = parts_of(parts_of(task.keys, step), parts) * step;
  const std::int64_t kv_block = parts_of(parts_of(range, parts_of(range, most_block)), step) * step;
  const AttentionBlock common = common_block(task, *lanes_table, cache, kv_block);
  const std::int64_t numbers =
      in_lanes ? lanes_table->workspace_words(together, kv_block, key_dim, head_dim, common.key_panel, common.value_panel)
               : Kernels::workspace_numbers(most_rows, key_dim);
  const std::int64_t thread_bytes = whole_pages((query_numbers + numbers) * kBytes);
  const std::int64_t part_numbers = (whole_rows * (head_dim + 2) + 15) / 16 * 16;  // out, top, sum: whole cache lines
  const std::int64_t parts_bytes = product({heads, chunks, parts, part_numbers, kBytes}, task.op + ": bytes of the ranges' results");
  const std::int64_t workspace_bytes = thread_bytes * device.threads() + parts_bytes;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  Number* const results = static_cast<Number*>(at(memory.get(), thread_bytes * device.threads()));
  // [heads, chunks]; who ends the last range of a chunk of a KV head adds up its parts. It counts on from launch to launch.
  const auto ended = std::make_shared<std::vector<std::atomic<std::int64_t>>>(heads * chunks);
  const std::int64_t query_bytes = size_bytes(task.dtype);

  Bound bound = planned("split_kv/" + name(in_lanes ? lanes_isa : isa), device);
  bound.plan.set("query_block", most_rows);
  bound.plan.set("parts", parts);
  bound.plan.set("parts_bytes", parts_bytes);
  bound.plan.set("workspace_bytes", workspace_bytes);
  const auto run = [=, table = table, lanes_table = lanes_table](Queue& queue, const Reading& reading) {
    pool(queue).for_each(heads * parts * chunks, [&](int worker, std::int64_t item) {
      const std::int64_t chunk = item % chunks, part = item / chunks % parts, head = item / chunks / parts;  // of batch x kv_heads
      const std::int64_t first_row = chunk * most_rows, rows = std::min(most_rows, task.rows - first_row);
      const std::int64_t whole = Kernels::whole(rows), row = head * task.rows + first_row;
      Number* const q = static_cast<Number*>(at(memory.get(), worker * thread_bytes));
      AttentionBlock block = block_of(common, task, head);
      const std::int64_t keys = block.seq_kv, steps = parts_of(keys, step);
      Number* const first = results + (head * chunks + chunk) * parts * part_numbers;
      // Per unit: out [parts, whole rows, head_dim], top [parts, whole rows], sum [parts, whole rows].
      Number* const tops = first + parts * whole * head_dim;
      Number* const sums = tops + parts * whole;
      const void* const of_q = at(task.q, row * head_dim * query_bytes);
      const void* const of_rope = at(task.q_rope, row * rope_dim * query_bytes);
      Number *const out = first + part * whole * head_dim, *const top = tops + part * whole, *const sum = sums + part * whole;
      block.first = steps * part / parts * step, block.last = std::min(steps * (part + 1) / parts * step, keys);
      if constexpr (std::is_same_v<Number, float>)
        if (in_lanes) {
          for (std::int64_t i = 0; i < (rope_dim > 0 ? rows : 0); ++i) {  // both parts of a query side by side
            void* const to = at(q, i * key_dim * query_bytes);
            std::memcpy(to, at(of_q, i * head_dim * query_bytes), head_dim * query_bytes);
            std::memcpy(at(to, head_dim * query_bytes), at(of_rope, i * rope_dim * query_bytes), rope_dim * query_bytes);
          }
          block.q = rope_dim > 0 ? q : of_q, block.out = out, block.top = top, block.sum = sum, block.unit = 1;
          block.workspace = q + query_numbers, block.rows = rows, block.first_row = first_row;
          lanes_table->of[queries](block);
        }
      if (!in_lanes) {
        const std::int64_t tile_words = key_dim / table->numbers;
        table->take[queries](of_q, rows, head_dim, q, tile_words);
        if (rope_dim > 0) table->take[queries](of_rope, rows, rope_dim, q + head_dim / table->numbers, tile_words);
        std::fill(q + rows * tile_words, q + whole * tile_words, Number{0});
        table->attend[cache]({
            .q = q,
            .k = block.k,
            .v = block.v,
            .rope = block.rope,
            .workspace = q + query_numbers,
            .out = out,
            .top = top,
            .sum = sum,
            .rows = rows,
            .head_dim = head_dim,
            .rope_dim = rope_dim,
            .first = block.first,
            .last = block.last,
            .first_row = first_row,
            .seq_q = task.seq_q,
            .visible = task.causal ? keys - task.seq_q + 1 : keys,
            .growth = task.causal ? 1 : 0,
            .window = block.window,
            .scale = static_cast<Number>(block.scale),
            .softcap = static_cast<Number>(block.softcap),
            .pages = block.pages,
            .page_size = block.page_size,
            .page_rows = block.page_rows,
            .element = cache,
            .streams = reading.streams,
            .lead_bytes = reading.lead_bytes,
            .to_l1 = reading.to_l1,
        });
      }
      if ((*ended)[head * chunks + chunk].fetch_add(1, std::memory_order_acq_rel) % parts != parts - 1) return;
      table->combine[queries]({
          .out = first,
          .top = tops,
          .sum = sums,
          .sinks = task.sinks ? task.sinks + head % task.kv_heads * task.group() : nullptr,
          .to = at(task.out, row * head_dim * query_bytes),
          .logsumexp = task.logsumexp ? task.logsumexp + row : nullptr,
          .parts = parts,
          .rows = rows,
          .head_dim = head_dim,
          .first_row = first_row,
          .seq_q = task.seq_q,
          .unit = Cached::unit(cache),
      });
    });
  };
  if (in_lanes) {
    bound.plan.set("query_lanes", in_rows ? lanes_table->lanes / 2 : lanes_table->lanes);
    bound.steps.push_back({"attention", [=](Queue& queue) { run(queue, kReadings[0]); }});
    return bound;
  }
  const Reading reading = fixed ? *fixed : quickest_reading(task, most_rows, device, choice);
  bound.plan.set("streams", reading.streams);
  const std::int64_t lead_kib = reading.lead_bytes >> 10;
  bound.plan.set("prefetch", lead_kib ? std::to_string(lead_kib) + " KiB to " + (reading.to_l1 ? "L1" : "L2") : "none");
  bound.steps.push_back({"attention", [=](Queue& queue) { run(queue, reading); }});
  return bound;
}

}  // namespace

Bound split_kv(const AttentionTask& task, Device& device) {
  if (task.dtype == DType::fp64) return split_in(task, device, choose<DecodeKernels<double>>(ROOFLINE_TABLES(decode_doubles)));
  const bool even = task.head_dim % 2 == 0 && task.rope_dim % 2 == 0;
  const bool pays = task.kv_dtype != DType::int8 || task.rows > 1;  // one row of int8 is read faster through fp32
  if (ROOFLINE_HAVE_avx512_bf16 && task.dtype == DType::bf16 && even && pays && has_fast_bf16_pairs() &&
      decode_pairs_avx512_bf16.attend[cache_of(task)])
    return split_in<float>(task, device, {Isa::avx512_bf16, &decode_pairs_avx512_bf16});
  return split_in(task, device, choose<DecodeKernels<float>>(ROOFLINE_TABLES(decode)));
}

}  // namespace roofline::cpu
