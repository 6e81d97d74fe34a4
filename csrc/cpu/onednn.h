// oneDNN's C API as a table of functions, for the files that see its headers. The API of v2 and v3 is told apart by the headers'
// major; a library of another major is refused when it is opened.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "cpu/library.h"

#if DNNL_VERSION_MAJOR >= 3
#define ROOFLINE_ONEDNN_MAJOR_FUNCTIONS(X) \
  X(memory_desc_create_with_strides) X(memory_desc_create_with_tag) X(memory_desc_destroy) X(matmul_primitive_desc_create)
#else
#define ROOFLINE_ONEDNN_MAJOR_FUNCTIONS(X) \
  X(memory_desc_init_by_strides) X(memory_desc_init_by_tag) X(matmul_desc_init) X(primitive_desc_create)
#endif

#define ROOFLINE_ONEDNN_FUNCTIONS(X)                                                                                       \
  ROOFLINE_ONEDNN_MAJOR_FUNCTIONS(X)                                                                                       \
  X(version) X(set_max_cpu_isa) X(get_effective_cpu_isa) X(engine_create) X(engine_destroy) X(stream_create) \
  X(stream_destroy) X(primitive_attr_create) X(primitive_attr_destroy) X(primitive_attr_set_scratchpad_mode)               \
  X(primitive_attr_set_fpmath_mode) X(primitive_desc_query) X(primitive_desc_query_md) X(primitive_desc_destroy)           \
  X(reorder_primitive_desc_create) X(primitive_create) X(primitive_execute) X(primitive_destroy) X(memory_desc_get_size)   \
  X(memory_desc_equal) X(memory_create) X(memory_destroy) X(memory_set_data_handle)

namespace roofline::cpu {

struct OneDnn {
  LibraryInfo info;
  bool vnni = false;  // AVX512_VNNI: sums of 8-bit products do not saturate
#define ROOFLINE_MEMBER(name) decltype(&::dnnl_##name) name = nullptr;
  ROOFLINE_ONEDNN_FUNCTIONS(ROOFLINE_MEMBER)
#undef ROOFLINE_MEMBER
  void (*omp_set_num_threads)(int) = nullptr;  // of the OpenMP runtime that it is linked to
  int (*omp_get_max_threads)() = nullptr;
};

// The calling thread's OpenMP regions have one thread while this lives. The setting belongs to the thread that makes it.
class SingleThreaded {
 public:
  explicit SingleThreaded(const OneDnn& library) : library_(library), before_(library.omp_get_max_threads()) {
    library_.omp_set_num_threads(1);
  }
  ~SingleThreaded() { library_.omp_set_num_threads(before_); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  const OneDnn& library_;
  int before_;
};

}  // namespace roofline::cpu
