// Multi-head latent attention on a CPU, as tasks of attention_split.cpp and attention_tiled.cpp.
#include "cpu/attention.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "ops/mla_decode.h"
#include "ops/mla_prefill.h"

namespace roofline::cpu {
namespace {

using ops::MlaDecode;
using ops::MlaPrefill;

// All heads share one cache, whose rows are keys and, but for the rotated columns, values at once. A block of it stays in the cache for
// all of a chunk of heads, so that 16 heads and more are bound by arithmetic: in bf16 by that of pairs, where a processor has it.
Bound split_kv(const MlaDecode& problem, Device& device) {
  if (problem.rope_dtype != problem.cache_dtype || problem.scale_block != 0)
    throw Unsupported("mla_decode: split_kv takes c and the rotated keys in one dtype, without scales; got c of " +
                      name(problem.cache_dtype) + ", rotated keys of " + name(problem.rope_dtype) + " and scale_block " +
                      std::to_string(problem.scale_block));
  AttentionTask task =
      common_task(problem, 1, problem.seq_kv, problem.kv_lora_rank, problem.qk_nope_head_dim + problem.qk_rope_head_dim);
  task.kv_dtype = problem.cache_dtype, task.rope_dim = problem.qk_rope_head_dim, task.causal = problem.causal;
  task.q = problem.q_latent, task.q_rope = problem.q_rope;
  task.k = task.v = problem.c, task.rope = problem.k_rope;
  return split_kv(task, device);
}

// What attention_tiled.cpp does, with keys put together from their own part and the one that all heads share.
Bound tiled(const MlaPrefill& problem, Device& device) {
  AttentionTask task = common_task(problem, problem.heads, problem.seq_kv, problem.qk_nope_head_dim,
                                   problem.qk_nope_head_dim + problem.qk_rope_head_dim);
  task.rope_dim = problem.qk_rope_head_dim, task.value_dim = problem.v_head_dim, task.causal = problem.causal;
  task.q = problem.q, task.k = problem.k_nope, task.v = problem.v, task.rope = problem.k_rope;
  return tiled(task, device);
}

}  // namespace

std::vector<KernelEntry> mla_decode_kernels() { return floating_kernels<MlaDecode>("split_kv", split_kv); }

std::vector<KernelEntry> mla_prefill_kernels() { return floating_kernels<MlaPrefill>("tiled", tiled); }

}  // namespace roofline::cpu
