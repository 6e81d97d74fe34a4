// Opening cuBLASLt: where the file is, and whether it is the right one.
#include "cuda/libraries/cublas_lt.h"

#include <cuda_runtime_api.h>

#include "cuda/libraries/opened.h"

#if defined(ROOFLINE_HAVE_CUBLAS_HEADERS)
#include <cublasLt.h>
#endif

namespace roofline::cuda {
namespace {

#if defined(ROOFLINE_HAVE_CUBLAS_HEADERS)
static_assert(sizeof(lt::Algo) == sizeof(cublasLtMatmulAlgo_t) && sizeof(lt::Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::Heuristic, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(lt::Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(lt::success == int{CUBLAS_STATUS_SUCCESS} && lt::alloc_failed == int{CUBLAS_STATUS_ALLOC_FAILED} &&
              lt::invalid_value == int{CUBLAS_STATUS_INVALID_VALUE} &&
              lt::arch_mismatch == int{CUBLAS_STATUS_ARCH_MISMATCH} && lt::not_supported == int{CUBLAS_STATUS_NOT_SUPPORTED});
static_assert(lt::r_32f == int{CUDA_R_32F} && lt::r_64f == int{CUDA_R_64F} && lt::r_16f == int{CUDA_R_16F} &&
              lt::r_8i == int{CUDA_R_8I} && lt::r_32i == int{CUDA_R_32I} && lt::r_16bf == int{CUDA_R_16BF} &&
              lt::r_8f_e4m3 == int{CUDA_R_8F_E4M3} && lt::r_4f_e2m1 == int{CUDA_R_4F_E2M1});
static_assert(lt::compute_32f == int{CUBLAS_COMPUTE_32F} && lt::compute_64f == int{CUBLAS_COMPUTE_64F} &&
              lt::compute_32i == int{CUBLAS_COMPUTE_32I} && lt::compute_32f_fast_tf32 == int{CUBLAS_COMPUTE_32F_FAST_TF32});
static_assert(lt::op_n == int{CUBLAS_OP_N} && lt::op_t == int{CUBLAS_OP_T});
static_assert(lt::epilogue_default == int{CUBLASLT_EPILOGUE_DEFAULT} && lt::epilogue_relu == int{CUBLASLT_EPILOGUE_RELU} &&
              lt::epilogue_gelu == int{CUBLASLT_EPILOGUE_GELU});
static_assert(lt::desc_pointer_mode == int{CUBLASLT_MATMUL_DESC_POINTER_MODE} &&
              lt::desc_transa == int{CUBLASLT_MATMUL_DESC_TRANSA} && lt::desc_transb == int{CUBLASLT_MATMUL_DESC_TRANSB} &&
              lt::desc_epilogue == int{CUBLASLT_MATMUL_DESC_EPILOGUE} &&
              lt::desc_a_scale_pointer == int{CUBLASLT_MATMUL_DESC_A_SCALE_POINTER} &&
              lt::desc_b_scale_pointer == int{CUBLASLT_MATMUL_DESC_B_SCALE_POINTER} &&
              lt::desc_fast_accum == int{CUBLASLT_MATMUL_DESC_FAST_ACCUM} &&
              lt::desc_a_scale_mode == int{CUBLASLT_MATMUL_DESC_A_SCALE_MODE} &&
              lt::desc_b_scale_mode == int{CUBLASLT_MATMUL_DESC_B_SCALE_MODE});
static_assert(lt::scale_scalar_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F} &&
              lt::scale_vec16_ue4m3 == int{CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3} &&
              lt::scale_vec32_ue8m0 == int{CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0} &&
              lt::scale_outer_vec_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F} &&
              lt::scale_vec128_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F} &&
              lt::scale_blk128x128_32f == int{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F});
static_assert(lt::pointers_to_host == int{CUBLASLT_POINTER_MODE_HOST} &&
              lt::pointers_to_device == int{CUBLASLT_POINTER_MODE_DEVICE});
static_assert(lt::layout_batch_count == int{CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT} &&
              lt::layout_batch_stride == int{CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET});
static_assert(lt::pref_max_workspace_bytes == int{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES} &&
              lt::pref_reduction_schemes == int{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK} &&
              lt::reduction_in_compute_type == int{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE} &&
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

CublasLt open_one(const std::string& file) {
  SharedObject from(file);
  CublasLt library;
  from.take(library.create, "cublasLtCreate");
  from.take(library.status_name, "cublasLtGetStatusName");
  from.take(library.get_version, "cublasLtGetVersion");
  from.take(library.layout_create, "cublasLtMatrixLayoutCreate");
  from.take(library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  from.take(library.layout_set, "cublasLtMatrixLayoutSetAttribute");
  from.take(library.description_create, "cublasLtMatmulDescCreate");
  from.take(library.description_destroy, "cublasLtMatmulDescDestroy");
  from.take(library.description_set, "cublasLtMatmulDescSetAttribute");
  from.take(library.preference_create, "cublasLtMatmulPreferenceCreate");
  from.take(library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  from.take(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  from.take(library.heuristics, "cublasLtMatmulAlgoGetHeuristic");
  from.take(library.algo_get, "cublasLtMatmulAlgoConfigGetAttribute");
  from.take(library.matmul, "cublasLtMatmul");
  const int version = static_cast<int>(library.get_version());
  library.version = version_text(version);
  if (version / 10000 != kMajor)
    throw Unsupported("it is version " + library.version + ", and roofline was built for CUDA " + std::to_string(kMajor));
  library.path = SharedObject::path_of(library.matmul);
  from.keep();
  return library;
}

}  // namespace

void set_cublas_lt_path(const std::string& path) { opened<CublasLt>().prefer("cublaslt", path); }

CublasLt open_cublas_lt(const std::vector<std::string>& files) { return open_first("cuBLASLt", cure(), files, open_one); }

const CublasLt& cublas_lt() { return opened<CublasLt>().get("libcublasLt.so." + std::to_string(kMajor), open_cublas_lt); }

LibraryInfo cublas_lt_info() { return info_of("cublaslt", cublas_lt); }

void check(const CublasLt& library, lt::Status status, const std::string& call) {
  if (status == lt::success) return;
  const std::string text = "cuBLASLt " + library.version + ": " + call + ": " + library.status_name(status);
  if (status == lt::not_supported) throw Unsupported(text);
  if (status == lt::arch_mismatch) throw Unsupported(text + "; this GPU has no unit for it");
  if (status == lt::alloc_failed) throw OutOfMemory(text + "; use a smaller problem");
  throw Error(text);
}

}  // namespace roofline::cuda
