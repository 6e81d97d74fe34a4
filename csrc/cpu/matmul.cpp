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
  return joined({library_kernels({DType::fp32, DType::fp64, DType::bf16, DType::int8}, library),
                 kernels_of({DType::fp32, DType::bf16, DType::fp16, DType::int8, DType::fp64, DType::fp8_e4m3, DType::fp8_e5m2},
                            "tiled", "", tiled)});
}

}  // namespace roofline::cpu
