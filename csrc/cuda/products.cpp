// matmul and bmm on a GPU: cuBLASLt's products (gemm.cpp).
#include "cuda/check.h"
#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "cuda/primitives.h"
#include "ops/bmm.h"
#include "ops/matmul.h"

namespace roofline::cuda {
namespace {

Bound bind(const char* step, const GemmProblem& problem, Device& device) {
  Gemm gemm = plan_gemm(problem, device);
  Bound bound;
  bound.plan.set("implementation", "library/" + device.properties().architecture());
  record(bound.plan, "", gemm);
  bound.plan.set("workspace_bytes", Value(gemm.workspace_bytes));
  bound.steps.push_back({step, std::move(gemm.launch)});
  return bound;
}

Bound matmul(const ops::Matmul& problem, Device& device) {
  GemmProblem gemm{problem.dtype, ops::Matmul::result(problem.dtype)};
  gemm.rows = problem.rows, gemm.columns = problem.columns, gemm.inner = problem.inner;
  gemm.a = problem.a, gemm.b = problem.b, gemm.c = problem.c;
  if (problem.dtype != DType::int8) return bind("matmul", gemm, device);
  // cuBLASLt's int8 kernels read both operands along inner. b is the same in every launch, so it is turned here.
  const std::int64_t packed_bytes = problem.inner * problem.columns;
  const std::shared_ptr<void> packed = workspace(device, packed_bytes);
  device.use();
  launch_transpose(device.stream(), problem.b, packed.get(), problem.inner, problem.columns);
  ROOFLINE_CUDA_LAUNCHED("transpose_kernel");
  gemm.b = packed.get();
  gemm.b_transposed = true;
  Bound bound = bind("matmul", gemm, device);
  bound.plan.set("packed_bytes", Value(packed_bytes));
  Launch& launch = bound.steps[0].launch;
  launch = [launch, packed](Queue& queue) { launch(queue); };
  return bound;
}

Bound bmm(const ops::Bmm& problem, Device& device) {
  GemmProblem gemm{problem.dtype, problem.out_dtype};
  gemm.batch = problem.batch, gemm.rows = problem.rows, gemm.columns = problem.columns, gemm.inner = problem.inner;
  gemm.a = problem.a, gemm.b = problem.b, gemm.c = problem.c;
  return bind("bmm", gemm, device);
}

template <class Problem>
std::vector<KernelEntry> library(Bound (*bind)(const Problem&, Device&), std::initializer_list<DType> dtypes) {
  std::vector<KernelEntry> all;
  for (const DType dtype : dtypes)
    all.push_back(entry(Kernel<Problem, Device>{
        "library", dtype, "", "cuBLASLt: its heuristic's proposals timed on the operands, the fastest measured again and taken",
        bind}));
  return all;
}

}  // namespace

std::vector<KernelEntry> matmul_kernels() {
  return library<ops::Matmul>(matmul, {DType::fp64, DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::int8});
}
std::vector<KernelEntry> bmm_kernels() {
  return library<ops::Bmm>(bmm, {DType::fp64, DType::fp32, DType::tf32, DType::fp16, DType::bf16});
}

}  // namespace roofline::cuda
