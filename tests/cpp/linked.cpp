// Linked with the whole of the core, so that a declared body that does not exist is a link error. Lists devices and kernels.
#include <cstdio>
#include <set>

#include "core/backend.h"
#include "cpu/kernels.h"

int main() {
  for (const roofline::DeviceInfo& device : roofline::list_devices())
    std::printf("%s: %s\n", device.name.c_str(), device.missing.empty() ? device.summary.c_str() : device.missing.c_str());
  std::set<std::string> seen;
  for (const roofline::KernelEntry& kernel : roofline::cpu::all_kernels()) {
    const std::string id = kernel.op + "/" + kernel.variant + "/" + roofline::name(kernel.dtype);
    std::printf("cpu %s\n", id.c_str());
    if (!seen.insert(id).second) return std::fprintf(stderr, "%s is listed twice\n", id.c_str()), 1;
  }
}
