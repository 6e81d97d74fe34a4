// Matrix products by cuBLASLt, as the operators ask for them: row-major, batched, with an activation behind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/kernel.h"
#include "cuda/device.h"

namespace roofline::cuda {

enum class Activation : std::uint8_t { none, relu, gelu_tanh };

// Scales of fp8 and nvfp4 operands, laid out as cuBLASLt reads them. tensor: one number for all of a, one for all of b; row: one
// for each row of a and each column of b; blocks_of_128: one for every 128 numbers along inner of these; squares: the same of a,
// and one for every 128 x 128 of b; all in fp32. blocks_of_32 of fp8 in E8M0, blocks_of_16 of nvfp4 in E4M3, both in tiles.
enum class Scaling : std::uint8_t { none, tensor, row, blocks_of_128, squares, blocks_of_32, blocks_of_16 };

// c[i] = activation(alpha a[i] b[i]).
struct GemmProblem {
  DType dtype;      // of a and b
  DType out_dtype;  // of c
  std::int64_t batch = 1, rows = 0, columns = 0, inner = 0;
  const void* a = nullptr;  // [batch, rows, inner]
  const void* b = nullptr;  // [batch, inner, columns]; [batch, columns, inner] where b_transposed
  void* c = nullptr;        // [batch, rows, columns]; overwritten when the plan is made
  bool b_transposed = false;
  double alpha = 1;
  Activation activation = Activation::none;
  Scaling scaling = Scaling::none;
  const void* a_scale = nullptr;   // [1], [rows], [inner / 128, rows], or tiles (scale_layout.h)
  const void* b_scale = nullptr;   // [1], [columns], [inner / 128, columns], [columns / 128, square_scale_pitch(...)], or tiles
  const void* alpha_beta = nullptr;  // in the device's memory: alpha times this, and 0, in fp32; where given, `alpha` is 1
  bool fast_accumulation = false;  // of fp8: sums are not carried over into fp32 now and then
  // kScratchBytes that products on one stream share. They are the heuristic's first proposal, run once and not timed when the plan
  // is made; without, a product has scratch of its own, and is the fastest proposal, as timed on the operands.
  std::shared_ptr<void> scratch = nullptr;
};

// What NVIDIA recommends for Hopper; smaller GPUs take less of it.
constexpr std::int64_t kScratchBytes = std::int64_t{32} << 20;

struct Gemm {
  Launch launch;                       // owns its workspace
  std::string library_implementation;  // "cuBLASLt 13.1.1 algorithm 66 tile 20 stages 11 split_k 1"
  std::int64_t workspace_bytes = 0;  // of its own
  int alignment_bytes = 0;           // of the least aligned operand, up to 256
  std::int64_t entries = 1;          // of a queue: where inner is split, memory may be zeroed before, and parts are added up after
  int candidates = 0;                // that the heuristic proposed and, where they are timed, that ran
  double first_s = 0;                // of the heuristic's first, as timed here; 0 where nothing was timed
  double chosen_s = 0;               // of the one taken, measured again
};

// Throws Unsupported where the library is not there or has no kernel for this, OutOfMemory, Error.
Gemm plan_gemm(const GemmProblem& problem, Device& device);

// Adds the product as a step, which lasts as long as its scratch.
void add_product(Bound& bound, const char* step, const std::string& prefix, const GemmProblem& problem, Device& device);

// The facts of a product, under `prefix` where a plan has several ("up_").
void record(Plan& plan, const std::string& prefix, const Gemm& gemm);

}  // namespace roofline::cuda
