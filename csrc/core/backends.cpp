// The one file that names the backends.
#include "core/backend.h"
#include "cpu/device.h"
#include "cpu/kernels.h"
#include "cpu/library.h"

#if defined(ROOFLINE_WITH_CUDA)
#include "cuda/device.h"
#include "cuda/kernels.h"
#include "cuda/libraries/cublas_lt.h"
#include "cuda/libraries/nccl.h"
#include "cuda/libraries/nvml.h"
#endif

#include "build_info.h"

namespace roofline {

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> all;
  const auto cpus = cpu::usable_cpus();
  all.push_back({"cpu", std::to_string(cpus.size()) + (cpus.size() == 1 ? " usable core" : " usable cores"), ""});
#if defined(ROOFLINE_WITH_CUDA)
  for (DeviceInfo& device : cuda::list_devices()) all.push_back(std::move(device));
#else
  all.push_back({"cuda", "", std::string("the CUDA backend was not built: ") + build_info::kCudaWhyNot});
#endif
  return all;
}

std::vector<KernelEntry> list_kernels(const std::string& backend) {
  if (backend == "cpu") return cpu::all_kernels();
#if defined(ROOFLINE_WITH_CUDA)
  if (backend == "cuda") return cuda::all_kernels();
#endif
  return {};
}

std::vector<LibraryInfo> list_libraries() {
  std::vector<LibraryInfo> all = cpu::libraries();
#if defined(ROOFLINE_WITH_CUDA)
  all.push_back(cuda::cublas_lt_info());
  all.push_back(cuda::nccl_info());
#endif
  return all;
}

std::shared_ptr<Backend> open_device(const std::string& name, int threads) {
  if (name == "cpu") return std::make_shared<cpu::Device>(threads);
  if (name == "cuda" || name.rfind("cuda:", 0) == 0) {
    const std::string number = name == "cuda" ? "0" : name.substr(5);
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos || number.size() > 3)
      throw Error("device '" + name + "': expected cuda or cuda:N with a whole number N");
#if defined(ROOFLINE_WITH_CUDA)
    return cuda::open(std::stoi(number));
#else
    throw Unsupported("device '" + name + "': the CUDA backend was not built: " + build_info::kCudaWhyNot);
#endif
  }
  throw Error("unknown device '" + name + "': use cpu, cuda or cuda:N");
}

void set_library_path(const std::string& name, const std::string& path) {
#if defined(ROOFLINE_WITH_CUDA)
  if (name == "cublaslt") return cuda::set_cublas_lt_path(path);
  if (name == "nccl") return cuda::set_nccl_path(path);
  if (name == "nvml") return cuda::set_nvml_path(path);
#else
  if (name == "cublaslt" || name == "nccl" || name == "nvml") return;  // nothing will open it
#endif
  cpu::set_library_path(name, path);
}

}  // namespace roofline
