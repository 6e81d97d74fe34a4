// A shared library with cuBLASLt's names: it records what it is told, and computes the product on the host, column-major as the
// reference says, so that a layout told wrong is a number that comes out wrong.
#include "stub_cublas_lt.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "cuda/libraries/cublas_lt.h"
#include "fake_elements.h"
#include "reference.h"

using namespace roofline::cuda::lt;

namespace {

struct Shape {
  Type type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};

struct Meaning {
  Compute compute;
  Type scale;
  std::int32_t transa = 0, transb = 0;
  std::uint32_t epilogue = epilogue_default;
  const void *a_scale = nullptr, *b_scale = nullptr;
  std::int32_t pointers = pointers_to_host;
  std::int32_t a_mode = scale_scalar_32f, b_mode = scale_scalar_32f;
  std::int8_t fast = 0;
};

roofline::DType dtype_of(Type type) {
  using roofline::DType;
  switch (type) {
    case r_64f: return DType::fp64;
    case r_16f: return DType::fp16;
    case r_16bf: return DType::bf16;
    case r_8i: return DType::int8;
    case r_32i: return DType::int32;
    case r_8f_e4m3: return DType::fp8_e4m3;
    case r_4f_e2m1: return DType::nvfp4;
    default: return DType::fp32;
  }
}
double read(Type type, const void* data, std::int64_t i) { return fake::element(dtype_of(type), data, i); }
std::int64_t bytes(Type type, std::int64_t elements) { return roofline::size_bytes(dtype_of(type), elements); }

// That of row or column `i` (of `count`) at depth l (of `depth`).
double scale_of(const void* scales, std::int32_t mode, std::uint64_t i, std::uint64_t l, std::uint64_t count, std::uint64_t depth) {
  if (!scales) return 1;
  const auto* const floats = static_cast<const float*>(scales);
  switch (mode) {
    case scale_outer_vec_32f:
      return floats[i];
    case scale_vec128_32f:  // i runs fastest
      return floats[l / 128 * count + i];
    case scale_blk128x128_32f:  // along inner fastest, in multiples of four
      return floats[i / 128 * (((depth + 127) / 128 + 3) / 4 * 4) + l / 128];
    case scale_vec32_ue8m0:
      return fake::element(roofline::DType::fp8_e8m0, scales, reference::tiled(i, l / 32, (depth + 31) / 32));
    case scale_vec16_ue4m3:
      return fake::element(roofline::DType::fp8_e4m3, scales, reference::tiled(i, l / 16, (depth + 15) / 16));
    default:
      return floats[0];
  }
}

// An operand times its scales, inner fastest, as it lies in memory where it is `along` inner.
std::vector<double> scaled(const Shape& shape, const void* data, bool along, const void* scales, std::int32_t mode,
                           std::uint64_t count, std::uint64_t depth) {
  std::vector<double> all;
  for (std::uint64_t i = 0; i < count; ++i)
    for (std::uint64_t l = 0; l < depth; ++l)
      all.push_back(read(shape.type, data, along ? l + i * shape.leading : i + l * shape.leading) *
                    scale_of(scales, mode, i, l, count, depth));
  return all;
}

Stub stub;
int live = 0;

template <class T>
const T& as(const void* p) {
  return *static_cast<const T*>(p);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) Stub* stub_cublas_lt() {
  stub.live = &live;
  return &stub;
}

#define API __attribute__((visibility("default")))

API Status cublasLtCreate(Handle* handle) {
  if (stub.create != success) return stub.create;
  ++stub.handles;
  *handle = reinterpret_cast<Handle>(&stub);
  return success;
}
API const char* cublasLtGetStatusName(Status status) {
  return status == not_supported  ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == alloc_failed ? "CUBLAS_STATUS_ALLOC_FAILED"
                                  : "CUBLAS_STATUS_OTHER";
}
API std::size_t cublasLtGetVersion() { return stub.version; }
API Status cublasLtMatrixLayoutCreate(Layout* layout, Type type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  if (leading < static_cast<std::int64_t>(rows)) return invalid_value;
  ++live;
  *layout = reinterpret_cast<Layout>(new Shape{type, rows, columns, leading});
  return success;
}
API Status cublasLtMatrixLayoutDestroy(Layout layout) { return --live, delete reinterpret_cast<Shape*>(layout), success; }
API Status cublasLtMatrixLayoutSetAttribute(Layout layout, LayoutAttribute attribute, const void* value, std::size_t size) {
  Shape& shape = *reinterpret_cast<Shape*>(layout);
  if (attribute == layout_batch_count && size == 4) return shape.batch = as<std::int32_t>(value), success;
  if (attribute == layout_batch_stride && size == 8) return shape.stride = as<std::int64_t>(value), success;
  return invalid_value;
}
API Status cublasLtMatmulDescCreate(Description* description, Compute compute, Type scale) {
  ++live;
  *description = reinterpret_cast<Description>(new Meaning{compute, scale});
  return success;
}
API Status cublasLtMatmulDescDestroy(Description description) {
  return --live, delete reinterpret_cast<Meaning*>(description), success;
}
API Status cublasLtMatmulDescSetAttribute(Description description, DescriptionAttribute attribute, const void* value,
                                          std::size_t size) {
  Meaning& meaning = *reinterpret_cast<Meaning*>(description);
  if (attribute == desc_a_scale_pointer && size == 8) return meaning.a_scale = as<const void*>(value), success;
  if (attribute == desc_b_scale_pointer && size == 8) return meaning.b_scale = as<const void*>(value), success;
  if (attribute == desc_fast_accum && size == 1) return meaning.fast = as<std::int8_t>(value), success;
  if (size != 4) return invalid_value;
  if (attribute == desc_pointer_mode) return meaning.pointers = as<std::int32_t>(value), success;
  if (attribute == desc_a_scale_mode) return meaning.a_mode = as<std::int32_t>(value), success;
  if (attribute == desc_b_scale_mode) return meaning.b_mode = as<std::int32_t>(value), success;
  if (attribute == desc_transa) return meaning.transa = as<std::int32_t>(value), success;
  if (attribute == desc_transb) return meaning.transb = as<std::int32_t>(value), success;
  if (attribute == desc_epilogue) return meaning.epilogue = as<std::uint32_t>(value), success;
  return invalid_value;
}
API Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  ++live;
  *preference = reinterpret_cast<Preference>(new std::size_t{0});
  return success;
}
API Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  return --live, delete reinterpret_cast<std::size_t*>(preference), success;
}
API Status cublasLtMatmulPreferenceSetAttribute(Preference, PreferenceAttribute attribute, const void* value, std::size_t size) {
  if (attribute == pref_max_workspace_bytes && size == 8) return stub.workspace_limit = as<std::uint64_t>(value), success;
  if (attribute == pref_reduction_schemes && size == 4)
    return as<std::uint32_t>(value) == reduction_in_compute_type ? success : invalid_value;
  if (attribute >= pref_min_alignment_a_bytes && attribute <= pref_min_alignment_d_bytes && size == 4)
    return stub.alignment[attribute - pref_min_alignment_a_bytes] = as<std::uint32_t>(value), success;
  return invalid_value;
}
API Status cublasLtMatmulAlgoGetHeuristic(Handle handle, Description description, Layout a, Layout b, Layout, Layout d,
                                          Preference, int wanted, Heuristic* found, int* count) {
  if (handle != reinterpret_cast<Handle>(&stub)) return invalid_value;
  *count = 0;
  ++stub.asked;
  // What the reference asks of fp8 and fp4: both operands along inner, leading dimensions of 16 bytes, scales of one kind, or of
  // squares on one side; of fp4 those of 16.
  const Meaning& meaning = *reinterpret_cast<Meaning*>(description);
  const Shape &A = *reinterpret_cast<Shape*>(a), &B = *reinterpret_cast<Shape*>(b), &D = *reinterpret_cast<Shape*>(d);
  const bool squares = meaning.a_mode == scale_blk128x128_32f && meaning.b_mode == scale_vec128_32f;
  const std::int64_t whole = A.type == r_4f_e2m1 ? 32 : 16;
  if ((A.type == r_8f_e4m3 || A.type == r_4f_e2m1) &&
      (meaning.transa != op_t || meaning.transb != op_n || A.leading % whole != 0 || B.leading % whole != 0 ||
       bytes(D.type, D.leading) % 16 != 0 || (meaning.a_mode != meaning.b_mode && !squares) ||
       (A.type == r_4f_e2m1) != (meaning.a_mode == scale_vec16_ue4m3)))
    return not_supported;
  if (stub.heuristics != success) return stub.heuristics;
  for (int i = 0; i < stub.proposals && i < wanted; ++i) {
    found[i] = {};
    found[i].algo.data[0] = static_cast<std::uint64_t>(i);
    found[i].workspace_bytes = stub.workspace_bytes[i];
    found[i].state = stub.states[i];
    ++*count;
  }
  return success;
}
API Status cublasLtMatmulAlgoConfigGetAttribute(const Algo* algo, AlgoAttribute attribute, void* value, std::size_t size,
                                                std::size_t* written) {
  if (size != 4) return invalid_value;
  const std::int32_t answer = attribute == algo_id       ? 100 + static_cast<std::int32_t>(algo->data[0])
                              : attribute == algo_splitk ? stub.split_k
                                                         : 1;
  std::memcpy(value, &answer, 4);
  *written = 4;
  return success;
}
API Status cublasLtMatmul(Handle, Description description, const void* alpha, const void* a, Layout a_layout, const void* b,
                          Layout b_layout, const void* beta, const void* c, Layout c_layout, void* d, Layout d_layout,
                          const Algo* algo, void* workspace, std::size_t workspace_bytes, CUstream_st* stream) {
  const Meaning& meaning = *reinterpret_cast<Meaning*>(description);
  const Shape &A = *reinterpret_cast<Shape*>(a_layout), &B = *reinterpret_cast<Shape*>(b_layout),
              &D = *reinterpret_cast<Shape*>(d_layout);
  const std::uint64_t which = algo->data[0];
  ++stub.runs[which];
  if (!stream || !reinterpret_cast<Shape*>(c_layout) || (workspace_bytes && !workspace) ||
      workspace_bytes < stub.workspace_bytes[which])
    return invalid_value;
  if (stub.run[which] != success) return stub.run[which];
  if (workspace_bytes) std::memset(workspace, 0x5A, workspace_bytes);  // it is really there
  const std::uint64_t m = meaning.transa ? A.columns : A.rows, k = meaning.transa ? A.rows : A.columns;
  const std::uint64_t n = meaning.transb ? B.rows : B.columns;
  if (m != D.rows || n != D.columns || k != (meaning.transb ? B.columns : B.rows)) return invalid_value;
  stub.fast_accumulation = meaning.fast != 0;
  stub.device_factors = meaning.pointers == pointers_to_device;
  stub.compute = meaning.compute, stub.scale = meaning.scale, stub.transa = meaning.transa, stub.transb = meaning.transb;
  const double first = read(meaning.scale, alpha, 0), second = read(meaning.scale, beta, 0);
  for (std::int32_t i = 0; i < D.batch; ++i) {
    const std::vector<double> left = scaled(A, static_cast<const char*>(a) + bytes(A.type, i * A.stride), meaning.transa,
                                            meaning.a_scale, meaning.a_mode, m, k);
    const std::vector<double> right = scaled(B, static_cast<const char*>(b) + bytes(B.type, i * B.stride), !meaning.transb,
                                             meaning.b_scale, meaning.b_mode, n, k);
    void* out = static_cast<char*>(d) + bytes(D.type, i * D.stride);
    const void* before = static_cast<const char*>(c) + bytes(D.type, i * D.stride);
    for (std::uint64_t row = 0; row < m; ++row)
      for (std::uint64_t column = 0; column < n; ++column) {
        const double sum = std::inner_product(left.begin() + row * k, left.begin() + (row + 1) * k, right.begin() + column * k, 0.0);
        double x = first * sum + (second != 0 ? second * read(D.type, before, row + column * D.leading) : 0);
        if (meaning.epilogue == epilogue_relu) x = reference::relu(x);
        if (meaning.epilogue == epilogue_gelu) x = reference::gelu_tanh(x);
        fake::set(dtype_of(D.type), out, row + column * D.leading, x);
      }
  }
  if (stub.on_run) stub.on_run(static_cast<int>(which), ++stub.total_runs);
  return success;
}

}  // extern "C"
