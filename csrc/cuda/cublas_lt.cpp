// Opening cuBLASLt: where the file is, and whether it is the right one.
#include "cuda/cublas_lt.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <memory>
#include <mutex>

#include "core/error.h"

#if defined(ROOFLINE_HAVE_CUBLAS_HEADERS)
#include <cublasLt.h>
#endif

namespace roofline::cuda {
namespace {

#if defined(ROOFLINE_HAVE_CUBLAS_HEADERS)
static_assert(sizeof(lt::Algo) == sizeof(cublasLtMatmulAlgo_t) && sizeof(lt::Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::Heuristic, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(lt::Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(lt::success == int{CUBLAS_STATUS_SUCCESS} && lt::not_initialized == int{CUBLAS_STATUS_NOT_INITIALIZED} &&
              lt::alloc_failed == int{CUBLAS_STATUS_ALLOC_FAILED} && lt::invalid_value == int{CUBLAS_STATUS_INVALID_VALUE} &&
              lt::arch_mismatch == int{CUBLAS_STATUS_ARCH_MISMATCH} && lt::not_supported == int{CUBLAS_STATUS_NOT_SUPPORTED});
static_assert(lt::r_32f == int{CUDA_R_32F} && lt::r_64f == int{CUDA_R_64F} && lt::r_16f == int{CUDA_R_16F} &&
              lt::r_8i == int{CUDA_R_8I} && lt::r_32i == int{CUDA_R_32I} && lt::r_16bf == int{CUDA_R_16BF} &&
              lt::r_8f_e4m3 == int{CUDA_R_8F_E4M3} && lt::r_8f_e5m2 == int{CUDA_R_8F_E5M2});
static_assert(lt::compute_32f == int{CUBLAS_COMPUTE_32F} && lt::compute_64f == int{CUBLAS_COMPUTE_64F} &&
              lt::compute_32i == int{CUBLAS_COMPUTE_32I} && lt::compute_32f_fast_tf32 == int{CUBLAS_COMPUTE_32F_FAST_TF32});
static_assert(lt::op_n == int{CUBLAS_OP_N} && lt::op_t == int{CUBLAS_OP_T});
static_assert(lt::epilogue_default == int{CUBLASLT_EPILOGUE_DEFAULT} && lt::epilogue_relu == int{CUBLASLT_EPILOGUE_RELU} &&
              lt::epilogue_bias == int{CUBLASLT_EPILOGUE_BIAS} && lt::epilogue_gelu == int{CUBLASLT_EPILOGUE_GELU});
static_assert(lt::desc_transa == int{CUBLASLT_MATMUL_DESC_TRANSA} && lt::desc_transb == int{CUBLASLT_MATMUL_DESC_TRANSB} &&
              lt::desc_epilogue == int{CUBLASLT_MATMUL_DESC_EPILOGUE} &&
              lt::desc_bias_pointer == int{CUBLASLT_MATMUL_DESC_BIAS_POINTER} &&
              lt::desc_a_scale_pointer == int{CUBLASLT_MATMUL_DESC_A_SCALE_POINTER} &&
              lt::desc_b_scale_pointer == int{CUBLASLT_MATMUL_DESC_B_SCALE_POINTER} &&
              lt::desc_fast_accum == int{CUBLASLT_MATMUL_DESC_FAST_ACCUM} &&
              lt::desc_a_scale_mode == int{CUBLASLT_MATMUL_DESC_A_SCALE_MODE} &&
              lt::desc_b_scale_mode == int{CUBLASLT_MATMUL_DESC_B_SCALE_MODE});
static_assert(lt::scale_scalar_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F} &&
              lt::scale_outer_vec_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F} &&
              lt::scale_vec128_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F});
static_assert(lt::layout_batch_count == int{CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT} &&
              lt::layout_batch_stride == int{CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET});
static_assert(lt::pref_max_workspace_bytes == int{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES} &&
              lt::pref_min_alignment_a_bytes == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES} &&
              lt::pref_min_alignment_b_bytes == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES} &&
              lt::pref_min_alignment_c_bytes == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES} &&
              lt::pref_min_alignment_d_bytes == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES});
static_assert(lt::algo_id == int{CUBLASLT_ALGO_CONFIG_ID} && lt::algo_tile_id == int{CUBLASLT_ALGO_CONFIG_TILE_ID} &&
              lt::algo_splitk == int{CUBLASLT_ALGO_CONFIG_SPLITK_NUM} && lt::algo_stages_id == int{CUBLASLT_ALGO_CONFIG_STAGES_ID});
#endif

constexpr int kMajor = CUDART_VERSION / 1000;

std::string cure() {
  const std::string major = std::to_string(kMajor);
  return "install it with: pip install 'cuda-toolkit[cublas]==" + major + ".*' (or CUDA " + major + "'s toolkit)";
}

struct Close {
  void operator()(void* handle) const { dlclose(handle); }
};

template <class Function>
void take(void* handle, Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (!function) throw Unsupported(std::string("it has no symbol ") + symbol);
}

CublasLt open_one(const std::string& file) {
  // RTLD_LOCAL: its symbols must not meet those of another copy in the process.
  const std::unique_ptr<void, Close> handle(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) {
    const char* why = dlerror();
    throw Unsupported(why ? why : "it cannot be opened");
  }
  CublasLt library;
  void* const from = handle.get();
  take(from, library.create, "cublasLtCreate");
  take(from, library.destroy, "cublasLtDestroy");
  take(from, library.status_name, "cublasLtGetStatusName");
  take(from, library.get_version, "cublasLtGetVersion");
  take(from, library.layout_create, "cublasLtMatrixLayoutCreate");
  take(from, library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  take(from, library.layout_set, "cublasLtMatrixLayoutSetAttribute");
  take(from, library.description_create, "cublasLtMatmulDescCreate");
  take(from, library.description_destroy, "cublasLtMatmulDescDestroy");
  take(from, library.description_set, "cublasLtMatmulDescSetAttribute");
  take(from, library.preference_create, "cublasLtMatmulPreferenceCreate");
  take(from, library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  take(from, library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  take(from, library.heuristics, "cublasLtMatmulAlgoGetHeuristic");
  take(from, library.algo_get, "cublasLtMatmulAlgoConfigGetAttribute");
  take(from, library.matmul, "cublasLtMatmul");
  // 130101 is 13.1.1: major * 10000 + minor * 100 + patch.
  const std::size_t version = library.get_version();
  library.version =
      std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." + std::to_string(version % 100);
  if (static_cast<int>(version / 10000) != kMajor)
    throw Unsupported("it is version " + library.version + ", and roofline was built for CUDA " + std::to_string(kMajor));
  Dl_info found{};
  if (dladdr(reinterpret_cast<void*>(library.matmul), &found) && found.dli_fname) library.path = found.dli_fname;
  dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // once more, and for ever: its threads and handlers outlive any closing
  return library;
}

struct Lazy {
  std::mutex mutex;
  std::string preferred;
  std::unique_ptr<CublasLt> library;
};

Lazy& lazy() {
  static Lazy one;
  return one;
}

}  // namespace

void set_cublas_lt_path(const std::string& path) {
  if (path.empty()) throw Error("set_library_path: the path of cublaslt is empty");
  const std::lock_guard<std::mutex> lock(lazy().mutex);
  if (lazy().library) throw Error("set_library_path: cublaslt is open already (" + lazy().library->path + ")");
  lazy().preferred = path;
}

CublasLt open_cublas_lt(const std::vector<std::string>& files) {
  std::string reasons;
  for (const std::string& file : files) {
    try {
      return open_one(file);
    } catch (const Unsupported& why) {
      const std::string reason = why.what();
      reasons += (reasons.empty() ? "" : "; ") + (reason.find(file) == std::string::npos ? file + ": " + reason : reason);
    }
  }
  throw Unsupported("cuBLASLt cannot be used: " + (reasons.empty() ? "no file to try" : reasons) + "; " + cure());
}

const CublasLt& cublas_lt() {
  const std::lock_guard<std::mutex> lock(lazy().mutex);
  if (!lazy().library) {
    // By its soname a copy that the process has loaded already (PyTorch's) is found first.
    std::vector<std::string> files;
    if (!lazy().preferred.empty()) files.push_back(lazy().preferred);
    files.push_back("libcublasLt.so." + std::to_string(kMajor));
    lazy().library = std::make_unique<CublasLt>(open_cublas_lt(files));
  }
  return *lazy().library;
}

LibraryInfo cublas_lt_info() {
  try {
    const CublasLt& library = cublas_lt();
    return {"cublaslt", library.version, library.path, ""};
  } catch (const Unsupported& why) {
    return {"cublaslt", "", "", why.what()};
  }
}

void check(const CublasLt& library, lt::Status status, const std::string& call) {
  if (status == lt::success) return;
  const std::string text = "cuBLASLt " + library.version + ": " + call + ": " + library.status_name(status);
  if (status == lt::not_supported) throw Unsupported(text);
  if (status == lt::arch_mismatch) throw Unsupported(text + "; this GPU has no unit for it");
  if (status == lt::alloc_failed) throw OutOfMemory(text + "; use a smaller problem");
  throw Error(text);
}

}  // namespace roofline::cuda
