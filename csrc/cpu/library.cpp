// Opening oneDNN and OpenBLAS: where the file is, whether it is the right one, and how far it may use the CPU.
#include "cpu/library.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/shared_object.h"
#include "cpu/isa.h"
#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
#include "cpu/onednn.h"
#endif

namespace roofline::cpu {

#if !defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
struct OneDnn {
  LibraryInfo info;
};
#endif

namespace {

#if !defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
constexpr const char* kOneDnnCure = "install them with: pip install onednn-devel-cpu-gomp==2023.2.0, and build roofline again";
#elif DNNL_VERSION_MAJOR >= 3
constexpr const char* kOneDnnCure = "install it with: pip install onednn-cpu-gomp==2023.2.0";
#else
constexpr const char* kOneDnnCure = "install it with: apt install libdnnl2";
#endif
constexpr const char* kOpenBlasCure = "install it with: pip install scipy-openblas32 (or apt install libopenblas0)";

[[maybe_unused]] bool isa_is_limited() {
  const char* limit = std::getenv("ROOFLINE_ISA");
  return limit && *limit;
}

// An environment variable while this lives; the user's value is there again afterwards, so that a NumPy imported later does not
// follow ours.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// OPENBLAS_CORETYPE to open with; empty leaves it to OpenBLAS.
std::string openblas_core() {
  const char* users = std::getenv("OPENBLAS_CORETYPE");
  if (users && *users) return "";
#if defined(__x86_64__)
  // It takes a CPU that it does not know for a Haswell: half the speed of the AVX-512 kernels on a Zen 5 (1.9x, sgemm).
  if (has(Isa::avx512)) return "SkylakeX";
  if (isa_is_limited()) return has(Isa::avx2) ? "Haswell" : "Nehalem";
#endif
  return "";
}

OpenBlas open_one_openblas(const std::string& file) {
  const std::string core = openblas_core();
  std::optional<Environment> forced;
  if (!core.empty()) forced.emplace("OPENBLAS_CORETYPE", core);
  // It starts its threads when it is opened, and they would stay; ours call it single-threaded.
  const Environment one_thread("OPENBLAS_NUM_THREADS", "1");
  SharedObject library(file);
  OpenBlas blas;
  const std::string prefix = library.find<void*>("scipy_cblas_dgemm") ? "scipy_" : "";
  const char* (*config)() = nullptr;
  char* (*corename)() = nullptr;
  void (*set_num_threads)(int) = nullptr;
  library.take(blas.sgemm, prefix + "cblas_sgemm");
  library.take(blas.dgemm, prefix + "cblas_dgemm");
  library.take(config, prefix + "openblas_get_config");
  library.take(corename, prefix + "openblas_get_corename");
  library.take(set_num_threads, prefix + "openblas_set_num_threads");
  const std::string built = config();  // "OpenBLAS 0.3.34 DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64"
  if (built.find("USE64BITINT") != std::string::npos) throw Unsupported("it has 64-bit integers; 32-bit ones are needed");
  set_num_threads(1);
  const std::size_t space = built.find(' ');
  const std::size_t from = space == std::string::npos ? 0 : space + 1;
  blas.info = {"openblas", built.substr(from, built.find(' ', from) - from), SharedObject::path_of(blas.sgemm), ""};
  blas.core = corename();
  library.keep();
  return blas;
}

#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)

dnnl_cpu_isa_t highest_allowed() {
  if (has(Isa::amx)) return dnnl_cpu_isa_avx512_core_amx;
#if DNNL_VERSION_MAJOR >= 3
  if (has(Isa::avx512_fp16)) return dnnl_cpu_isa_avx512_core_fp16;
#endif
  if (has(Isa::avx512_bf16)) return dnnl_cpu_isa_avx512_core_bf16;
  if (has(Isa::avx512_vnni)) return dnnl_cpu_isa_avx512_core_vnni;
  if (has(Isa::avx512)) return dnnl_cpu_isa_avx512_core;
  return has(Isa::avx2) ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41;
}

OneDnn open_one_onednn(const std::string& file) {
  SharedObject library(file);
  OneDnn dnnl;
  library.take(dnnl.version, "dnnl_version");  // first: by the version the names of the rest are known
  const dnnl_version_t& version = *dnnl.version();
  if (version.major != DNNL_VERSION_MAJOR)
    throw Unsupported("it is oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) +
                      ", but roofline was built for " + std::to_string(DNNL_VERSION_MAJOR) + ".x");
#define ROOFLINE_TAKE(name) library.take(dnnl.name, "dnnl_" #name);
  ROOFLINE_ONEDNN_FUNCTIONS(ROOFLINE_TAKE)
#undef ROOFLINE_TAKE
  dnnl.omp_set_num_threads = library.find<decltype(dnnl.omp_set_num_threads)>("omp_set_num_threads");
  dnnl.omp_get_max_threads = library.find<decltype(dnnl.omp_get_max_threads)>("omp_get_max_threads");
  if (!dnnl.omp_set_num_threads || !dnnl.omp_get_max_threads)
    throw Unsupported("it is not an OpenMP build, so it cannot be kept to one thread per caller");
#if defined(__x86_64__)
  if (isa_is_limited() && dnnl.set_max_cpu_isa(highest_allowed()) != dnnl_success)
    throw Unsupported("ROOFLINE_ISA cannot limit it: it was already in use in this process");
  const unsigned isa = dnnl.get_effective_cpu_isa();
  dnnl.vnni = (isa & dnnl_cpu_isa_avx512_core_vnni) == dnnl_cpu_isa_avx512_core_vnni;
#endif
  dnnl.info = {"onednn",
               std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch),
               SharedObject::path_of(dnnl.version), ""};
  library.keep();
  return dnnl;
}

#endif

// A library that is opened once, and stays open or missing.
template <class Library>
class Lazy {
 public:
  Lazy(const char* name, Library (*open)(const std::vector<std::string>&), std::vector<std::string> sonames)
      : name_(name), open_(open), files_(std::move(sonames)) {}

  void prefer(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (path == preferred_) return;
    if (tried_)
      throw Error("set_library_path: " + std::string(name_) +
                  " was already looked for in this process; set its path before the first use");
    preferred_ = path;
    files_.insert(files_.begin(), path);
  }

  const Library& get() {
    std::call_once(once_, [this] {
      const std::lock_guard lock(mutex_);
      tried_ = true;
      try {
        library_ = std::make_unique<Library>(open_(files_));
      } catch (const Unsupported& why) {
        missing_ = why.what();
      }
    });
    if (!library_) throw Unsupported(missing_);
    return *library_;
  }

  LibraryInfo info() {
    try {
      return get().info;
    } catch (const Unsupported& why) {
      return {name_, "", "", why.what()};
    }
  }

 private:
  const char* name_;
  Library (*open_)(const std::vector<std::string>&);
  std::vector<std::string> files_;
  std::string preferred_;
  std::mutex mutex_;
  std::once_flag once_;
  bool tried_ = false;
  std::unique_ptr<Library> library_;
  std::string missing_;
};

std::vector<std::string> onednn_sonames() {
#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
  return {"libdnnl.so." + std::to_string(DNNL_VERSION_MAJOR)};
#else
  return {};
#endif
}

Lazy<OneDnn>& lazy_onednn() {
  static Lazy<OneDnn> lazy("onednn", open_onednn, onednn_sonames());
  return lazy;
}

Lazy<OpenBlas>& lazy_openblas() {
  static Lazy<OpenBlas> lazy("openblas", open_openblas, {"libscipy_openblas.so", "libopenblas.so.0"});
  return lazy;
}

}  // namespace

void set_library_path(const std::string& name, const std::string& path) {
  if (path.empty()) throw Error("set_library_path: the path of " + name + " is empty");
  if (name == "onednn") return lazy_onednn().prefer(path);
  if (name == "openblas") return lazy_openblas().prefer(path);
  throw Error("set_library_path: unknown library '" + name + "'; use onednn or openblas");
}

std::vector<LibraryInfo> libraries() { return {lazy_onednn().info(), lazy_openblas().info()}; }

const OpenBlas& openblas() { return lazy_openblas().get(); }
const OneDnn& onednn() { return lazy_onednn().get(); }

OpenBlas open_openblas(const std::vector<std::string>& files) {
  return open_first("OpenBLAS", kOpenBlasCure, files, open_one_openblas);
}

#if defined(ROOFLINE_HAVE_ONEDNN_HEADERS)
OneDnn open_onednn(const std::vector<std::string>& files) {
  return open_first("oneDNN", kOneDnnCure, files, open_one_onednn);
}
#else
OneDnn open_onednn(const std::vector<std::string>&) {
  throw Unsupported(std::string("oneDNN cannot be used: roofline was built without its headers; ") + kOneDnnCure);
}
#endif

}  // namespace roofline::cpu
