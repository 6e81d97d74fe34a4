// mla_prefill on a CPU: what attention_tiled.cpp does, with keys put together from their own part and the one that all heads share.
#include <cmath>

#include "cpu/attention.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "ops/mla_prefill.h"

namespace roofline::cpu {
namespace {

using ops::MlaPrefill;

Bound tiled(const MlaPrefill& problem, Device& device) {
  const AttentionTask task = {
      .op = MlaPrefill::op,
      .dtype = problem.dtype,
      .kv_dtype = problem.dtype,
      .batch = problem.batch,
      .kv_heads = problem.heads,
      .rows = problem.seq_q,
      .seq_q = problem.seq_q,
      .keys = problem.seq_kv,
      .head_dim = problem.qk_nope_head_dim,
      .rope_dim = problem.qk_rope_head_dim,
      .value_dim = problem.v_head_dim,
      .causal = problem.causal,
      .scale = 1 / std::sqrt(static_cast<double>(problem.qk_nope_head_dim + problem.qk_rope_head_dim)),
      .q = problem.q,
      .k = problem.k_nope,
      .v = problem.v,
      .rope = problem.k_rope,
      .out = problem.out,
  };
  return tiled(task, device);
}

}  // namespace

std::vector<KernelEntry> mla_prefill_kernels() {
  return floating_kernels<MlaPrefill>("tiled",
                          "a thread takes a block of queries of one head over all its keys, put together from both their parts; "
                          "scores and running softmax stay in the cache, only out is written",
                          tiled);
}

}  // namespace roofline::cpu
