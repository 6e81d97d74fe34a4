// attention of few queries on a GPU, split_kv: for the plain operator and for caches of other dtypes, windows, sinks and pages.
//
// On an H200, 8 KV heads with 4 queries each, head_dim 128, as shares of the time that a plain read of the same K and V takes: in
// bf16 99 % of 1.07 GB (32 x 8192 keys), 98 % of 0.54 GB (1 x 131072), 94 % of 0.23 GB (7 x 8192); in fp32 99 % and 98 % of twice
// as much; with caches of fp8 98 % (32 x 8192) and 96 % (1 x 131072), of int8 96 %. Bound by memory up to 32 queries of a KV head
// in 16 bits, up to 8 in fp32; beyond that K and V are read again from L2.
#include <cuda_runtime.h>

#include "cuda/attention/split.cuh"
#include "cuda/attention/split_bind.cuh"
#include "cuda/kernels.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"

namespace roofline::cuda {
namespace {

using ops::Attention;
using ops::CachedAttention;

template <class Arithmetic>
__global__ void __launch_bounds__(Arithmetic::Shape::kThreads, Arithmetic::Shape::kBlocks) split_kernel(const SplitWork work) {
  split_attention<Arithmetic>(work);
}

// What both operators ask for.
struct Decode {
  const char* op;
  std::int64_t batch, kv_heads, group, seq_q, keys, head_dim, window, page_size;
  const void *q, *k, *v;
  void* out;
  const float* sinks;
  const void* page_table;
  bool causal;
  Cache cache;
  std::int64_t rows() const { return group * seq_q; }  // of a KV head
};

template <class Arithmetic>
Bound split_with(const Decode& problem, Device& device) {
  using Shape = typename Arithmetic::Shape;
  const Properties& gpu = device.properties();
  const Buffers buffers = need_buffers(std::string(problem.op) + ": split_kv", Shape::kFixedBytes, Shape::kSlotBytes,
                                       kMostSplitSlots, Shape::kBlocks, gpu.shared_bytes_per_sm, gpu.shared_bytes_per_block);

  const std::int64_t rows = problem.rows();
  SplitWork work;
  work.q = problem.q, work.k = problem.k, work.v = problem.v, work.out = problem.out;
  work.sinks = problem.sinks, work.page_table = static_cast<const int*>(problem.page_table);
  work.row_chunks = static_cast<int>(ceil_div(rows, Shape::kRows)), work.kv_heads = static_cast<int>(problem.kv_heads);
  work.rows = static_cast<int>(rows), work.seq_q = static_cast<int>(problem.seq_q), work.keys = static_cast<int>(problem.keys);
  work.window = static_cast<int>(std::min(problem.window, problem.keys)), work.head_dim = static_cast<int>(problem.head_dim);
  work.page_size = static_cast<int>(problem.page_size), work.causal = problem.causal;
  work.scale = exponent_scale(problem.head_dim);
  const std::int64_t units = problem.batch * problem.kv_heads * work.row_chunks;
  return bind_split<Shape>(split_kernel<Arithmetic>, work, units, Shape::kHeadDim, buffers, device);
}

// In 16 bits; T: of queries and out.
template <class T, Cache Kind, int Head, int MostTiles>
Bound split_mma(const Decode& problem, Device& device) {
  return problem.rows() <= 8 ? split_with<SplitMma<T, SplitShape<Kind, Head, 1>>>(problem, device)
                             : split_with<SplitMma<T, SplitShape<Kind, Head, MostTiles>>>(problem, device);
}

// In fp32.
template <int Head>
Bound split_fma(const Decode& problem, Device& device) {
  return problem.rows() <= 4 ? split_with<SplitFma<FmaShape<Head, 4>>>(problem, device)
                             : split_with<SplitFma<FmaShape<Head, 8>>>(problem, device);
}

template <class T>
Bound split(const Decode& problem, Device& device) {
  constexpr bool kWhole = std::is_same_v<T, float>;
  const std::int64_t element_bytes = problem.cache != Cache::same ? 1 : kWhole ? 4 : 2;
  refuse(problem.op, split_refuses(problem.head_dim, problem.seq_q, element_bytes, problem.page_size, problem.keys,
                                   problem.batch * problem.kv_heads * problem.rows()));
  if constexpr (kWhole) {
    if (problem.head_dim > 128) return split_with<SplitFma<FmaShape<256, 8>>>(problem, device);
    return problem.head_dim > 64 ? split_fma<128>(problem, device) : split_fma<64>(problem, device);
  } else {
    if (problem.cache == Cache::fp8_e4m3) return split_mma<T, Cache::fp8_e4m3, 128, 4>(problem, device);
    if (problem.cache == Cache::int8) return split_mma<T, Cache::int8, 128, 4>(problem, device);
    if (problem.head_dim <= 64) return split_mma<T, Cache::same, 64, 4>(problem, device);
    if (problem.head_dim <= 128) return split_mma<T, Cache::same, 128, 4>(problem, device);
    return split_mma<T, Cache::same, 256, 2>(problem, device);
  }
}

template <class T>
Bound plain(const Attention& p, Device& device) {
  p.refuse_logsumexp("split_kv");
  const Decode problem = {Attention::op, p.batch, p.kv_heads, p.group(), p.seq_q, p.seq_kv, p.head_dim, 0, 0,
                          p.q, p.k, p.v, p.out, nullptr, nullptr, p.causal, Cache::same};
  return split<T>(problem, device);
}

template <class T>
Bound cached(const CachedAttention& p, Device& device) {
  p.refuse_softcap_and_lengths("split_kv");
  Cache cache = Cache::same;
  if (p.kv_dtype != p.dtype) {
    if (p.kv_dtype == DType::fp8_e4m3) cache = Cache::fp8_e4m3;
    else if (p.kv_dtype == DType::int8) cache = Cache::int8;
    if (cache == Cache::same || p.dtype == DType::fp32)
      throw Unsupported("cached_attention: split_kv takes a cache of " + name(p.dtype) +
                        (p.dtype == DType::fp32 ? "" : ", fp8_e4m3 or int8") + " with queries of " + name(p.dtype) + ", got " +
                        name(p.kv_dtype));
  }
  const Decode problem = {CachedAttention::op, p.batch, p.kv_heads, p.group(), p.seq_q, p.keys, p.head_dim, p.window, p.page_size,
                          p.q, p.k, p.v, p.out, p.sinks, p.page_table, true, cache};
  return split<T>(problem, device);
}

}  // namespace

std::vector<KernelEntry> attention_split_kernels() {
  return {entry("split_kv", DType::fp32, "sm_80", plain<float>), entry("split_kv", DType::fp16, "sm_80", plain<Fp16>),
          entry("split_kv", DType::bf16, "sm_80", plain<Bf16>)};
}

std::vector<KernelEntry> cached_attention_kernels() {
  return {entry("split_kv", DType::fp32, "sm_80", cached<float>), entry("split_kv", DType::fp16, "sm_80", cached<Fp16>),
          entry("split_kv", DType::bf16, "sm_80", cached<Bf16>)};
}

}  // namespace roofline::cuda
