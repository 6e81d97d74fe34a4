// mla_decode on a GPU, split_kv: keys shared out to blocks, 64 or 32 rows of heads and queries each; by wgmma where a GPU has it
// (sm90a/mla.cu), else by mma.sync.
//
// By mma.sync 64 x 8192 keys with 128 heads took an H200 0.90 ms, 163 TFLOP/s, while a warp had scores of 16 rows, and 0.81 ms with
// those of 32, before sums waited for kSlack. The intensity of 240 FLOP a byte lies at the ridge, but scores go through shared
// memory, and each step waits three times for the whole block.
#include <cuda_runtime.h>

#include "cuda/attention/mla.cuh"
#include "cuda/attention/split_bind.cuh"
#include "cuda/kernels.h"
#include "cuda/sm90a/bind.h"
#include "ops/mla_decode.h"

namespace roofline::cuda {
namespace {

using ops::MlaDecode;

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) mla_kernel(const MlaWork work) {
  mla_attention<T, Shape>(work);
}

template <class T, class Shape>
Bound mla_with(const MlaDecode& problem, Device& device, const Buffers& buffers) {
  MlaWork work;
  set_sizes(work, problem, Shape::kRows);
  work.q_latent = problem.q_latent, work.q_rope = problem.q_rope;
  return bind_split<Shape>(mla_kernel<T, Shape>, work, problem.batch * work.row_chunks, Shape::kRank, buffers, device);
}

template <class T>
Bound mla(const MlaDecode& problem, Device& device) {
  if (problem.cache_dtype != problem.dtype || problem.rope_dtype != problem.dtype || problem.scale_block != 0)
    throw Unsupported("mla_decode: split_kv takes a cache in the dtype of the queries, without scales; got queries of " +
                      name(problem.dtype) + ", c of " + name(problem.cache_dtype) + ", rotated keys of " +
                      name(problem.rope_dtype) + " and scale_block " + std::to_string(problem.scale_block));
  refuse("mla_decode", mla_refuses(problem.kv_lora_rank, problem.qk_rope_head_dim, problem.seq_kv,
                                   problem.batch * problem.heads * problem.seq_q));
  if (std::optional<Bound> newer = bind_mla_decode_wgmma(problem, device)) return std::move(*newer);
  const Properties& gpu = device.properties();
  // 64 rows and steps of 32 keys where shared memory holds them, else 32 and 16.
  using Large = MlaShape<4, 2>;
  using Lean = MlaShape<2, 1>;
  const Buffers large = plan_buffers(Large::kFixedBytes, Large::kSlotBytes, kMostSlots, 1, gpu.shared_bytes_per_sm,
                                     gpu.shared_bytes_per_block);
  if (large.slots > 0) return mla_with<T, Large>(problem, device, large);
  return mla_with<T, Lean>(problem, device, need_buffers("mla_decode: split_kv", Lean::kFixedBytes, Lean::kSlotBytes, kMostSlots, 1,
                                                         gpu.shared_bytes_per_sm, gpu.shared_bytes_per_block));
}

}  // namespace

std::vector<KernelEntry> mla_decode_kernels() {
  return {entry("split_kv", DType::fp16, "sm_80", mla<Fp16>), entry("split_kv", DType::bf16, "sm_80", mla<Bf16>)};
}

}  // namespace roofline::cuda
