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

// cuBLASLt's kernels for bytes read both operands along inner.
bool along_inner(DType dtype) { return dtype == DType::int8 || dtype == DType::fp8_e4m3; }

Bound bind_matmul(const ops::Matmul& problem, Device& device, bool fast_accumulation) {
  GemmProblem gemm{problem.dtype, ops::Matmul::result(problem.dtype)};
  gemm.rows = problem.rows, gemm.columns = problem.columns, gemm.inner = problem.inner;
  gemm.a = problem.a, gemm.b = problem.b, gemm.c = problem.c;
  gemm.fast_accumulation = fast_accumulation;
  if (!along_inner(problem.dtype)) return bind("matmul", gemm, device);
  // b is the same in every launch, so it is turned here.
  const std::int64_t packed_bytes = problem.inner * problem.columns;
  const std::shared_ptr<void> packed = workspace(device, packed_bytes);
  device.use();
  launch_transpose(device.stream(), problem.b, packed.get(), problem.dtype, 1, problem.inner, problem.columns);
  ROOFLINE_CUDA_LAUNCHED("transpose_kernel");
  gemm.b = packed.get();
  gemm.b_transposed = true;
  Bound bound = bind("matmul", gemm, device);
  bound.plan.set("packed_bytes", Value(packed_bytes));
  keep(bound, packed);
  return bound;
}

Bound matmul(const ops::Matmul& problem, Device& device) { return bind_matmul(problem, device, false); }
Bound matmul_fast(const ops::Matmul& problem, Device& device) { return bind_matmul(problem, device, true); }

// A step that writes `from` transposed to memory of its own. from: [matrices, rows, columns].
Step transposed(const void* from, const std::shared_ptr<void>& to, DType dtype, std::int64_t matrices, std::int64_t rows,
                std::int64_t columns, const char* name) {
  return {name, [=](Queue& queue) {
            launch_transpose(stream(queue), from, to.get(), dtype, matrices, rows, columns);
            ROOFLINE_CUDA_LAUNCHED("transpose_kernel");
          }};
}

Bound bmm(const ops::Bmm& problem, Device& device) {
  GemmProblem gemm{problem.dtype, problem.out_dtype};
  gemm.batch = problem.batch, gemm.rows = problem.rows, gemm.columns = problem.columns, gemm.inner = problem.inner;
  gemm.a = problem.a, gemm.b = problem.b, gemm.c = problem.c;
  gemm.scaling = static_cast<Scaling>(problem.scales);
  gemm.a_scale = problem.a_scale, gemm.b_scale = problem.b_scale;
  std::vector<Step> before;
  std::int64_t transposed_bytes = 0;
  const auto turn = [&](const char* name, const void* from, DType dtype, std::int64_t rows, std::int64_t columns) -> const void* {
    const std::int64_t bytes = product({problem.batch, rows, columns, size_bytes(dtype)}, "bmm: a transposed operand");
    const std::shared_ptr<void> to = workspace(device, bytes);
    transposed_bytes += bytes;
    before.push_back(transposed(from, to, dtype, problem.batch, rows, columns, name));
    return to.get();
  };
  // b may differ from launch to launch, so turning it is part of each.
  if (along_inner(problem.dtype)) {
    gemm.b = turn("transpose b", problem.b, problem.dtype, problem.inner, problem.columns);
    gemm.b_transposed = true;
  }
  if (problem.scales == ops::Bmm::Scales::block) {
    if (problem.scale_block != kScaleBlock)
      throw Unsupported("bmm: cuBLASLt takes fp32 scales of blocks of " + std::to_string(kScaleBlock) + ", got scale_block " +
                        std::to_string(problem.scale_block));
    gemm.a_scale = turn("transpose a_scale", problem.a_scale, DType::fp32, problem.rows, problem.scale_blocks());
  }
  for (const Step& step : before) step.launch(device);  // proposals are timed on what they will read
  Bound bound = bind("bmm", gemm, device);
  bound.plan.set("transposed_bytes", Value(transposed_bytes));
  bound.steps.insert(bound.steps.begin(), before.begin(), before.end());
  return bound;
}

template <class Problem>
std::vector<KernelEntry> library(Bound (*bind)(const Problem&, Device&), std::initializer_list<DType> dtypes) {
  std::vector<KernelEntry> all;
  for (const DType dtype : dtypes)
    all.push_back(entry(Kernel<Problem, Device>{
        "library", dtype, dtype == DType::fp8_e4m3 ? "sm_89" : "",
        "cuBLASLt: its heuristic's proposals timed on the operands, the fastest measured again and taken",
        bind}));
  return all;
}

}  // namespace

std::vector<KernelEntry> matmul_kernels() {
  std::vector<KernelEntry> all = library<ops::Matmul>(
      matmul, {DType::fp64, DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::int8, DType::fp8_e4m3});
  all.push_back(entry(Kernel<ops::Matmul, Device>{
      "fast_accumulation", DType::fp8_e4m3, "sm_89",
      "as library, with sums left to the tensor cores, which keep fewer bits than fp32 of them", matmul_fast}));
  return all;
}
std::vector<KernelEntry> bmm_kernels() {
  return library<ops::Bmm>(
      bmm, {DType::fp64, DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::int8, DType::fp8_e4m3});
}

}  // namespace roofline::cuda
