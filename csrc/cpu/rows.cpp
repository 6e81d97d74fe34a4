// The row-wise operators on a CPU: each thread takes one contiguous range of rows, which it computes row by row. With fewer
// rows than threads the others are idle.
#include <algorithm>
#include <memory>
#include <type_traits>

#include "cpu/bypass.h"
#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/kernels.h"
#include "cpu/rows_kernels.h"
#include "cpu/share.h"
#include "ops/rows.h"

namespace roofline::cpu {
namespace {

template <class Problem>
Choice<RowsKernels> choose_rows(const Problem& problem) {
  const Element element = element_of(problem.dtype, problem.op);
  // Its stores of bf16 make denormals 0: not where a result is an operand as it is.
  constexpr bool kMoves = std::is_same_v<Problem, ops::Relu> || std::is_same_v<Problem, ops::Convert>;
  if (ROOFLINE_HAVE_avx512_bf16 && element == kBf16 && !kMoves && has(Isa::avx512_bf16))
    return {Isa::avx512_bf16, &rows_avx512_bf16.of[kBf16]};
  const auto [isa, table] = choose<RowsTable>(ROOFLINE_TABLES(rows));
  return {isa, &table->of[element]};
}

// Whether what each thread keeps of a row stays in cache from pass to pass: in its own L2, or in its share of an L3.
bool cached(const Device& device, std::int64_t bytes) {
  return bytes <= device.caches().l2_bytes || bytes <= device.caches().l3_bytes / device.threads();
}

void state(Bound& bound, const Device& device, const char* variant, Isa isa, const void* y, bool non_temporal, std::int64_t items) {
  bound.plan.set("implementation", std::string(variant) + "/" + name(isa));
  state_stores(bound, y, non_temporal);
  bound.plan.set("threads", static_cast<int>(std::min<std::int64_t>(items, device.threads())));  // with something to do
}

// Rows, or elements, of one tensor that a worker takes: where they begin in bytes, and how many they are.
template <class T>
T* at(T* tensor, std::int64_t bytes) {
  return static_cast<T*>(static_cast<std::conditional_t<std::is_const_v<T>, const char*, char*>>(tensor) + bytes);
}

// One step that gives each worker its rows: work(bytes before them, rows, worker).
template <class Work>
Bound over_rows(const ops::Rows& problem, Work work) {
  Bound bound;
  bound.steps.push_back({"rows", [=, rows = problem.rows, row_bytes = problem.row_bytes()](Queue& queue) {
    pool(queue).share_out(rows, 1, [&](int worker, Range own) { work(own.first * row_bytes, own.size(), worker); });
  }});
  return bound;
}

// One step that gives each worker its elements, in whole cache lines of the narrower tensor: work(first, elements).
template <class Work>
Bound over_elements(std::int64_t elements, std::int64_t element_bytes, Work work) {
  Bound bound;
  bound.steps.push_back({"elements", [=](Queue& queue) {
    pool(queue).share_out(elements, kLineBytes / element_bytes, [&](int, Range own) { work(own.first, own.size()); });
  }});
  return bound;
}

Bound softmax(const ops::Softmax& problem, Device& device) {
  const auto [isa, kernels] = choose_rows(problem);
  // The exponentials wait in y where that is fp32, not x, and stays in cache, else in rows of workspace, which have to stay in L2.
  const std::int64_t row_bytes = kept_columns(problem.columns) * std::int64_t{sizeof(float)}, kept_bytes = problem.row_bytes() + row_bytes;
  const bool non_temporal = bypass(device, isa, problem.y, 1, problem.rows * problem.row_bytes()) && kept_bytes <= device.caches().l2_bytes;
  const bool apart = non_temporal || problem.dtype != DType::fp32 || problem.x == problem.y;
  const std::int64_t stride = whole_pages(softmax_together(problem.columns) * row_bytes);
  const std::int64_t workspace_bytes = apart ? device.threads() * stride : 0;
  const std::shared_ptr<void> scratch = apart ? workspace(device, workspace_bytes) : nullptr;
  const auto run = kernels->softmax[non_temporal];
  Bound bound = over_rows(problem, [=](std::int64_t bytes, std::int64_t rows, int worker) {
    run(at(problem.x, bytes), at(problem.y, bytes), scratch ? static_cast<float*>(at(scratch.get(), worker * stride)) : nullptr, rows,
        problem.columns);
  });
  state(bound, device, "fused", isa, problem.y, non_temporal, problem.rows);
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.plan.set("row_cached", cached(device, kept_bytes));
  bound.plan.set("x_read_twice", false);  // except rows whose first maximum makes their sum too large
  return bound;
}

// By the kernel of `pair` whose stores suit y: call(kernel, bytes before its rows, rows). `kept`: rows of operands that each row is to
// find in cache.
template <class Problem, class Run, class Call>
Bound norm(const Problem& problem, Device& device, const char* variant, Run (RowsKernels::*pair)[2], std::int64_t kept, Call call) {
  const auto [isa, kernels] = choose_rows(problem);
  const bool non_temporal = bypass(device, isa, problem.y, 1, problem.rows * problem.row_bytes());
  Bound bound = over_rows(problem, [=, run = (kernels->*pair)[non_temporal]](std::int64_t bytes, std::int64_t rows, int) {
    call(run, bytes, rows);
  });
  state(bound, device, variant, isa, problem.y, non_temporal, problem.rows);
  bound.plan.set("row_cached", cached(device, kept * problem.row_bytes()));
  return bound;
}

Bound rms_norm(const ops::RmsNorm& problem, Device& device) {
  return norm(problem, device, "fused", &RowsKernels::rms_norm, 2, [=](auto run, std::int64_t bytes, std::int64_t rows) {
    run(at(problem.x, bytes), problem.weight, at(problem.y, bytes), rows, problem.columns, problem.eps);
  });
}

Bound residual_rms_norm(const ops::ResidualRmsNorm& problem, Device& device) {
  return norm(problem, device, "fused", &RowsKernels::residual_rms_norm, 3, [=](auto run, std::int64_t bytes, std::int64_t rows) {
    run(at(problem.x, bytes), problem.weight, at(problem.residual, bytes), at(problem.y, bytes), rows, problem.columns, problem.eps);
  });
}

template <RowsKernels::LayerNorm (RowsKernels::*Pair)[2]>
Bound layer_norm(const ops::LayerNorm& problem, Device& device) {
  const char* const variant = Pair == &RowsKernels::layer_norm_two_pass ? "two_pass" : "one_pass";
  return norm(problem, device, variant, Pair, 3, [=](auto run, std::int64_t bytes, std::int64_t rows) {
    run(at(problem.x, bytes), problem.weight, problem.bias, at(problem.y, bytes), rows, problem.columns, problem.eps);
  });
}

Bound bias_relu(const ops::BiasRelu& problem, Device& device) {
  const auto [isa, kernels] = choose_rows(problem);
  const bool non_temporal = bypass(device, isa, problem.y, problem.rows, problem.row_bytes());
  const auto run = kernels->bias_relu[non_temporal];
  Bound bound = over_rows(problem, [=](std::int64_t bytes, std::int64_t rows, int) {
    run(at(problem.x, bytes), problem.bias, at(problem.y, bytes), rows, problem.columns);
  });
  state(bound, device, "fused", isa, problem.y, non_temporal, problem.rows);
  bound.plan.set("row_cached", cached(device, problem.row_bytes()));  // the bias, from row to row
  return bound;
}

// y = run(x, ...) element by element; x_bytes, y_bytes: of an element.
template <class Run>
Bound elementwise(Device& device, Isa isa, std::int64_t elements, const void* y, std::int64_t x_bytes, std::int64_t y_bytes, Run run) {
  const bool non_temporal = bypass(device, isa, y, 1, elements * y_bytes);
  const std::int64_t narrower = std::min(x_bytes, y_bytes);
  Bound bound = over_elements(elements, narrower, [=](std::int64_t first, std::int64_t n) { run(first * x_bytes, first * y_bytes, n, non_temporal); });
  const std::int64_t line = kLineBytes / narrower;
  state(bound, device, "fused", isa, y, non_temporal, (elements + line - 1) / line);
  return bound;
}

template <class Problem>
Bound one_operand(const Problem& problem, Device& device, Isa isa, const RowsKernels::Map (&pair)[2], std::int64_t y_bytes) {
  return elementwise(device, isa, problem.elements, problem.y, size_bytes(problem.dtype), y_bytes,
                     [=, plain = pair[0], streamed = pair[1]](std::int64_t x, std::int64_t y, std::int64_t n, bool non_temporal) {
                       (non_temporal ? streamed : plain)(at(problem.x, x), at(problem.y, y), n);
                     });
}

Bound relu(const ops::Relu& problem, Device& device) {
  const auto [isa, kernels] = choose_rows(problem);
  return one_operand(problem, device, isa, kernels->relu, size_bytes(problem.dtype));
}

Bound gelu(const ops::Gelu& problem, Device& device) {
  const auto [isa, kernels] = choose_rows(problem);
  return one_operand(problem, device, isa, problem.tanh ? kernels->gelu_tanh : kernels->gelu, size_bytes(problem.dtype));
}

int converted(DType dtype) {
  switch (dtype) {
    case DType::int8: return RowsKernels::kInt8;
    case DType::fp8_e4m3: return RowsKernels::kFp8E4m3;
    case DType::fp8_e5m2: return RowsKernels::kFp8E5m2;
    case DType::fp32:
    case DType::bf16:
    case DType::fp16: return element_of(dtype, ops::Convert::op);
    default: throw Unsupported("convert: the CPU kernels make fp32, bf16, fp16, int8, fp8_e4m3 and fp8_e5m2, not " + name(dtype));
  }
}

Bound convert(const ops::Convert& problem, Device& device) {
  const auto [isa, kernels] = choose_rows(problem);
  return one_operand(problem, device, isa, kernels->convert[converted(problem.out_dtype)], size_bytes(problem.out_dtype));
}

Bound silu_mul(const ops::SiluMul& problem, Device& device) {
  const auto [isa, kernels] = choose_rows(problem);
  const std::int64_t bytes = size_bytes(problem.dtype);
  return elementwise(device, isa, problem.elements(), problem.y, bytes, bytes,
                     [=, kernels = kernels](std::int64_t first, std::int64_t, std::int64_t n, bool non_temporal) {
                       kernels->silu_mul[non_temporal](at(problem.gate, first), at(problem.up, first), at(problem.y, first), n);
                     });
}

Bound exponential(const ops::Exp& problem, Device& device) {
  const auto [isa, table] = choose<RowsTable>(ROOFLINE_TABLES(rows));
  constexpr std::int64_t kLine = kLineBytes / sizeof(float);
  Bound bound = over_elements(problem.elements, sizeof(float), [=, exp = table->exp](std::int64_t first, std::int64_t n) {
    for (std::int64_t pass = 0; pass < problem.passes; ++pass)
      exp(static_cast<const float*>(problem.x) + first, static_cast<float*>(problem.y) + first, n);
  });
  state(bound, device, "vector", isa, problem.y, false, (problem.elements + kLine - 1) / kLine);
  return bound;
}

}  // namespace

std::vector<KernelEntry> softmax_kernels() { return floating_kernels("fused", softmax); }

std::vector<KernelEntry> rms_norm_kernels() { return floating_kernels("fused", rms_norm); }

std::vector<KernelEntry> residual_rms_norm_kernels() { return floating_kernels("fused", residual_rms_norm); }

std::vector<KernelEntry> layer_norm_kernels() {
  return joined({floating_kernels("two_pass", layer_norm<&RowsKernels::layer_norm_two_pass>),
                 floating_kernels("one_pass", layer_norm<&RowsKernels::layer_norm_one_pass>)});
}

std::vector<KernelEntry> bias_relu_kernels() { return floating_kernels("fused", bias_relu); }

std::vector<KernelEntry> relu_kernels() { return floating_kernels("fused", relu); }
std::vector<KernelEntry> gelu_kernels() { return floating_kernels("fused", gelu); }
std::vector<KernelEntry> silu_mul_kernels() { return floating_kernels("fused", silu_mul); }
std::vector<KernelEntry> convert_kernels() { return floating_kernels("fused", convert); }

std::vector<KernelEntry> exp_kernels() { return {entry("vector", DType::fp32, "", exponential)}; }

}  // namespace roofline::cpu
