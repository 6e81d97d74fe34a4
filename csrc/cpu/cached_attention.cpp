// cached_attention on a CPU: what decode.cpp does, over a cache of its own dtype, within windows, with sinks, in pages.
#include <cmath>

#include "cpu/decode.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "ops/cached_attention.h"

namespace roofline::cpu {
namespace {

using ops::CachedAttention;

Bound cached(const CachedAttention& problem, Device& device) {
  const Decode asked = {
      .name = "cached_attention: split_kv",
      .dtype = problem.dtype,
      .kv_dtype = problem.kv_dtype,
      .batch = problem.batch,
      .kv_heads = problem.kv_heads,
      .rows = problem.group() * problem.seq_q,
      .seq_q = problem.seq_q,
      .keys = problem.keys,
      .head_dim = problem.head_dim,
      .causal = true,
      .window = problem.window,
      .page_size = problem.page_size,
      .scale = 1 / std::sqrt(static_cast<double>(problem.head_dim)),
      .q = problem.q,
      .k = problem.k,
      .v = problem.v,
      .sinks = problem.sinks,
      .pages = static_cast<const std::int32_t*>(problem.page_table),
      .out = problem.out,
  };
  return decode(asked, device);
}

}  // namespace

std::vector<KernelEntry> cached_attention_kernels() {
  using K = Kernel<CachedAttention, Device>;
  std::vector<KernelEntry> all;
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    all.push_back(entry(K{"split_kv", dtype, "",
                          "for few queries: a thread takes a range of the keys of one KV head, read once in the cache's dtype; who "
                          "ends the last range adds up",
                          cached}));
  return all;
}

}  // namespace roofline::cpu
