// The GPUs of this machine: which there are, why there are none, and what planning needs to know of one.
#include <cuda_runtime_api.h>

#include "cuda/check.h"
#include "cuda/device.h"

namespace roofline::cuda {

std::string cuda_version_text(int version) {
  return version ? std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) : "none";
}

namespace {

std::string versions() {
  int driver = 0, runtime = 0;
  ROOFLINE_CUDA_NOEXCEPT(cudaDriverGetVersion(&driver));
  ROOFLINE_CUDA_NOEXCEPT(cudaRuntimeGetVersion(&runtime));
  return "driver for CUDA " + cuda_version_text(driver) + ", runtime " + cuda_version_text(runtime);
}

// Usable GPUs, or the reason why there is none.
std::string count_gpus(int& count) {
  count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  count = 0;
  return "no usable GPU: " + describe(code == cudaSuccess ? cudaErrorNoDevice : code) + "; " + versions();
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  ROOFLINE_CUDA(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

}  // namespace

Properties find_properties(int index) {
  cudaDeviceProp all{};
  ROOFLINE_CUDA(cudaGetDeviceProperties(&all, index));
  char bus[32] = "";
  ROOFLINE_CUDA_NOEXCEPT(cudaDeviceGetPCIBusId(bus, sizeof bus, index));
  Properties p;
  p.gpu_name = all.name;
  p.pci_bus_id = bus;
  p.capability = all.major * 10 + all.minor;
  p.sms = all.multiProcessorCount;
  p.threads_per_sm = all.maxThreadsPerMultiProcessor;
  p.shared_bytes_per_sm = static_cast<std::int64_t>(all.sharedMemPerMultiprocessor);
  p.shared_bytes_per_block = static_cast<std::int64_t>(all.sharedMemPerBlockOptin);
  p.l2_bytes = all.l2CacheSize;
  p.memory_bytes = static_cast<std::int64_t>(all.totalGlobalMem);
  p.memory_bus_bits = all.memoryBusWidth;
  // CUDA 13 took the clocks out of cudaDeviceProp; the attributes are in kHz.
  p.clock_hz = 1e3 * attribute(cudaDevAttrClockRate, index);
  p.memory_clock_hz = 1e3 * attribute(cudaDevAttrMemoryClockRate, index);
  p.ecc = all.ECCEnabled != 0;
  p.mig = p.gpu_name.find(" MIG ") != std::string::npos;
  ROOFLINE_CUDA(cudaDriverGetVersion(&p.driver_version));
  ROOFLINE_CUDA(cudaRuntimeGetVersion(&p.runtime_version));
  return p;
}

std::vector<DeviceInfo> list_devices() {
  int count = 0;
  if (const std::string reason = count_gpus(count); !reason.empty()) return {{"cuda", "", reason}};
  std::vector<DeviceInfo> all;
  for (int index = 0; index < count; ++index) {
    DeviceInfo info{"cuda:" + std::to_string(index), "", ""};
    try {
      const Properties p = find_properties(index);
      info.summary = p.gpu_name + ", " + p.architecture() + ", " + std::to_string(p.sms) + " SMs, " +
                     std::to_string(p.memory_bytes >> 30) + " GiB";
    } catch (const Error& error) {
      info.missing = error.what();
    }
    all.push_back(std::move(info));
  }
  return all;
}

std::shared_ptr<Backend> open(int index) {
  int count = 0;
  const std::string reason = count_gpus(count);
  const std::string here = "cuda:" + std::to_string(index);
  if (!reason.empty()) throw Unsupported(here + ": " + reason);
  if (index < 0 || index >= count)
    throw Unsupported(here + ": there " + (count == 1 ? "is 1 GPU" : "are " + std::to_string(count) + " GPUs") +
                      ", numbered from cuda:0 (CUDA_VISIBLE_DEVICES counts)");
  return std::make_shared<Device>(index);
}

}  // namespace roofline::cuda
