// Attention of few queries: ranges of keys, each read once by one thread, whose results the last one adds up.
#include "cpu/decode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cpu/decode_kernels.h"
#include "cpu/device.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

using Element = DecodeKernels::Element;

Element element_of(DType dtype, int count, const Decode& problem, const char* what) {
  using K = DecodeKernels;
  constexpr std::pair<DType, Element> kAll[] = {{DType::fp32, K::fp32}, {DType::bf16, K::bf16}, {DType::fp16, K::fp16},
                                                {DType::int8, K::int8}, {DType::fp8_e4m3, K::fp8_e4m3}};
  std::string names;
  for (const auto& [known, element] : kAll) {
    if (element >= count) continue;
    if (known == dtype) return element;
    names += (names.empty() ? "" : ", ") + name(known);
  }
  throw Unsupported(problem.name + " takes " + what + " in " + names + ", got " + name(dtype));
}

// Ranges of whole blocks of keys: eight items for each thread where the keys suffice, so that the last to end leaves little idle.
std::int64_t ranges_of_keys(std::int64_t keys, std::int64_t units, const Device& device) {
  constexpr std::int64_t kLeastKeys = 2 * DecodeKernels::kKeys;
  return std::clamp<std::int64_t>((8 * device.threads() + units - 1) / units, 1, std::max<std::int64_t>(keys / kLeastKeys, 1));
}

// Rows at a time, so that their queries and results stay in L2; more of them are bound by arithmetic, and meet each range anew.
constexpr std::int64_t kMostRows = 64;
constexpr std::int64_t kMostQueries = 8;

}  // namespace

Bound decode(const Decode& problem, Device& device) {
  if (problem.seq_q > kMostQueries)
    throw Unsupported(problem.name + " takes seq_q up to " + std::to_string(kMostQueries) + ", got " +
                      std::to_string(problem.seq_q) + "; use another variant, or fewer queries at a time");
  const Element queries = element_of(problem.dtype, DecodeKernels::kQueryElements, problem, "queries");
  const Element cache = element_of(problem.kv_dtype, DecodeKernels::elements, problem, "keys and values");
  const auto [isa, table] = choose<DecodeKernels>(ROOFLINE_TABLES(decode));
  const std::int64_t heads = problem.batch * problem.kv_heads;
  const std::int64_t head_dim = problem.head_dim, rope_dim = problem.rope_dim, key_dim = head_dim + rope_dim;
  const std::int64_t chunks = (problem.rows + kMostRows - 1) / kMostRows;
  const std::int64_t most_rows = (problem.rows + chunks - 1) / chunks;  // of a chunk
  const std::int64_t blocks = (problem.keys + DecodeKernels::kKeys - 1) / DecodeKernels::kKeys;
  const std::int64_t parts = ranges_of_keys(problem.keys, heads * chunks, device);
  const std::int64_t whole_rows = DecodeKernels::whole(most_rows);
  const std::int64_t query_floats = (whole_rows * key_dim + 15) / 16 * 16;  // what follows is aligned
  const std::int64_t thread_bytes = whole_pages((query_floats + DecodeKernels::workspace_floats(most_rows)) * 4);
  const std::int64_t part_floats = (whole_rows * (head_dim + 2) + 15) / 16 * 16;  // out, top, sum: whole cache lines
  const std::int64_t parts_bytes = product({heads, chunks, parts, part_floats, 4}, problem.name + ": bytes of the ranges' results");
  const std::int64_t workspace_bytes = thread_bytes * device.threads() + parts_bytes;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  float* const results = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + thread_bytes * device.threads());
  // [heads, chunks]; who ends the last range of a chunk of a KV head adds up its parts. It counts on from launch to launch.
  const auto ended = std::make_shared<std::vector<std::atomic<std::int64_t>>>(heads * chunks);
  const std::int64_t cache_bytes = size_bytes(problem.kv_dtype), query_bytes = size_bytes(problem.dtype);
  const std::int64_t pages = problem.page_size ? (problem.keys + problem.page_size - 1) / problem.page_size : 0;
  const float scale = static_cast<float>(1.4426950408889634 * problem.scale) * DecodeKernels::unit(cache);

  Bound bound;
  bound.plan.set("implementation", "split_kv/" + name(isa));
  bound.plan.set("query_block", most_rows);
  bound.plan.set("parts", parts);
  bound.plan.set("parts_bytes", parts_bytes);
  bound.plan.set("workspace_bytes", workspace_bytes);
  bound.plan.set("threads", device.threads());
  bound.steps.push_back({"attention", [=, table = table](Queue& queue) {
    pool(queue).for_each(heads * parts * chunks, [&](int worker, std::int64_t item) {
      const std::int64_t chunk = item % chunks, part = item / chunks % parts, head = item / chunks / parts;  // of batch x kv_heads
      const std::int64_t first_row = chunk * most_rows, rows = std::min(most_rows, problem.rows - first_row);
      const std::int64_t whole = DecodeKernels::whole(rows), row = head * problem.rows + first_row;
      const auto at = [](const void* p, std::int64_t bytes) { return p ? static_cast<const char*>(p) + bytes : nullptr; };
      float* const q = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + worker * thread_bytes);
      table->widen[queries](at(problem.q, row * head_dim * query_bytes), rows, head_dim, scale, q, key_dim);
      if (rope_dim > 0)
        table->widen[queries](at(problem.q_rope, row * rope_dim * query_bytes), rows, rope_dim, scale, q + head_dim, key_dim);
      std::fill(q + rows * key_dim, q + whole * key_dim, 0.0f);

      const std::int64_t page_rows = problem.kv_heads * problem.page_size;
      const std::int64_t first_key = pages ? head % problem.kv_heads * problem.page_size : head * problem.keys;  // row of the cache
      float* const first = results + (head * chunks + chunk) * parts * part_floats;
      // Per unit: out [parts, whole rows, head_dim], top [parts, whole rows], sum [parts, whole rows].
      float* const tops = first + parts * whole * head_dim;
      float* const sums = tops + parts * whole;
      table->attend[cache]({
          .q = q,
          .k = at(problem.k, first_key * head_dim * cache_bytes),
          .v = at(problem.v, first_key * head_dim * cache_bytes),
          .rope = at(problem.rope, first_key * rope_dim * cache_bytes),
          .workspace = q + query_floats,
          .out = first + part * whole * head_dim,
          .top = tops + part * whole,
          .sum = sums + part * whole,
          .rows = rows,
          .head_dim = head_dim,
          .rope_dim = rope_dim,
          .first = blocks * part / parts * DecodeKernels::kKeys,
          .last = std::min(blocks * (part + 1) / parts * DecodeKernels::kKeys, problem.keys),
          .first_row = first_row,
          .seq_q = problem.seq_q,
          .visible = problem.causal ? problem.keys - problem.seq_q + 1 : problem.keys,
          .growth = problem.causal ? 1 : 0,
          .window = problem.window > 0 ? problem.window : problem.keys,
          .pages = problem.pages ? problem.pages + head / problem.kv_heads * pages : nullptr,
          .page_size = problem.page_size,
          .page_rows = page_rows,
      });
      if ((*ended)[head * chunks + chunk].fetch_add(1, std::memory_order_acq_rel) % parts != parts - 1) return;
      const std::int64_t group = problem.rows / problem.seq_q;
      table->combine[queries]({
          .out = first,
          .top = tops,
          .sum = sums,
          .sinks = problem.sinks ? problem.sinks + head % problem.kv_heads * group : nullptr,
          .to = static_cast<char*>(problem.out) + row * head_dim * query_bytes,
          .parts = parts,
          .rows = rows,
          .head_dim = head_dim,
          .first_row = first_row,
          .seq_q = problem.seq_q,
          .unit = DecodeKernels::unit(cache),
      });
    });
  }});
  return bound;
}

Bound split_kv(const ops::Attention& problem, Device& device) {
  const Decode asked = {
      .name = "attention: split_kv",
      .dtype = problem.dtype,
      .kv_dtype = problem.dtype,
      .batch = problem.batch,
      .kv_heads = problem.kv_heads,
      .rows = problem.group() * problem.seq_q,
      .seq_q = problem.seq_q,
      .keys = problem.seq_kv,
      .head_dim = problem.head_dim,
      .causal = problem.causal,
      .scale = 1 / std::sqrt(static_cast<double>(problem.head_dim)),
      .q = problem.q,
      .k = problem.k,
      .v = problem.v,
      .out = problem.out,
  };
  return decode(asked, device);
}

}  // namespace roofline::cpu
