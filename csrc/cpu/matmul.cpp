// matmul on a CPU: the libraries' matrix products, split over our own threads (gemm.cpp), and our own (tiled_gemm.cpp). Bias and
// activation meet each block, or part, of c on the thread that has computed it.
#include "ops/matmul.h"

#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/products.h"
#include "cpu/rows_kernels.h"

namespace roofline::cpu {
namespace {

Finish finish(const ops::Matmul& problem) {
  if (!problem.finished()) return {};
  const auto [isa, table] = choose<RowsTable>(ROOFLINE_TABLES(rows));
  return [run = table->finish[static_cast<int>(problem.activation)], c = static_cast<float*>(problem.c), columns = problem.columns,
          bias = static_cast<const float*>(problem.bias)](std::int64_t at, std::int64_t n) {
    run(c + at, bias ? bias + at % columns : nullptr, n);
  };
}

Bound library(const ops::Matmul& problem, Device& device) {
  if (problem.scales.kind != ops::Scales::Kind::none)
    throw Unsupported("matmul library: its kernels on a CPU take no scales; use scales none");
  return bind_library(
      problem.op, {problem.dtype, problem.rows, problem.columns, problem.inner, problem.a, problem.b, problem.c, finish(problem)},
      device);
}

Bound tiled(const ops::Matmul& problem, Device& device) {
  if (problem.scales.kind != ops::Scales::Kind::none)
    throw Unsupported("matmul tiled: its kernels on a CPU take no scales; use scales none");
  return bind_tiled(
      problem.op,
      {problem.dtype, problem.rows, problem.columns, problem.inner, problem.a, problem.b, problem.c, finish(problem)}, device);
}

}  // namespace

std::vector<KernelEntry> matmul_kernels() {
  using K = Kernel<ops::Matmul, Device>;
  const auto with = [](DType dtype, const char* summary) {
    return entry(K{"library", dtype, library_needs(dtype), summary, library});
  };
  const auto own = [](DType dtype, const char* summary) { return entry(K{"tiled", dtype, "", summary, tiled}); };
  const char* const fp8 =
      "our own kernels: as fp32, with b read in fp8 and all arithmetic in fp32, or products of bf16 pairs; a is widened once";
  return {with(DType::fp32, "oneDNN, or OpenBLAS where it is missing, on one block of c per thread; oneDNN's b packed in bind"),
          with(DType::fp64, "OpenBLAS on one block of c per thread"),
          with(DType::bf16, "oneDNN on one block of c per thread, sums and c in fp32; b packed in bind"),
          with(DType::int8, "oneDNN on one block of c per thread, sums and c in int32; b packed in bind"),
          own(DType::fp32, "our own kernels: b packed in strips in bind; few rows read it in one stream or several"),
          own(DType::bf16, "our own kernels: as fp32, with b read in bf16 and all arithmetic in fp32"),
          own(DType::fp16, "our own kernels: as fp32, with b read in fp16 and all arithmetic in fp32"),
          own(DType::int8, "our own kernels: as fp32, with products of 16 bits in pairs and sums in int32, exact"),
          own(DType::fp64, "our own kernels: as fp32, with all numbers in fp64"),
          own(DType::fp8_e4m3, fp8), own(DType::fp8_e5m2, fp8)};
}

}  // namespace roofline::cpu
