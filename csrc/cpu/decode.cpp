// Attention of few queries: ranges of keys, each read once by one thread, whose results the last one adds up.
#include "cpu/decode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "cpu/decode_kernels.h"
#include "cpu/device.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

using ops::Attention;

// Ranges of whole blocks of keys: eight items for each thread where the keys suffice, so that the last to end leaves little idle.
std::int64_t ranges_of_keys(const Attention& problem, const Device& device) {
  constexpr std::int64_t kLeastKeys = 2 * DecodeKernels::kKeys;
  const std::int64_t heads = problem.batch * problem.kv_heads;
  return std::clamp<std::int64_t>((8 * device.threads() + heads - 1) / heads, 1, std::max<std::int64_t>(problem.seq_kv / kLeastKeys, 1));
}

}  // namespace

Bound split_kv(const Attention& problem, Device& device) {
  constexpr std::int64_t kMostQueries = 8;
  if (problem.seq_q > kMostQueries)
    throw Unsupported("attention: split_kv takes seq_q up to " + std::to_string(kMostQueries) + ", got " + std::to_string(problem.seq_q) + "; use another variant");
  const auto [isa, table] = choose<DecodeKernels>(ROOFLINE_TABLES(decode));
  const std::int64_t rows = problem.group() * problem.seq_q, heads = problem.batch * problem.kv_heads, head_dim = problem.head_dim;
  const std::int64_t blocks = (problem.seq_kv + DecodeKernels::kKeys - 1) / DecodeKernels::kKeys;
  const std::int64_t parts = ranges_of_keys(problem, device);
  const std::int64_t thread_bytes = whole_pages(DecodeKernels::workspace_floats(rows, head_dim) * 4);
  const std::int64_t part_floats = (rows * (head_dim + 2) + 15) / 16 * 16;  // out, top, sum: whole cache lines
  const std::int64_t parts_bytes = product({heads, parts, part_floats, 4}, "attention: bytes of the ranges' results");
  const std::int64_t workspace_bytes = thread_bytes * device.threads() + parts_bytes;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  float* const results = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + thread_bytes * device.threads());
  // [heads]; who ends the last range of a KV head adds up its parts. It counts on from launch to launch.
  const auto ended = std::make_shared<std::vector<std::atomic<std::int64_t>>>(heads);

  Bound bound;
  bound.plan.set("implementation", "split_kv/" + name(isa));
  bound.plan.set("parts", parts);
  bound.plan.set("parts_bytes", parts_bytes);
  bound.plan.set("workspace_bytes", workspace_bytes);
  bound.plan.set("threads", device.threads());
  const float scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(head_dim)));
  bound.steps.push_back({"attention", [=, table = table](Queue& queue) {
    pool(queue).for_each(heads * parts, [&](int worker, std::int64_t item) {
      const std::int64_t head = item / parts, part = item % parts;  // of batch x kv_heads
      float* const first = results + head * parts * part_floats;
      // Per KV head: out [parts, rows, head_dim], top [parts, rows], sum [parts, rows].
      float* const tops = first + parts * rows * head_dim;
      float* const sums = tops + parts * rows;
      table->attend({
          .q = static_cast<const float*>(problem.q) + head * rows * head_dim,
          .k = static_cast<const float*>(problem.k) + head * problem.seq_kv * head_dim,
          .v = static_cast<const float*>(problem.v) + head * problem.seq_kv * head_dim,
          .workspace = reinterpret_cast<float*>(static_cast<char*>(memory.get()) + worker * thread_bytes),
          .out = first + part * rows * head_dim,
          .top = tops + part * rows,
          .sum = sums + part * rows,
          .rows = rows,
          .head_dim = head_dim,
          .first = blocks * part / parts * DecodeKernels::kKeys,
          .last = std::min(blocks * (part + 1) / parts * DecodeKernels::kKeys, problem.seq_kv),
          .seq_q = problem.seq_q,
          .visible = problem.visible(0),
          .growth = problem.causal ? 1 : 0,
          .scale = scale,
      });
      if ((*ended)[head].fetch_add(1, std::memory_order_acq_rel) % parts == parts - 1)
        table->combine({first, tops, sums, static_cast<float*>(problem.out) + head * rows * head_dim, parts, rows, head_dim});
    });
  }});
  return bound;
}

}  // namespace roofline::cpu
