// cuBLASLt, opened with dlopen on first use. The few prototypes and numbers that are used are declared here, as NVIDIA's reference
// gives them, so that its headers (and the 540 MB of the library) need not be there to build; cuda/libraries/cublas_lt.cpp compares
// them with the headers where there are some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.h"

struct CUstream_st;

namespace roofline::cuda {

namespace lt {

using Handle = struct Context*;
using Layout = struct LayoutOpaque*;
using Description = struct DescriptionOpaque*;
using Preference = struct PreferenceOpaque*;

enum Status : int { success = 0, alloc_failed = 3, invalid_value = 7, arch_mismatch = 8, not_supported = 15 };
enum Type : int { r_32f = 0, r_64f = 1, r_16f = 2, r_8i = 3, r_32i = 10, r_16bf = 14, r_8f_e4m3 = 28, r_4f_e2m1 = 33 };
enum Compute : int { compute_32f = 68, compute_64f = 70, compute_32i = 72, compute_32f_fast_tf32 = 77 };
enum Operation : int { op_n = 0, op_t = 1 };
enum Epilogue : int { epilogue_default = 1, epilogue_relu = 2, epilogue_gelu = 32 };
enum PointerMode : int { pointers_to_host = 0, pointers_to_device = 1 };  // of alpha and beta
enum DescriptionAttribute : int {
  desc_pointer_mode = 2,
  desc_transa = 3,
  desc_transb = 4,
  desc_epilogue = 7,
  desc_a_scale_pointer = 17,
  desc_b_scale_pointer = 18,
  desc_fast_accum = 25,
  desc_a_scale_mode = 31,
  desc_b_scale_mode = 32,
};
enum ScaleMode : int {
  scale_scalar_32f = 0,
  scale_vec16_ue4m3 = 1,
  scale_vec32_ue8m0 = 2,
  scale_outer_vec_32f = 3,
  scale_vec128_32f = 4,
  scale_blk128x128_32f = 5,
};
enum LayoutAttribute : int { layout_batch_count = 5, layout_batch_stride = 6 };
enum PreferenceAttribute : int {
  pref_max_workspace_bytes = 1,
  pref_reduction_schemes = 3,
  pref_min_alignment_a_bytes = 5,
  pref_min_alignment_b_bytes = 6,
  pref_min_alignment_c_bytes = 7,
  pref_min_alignment_d_bytes = 8,
};
// How partial sums of a split product are added up; 0, no split, is always allowed.
inline constexpr std::uint32_t reduction_in_compute_type = 2;
enum AlgoAttribute : int { algo_id = 0, algo_tile_id = 1, algo_splitk = 2, algo_stages_id = 6 };

struct Algo {
  std::uint64_t data[8];
};

struct Heuristic {
  Algo algo;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

}  // namespace lt

// Its functions. A, B, C and D are column-major matrices, as in Fortran: D = alpha op(A) op(B) + beta C.
struct CublasLt {
  std::string version;  // "13.1.1"
  std::string path;     // of the file that was opened

  lt::Status (*create)(lt::Handle*) = nullptr;
  const char* (*status_name)(lt::Status) = nullptr;
  std::size_t (*get_version)() = nullptr;
  lt::Status (*layout_create)(lt::Layout*, lt::Type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) = nullptr;
  lt::Status (*layout_destroy)(lt::Layout) = nullptr;
  lt::Status (*layout_set)(lt::Layout, lt::LayoutAttribute, const void*, std::size_t) = nullptr;
  lt::Status (*description_create)(lt::Description*, lt::Compute, lt::Type scale) = nullptr;
  lt::Status (*description_destroy)(lt::Description) = nullptr;
  lt::Status (*description_set)(lt::Description, lt::DescriptionAttribute, const void*, std::size_t) = nullptr;
  lt::Status (*preference_create)(lt::Preference*) = nullptr;
  lt::Status (*preference_destroy)(lt::Preference) = nullptr;
  lt::Status (*preference_set)(lt::Preference, lt::PreferenceAttribute, const void*, std::size_t) = nullptr;
  lt::Status (*heuristics)(lt::Handle, lt::Description, lt::Layout a, lt::Layout b, lt::Layout c, lt::Layout d, lt::Preference,
                           int wanted, lt::Heuristic*, int* found) = nullptr;
  lt::Status (*algo_get)(const lt::Algo*, lt::AlgoAttribute, void*, std::size_t, std::size_t*) = nullptr;
  lt::Status (*matmul)(lt::Handle, lt::Description, const void* alpha, const void* a, lt::Layout, const void* b, lt::Layout,
                       const void* beta, const void* c, lt::Layout, void* d, lt::Layout, const lt::Algo*, void* workspace,
                       std::size_t workspace_bytes, CUstream_st*) = nullptr;
};

// The file to open, tried before the one that the process may have loaded already and the system's. Throws Error once it is open.
void set_cublas_lt_path(const std::string& path);

// Throws Unsupported with the reason and the cure; tried again at the next call.
const CublasLt& cublas_lt();
LibraryInfo cublas_lt_info();  // the same without throwing

// The same from the first of `files` that can be used.
CublasLt open_cublas_lt(const std::vector<std::string>& files);

// Throws an error that names the call and the status: Unsupported where cuBLASLt does not have it, OutOfMemory, else Error.
void check(const CublasLt& library, lt::Status status, const std::string& call);

// A descriptor of the library, destroyed with it.
template <class Opaque>
class Owned {
 public:
  explicit Owned(lt::Status (*destroy)(Opaque)) : destroy_(destroy) {}
  ~Owned() {
    if (value_) destroy_(value_);
  }
  Owned(Owned&& other) noexcept : value_(std::exchange(other.value_, nullptr)), destroy_(other.destroy_) {}
  Owned& operator=(Owned&&) = delete;
  Opaque get() const { return value_; }
  Opaque* out() { return &value_; }

 private:
  Opaque value_ = nullptr;
  lt::Status (*destroy_)(Opaque);
};

}  // namespace roofline::cuda
