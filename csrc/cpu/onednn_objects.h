// oneDNN's objects, each released with its last owner, for the files that plan products by it.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "cpu/onednn.h"

namespace roofline::cpu {

template <class T>
using Owned = std::shared_ptr<std::remove_pointer_t<T>>;

#if DNNL_VERSION_MAJOR >= 3
using Layout = const_dnnl_memory_desc_t;
using OwnedLayout = Owned<dnnl_memory_desc_t>;
#else
using Layout = const dnnl_memory_desc_t*;
using OwnedLayout = std::shared_ptr<dnnl_memory_desc_t>;
#endif

inline void check(dnnl_status_t status, const std::string& what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw OutOfMemory("oneDNN: out of memory: " + what + "; use a smaller problem");
  const char* meaning = status == dnnl_invalid_arguments ? "invalid arguments"
                        : status == dnnl_unimplemented   ? "not implemented"
                        : status == dnnl_runtime_error   ? "runtime error"
                                                         : "see dnnl_status_t";
  throw Unsupported("oneDNN: " + what + " failed with status " + std::to_string(status) + " (" + meaning + ")");
}

inline dnnl_data_type_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32: return dnnl_f32;
    case DType::bf16: return dnnl_bf16;
    case DType::fp16: return dnnl_f16;
    case DType::int8: return dnnl_s8;
    case DType::int32: return dnnl_s32;
    default: throw Unsupported("oneDNN: its products here take fp32, bf16, fp16 and int8, not " + name(dtype));
  }
}

// Refuses what would be slow.
inline void refuse_reference(const std::string& implementation, DType dtype) {
  if (implementation.rfind("ref", 0) == 0)
    throw Unsupported("oneDNN has only its slow reference code (" + implementation + ") for " + name(dtype) +
                      " on this CPU; use fp32, or variant tiled");
}

class Objects {
 public:
  explicit Objects(const OneDnn& dnnl) : dnnl_(dnnl) {
    dnnl_engine_t engine = nullptr;
    check(dnnl_.engine_create(&engine, dnnl_cpu, 0), "creating the engine");
    engine_ = {engine, dnnl_.engine_destroy};
    dnnl_primitive_attr_t attributes = nullptr;
    check(dnnl_.primitive_attr_create(&attributes), "creating attributes");
    attributes_ = {attributes, dnnl_.primitive_attr_destroy};
    // The library's own scratchpad belongs to the thread that creates a primitive; ours are made in bind, one per thread.
    check(dnnl_.primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "asking for our own scratchpad");
    // Whatever ONEDNN_DEFAULT_FPMATH_MODE says: fp32 means fp32.
    check(dnnl_.primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict), "asking for strict arithmetic");
  }

  // [rows, columns], `stride` elements from row to row.
  OwnedLayout plain(dnnl_data_type_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    const dnnl_dims_t dims = {rows, columns}, strides = {stride, 1};
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t layout = nullptr;
    check(dnnl_.memory_desc_create_with_strides(&layout, 2, dims, type, strides), "describing a matrix");
    return {layout, dnnl_.memory_desc_destroy};
#else
    auto layout = std::make_shared<dnnl_memory_desc_t>();
    check(dnnl_.memory_desc_init_by_strides(layout.get(), 2, dims, type, strides), "describing a matrix");
    return layout;
#endif
  }

  // The layout is the library's choice.
  OwnedLayout any(dnnl_data_type_t type, std::int64_t rows, std::int64_t columns) const {
    const dnnl_dims_t dims = {rows, columns};
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t layout = nullptr;
    check(dnnl_.memory_desc_create_with_tag(&layout, 2, dims, type, dnnl_format_tag_any), "describing a matrix");
    return {layout, dnnl_.memory_desc_destroy};
#else
    auto layout = std::make_shared<dnnl_memory_desc_t>();
    check(dnnl_.memory_desc_init_by_tag(layout.get(), 2, dims, type, dnnl_format_tag_any), "describing a matrix");
    return layout;
#endif
  }

  Owned<dnnl_primitive_desc_t> matmul(Layout a, Layout b, Layout c, const std::string& type) const {
    const std::string what = "planning a matrix product in " + type + " for this CPU, as far as ROOFLINE_ISA allows,";
    dnnl_primitive_desc_t description = nullptr;
#if DNNL_VERSION_MAJOR >= 3
    check(dnnl_.matmul_primitive_desc_create(&description, engine_.get(), a, b, nullptr, c, attributes_.get()), what);
#else
    dnnl_matmul_desc_t matmul{};
    check(dnnl_.matmul_desc_init(&matmul, a, b, nullptr, c), "describing a matrix product");
    check(dnnl_.primitive_desc_create(&description, &matmul, attributes_.get(), engine_.get(), nullptr), what);
#endif
    return {description, dnnl_.primitive_desc_destroy};
  }

  Owned<dnnl_primitive_desc_t> reorder(Layout from, Layout to) const {
    dnnl_primitive_desc_t description = nullptr;
    check(dnnl_.reorder_primitive_desc_create(&description, from, engine_.get(), to, engine_.get(), attributes_.get()),
          "planning the packing of b");
    return {description, dnnl_.primitive_desc_destroy};
  }

  // The layouts that oneDNN chooses for b in int8 have no reorder from columns of a wider matrix, only from a matrix of their own.
  bool packable(Layout from, Layout to) const {
    dnnl_primitive_desc_t description = nullptr;
    const bool able = dnnl_.reorder_primitive_desc_create(&description, from, engine_.get(), to, engine_.get(),
                                                          attributes_.get()) == dnnl_success;
    if (able) dnnl_.primitive_desc_destroy(description);
    return able;
  }

  Owned<dnnl_primitive_t> primitive(const Owned<dnnl_primitive_desc_t>& description) const {
    dnnl_primitive_t primitive = nullptr;
    check(dnnl_.primitive_create(&primitive, description.get()), "generating a kernel");
    return {primitive, dnnl_.primitive_destroy};
  }

  Owned<dnnl_memory_t> memory(Layout layout, void* data) const {
    dnnl_memory_t memory = nullptr;
    check(dnnl_.memory_create(&memory, layout, engine_.get(), data), "describing memory");
    return {memory, dnnl_.memory_destroy};
  }

  Owned<dnnl_stream_t> stream() const {
    dnnl_stream_t stream = nullptr;
    check(dnnl_.stream_create(&stream, engine_.get(), dnnl_stream_default_flags), "creating a stream");
    return {stream, dnnl_.stream_destroy};
  }

  Layout layout(const Owned<dnnl_primitive_desc_t>& description, dnnl_query_t what) const {
    return dnnl_.primitive_desc_query_md(description.get(), what, 0);
  }

  std::size_t scratchpad_bytes(const Owned<dnnl_primitive_desc_t>& description) const {
    return dnnl_.memory_desc_get_size(layout(description, dnnl_query_scratchpad_md));
  }

  std::string implementation(const Owned<dnnl_primitive_desc_t>& description) const {
    const char* text = "";
    check(dnnl_.primitive_desc_query(description.get(), dnnl_query_impl_info_str, 0, &text), "asking for the implementation");
    return text;
  }

 private:
  const OneDnn& dnnl_;
  Owned<dnnl_engine_t> engine_;
  Owned<dnnl_primitive_attr_t> attributes_;
};

}  // namespace roofline::cpu
