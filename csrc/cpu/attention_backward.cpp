// attention_backward on a CPU: a thread takes every so many-th block of keys of a KV head, so that dk and dv need no atomics; what
// its keys add to dq lies in fp32 of its own, which a last step adds up. Computing the scores again for dq would take seven
// products instead of five.
#include <algorithm>
#include <cmath>
#include <memory>

#include "cpu/backward_kernels.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "cpu/share.h"
#include "ops/attention_backward.h"

namespace roofline::cpu {
namespace {

using ops::AttentionBackward;

// The fastest kernels for this element.
Choice<BackwardKernels> choose_for([[maybe_unused]] Element element) {
  if (ROOFLINE_HAVE_amx && element == kBf16 && has(Isa::amx)) return {Isa::amx, &backward_amx};
  if (ROOFLINE_HAVE_avx512_bf16 && element == kBf16 && has_fast_bf16_pairs()) return {Isa::avx512_bf16, &backward_pairs_avx512_bf16};
  return choose<BackwardKernels>(ROOFLINE_TABLES(backward));
}

Bound tiled(const AttentionBackward& problem, Device& device) {
  const Element element = element_of(problem.dtype, problem.op);
  const auto [isa, table] = choose_for(element);
  const std::int64_t row_bytes = problem.head_dim * size_bytes(problem.dtype), pitch = table->pitch(problem.head_dim);
  const std::int64_t units = problem.batch * problem.kv_heads, rows = problem.group() * problem.seq_q;  // of a KV head
  // Transposed keys and values, keys, dk and dv of a block take half of L2.
  const std::int64_t fit = device.caches().l2_bytes / 2 / (5 * 4 * pitch), width = table->tile_width;
  const std::int64_t needed = (problem.seq_kv + width - 1) / width * width;
  const std::int64_t key_block = std::clamp<std::int64_t>(fit / width * width, width, std::min<std::int64_t>(128, needed));
  const std::int64_t blocks = (problem.seq_kv + key_block - 1) / key_block;
  const std::int64_t parts = std::clamp<std::int64_t>((2 * device.threads() + units - 1) / units, 1, blocks);
  const std::int64_t thread_bytes = whole_pages(table->workspace_floats(key_block, problem.head_dim) * 4);
  const std::int64_t delta_bytes = whole_pages(units * rows * 4);
  const std::int64_t parts_bytes = product({units, parts, rows, pitch, 4}, "attention_backward: bytes of dq's parts");
  const std::int64_t workspace_bytes = delta_bytes + thread_bytes * device.threads() + parts_bytes;
  // delta, what threads work in, parts [units, parts, rows, pitch]
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  char* const start = static_cast<char*>(memory.get());
  float* const delta = reinterpret_cast<float*>(start);
  float* const dq_parts = reinterpret_cast<float*>(start + delta_bytes + thread_bytes * device.threads());
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.head_dim)));
  const auto at = [](const void* p, std::int64_t bytes) { return static_cast<const char*>(p) + bytes; };
  const auto to = [](void* p, std::int64_t bytes) { return static_cast<char*>(p) + bytes; };

  // Each query meets whole vectors of keys, up to the last that it sees.
  std::int64_t pairs = 0;
  for (std::int64_t query = 0; query < problem.seq_q; ++query) {
    const std::int64_t seen = problem.causal ? problem.seq_kv - problem.seq_q + 1 + query : problem.seq_kv;
    pairs += (seen + table->lanes - 1) / table->lanes * table->lanes;
  }

  Bound bound = planned("tiled/" + name(isa), device);
  bound.plan.set("key_block", key_block);
  bound.plan.set("parts", parts);
  bound.plan.set("parts_bytes", parts_bytes);
  bound.plan.set("scores_elements", problem.batch * problem.heads * pairs);
  bound.plan.set("workspace_bytes", workspace_bytes);
  constexpr std::int64_t kRows = 64;  // of an item that only reads and adds
  const std::int64_t row_items = (units * rows + kRows - 1) / kRows;
  bound.steps.push_back({"out·dout", [=, table = table](Queue& queue) {
    pool(queue).for_each(row_items, [&](int, std::int64_t item) {
      const std::int64_t row = item * kRows;
      table->deltas[element](at(problem.out, row * row_bytes), at(problem.dout, row * row_bytes),
                             std::min(kRows, units * rows - row), problem.head_dim, delta + row);
    });
  }});
  bound.steps.push_back({"gradients", [=, table = table](Queue& queue) {
    pool(queue).for_each(units * parts, [&](int worker, std::int64_t item) {
      const std::int64_t unit = item / parts, row = unit * rows, key = unit * problem.seq_kv;
      table->gradients[element]({
          .q = at(problem.q, row * row_bytes),
          .k = at(problem.k, key * row_bytes),
          .v = at(problem.v, key * row_bytes),
          .dout = at(problem.dout, row * row_bytes),
          .logsumexp = problem.logsumexp + row,
          .delta = delta + row,
          .dk = to(problem.dk, key * row_bytes),
          .dv = to(problem.dv, key * row_bytes),
          .dq = dq_parts + item * rows * pitch,
          .workspace = reinterpret_cast<float*>(start + delta_bytes + worker * thread_bytes),
          .group = problem.group(),
          .seq_q = problem.seq_q,
          .seq_kv = problem.seq_kv,
          .head_dim = problem.head_dim,
          .key_block = key_block,
          .first_block = item % parts,
          .blocks_step = parts,
          .scale = scale,
          .causal = problem.causal,
      });
    });
  }});
  const std::int64_t unit_items = (rows + kRows - 1) / kRows;
  bound.steps.push_back({"dq", [=, table = table, memory = memory](Queue& queue) {
    pool(queue).for_each(units * unit_items, [&](int, std::int64_t item) {
      const std::int64_t unit = item / unit_items, row = item % unit_items * kRows;
      table->sum[element](dq_parts + (unit * parts * rows + row) * pitch, parts, rows * pitch, std::min(kRows, rows - row),
                          problem.head_dim, scale, to(problem.dq, (unit * rows + row) * row_bytes));
    });
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> attention_backward_kernels() { return floating_kernels("tiled", tiled); }

}  // namespace roofline::cpu
