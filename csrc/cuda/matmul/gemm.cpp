#include "cuda/matmul/gemm.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/check.h"
#include "cuda/libraries/cublas_lt.h"

namespace roofline::cuda {
namespace {

// Proposals of the heuristic to time: with eight the best is within about 1 % of an exhaustive search on large shapes.
constexpr int kCandidates = 8;
constexpr int kTimedLaunches = 3;
constexpr int kFinalists = 2;

#define ROOFLINE_LT(library, call) ::roofline::cuda::check(library, library.call, #call)

struct Types {
  lt::Type operand, result, scale;
  lt::Compute compute;
};

Types types_of(DType dtype, DType out) {
  const auto unsupported = [&] {
    return Unsupported("cuBLASLt has no product of " + name(dtype) + " with a result in " + name(out));
  };
  const auto floating = [&](lt::Type operand, lt::Compute compute = lt::compute_32f) -> Types {
    if (out == DType::fp32) return {operand, lt::r_32f, lt::r_32f, compute};
    if (out == dtype) return {operand, operand, lt::r_32f, compute};
    throw unsupported();
  };
  switch (dtype) {
    case DType::fp64:
      if (out == DType::fp64) return {lt::r_64f, lt::r_64f, lt::r_64f, lt::compute_64f};
      break;
    case DType::fp32:
      return floating(lt::r_32f);
    case DType::tf32:
      return floating(lt::r_32f, lt::compute_32f_fast_tf32);
    case DType::fp16:
      return floating(lt::r_16f);
    case DType::bf16:
      return floating(lt::r_16bf);
    case DType::int8:
      if (out == DType::int32) return {lt::r_8i, lt::r_32i, lt::r_32i, lt::compute_32i};
      break;
    case DType::fp8_e4m3:
    case DType::nvfp4: {
      const lt::Type operand = dtype == DType::nvfp4 ? lt::r_4f_e2m1 : lt::r_8f_e4m3;
      if (out == DType::fp32) return {operand, lt::r_32f, lt::r_32f, lt::compute_32f};
      if (out == DType::fp16) return {operand, lt::r_16f, lt::r_32f, lt::compute_32f};
      if (out == DType::bf16) return {operand, lt::r_16bf, lt::r_32f, lt::compute_32f};
      break;
    }
    default: break;
  }
  throw unsupported();
}

// Handles are of a context; the library keeps one for each GPU for as long as the process lives.
lt::Handle handle_of(const CublasLt& library, const Device& device) {
  static std::mutex mutex;
  static std::vector<std::pair<std::pair<const CublasLt*, std::string>, lt::Handle>> all;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [of, handle] : all)
    if (of.first == &library && of.second == device.name()) return handle;
  device.use();
  lt::Handle handle = nullptr;
  ROOFLINE_LT(library, create(&handle));
  all.push_back({{&library, device.name()}, handle});
  return handle;
}

// The largest power of two up to 256 that divides an address.
std::uint32_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t bytes = 256;
  while (address % bytes != 0) bytes /= 2;
  return bytes;
}

union Scalar {
  float f;
  double d;
  std::int32_t i;
};

Scalar scalar(lt::Type type, double value) {
  Scalar s{};
  if (type == lt::r_64f)
    s.d = value;
  else if (type == lt::r_32i)
    s.i = static_cast<std::int32_t>(value);
  else
    s.f = static_cast<float>(value);
  return s;
}

// What one bound product keeps alive.
struct LtPlan {
  explicit LtPlan(const CublasLt& lib)
      : library(&lib), description(lib.description_destroy), a(lib.layout_destroy), b(lib.layout_destroy), c(lib.layout_destroy) {}

  const CublasLt* library;
  lt::Handle handle = nullptr;
  Owned<lt::Description> description;
  Owned<lt::Layout> a, b, c;  // of our a, b, c
  Scalar alpha{}, beta{};
  GemmProblem problem{};
  lt::Algo algo{};
  std::shared_ptr<void> workspace;
  std::size_t workspace_bytes = 0;

  // Column-major, the library computes cᵀ = bᵀ aᵀ on the same memory: its first operand is our b.
  lt::Status run(const lt::Algo& which, void* scratch, std::size_t scratch_bytes, CUstream_st* stream) const {
    const auto* const factors = static_cast<const float*>(problem.alpha_beta);
    const void *const one = factors ? factors : static_cast<const void*>(&alpha),
               *const other = factors ? factors + 1 : static_cast<const void*>(&beta);
    return library->matmul(handle, description.get(), one, problem.b, b.get(), problem.a, a.get(), other, problem.c, c.get(),
                           problem.c, c.get(), &which, scratch, scratch_bytes, stream);
  }
};

// A row-major [rows, columns] in memory is the library's column-major columns x rows with the same leading dimension.
void set_layout(const CublasLt& library, Owned<lt::Layout>& layout, lt::Type type, std::int64_t rows, std::int64_t columns,
                std::int64_t batch) {
  ROOFLINE_LT(library,
              layout_create(layout.out(), type, static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), columns));
  if (batch == 1) return;
  const std::int32_t count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = rows * columns;
  ROOFLINE_LT(library, layout_set(layout.get(), lt::layout_batch_count, &count, sizeof count));
  ROOFLINE_LT(library, layout_set(layout.get(), lt::layout_batch_stride, &stride, sizeof stride));
}

// Seconds of one launch of a candidate, the shortest of a few: enough to tell candidates apart. Infinite where it fails.
double time_of(const LtPlan& plan, const lt::Heuristic& candidate, void* scratch, Device& device, int launches) {
  cudaEvent_t events[2] = {};
  struct Destroy {
    cudaEvent_t* events;
    ~Destroy() {
      for (int i = 0; i < 2; ++i)
        if (events[i]) ROOFLINE_CUDA_NOEXCEPT(cudaEventDestroy(events[i]));
    }
  } destroy{events};
  for (cudaEvent_t& each : events) ROOFLINE_CUDA(cudaEventCreate(&each));
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= launches; ++i) {  // the first one loads the kernel
    ROOFLINE_CUDA(cudaEventRecord(events[0], device.stream()));
    if (plan.run(candidate.algo, scratch, candidate.workspace_bytes, device.stream()) != lt::success) return best;
    ROOFLINE_CUDA(cudaEventRecord(events[1], device.stream()));
    ROOFLINE_CUDA(cudaEventSynchronize(events[1]));
    float milliseconds = 0;
    ROOFLINE_CUDA(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
    if (i > 0) best = std::min(best, 1e-3 * static_cast<double>(milliseconds));
  }
  return best;
}

std::int32_t config(const CublasLt& library, const lt::Algo& algo, lt::AlgoAttribute attribute, std::int32_t unknown) {
  std::int32_t value = 0;
  std::size_t written = 0;
  return library.algo_get(&algo, attribute, &value, sizeof value, &written) == lt::success ? value : unknown;
}

std::string describe(const CublasLt& library, const lt::Algo& algo) {
  std::string text = "cuBLASLt " + library.version;
  const std::pair<lt::AlgoAttribute, const char*> facts[] = {
      {lt::algo_id, " algorithm "}, {lt::algo_tile_id, " tile "}, {lt::algo_stages_id, " stages "}, {lt::algo_splitk, " split_k "}};
  for (const auto& [attribute, word] : facts)
    if (const std::int32_t value = config(library, algo, attribute, -1); value >= 0) text += word + std::to_string(value);
  return text;
}

// What cuBLASLt asks of products of fp8 and nvfp4 on every GPU that has them.
void check_low_precision(const GemmProblem& problem, const Device& device) {
  const int capability = device.properties().capability;
  const std::string here = ", and this GPU is " + device.properties().architecture();
  const bool fp4 = problem.dtype == DType::nvfp4;
  const int least = fp4 ? 100 : 89;
  if (capability < least)
    throw Unsupported(name(problem.dtype) + " products need sm_" + std::to_string(least) + " or newer" + here);
  if (!problem.b_transposed)
    throw Error("plan_gemm: " + name(problem.dtype) + " kernels read both operands along inner; hand b over transposed");
  const std::int64_t whole = fp4 ? 32 : 16;  // of inner: 16 bytes
  if (problem.inner % whole != 0 || problem.columns % 16 != 0)
    throw Unsupported("cuBLASLt's " + name(problem.dtype) + " kernels take inner in multiples of " + std::to_string(whole) +
                      " and columns of 16, got inner " + std::to_string(problem.inner) + " and columns " +
                      std::to_string(problem.columns));
  if (fp4 != (problem.scaling == Scaling::blocks_of_16))
    throw Unsupported("cuBLASLt takes nvfp4 with scales of blocks of 16 in fp8_e4m3 and no other dtype with these: scales block or "
                      "two_level, scale_block 16, scale_bits 8");
  if (problem.scaling == Scaling::none || problem.scaling == Scaling::tensor) return;
  if (problem.batch > 1)
    throw Unsupported("cuBLASLt does not say where the scales of rows and of blocks lie in a batch; use batch 1, got " +
                      std::to_string(problem.batch));
  if (fp4) return;
  if (problem.scaling == Scaling::blocks_of_32 && capability < 100)
    throw Unsupported("cuBLASLt takes scales of blocks of 32 on sm_100 and newer" + here +
                      "; use blocks of 128 in fp32, or scales of tensors");
  if (problem.scaling != Scaling::blocks_of_32 && capability != 90)
    throw Unsupported("cuBLASLt takes fp32 scales of rows and of blocks on sm_90 only" + here +
                      "; use blocks of 32 in 8 bits, or scales of tensors");
}

void set_scales(const CublasLt& library, const LtPlan& plan) {
  const GemmProblem& problem = plan.problem;
  if (problem.alpha_beta) {
    const std::int32_t mode = lt::pointers_to_device;
    ROOFLINE_LT(library, description_set(plan.description.get(), lt::desc_pointer_mode, &mode, sizeof mode));
  }
  const auto [of_a, of_b] = [&]() -> std::pair<lt::ScaleMode, lt::ScaleMode> {
    switch (problem.scaling) {
      case Scaling::row: return {lt::scale_outer_vec_32f, lt::scale_outer_vec_32f};
      case Scaling::blocks_of_128: return {lt::scale_vec128_32f, lt::scale_vec128_32f};
      case Scaling::squares: return {lt::scale_vec128_32f, lt::scale_blk128x128_32f};
      case Scaling::blocks_of_32: return {lt::scale_vec32_ue8m0, lt::scale_vec32_ue8m0};
      case Scaling::blocks_of_16: return {lt::scale_vec16_ue4m3, lt::scale_vec16_ue4m3};
      default: return {lt::scale_scalar_32f, lt::scale_scalar_32f};
    }
  }();
  if (problem.scaling == Scaling::none) return;
  const auto set = [&](lt::DescriptionAttribute pointer, lt::DescriptionAttribute how, const void* scale, std::int32_t mode) {
    ROOFLINE_LT(library, description_set(plan.description.get(), pointer, &scale, sizeof scale));
    if (mode != lt::scale_scalar_32f) ROOFLINE_LT(library, description_set(plan.description.get(), how, &mode, sizeof mode));
  };
  // The library's first operand is our b.
  set(lt::desc_a_scale_pointer, lt::desc_a_scale_mode, problem.b_scale, of_b);
  set(lt::desc_b_scale_pointer, lt::desc_b_scale_mode, problem.a_scale, of_a);
}

// Times the candidates on the real operands, the fastest few once more, so that luck in the first timing does not choose. Returns
// the one to take; scratch is enough for any of them.
std::size_t fastest(const LtPlan& plan, const std::vector<lt::Heuristic>& candidates, void* scratch, Device& device,
                    const std::string& what, Gemm& gemm) {
  struct Timed {
    double seconds;
    std::size_t index;
  };
  std::vector<Timed> timed;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    timed.push_back({time_of(plan, candidates[i], scratch, device, kTimedLaunches), i});
  gemm.first_s = timed[0].seconds;
  std::stable_sort(timed.begin(), timed.end(), [](const Timed& x, const Timed& y) { return x.seconds < y.seconds; });
  while (!timed.empty() && !(timed.back().seconds < std::numeric_limits<double>::infinity())) timed.pop_back();
  const CublasLt& library = *plan.library;
  if (timed.empty()) {
    check(library, plan.run(candidates[0].algo, scratch, candidates[0].workspace_bytes, device.stream()), "running " + what);
    throw Error("cuBLASLt " + library.version + ": no kernel for " + what + " can be timed");
  }
  gemm.candidates = static_cast<int>(timed.size());
  Timed best = {std::numeric_limits<double>::infinity(), timed[0].index};
  for (int i = 0; i < std::min(kFinalists, gemm.candidates); ++i) {
    const double again = time_of(plan, candidates[timed[i].index], scratch, device, 2 * kTimedLaunches);
    if (again < best.seconds) best = {again, timed[i].index};
  }
  gemm.chosen_s = best.seconds;
  return best.index;
}

// What `fastest` returned and said, by all that proposals depend on: buffers that take turns run one kernel, timed for the first.
std::mutex fastest_mutex;
std::map<std::string, std::pair<std::size_t, Gemm>> fastest_of;

}  // namespace

Gemm plan_gemm(const GemmProblem& problem, Device& device) {
  const Types types = types_of(problem.dtype, problem.out_dtype);
  if (std::max({problem.rows, problem.columns, problem.inner, problem.batch}) > std::int64_t{0x7FFFFFFF})
    throw Unsupported("cuBLASLt takes dimensions up to 2^31 - 1, got rows " + std::to_string(problem.rows) + ", columns " +
                      std::to_string(problem.columns) + ", inner " + std::to_string(problem.inner) + ", batch " +
                      std::to_string(problem.batch));
  if (problem.activation == Activation::gelu_tanh && problem.dtype != DType::fp16 && problem.dtype != DType::bf16)
    throw Unsupported("how near cuBLASLt's gelu comes to the one by tanh is not stated: enough for fp16 and bf16, not for " +
                      name(problem.dtype));
  if (problem.dtype == DType::fp8_e4m3 || problem.dtype == DType::nvfp4)
    check_low_precision(problem, device);
  else if (problem.scaling != Scaling::none)
    throw Unsupported("cuBLASLt takes scales of fp8 and nvfp4 operands only, got " + name(problem.dtype));
  const CublasLt& library = cublas_lt();
  device.use();
  const auto plan = std::make_shared<LtPlan>(library);
  plan->handle = handle_of(library, device);
  plan->problem = problem;
  plan->alpha = scalar(types.scale, problem.alpha);
  plan->beta = scalar(types.scale, 0);

  ROOFLINE_LT(library, description_create(plan->description.out(), types.compute, types.scale));
  const std::int32_t transa = problem.b_transposed ? lt::op_t : lt::op_n, transb = lt::op_n;
  ROOFLINE_LT(library, description_set(plan->description.get(), lt::desc_transa, &transa, sizeof transa));
  ROOFLINE_LT(library, description_set(plan->description.get(), lt::desc_transb, &transb, sizeof transb));
  const std::uint32_t epilogue = problem.activation == Activation::relu        ? lt::epilogue_relu
                                 : problem.activation == Activation::gelu_tanh ? lt::epilogue_gelu
                                                                               : lt::epilogue_default;
  ROOFLINE_LT(library, description_set(plan->description.get(), lt::desc_epilogue, &epilogue, sizeof epilogue));
  set_scales(library, *plan);
  if (const std::int8_t fast = problem.fast_accumulation)
    ROOFLINE_LT(library, description_set(plan->description.get(), lt::desc_fast_accum, &fast, sizeof fast));
  set_layout(library, plan->a, types.operand, problem.rows, problem.inner, problem.batch);
  set_layout(library, plan->b, types.operand, problem.b_transposed ? problem.columns : problem.inner,
             problem.b_transposed ? problem.inner : problem.columns, problem.batch);
  set_layout(library, plan->c, types.result, problem.rows, problem.columns, problem.batch);

  Owned<lt::Preference> preference(library.preference_destroy);
  ROOFLINE_LT(library, preference_create(preference.out()));
  const std::size_t most = static_cast<std::size_t>(
      problem.scratch ? kScratchBytes : std::min(kScratchBytes, std::max<std::int64_t>(device.available_bytes(), 0)));
  ROOFLINE_LT(library, preference_set(preference.get(), lt::pref_max_workspace_bytes, &most, sizeof most));
  // Not in c's: in 16 bits each part of a sum would be rounded before the parts are added up.
  ROOFLINE_LT(library, preference_set(preference.get(), lt::pref_reduction_schemes, &lt::reduction_in_compute_type,
                                      sizeof lt::reduction_in_compute_type));
  const std::pair<lt::PreferenceAttribute, const void*> aligned[] = {{lt::pref_min_alignment_a_bytes, problem.b},
                                                                     {lt::pref_min_alignment_b_bytes, problem.a},
                                                                     {lt::pref_min_alignment_c_bytes, problem.c},
                                                                     {lt::pref_min_alignment_d_bytes, problem.c}};
  for (const auto& [attribute, pointer] : aligned) {
    const std::uint32_t bytes = alignment(pointer);
    ROOFLINE_LT(library, preference_set(preference.get(), attribute, &bytes, sizeof bytes));
  }

  lt::Heuristic proposed[kCandidates] = {};
  int found = 0;
  const lt::Status status = library.heuristics(plan->handle, plan->description.get(), plan->b.get(), plan->a.get(), plan->c.get(),
                                               plan->c.get(), preference.get(), kCandidates, proposed, &found);
  const std::string what = name(problem.dtype) + " " + std::to_string(problem.rows) + " x " + std::to_string(problem.columns) +
                           " x " + std::to_string(problem.inner) + " on " + device.properties().architecture();
  if (status == lt::success && found == 0) throw Unsupported("cuBLASLt " + library.version + " has no kernel for " + what);
  check(library, status, "proposing kernels for " + what);

  std::vector<lt::Heuristic> candidates;
  std::size_t largest = 0;
  for (int i = 0; i < found; ++i)
    if (proposed[i].state == lt::success) {
      candidates.push_back(proposed[i]);
      largest = std::max(largest, proposed[i].workspace_bytes);
    }
  if (candidates.empty()) throw Unsupported("cuBLASLt " + library.version + " has no kernel for " + what);

  Gemm gemm;
  gemm.alignment_bytes = static_cast<int>(std::min({alignment(problem.a), alignment(problem.b), alignment(problem.c)}));
  gemm.candidates = static_cast<int>(candidates.size());
  const auto allocated = [&](std::size_t bytes) {
    return problem.scratch ? problem.scratch : bytes ? workspace(device, static_cast<std::int64_t>(bytes)) : nullptr;
  };
  std::size_t index = 0;
  std::shared_ptr<void> trial;
  if (!problem.scratch) {
    std::string key = what;
    const auto add = [&](auto... x) { ((key += ' ' + std::to_string(static_cast<long long>(x))), ...); };
    add(device.index(), problem.out_dtype, problem.batch, problem.b_transposed, problem.activation, problem.scaling, most,
        problem.fast_accumulation, problem.alpha_beta != nullptr, alignment(problem.a), alignment(problem.b), alignment(problem.c));
    const std::lock_guard<std::mutex> lock(fastest_mutex);
    auto known = fastest_of.find(key);
    if (known == fastest_of.end()) {
      trial = allocated(largest);
      index = fastest(*plan, candidates, trial.get(), device, what, gemm);
      known = fastest_of.emplace(key, std::pair(index, gemm)).first;
    }
    std::tie(index, gemm) = known->second;
  }
  const lt::Heuristic& chosen = candidates[index];
  plan->algo = chosen.algo;
  plan->workspace_bytes = chosen.workspace_bytes;
  plan->workspace = trial && chosen.workspace_bytes == largest ? trial : allocated(chosen.workspace_bytes);
  gemm.library_implementation = describe(library, plan->algo);
  gemm.entries = config(library, plan->algo, lt::algo_splitk, 1) > 1 ? 3 : 1;
  if (!problem.scratch) gemm.workspace_bytes = static_cast<std::int64_t>(chosen.workspace_bytes);
  gemm.launch = [plan](Queue& queue) {
    check(*plan->library, plan->run(plan->algo, plan->workspace.get(), plan->workspace_bytes, stream(queue)), "cublasLtMatmul");
  };
  if (problem.scratch) gemm.launch(device);  // loads its kernel, outside any gate: loading waits for an idle GPU
  return gemm;
}

void add_product(Bound& bound, const char* step, const std::string& prefix, const GemmProblem& problem, Device& device) {
  Gemm planned = plan_gemm(problem, device);
  record(bound.plan, prefix, planned);
  bound.steps.push_back({step, std::move(planned.launch), planned.entries});
}

void record(Plan& plan, const std::string& prefix, const Gemm& gemm) {
  plan.set(prefix + "library_implementation", gemm.library_implementation);
  plan.set(prefix + "alignment_bytes", gemm.alignment_bytes);
  plan.set(prefix + "candidates", gemm.candidates);
  plan.set(prefix + "chosen_by", gemm.chosen_s > 0 ? "timing" : "heuristic");
  if (!(gemm.chosen_s > 0)) return;
  plan.set(prefix + "heuristic_s", gemm.first_s);
  plan.set(prefix + "chosen_s", gemm.chosen_s);
}

}  // namespace roofline::cuda
