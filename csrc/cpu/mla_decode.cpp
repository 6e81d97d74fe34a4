// mla_decode on a CPU: what attention_split.cpp does, where all heads share one cache, whose rows are keys and, but for the rotated
// columns, values at once. A block of it stays in the cache for all of a chunk of heads, so that 16 heads and more are bound by
// arithmetic: in bf16 by that of pairs, where a processor has it.
#include <cmath>

#include "cpu/attention.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "ops/mla_decode.h"

namespace roofline::cpu {
namespace {

using ops::MlaDecode;

Bound mla(const MlaDecode& problem, Device& device) {
  if (problem.rope_dtype != problem.cache_dtype || problem.scale_block != 0)
    throw Unsupported("mla_decode: split_kv takes c and the rotated keys in one dtype, without scales; got c of " +
                      name(problem.cache_dtype) + ", rotated keys of " + name(problem.rope_dtype) + " and scale_block " +
                      std::to_string(problem.scale_block));
  const AttentionTask task = {
      .op = MlaDecode::op,
      .dtype = problem.dtype,
      .kv_dtype = problem.cache_dtype,
      .batch = problem.batch,
      .kv_heads = 1,
      .rows = problem.heads * problem.seq_q,
      .seq_q = problem.seq_q,
      .keys = problem.seq_kv,
      .head_dim = problem.kv_lora_rank,
      .rope_dim = problem.qk_rope_head_dim,
      .value_dim = problem.kv_lora_rank,
      .causal = problem.causal,
      .scale = 1 / std::sqrt(static_cast<double>(problem.qk_nope_head_dim + problem.qk_rope_head_dim)),
      .q = problem.q_latent,
      .q_rope = problem.q_rope,
      .k = problem.c,
      .v = problem.c,
      .rope = problem.k_rope,
      .out = problem.out,
  };
  return split_kv(task, device);
}

}  // namespace

std::vector<KernelEntry> mla_decode_kernels() {
  return floating_kernels(
      "split_kv", "a thread takes a range of the keys for a chunk of the heads; who ends a chunk's last range adds up", mla);
}

}  // namespace roofline::cpu
