// The row-wise operators on a CPU: each thread takes one contiguous range of rows, which it computes row by row. With fewer
// rows than threads the others are idle.
#include "cpu/bypass.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/rows_kernels.h"
#include "cpu/share.h"
#include "ops/rows.h"

namespace roofline::cpu {
namespace {

Choice<RowsKernels> choose_rows() {
  return choose<RowsKernels>(ROOFLINE_TABLES(rows));
}

// Whether what each thread keeps of a row stays in cache from pass to pass: in its own L2, or in its share of an L3.
bool cached(const Device& device, std::int64_t bytes) {
  return bytes <= device.caches().l2_bytes || bytes <= device.caches().l3_bytes / device.threads();
}

void state(Plan& plan, const Device& device, const char* variant, Isa isa, bool non_temporal, std::int64_t items) {
  plan.set("implementation", std::string(variant) + "/" + name(isa));
  plan.set("stores", non_temporal ? "non_temporal" : "plain");
  plan.set("threads", static_cast<int>(std::min<std::int64_t>(items, device.threads())));  // with something to do
}

// One step that gives each worker its rows: work(x, y, rows, worker).
template <class Work>
Bound over_rows(const ops::Rows& problem, Work work) {
  Bound bound;
  bound.steps.push_back({"rows", [=](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      const Range rows = share(problem.rows, worker, threads.threads(), 1);
      const std::int64_t at = rows.first * problem.columns;
      work(static_cast<const float*>(problem.x) + at, static_cast<float*>(problem.y) + at, rows.size(), worker);
    });
  }});
  return bound;
}

Bound softmax(const ops::Softmax& problem, Device& device) {
  const auto [isa, table] = choose_rows();
  const std::int64_t row_bytes = problem.row_bytes();
  // Where y bypasses the caches, the exponentials of a row wait in a row of workspace instead; it has to stay in L2.
  const bool non_temporal =
      bypass(device, isa, problem.y, problem.rows, row_bytes) && 2 * row_bytes <= device.caches().l2_bytes;
  const std::int64_t stride = (problem.columns + 15) / 16 * 16;  // whole lines: no two threads share one
  const std::int64_t workspace_bytes = non_temporal ? device.threads() * stride * std::int64_t{sizeof(float)} : 0;
  const std::shared_ptr<void> scratch = non_temporal ? workspace(device, workspace_bytes) : nullptr;
  const auto run = table->softmax[non_temporal];
  Bound bound = over_rows(problem, [=, columns = problem.columns](const float* x, float* y, std::int64_t rows, int worker) {
    run(x, y, scratch ? static_cast<float*>(scratch.get()) + worker * stride : nullptr, rows, columns);
  });
  state(bound.plan, device, "fused", isa, non_temporal, problem.rows);
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.plan.set("row_cached", cached(device, 2 * row_bytes));
  return bound;
}

Bound rms_norm(const ops::RmsNorm& problem, Device& device) {
  const auto [isa, table] = choose_rows();
  const bool non_temporal = bypass(device, isa, problem.y, problem.rows, problem.row_bytes());
  const auto run = table->rms_norm[non_temporal];
  const auto weight = static_cast<const float*>(problem.weight);
  Bound bound = over_rows(problem, [=](const float* x, float* y, std::int64_t rows, int) {
    run(x, weight, y, rows, problem.columns, problem.eps);
  });
  state(bound.plan, device, "fused", isa, non_temporal, problem.rows);
  bound.plan.set("row_cached", cached(device, 2 * problem.row_bytes()));  // x and the weight
  return bound;
}

Bound layer_norm(const ops::LayerNorm& problem, Device& device, const char* variant,
                 const RowsKernels::LayerNorm (RowsKernels::*kernels)[2]) {
  const auto [isa, table] = choose_rows();
  const bool non_temporal = bypass(device, isa, problem.y, problem.rows, problem.row_bytes());
  const RowsKernels::LayerNorm run = (table->*kernels)[non_temporal];
  const auto weight = static_cast<const float*>(problem.weight);
  const auto bias = static_cast<const float*>(problem.bias);
  Bound bound = over_rows(problem, [=](const float* x, float* y, std::int64_t rows, int) {
    run(x, weight, bias, y, rows, problem.columns, problem.eps);
  });
  state(bound.plan, device, variant, isa, non_temporal, problem.rows);
  bound.plan.set("row_cached", cached(device, 3 * problem.row_bytes()));  // x, the weight and the bias
  return bound;
}

Bound two_pass(const ops::LayerNorm& problem, Device& device) {
  return layer_norm(problem, device, "two_pass", &RowsKernels::layer_norm_two_pass);
}

Bound one_pass(const ops::LayerNorm& problem, Device& device) {
  return layer_norm(problem, device, "one_pass", &RowsKernels::layer_norm_one_pass);
}

Bound relu(const ops::Relu& problem, Device& device) {
  const auto [isa, table] = choose_rows();
  constexpr std::int64_t kLine = kLineBytes / sizeof(float);
  const bool non_temporal = bypass(device, isa, problem.y, 1, problem.elements * std::int64_t{sizeof(float)});
  const auto run = table->relu[non_temporal];
  Bound bound;
  bound.steps.push_back({"elements", [=](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      const Range part = share(problem.elements, worker, threads.threads(), kLine);
      run(static_cast<const float*>(problem.x) + part.first, static_cast<float*>(problem.y) + part.first, part.size());
    });
  }});
  state(bound.plan, device, "fused", isa, non_temporal, (problem.elements + kLine - 1) / kLine);
  return bound;
}

Bound exponential(const ops::Exp& problem, Device& device) {
  const auto [isa, table] = choose_rows();
  constexpr std::int64_t kLine = kLineBytes / sizeof(float);
  Bound bound;
  bound.steps.push_back({"exp", [=, table = table](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      const Range part = share(problem.elements, worker, threads.threads(), kLine);
      for (std::int64_t pass = 0; pass < problem.passes; ++pass)
        table->exp(static_cast<const float*>(problem.x) + part.first, static_cast<float*>(problem.y) + part.first, part.size());
    });
  }});
  state(bound.plan, device, "vector", isa, false, (problem.elements + kLine - 1) / kLine);
  return bound;
}

Bound bias_relu(const ops::BiasRelu& problem, Device& device) {
  const auto [isa, table] = choose_rows();
  const bool non_temporal = bypass(device, isa, problem.y, problem.rows, problem.row_bytes());
  const auto run = table->bias_relu[non_temporal];
  const auto bias = static_cast<const float*>(problem.bias);
  Bound bound = over_rows(problem, [=](const float* x, float* y, std::int64_t rows, int) {
    run(x, bias, y, rows, problem.columns);
  });
  state(bound.plan, device, "fused", isa, non_temporal, problem.rows);
  bound.plan.set("row_cached", cached(device, problem.row_bytes()));  // the bias, from row to row
  return bound;
}

}  // namespace

std::vector<KernelEntry> softmax_kernels() {
  return {entry(Kernel<ops::Softmax, Device>{
      "fused", DType::fp32, "",
      "rows shared out over threads; a row is read from memory once and kept in cache for its maximum, its exponentials and their "
      "sum, and the quotients, which go to memory",
      softmax})};
}

std::vector<KernelEntry> rms_norm_kernels() {
  return {entry(Kernel<ops::RmsNorm, Device>{
      "fused", DType::fp32, "",
      "rows shared out over threads; a row is read from memory for its sum of squares and from cache for the result", rms_norm})};
}

std::vector<KernelEntry> layer_norm_kernels() {
  return {entry(Kernel<ops::LayerNorm, Device>{
              "two_pass", DType::fp32, "",
              "rows shared out over threads; a row is read from memory for its mean, from cache for its variance and the result",
              two_pass}),
          entry(Kernel<ops::LayerNorm, Device>{
              "one_pass", DType::fp32, "",
              "as two_pass, but mean and variance come from one pass: the variance is a difference, which loses digits where the "
              "row's first element is far from its mean",
              one_pass})};
}

std::vector<KernelEntry> relu_kernels() {
  return {entry(Kernel<ops::Relu, Device>{"fused", DType::fp32, "", "elements shared out over threads, read once and written once",
                                          relu})};
}

std::vector<KernelEntry> exp_kernels() {
  return {entry(Kernel<ops::Exp, Device>{"vector", DType::fp32, "", "elements shared out over threads, each read and written in every pass",
                                         exponential})};
}

std::vector<KernelEntry> bias_relu_kernels() {
  return {entry(Kernel<ops::BiasRelu, Device>{
      "fused", DType::fp32, "", "rows shared out over threads, read once and written once; the bias stays in cache", bias_relu})};
}

}  // namespace roofline::cpu
