// matmul and bmm on a GPU: cuBLASLt's products (gemm.cpp).
#include "cuda/check.h"
#include "cuda/device_kernels.h"
#include "cuda/kernels.h"
#include "cuda/matmul/gemm.h"
#include "cuda/matmul/scales.h"
#include "ops/bmm.h"
#include "ops/matmul.h"

namespace roofline::cuda {
namespace {

Bound bind(const char* step, const GemmProblem& problem, Device& device) {
  Gemm gemm = plan_gemm(problem, device);
  Bound bound = planned("library", device);
  record(bound.plan, "", gemm);
  bound.plan.set("workspace_bytes", Value(gemm.workspace_bytes));
  bound.steps.push_back({step, std::move(gemm.launch), gemm.entries});
  return bound;
}

// cuBLASLt's kernels for 8 and 4 bits read both operands along inner.
bool along_inner(DType dtype) { return bits(dtype) <= 8; }

// A step that writes b, [matrices, inner, columns], transposed to memory of its own, from which `gemm` then reads it.
Step transpose_b(GemmProblem& gemm, Device& device, std::int64_t& transposed_bytes) {
  if (bits(gemm.dtype) < 8 && (gemm.inner % 2 != 0 || gemm.columns % 2 != 0))
    throw Unsupported(name(gemm.dtype) + " products need an even inner and even columns, got " + std::to_string(gemm.inner) +
                      " and " + std::to_string(gemm.columns));
  const std::int64_t bytes = size_bytes(gemm.dtype, product({gemm.batch, gemm.inner, gemm.columns}, "b"));
  const std::shared_ptr<void> to = workspace(device, bytes);
  transposed_bytes += bytes;
  const GemmProblem from = gemm;
  gemm.b = to.get();
  gemm.b_transposed = true;
  return {"transpose b", [=](Queue& queue) {
            launch_transpose(stream(queue), from.b, to.get(), from.dtype, from.batch, from.inner, from.columns);
            ROOFLINE_CUDA_LAUNCHED("transpose_kernel");
          }};
}

// What must run before a product, so that it reads its operands and their scales as it wants them.
std::vector<Step> prepare(const ops::Scales& scales, GemmProblem& gemm, Device& device, std::int64_t& bytes) {
  std::vector<Step> steps;
  if (along_inner(gemm.dtype)) steps.push_back(transpose_b(gemm, device, bytes));
  for (Step& step : lay_out(scales, gemm, device, bytes)) steps.push_back(std::move(step));
  device.use();
  for (const Step& step : steps) step.launch(device);  // proposals are timed on what they will read
  return steps;
}

Bound bind_matmul(const ops::Matmul& problem, Device& device, bool fast_accumulation) {
  GemmProblem gemm{problem.dtype, ops::Matmul::result(problem.dtype)};
  gemm.rows = problem.rows, gemm.columns = problem.columns, gemm.inner = problem.inner;
  gemm.a = problem.a, gemm.b = problem.b, gemm.c = problem.c;
  gemm.fast_accumulation = fast_accumulation;
  using Activation = ops::Matmul::Activation;
  if (problem.bias) throw Unsupported("matmul library: a GPU's product adds no bias; use bias False and add it by bias_relu");
  if (problem.activation == Activation::gelu || problem.activation == Activation::silu)
    throw Unsupported("matmul library: cuBLASLt's epilogues know relu and gelu_tanh; use one of these, or no activation "
                      "and an operator of its own");
  if (problem.activation == Activation::relu) gemm.activation = cuda::Activation::relu;
  if (problem.activation == Activation::gelu_tanh) gemm.activation = cuda::Activation::gelu_tanh;
  // b and the scales are the same in every launch, so what must be done to them is done here.
  std::int64_t packed_bytes = 0;
  const std::vector<Step> before = prepare(problem.scales, gemm, device, packed_bytes);
  Bound bound = bind("matmul", gemm, device);
  if (problem.finished()) bound.plan.set("epilogue", "fused");
  if (before.empty()) return bound;
  bound.plan.set("packed_bytes", Value(packed_bytes));
  keep(bound, before);
  return bound;
}

Bound matmul(const ops::Matmul& problem, Device& device) { return bind_matmul(problem, device, false); }
Bound matmul_fast(const ops::Matmul& problem, Device& device) { return bind_matmul(problem, device, true); }

Bound bmm(const ops::Bmm& problem, Device& device) {
  GemmProblem gemm{problem.dtype, problem.out_dtype};
  gemm.batch = problem.batch, gemm.rows = problem.rows, gemm.columns = problem.columns, gemm.inner = problem.inner;
  gemm.a = problem.a, gemm.b = problem.b, gemm.c = problem.c;
  // b and the scales may differ from launch to launch, so turning them is part of each.
  std::int64_t laid_out_bytes = 0;
  const std::vector<Step> before = prepare(problem.scales, gemm, device, laid_out_bytes);
  Bound bound = bind("bmm", gemm, device);
  bound.plan.set("laid_out_bytes", Value(laid_out_bytes));
  bound.steps.insert(bound.steps.begin(), before.begin(), before.end());
  return bound;
}

template <class Problem>
std::vector<KernelEntry> library(Bound (*bind)(const Problem&, Device&)) {
  const auto in = [&](std::initializer_list<DType> dtypes, const Requires& needs) {
    return kernels_of(dtypes, "library", needs, bind);
  };
  return joined({in({DType::fp64, DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::int8}, ""),
                 in({DType::fp8_e4m3}, "sm_89"), in({DType::nvfp4}, "sm_100")});
}

}  // namespace

std::vector<KernelEntry> matmul_kernels() {
  return joined({library(matmul), kernels_of({DType::fp8_e4m3}, "fast_accumulation", "sm_89", matmul_fast)});
}
std::vector<KernelEntry> bmm_kernels() { return library(bmm); }

}  // namespace roofline::cuda
