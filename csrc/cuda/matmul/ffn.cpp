// ffn on a GPU: cuBLASLt's products with a pass for the activation.
//
// library: one product per weight matrix, the activation a pass of its own; every intermediate goes to memory and back.
// fused:   relu and gelu_tanh are applied by the product that makes up, as its epilogue. For swiglu, w_up and w_gate lie side by
//          side in one matrix, made when the kernel is bound: one product reads x once, and one pass reads both its halves.
#include "ops/ffn.h"

#include <cuda_runtime_api.h>

#include "cuda/check.h"
#include "cuda/kernels.h"
#include "cuda/matmul/gemm.h"
#include "cuda/rows/elementwise.h"

namespace roofline::cuda {
namespace {

using ops::Ffn;

// Collects the steps. Products share their scratch, since they run one after the other.
class Steps {
 public:
  Steps(const Ffn& problem, const char* variant, Device& device)
      : problem_(problem), bound_(planned(variant, device)), memory_{device, "ffn: workspace"},
        scratch_(memory_.take({kScratchBytes})) {}

  std::shared_ptr<void> own(std::shared_ptr<void> other) { return memory_.kept.emplace_back(std::move(other)); }
  void* hidden(std::int64_t matrices = 1) {
    return memory_.take({matrices, problem_.rows(), problem_.d_ff, size_bytes(problem_.dtype)}).get();
  }

  void multiply(const char* step, const std::string& prefix, std::int64_t columns, std::int64_t inner, const void* a, const void* b,
                void* c, Activation activation = Activation::none) {
    GemmProblem gemm{problem_.dtype, problem_.dtype};
    gemm.rows = problem_.rows(), gemm.columns = columns, gemm.inner = inner;
    gemm.a = a, gemm.b = b, gemm.c = c, gemm.activation = activation, gemm.scratch = scratch_;
    add_product(bound_, step, prefix, gemm, memory_.device);
  }

  void pass(Bound elements) { append(bound_, "activation", std::move(elements)); }

  Bound finish(std::int64_t packed_bytes = 0) {
    bound_.plan.set("workspace_bytes", Value(memory_.size_bytes));
    bound_.plan.set("packed_bytes", Value(packed_bytes));
    keep(bound_, memory_.kept);
    return std::move(bound_);
  }

 private:
  const Ffn& problem_;
  Bound bound_;
  Workspaces memory_;  // that lives as long as the steps
  std::shared_ptr<void> scratch_;
};

Bound library(const Ffn& problem, Device& device) {
  Steps steps(problem, "library", device);
  void* const up = steps.hidden();
  // A step must find the same input however often it is launched alone, so only relu, which changes nothing twice, is in place.
  void* const activated = problem.activation == Ffn::Activation::relu ? up : steps.hidden();
  steps.multiply("up", "up_", problem.d_ff, problem.d_model, problem.x, problem.w_up, up);
  void* const gate = problem.gated() ? steps.hidden() : nullptr;
  if (gate) steps.multiply("gate", "gate_", problem.d_ff, problem.d_model, problem.x, problem.w_gate, gate);
  steps.pass(bind_activation(problem.activation, problem.activation == Ffn::Activation::gelu_tanh, problem.dtype, problem.rows(),
                             problem.d_ff, gate, up, activated, device));
  steps.multiply("down", "down_", problem.d_model, problem.d_ff, activated, problem.w_down, problem.out);
  return steps.finish();
}

// w_up and w_gate side by side: [d_model, 2 d_ff].
std::shared_ptr<void> side_by_side(const Ffn& problem, Device& device, std::int64_t bytes) {
  const std::shared_ptr<void> packed = workspace(device, bytes);
  device.use();
  const std::size_t row = static_cast<std::size_t>(problem.d_ff * size_bytes(problem.dtype));
  char* const to = static_cast<char*>(packed.get());
  const auto copy = [&](char* half, const void* weights) {
    ROOFLINE_CUDA(cudaMemcpy2DAsync(half, 2 * row, weights, row, row, static_cast<std::size_t>(problem.d_model),
                                    cudaMemcpyDeviceToDevice, device.stream()));
  };
  copy(to, problem.w_up);
  copy(to + row, problem.w_gate);
  return packed;
}

Bound fused(const Ffn& problem, Device& device) {
  if (problem.activation == Ffn::Activation::gelu)
    throw Unsupported("ffn: cuBLASLt applies gelu by tanh, not the exact one; use activation gelu_tanh, or variant library");
  Steps steps(problem, "fused", device);
  void* const activated = steps.hidden();
  std::int64_t packed_bytes = 0;
  if (problem.gated()) {
    packed_bytes = product({2, problem.d_model, problem.d_ff, size_bytes(problem.dtype)}, "ffn: w_up and w_gate");
    const std::shared_ptr<void> packed = steps.own(side_by_side(problem, device, packed_bytes));
    char* const both = static_cast<char*>(steps.hidden(2));  // [rows, 2 d_ff]
    steps.multiply("up and gate", "up_gate_", 2 * problem.d_ff, problem.d_model, problem.x, packed.get(), both);
    const void* const gate = both + problem.d_ff * size_bytes(problem.dtype);
    steps.pass(bind_silu_mul({problem.dtype, problem.rows(), problem.d_ff, gate, both, activated}, 2 * problem.d_ff, device));
  } else {
    const bool relu = problem.activation == Ffn::Activation::relu;
    steps.multiply("up", "up_", problem.d_ff, problem.d_model, problem.x, problem.w_up, activated,
                   relu ? Activation::relu : Activation::gelu_tanh);
  }
  steps.multiply("down", "down_", problem.d_model, problem.d_ff, activated, problem.w_down, problem.out);
  return steps.finish(packed_bytes);
}

}  // namespace

std::vector<KernelEntry> ffn_kernels() { return joined({floating_kernels("library", library), floating_kernels("fused", fused)}); }

}  // namespace roofline::cuda
