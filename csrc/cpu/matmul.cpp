// matmul on a CPU: the libraries' matrix products, split over our own threads (gemm.cpp).
#include "ops/matmul.h"

#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/products.h"

namespace roofline::cpu {
namespace {

Bound library(const ops::Matmul& problem, Device& device) {
  if (problem.scales.kind != ops::Scales::Kind::none) throw Unsupported("matmul library: its kernels on a CPU take no scales; use scales none");
  return bind_library(problem.op, {problem.dtype, problem.rows, problem.columns, problem.inner, problem.a, problem.b, problem.c}, device);
}

Bound tiled(const ops::Matmul& problem, Device& device) {
  if (problem.scales.kind != ops::Scales::Kind::none) throw Unsupported("matmul tiled: its kernels on a CPU take no scales; use scales none");
  return bind_tiled(
      problem.op,
      {problem.dtype, problem.rows, problem.columns, problem.inner, problem.a, problem.b, problem.c}, device);
}

}  // namespace

std::vector<KernelEntry> matmul_kernels() {
  using K = Kernel<ops::Matmul, Device>;
  const auto with = [](DType dtype, const char* summary) { return entry(K{"library", dtype, library_needs(dtype), summary, library}); };
  const auto own = [](DType dtype, const char* summary) { return entry(K{"tiled", dtype, "", summary, tiled}); };
  return {with(DType::fp32, "oneDNN, or OpenBLAS where it is missing, on one block of c per thread; oneDNN's b packed in bind"),
          with(DType::fp64, "OpenBLAS on one block of c per thread"),
          with(DType::bf16, "oneDNN on one block of c per thread, sums and c in fp32; b packed in bind"),
          with(DType::int8, "oneDNN on one block of c per thread, sums and c in int32; b packed in bind"),
          own(DType::fp32, "our own kernels: b packed in strips in bind; few rows read it in eight address streams"),
          own(DType::bf16, "our own kernels: as fp32, with b read in bf16 and all arithmetic in fp32"),
          own(DType::fp16, "our own kernels: as fp32, with b read in fp16 and all arithmetic in fp32"),
          own(DType::int8, "our own kernels: as fp32, with products of 16 bits in pairs and sums in int32, exact")};
}

}  // namespace roofline::cpu
