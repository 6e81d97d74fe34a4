// attention by cuBLASLt: what the definition says, with the library's products.
//
//   q·kᵀ     one product per KV head, of all queries that share it; writes fp32 scores, those that are masked too
//   softmax  a team of threads per row; reads the scores that a query sees twice, writes probabilities in the operands' dtype
//   p·v      one product per KV head; reads all probabilities, the zeros of masked ones too
#include <cmath>

#include "cuda/kernels.h"
#include "cuda/matmul/gemm.h"
#include "cuda/rows/rows.h"
#include "ops/attention.h"

namespace roofline::cuda {
namespace {

using ops::Attention;

Bound library(const Attention& problem, Device& device) {
  problem.refuse_logsumexp("library");
  const std::int64_t size = size_bytes(problem.dtype);
  const std::int64_t scores_count = problem.batch * problem.heads * problem.seq_q * problem.seq_kv;
  // Probabilities begin at a multiple of what allocations do. One allocation: it is there wholly, or nothing is taken.
  const std::int64_t scores_bytes = (4 * scores_count + 255) / 256 * 256;
  const std::int64_t workspace_bytes = scores_bytes + size * scores_count;
  const std::shared_ptr<void> memory = workspace(device, workspace_bytes);
  const std::shared_ptr<void> scratch = workspace(device, kScratchBytes);
  void* const scores = memory.get();
  void* const p = static_cast<char*>(memory.get()) + scores_bytes;

  Bound bound = planned("library", device);
  bound.plan.set("workspace_bytes", Value(workspace_bytes + kScratchBytes));
  bound.plan.set("scores_elements", Value(scores_count));
  const auto multiply = [&](const char* step, const std::string& prefix, GemmProblem gemm) {
    gemm.batch = problem.batch * problem.kv_heads, gemm.rows = problem.group() * problem.seq_q;
    gemm.scratch = scratch;
    add_product(bound, step, prefix, gemm, device);
  };
  GemmProblem first{problem.dtype, DType::fp32};
  first.columns = problem.seq_kv, first.inner = problem.head_dim;
  first.a = problem.q, first.b = problem.k, first.c = scores;
  first.b_transposed = true;
  first.alpha = 1 / std::sqrt(static_cast<double>(problem.head_dim));
  multiply("q·kᵀ", "scores_", first);

  Bound softmax = bind_probabilities({problem.dtype, problem.batch * problem.heads * problem.seq_q, problem.seq_kv, problem.seq_q,
                                      problem.causal, scores, p},
                                     device);
  append(bound, "softmax", std::move(softmax));

  GemmProblem second{problem.dtype, problem.dtype};
  second.columns = problem.head_dim, second.inner = problem.seq_kv;
  second.a = p, second.b = problem.v, second.c = problem.out;
  multiply("p·v", "values_", second);
  keep(bound, memory);
  return bound;
}

}  // namespace

std::vector<KernelEntry> attention_library_kernels() { return floating_kernels<Attention>("library", library); }

}  // namespace roofline::cuda
