// ffn on a CPU. library: the libraries' matrix products (gemm.cpp) with a pass for the activation between them; every intermediate is
// written to the workspace and read back. tiled: our own products (tiled_gemm.cpp), which apply the activation to each part of their
// result while a cache holds it. In 16 bits the hidden activations are fp32, and out is rounded once.
#include "ops/ffn.h"

#include "cpu/device.h"
#include "cpu/floating.h"
#include "cpu/gemm.h"
#include "cpu/kernels.h"
#include "cpu/products.h"
#include "cpu/rows_kernels.h"
#include "cpu/share.h"
#include "cpu/tiled_gemm.h"

namespace roofline::cpu {
namespace {

using ops::Ffn;

// y = activation(x), of n numbers; swiglu: silu(gate) x.
void activate(const RowsKernels& table, Ffn::Activation activation, const void* gate, const void* x, void* y, std::int64_t n) {
  switch (activation) {
    case Ffn::Activation::relu: return table.relu[0](x, y, n);
    case Ffn::Activation::gelu: return table.gelu[0](x, y, n);
    case Ffn::Activation::gelu_tanh: return table.gelu_tanh[0](x, y, n);
    case Ffn::Activation::swiglu: return table.silu_mul[0](gate, x, y, n);
  }
}

Bound library(const Ffn& problem, Device& device) {
  const auto [isa, table] = choose<RowsTable>(ROOFLINE_TABLES(rows));
  const std::int64_t elements = problem.rows() * problem.d_ff;
  const std::int64_t line = 64 / size_bytes(problem.dtype);
  const Element element = element_of(problem.dtype, problem.op);
  // A step must find the same input however often it is launched alone, so only relu, which changes nothing twice, is in place.
  const bool in_place = problem.activation == Ffn::Activation::relu;
  const std::int64_t arrays = in_place ? 1 : problem.gated() ? 3 : 2;
  const std::int64_t stride = (elements + line - 1) / line * line;
  std::int64_t workspace_bytes = product({arrays, stride, size_bytes(problem.dtype)}, "ffn: workspace");
  const auto memory = workspace(device, static_cast<std::size_t>(workspace_bytes));
  const std::int64_t size = size_bytes(problem.dtype);
  char* const up = static_cast<char*>(memory.get());                        // [rows, d_ff]
  char* const activated = in_place ? up : up + stride * size;               // [rows, d_ff]
  char* const gate = problem.gated() ? up + 2 * stride * size : nullptr;  // [rows, d_ff]

  Bound bound;
  std::string implementation, library_implementation, instead_of;
  std::int64_t packed_bytes = 0;
  double pack_s = 0;
  const auto add = [&](const char* step, std::int64_t columns, std::int64_t inner, const void* a, const void* b, void* c) {
    Gemm gemm = plan_gemm({problem.dtype, problem.rows(), columns, inner, a, b, c, {}, problem.dtype}, device);
    bound.plan.set(std::string("split_") + step, gemm.split);
    const auto join = [](std::string& all, const std::string& one) {
      if (all.find(one) == std::string::npos) all += (all.empty() ? "" : ", ") + one;
    };
    join(implementation, gemm.implementation);
    join(library_implementation, gemm.library_implementation);
    join(instead_of, gemm.instead_of);
    packed_bytes += gemm.packed_bytes;
    pack_s += gemm.pack_s;
    workspace_bytes += gemm.workspace_bytes;
    bound.steps.push_back({step, [launch = std::move(gemm.launch), memory](Queue& queue) { launch(queue); }});
  };

  add("up", problem.d_ff, problem.d_model, problem.x, problem.w_up, up);
  if (problem.gated()) add("gate", problem.d_ff, problem.d_model, problem.x, problem.w_gate, gate);
  bound.steps.push_back({"activation", [=, memory = memory, table = table, activation = problem.activation](Queue& queue) {
    Pool& threads = pool(queue);
    threads.run([&](int worker) {
      const Range part = share(elements, worker, threads.threads(), line);
      const std::int64_t at = part.first * size;
      activate(table->of[element], activation, gate ? gate + at : nullptr, up + at, activated + at, part.size());
    });
  }});
  add("down", problem.d_model, problem.d_ff, activated, problem.w_down, problem.out);

  bound.plan.set("implementation", implementation);
  bound.plan.set("library_implementation", library_implementation);
  if (!instead_of.empty()) bound.plan.set("instead_of", instead_of);
  bound.plan.set("activation_implementation", name(isa));
  bound.plan.set("threads", device.threads());
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.plan.set("packed_bytes", Value(packed_bytes));
  bound.plan.set("pack_s", Value(pack_s));
  return bound;
}

Bound tiled(const Ffn& problem, Device& device) {
  const auto [isa, table] = choose<RowsTable>(ROOFLINE_TABLES(rows));
  const std::int64_t hidden_bytes = whole_pages(product({problem.rows(), problem.d_ff, 4}, "ffn: the hidden activations"));
  std::int64_t workspace_bytes = product({problem.gated() ? 2 : 1, hidden_bytes}, "ffn: workspace");
  const auto memory = workspace(device, static_cast<std::size_t>(workspace_bytes));
  float* const hidden = static_cast<float*>(memory.get());                      // [rows, d_ff]
  float* const gate = problem.gated() ? hidden + hidden_bytes / 4 : nullptr;  // [rows, d_ff]

  Bound bound;
  std::int64_t packed_bytes = 0;
  double pack_s = 0;
  std::string implementation, tile;
  const auto add = [&](const char* step, const TiledProblem& one) {
    TiledGemm gemm = plan_tiled(one, device);
    implementation = "tiled/" + name(gemm.isa);
    tile = gemm.tile;
    packed_bytes += gemm.packed_bytes;
    pack_s += gemm.pack_s;
    workspace_bytes += gemm.workspace_bytes;
    bound.steps.push_back({step, [launch = std::move(gemm.launch), memory](Queue& queue) { launch(queue); }});
  };
  const auto finish = [=, table = table, activation = problem.activation](std::int64_t at, std::int64_t n) {
    activate(table->of[kFp32], activation, gate ? gate + at : nullptr, hidden + at, hidden + at, n);
  };
  if (problem.gated()) add("gate", {problem.dtype, problem.rows(), problem.d_ff, problem.d_model, problem.x, problem.w_gate, gate});
  add("up", {problem.dtype, problem.rows(), problem.d_ff, problem.d_model, problem.x, problem.w_up, hidden, finish});
  add("down", {.dtype = problem.dtype, .rows = problem.rows(), .columns = problem.d_model, .inner = problem.d_ff, .a = hidden,
               .b = problem.w_down, .c = problem.out, .a_is_fp32 = true, .c_dtype = problem.dtype});

  bound.plan.set("implementation", implementation);
  bound.plan.set("activation_implementation", name(isa));
  bound.plan.set("tile", tile);
  bound.plan.set("threads", device.threads());
  bound.plan.set("workspace_bytes", Value(workspace_bytes));
  bound.plan.set("packed_bytes", Value(packed_bytes));
  bound.plan.set("pack_s", Value(pack_s));
  return bound;
}

}  // namespace

std::vector<KernelEntry> ffn_kernels() {
  using K = Kernel<Ffn, Device>;
  const auto own = [](DType dtype, const char* summary) { return entry(K{"tiled", dtype, "", summary, tiled}); };
  const auto with = [](DType dtype) {
    return entry(K{"library", dtype, library_needs(dtype),
                   "one library product per weight matrix; hidden activations in dtype, written to memory and read back", library});
  };
  return {with(DType::fp32), with(DType::bf16), with(DType::fp16),
          own(DType::fp32, "our own products on packed weights; the activation on each part of the first, while a cache holds it"),
          own(DType::bf16, "as fp32, with weights read in bf16; hidden activations in fp32, in bf16 where products take pairs; out rounded while "
                           "a cache holds it"),
          own(DType::fp16, "as fp32, with weights read in fp16; hidden activations in fp32, out rounded while a cache holds it")};
}

}  // namespace roofline::cpu
