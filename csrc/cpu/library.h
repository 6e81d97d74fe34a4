// CPU libraries, opened with dlopen on first use: oneDNN and OpenBLAS. One that is not there is Unsupported, with the reason and
// the cure.
#pragma once

#include <string>
#include <vector>

#include "core/backend.h"

namespace roofline::cpu {

// The file to open for `name` ("onednn", "openblas"), tried before the system's. Throws Error once that library is open.
void set_library_path(const std::string& name, const std::string& path);

// Opens both: what they are, or why not.
std::vector<LibraryInfo> libraries();

// CBLAS as OpenBLAS exports it. Declared here: the prototypes and the two constants have not changed since 1998, and the
// packages that bring the header need not be there to build.
struct OpenBlas {
  static constexpr int kRowMajor = 101, kNoTranspose = 111;

  template <class T>
  using Gemm = void (*)(int order, int transpose_a, int transpose_b, int rows, int columns, int inner, T alpha, const T* a, int lda,
                        const T* b, int ldb, T beta, T* c, int ldc);

  LibraryInfo info;
  std::string core;  // whose kernels it uses: "SkylakeX"
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
};

struct OneDnn;  // cpu/onednn.h

// Throw Unsupported with the reason.
const OpenBlas& openblas();
const OneDnn& onednn();

// The same from the first of `files` that can be used; throws Unsupported with the reason for every one.
OpenBlas open_openblas(const std::vector<std::string>& files);
OneDnn open_onednn(const std::vector<std::string>& files);

}  // namespace roofline::cpu
