// A planned product and the facts of its plan.
#include "cpu/products.h"

namespace roofline::cpu {

Requires library_needs(DType dtype) {
#if defined(__x86_64__)
  if (dtype == DType::bf16) return "avx512";  // oneDNN has none below
  if (dtype == DType::fp16) return "avx512_fp16";
#endif
  (void)dtype;
  return "";
}

Bound bind_library(const char* step, const GemmProblem& problem, Device& device) {
  Gemm gemm = plan_gemm(problem, device);
  Bound bound = planned(gemm.implementation, device);
  bound.plan.set("library_implementation", gemm.library_implementation);
  if (!gemm.instead_of.empty()) bound.plan.set("instead_of", gemm.instead_of);
  bound.plan.set("split", gemm.split);
  bound.plan.set("packed_bytes", Value(gemm.packed_bytes));
  bound.plan.set("pack_s", Value(gemm.pack_s));
  bound.plan.set("workspace_bytes", Value(gemm.workspace_bytes));
  bound.steps.push_back({step, std::move(gemm.launch)});
  return bound;
}

Bound bind_tiled(const char* step, const TiledProblem& problem, Device& device) {
  TiledGemm gemm = plan_tiled(problem, device);
  Bound bound = planned("tiled/" + name(gemm.isa), device);
  if (bits(problem.dtype) == 8 && gemm.isa == Isa::avx512_bf16) bound.plan.set("arithmetic", "bf16");
  bound.plan.set("tile", gemm.tile);
  bound.plan.set("row_block", gemm.row_block);
  bound.plan.set("column_block", gemm.column_block);
  bound.plan.set("inner_block", gemm.inner_block);
  if (!gemm.inner_block) {
    bound.plan.set("streams", gemm.streams.count);
    bound.plan.set("prefetch", prefetch_of(gemm.streams));
  }
  if (!problem.unpack) {
    bound.plan.set("packed_bytes", Value(gemm.packed_bytes));
    bound.plan.set("pack_s", Value(gemm.pack_s));
  }
  bound.plan.set("workspace_bytes", Value(gemm.workspace_bytes));
  bound.steps.push_back({step, std::move(gemm.launch)});
  return bound;
}

}  // namespace roofline::cpu
