// ffn on a CPU. library: the libraries' matrix products (gemm.cpp) with a pass for the activation between them; every intermediate
// is written to the workspace and read back. tiled: our own products (tiled_gemm.cpp), which apply the activation to each part of
// their result while a cache holds it. In 16 bits the hidden activations are fp32, and out is rounded once. In int8 products are in
// int32: up meets its scales, the activation and the rounding to int8 in one pass over its sums, and those of out become fp32 where
// they lie.
#include "ops/ffn.h"

#include <algorithm>

#include "cpu/device.h"
#include "cpu/ffn_kernels.h"
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

// What a column of sums in int8 is times: the scales of both operands.
std::vector<float> scales(const float* of_row, const float* of_columns, std::int64_t n) {
  std::vector<float> all(static_cast<std::size_t>(of_columns ? n : 0));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = *of_row * of_columns[i];
  return all;
}

// Sums of up, and of the gate [rows, d_ff] where there is one, become hidden activations in int8.
Take quantize(const Ffn& problem, const float* gate, void* hidden) {
  const auto [isa, table] = choose<FfnKernels>(ROOFLINE_TABLES(ffn));
  return [gate, hidden, d_ff = problem.d_ff, run = table->quantize[static_cast<int>(problem.activation)],
          up_scale = scales(problem.x_scale, problem.w_up_scale, problem.d_ff),
          gate_scale = scales(problem.x_scale, problem.w_gate_scale, problem.d_ff),
          times = 1 / *problem.hidden_scale](float* sums, std::int64_t at, std::int64_t n) {
    const std::int64_t column = at % d_ff;
    run(sums, up_scale.data() + column, gate ? gate + at : nullptr, gate ? gate_scale.data() + column : nullptr, times,
        static_cast<std::int8_t*>(hidden) + at, n);
  };
}

// Sums of down become out; nothing of other dtypes.
Finish scale(const Ffn& problem) {
  if (!problem.quantized()) return {};
  const auto [isa, table] = choose<FfnKernels>(ROOFLINE_TABLES(ffn));
  return [run = table->scale, out = static_cast<float*>(problem.out), d_model = problem.d_model,
          scales = scales(problem.hidden_scale, problem.w_down_scale, problem.d_model)](std::int64_t at, std::int64_t n) {
    run(out + at, scales.data() + at % d_model, n);
  };
}

Bound library(const Ffn& problem, Device& device) {
  const auto [isa, table] = choose<RowsTable>(ROOFLINE_TABLES(rows));
  const std::int64_t elements = problem.rows() * problem.d_ff;
  const bool quantized = problem.quantized();
  const std::int64_t size = quantized ? 4 : size_bytes(problem.dtype), line = 64 / size;  // of up and gate
  const Element element = quantized ? kFp32 : element_of(problem.dtype, problem.op);
  // A step must find the same input however often it is launched alone, so only relu, which changes nothing twice, is in place.
  const bool in_place = problem.activation == Ffn::Activation::relu && !quantized;
  const std::int64_t arrays = in_place ? 1 : problem.gated() ? 3 : 2;
  const std::int64_t stride = (elements + line - 1) / line * line;
  std::int64_t workspace_bytes = product({arrays, stride, size}, "ffn: workspace");
  const auto memory = workspace(device, static_cast<std::size_t>(workspace_bytes));
  char* const up = static_cast<char*>(memory.get());                        // [rows, d_ff]
  char* const activated = in_place ? up : up + stride * size;               // [rows, d_ff]
  char* const gate = problem.gated() ? up + 2 * stride * size : nullptr;  // [rows, d_ff]

  Bound bound;
  std::string implementation, library_implementation, instead_of;
  std::int64_t packed_bytes = 0;
  double pack_s = 0;
  const auto add = [&](const char* step, std::int64_t columns, std::int64_t inner, const void* a, const void* b, void* c,
                       Finish finish = {}) {
    Gemm gemm = plan_gemm({problem.dtype, problem.rows(), columns, inner, a, b, c, std::move(finish), problem.dtype}, device);
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
  const Take take = quantized ? quantize(problem, reinterpret_cast<const float*>(gate), activated) : Take();
  const auto activation = problem.activation;
  bound.steps.push_back({"activation", [=, memory = memory, table = table, d_ff = problem.d_ff](Queue& queue) {
    pool(queue).share_out(elements, line, [&](int, Range part) {
      if (!take) {
        const std::int64_t at = part.first * size;
        return activate(table->of[element], activation, gate ? gate + at : nullptr, up + at, activated + at, part.size());
      }
      for (std::int64_t at = part.first, end; at < part.last; at = end) {  // in rows
        end = std::min(part.last, (at / d_ff + 1) * d_ff);
        take(reinterpret_cast<float*>(up) + at, at, end - at);
      }
    });
  }});
  add("down", problem.d_model, problem.d_ff, activated, problem.w_down, problem.out, scale(problem));

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
  const bool quantized = problem.quantized();
  // Hidden activations as down reads them: bf16 where its products take pairs.
  const GemmKernels& products = *choose_gemm(stored(problem.dtype, "ffn")).table;
  const bool narrow = problem.dtype == DType::bf16 && products.numbers[index(Stored::bf16)] > 1;
  const std::int64_t hidden_size = quantized ? 1 : narrow ? 2 : 4;
  const std::int64_t hidden_bytes =
      whole_pages(product({problem.rows(), problem.d_ff, hidden_size}, "ffn: the hidden activations"));
  const std::int64_t gate_bytes = problem.gated() ? whole_pages(product({problem.rows(), problem.d_ff, 4}, "ffn: the gate")) : 0;
  std::int64_t workspace_bytes = hidden_bytes + gate_bytes;
  const auto memory = workspace(device, static_cast<std::size_t>(workspace_bytes));
  auto* const hidden = static_cast<char*>(memory.get());                                              // [rows, d_ff]
  auto* const gate = problem.gated() ? reinterpret_cast<float*>(hidden + hidden_bytes) : nullptr;  // [rows, d_ff]

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
  TiledProblem up{problem.dtype, problem.rows(), problem.d_ff, problem.d_model, problem.x, problem.w_up, hidden};
  TiledProblem down{problem.dtype, problem.rows(), problem.d_model, problem.d_ff, hidden, problem.w_down, problem.out};
  if (quantized) {
    up.take = quantize(problem, gate, hidden);
    down.finish = scale(problem);
  } else {
    const auto run = choose<FfnKernels>(ROOFLINE_TABLES(ffn)).table->activate[static_cast<int>(problem.activation)];
    up.take = [=, table = table, activation = problem.activation](float* sums, std::int64_t at, std::int64_t n) {
      const float* const of_gate = gate ? gate + at : nullptr;
      void* const to = hidden + at * hidden_size;
      narrow ? run(sums, of_gate, to, n) : activate(table->of[kFp32], activation, of_gate, sums, to, n);
    };
    down.a_is_fp32 = !narrow;
    down.c_dtype = problem.dtype;
  }
  if (problem.gated()) add("gate", {problem.dtype, problem.rows(), problem.d_ff, problem.d_model, problem.x, problem.w_gate, gate});
  add("up", up);
  add("down", down);

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
  const auto dtypes = {DType::fp32, DType::bf16, DType::fp16, DType::int8};
  return joined({library_kernels(dtypes, library), kernels_of(dtypes, "tiled", "", tiled)});
}

}  // namespace roofline::cpu
