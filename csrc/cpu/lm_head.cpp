// lm_head on a CPU: the products of matmul.
#include "ops/lm_head.h"

#include "cpu/kernels.h"
#include "cpu/products.h"

namespace roofline::cpu {
namespace {

void require_plain(const ops::LmHead& problem) {
  if (problem.weight_dtype != problem.dtype)
    throw Unsupported("lm_head: weight_dtype is " + name(problem.weight_dtype) + " and dtype " + name(problem.dtype) +
                      "; the CPU kernels take one dtype for both");
  if (problem.out_dtype != DType::fp32)
    throw Unsupported("lm_head: out_dtype is " + name(problem.out_dtype) + "; the CPU kernels make logits in fp32");
}

Bound library(const ops::LmHead& problem, Device& device) {
  require_plain(problem);
  return bind_library(problem.op,
                      {problem.dtype, problem.tokens, problem.vocabulary, problem.d_model, problem.x, problem.w, problem.logits},
                      device);
}

Bound tiled(const ops::LmHead& problem, Device& device) {
  require_plain(problem);
  return bind_tiled(problem.op,
                    {problem.dtype, problem.tokens, problem.vocabulary, problem.d_model, problem.x, problem.w,
                     static_cast<float*>(problem.logits)},
                    device);
}

}  // namespace

std::vector<KernelEntry> lm_head_kernels() {
  return joined({library_kernels({DType::fp32, DType::bf16, DType::fp16}, library), floating_kernels("tiled", tiled)});
}

}  // namespace roofline::cpu
