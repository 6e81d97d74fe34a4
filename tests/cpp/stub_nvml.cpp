// A shared library with NVML's names. With STUB_NVML_FEW it has only those of an old driver.
#include "stub_nvml.h"

#include <cstdio>
#include <cstring>

using namespace roofline::cuda::nv;

namespace {
StubNvml stub;

template <class T>
Status answer(T* to, unsigned long long value) {
  if (stub.everything != success) return stub.everything;
  return *to = static_cast<T>(value), success;
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API StubNvml* stub_nvml() { return &stub; }

API Status nvmlInit_v2() { return stub.init; }
API const char* nvmlErrorString(Status status) { return status == no_permission ? "Insufficient Permissions" : "an error"; }
API Status nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Handle* handle) {
  if (std::strcmp(bus, "0000:01:00.0") != 0) return static_cast<Status>(6);
  *handle = reinterpret_cast<Handle>(&stub);
  return stub.by_bus;
}
API Status nvmlDeviceGetClockInfo(Handle, Clock clock, unsigned* mhz) {
  if (clock == clock_sm) ++stub.readings;
  return answer(mhz, clock == clock_sm ? stub.sm_mhz : stub.memory_mhz);
}
API Status nvmlDeviceGetPowerUsage(Handle, unsigned* mw) { return answer(mw, stub.power_mw); }
#if defined(STUB_NVML_FEW)
API Status nvmlDeviceGetCurrentClocksThrottleReasons(Handle, unsigned long long* reasons) { return answer(reasons, stub.reasons); }
#else
API Status nvmlDeviceGetCurrentClocksEventReasons(Handle, unsigned long long* reasons) { return answer(reasons, stub.reasons); }
API Status nvmlSystemGetDriverVersion(char* text, unsigned size) { return std::snprintf(text, size, "580.65.06"), stub.everything; }
API Status nvmlDeviceGetFieldValues(Handle, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].status = stub.instant_power && values[i].field == field_power_instant ? stub.everything : not_supported;
    values[i].type = value_unsigned, values[i].value.whole = stub.power_mw;
  }
  return success;
}
API Status nvmlDeviceGetTemperature(Handle, Sensor, unsigned* c) { return answer(c, stub.temperature_c); }
API Status nvmlDeviceGetTotalEnergyConsumption(Handle, unsigned long long* mj) { return answer(mj, stub.energy_mj); }
API Status nvmlDeviceGetEnforcedPowerLimit(Handle, unsigned* mw) { return answer(mw, 650'000); }
API Status nvmlDeviceGetPowerManagementDefaultLimit(Handle, unsigned* mw) { return answer(mw, 700'000); }
API Status nvmlDeviceGetPersistenceMode(Handle, int* mode) { return answer(mode, 1); }
API Status nvmlDeviceGetMigMode(Handle, unsigned* now, unsigned* pending) { return answer(pending, 0), answer(now, 0); }
API Status nvmlDeviceGetComputeMode(Handle, int* mode) { return answer(mode, 3); }
API Status nvmlDeviceGetCurrPcieLinkGeneration(Handle, unsigned* value) { return answer(value, 4); }
API Status nvmlDeviceGetMaxPcieLinkGeneration(Handle, unsigned* value) { return answer(value, 5); }
API Status nvmlDeviceGetCurrPcieLinkWidth(Handle, unsigned* value) { return answer(value, 8); }
API Status nvmlDeviceGetMaxPcieLinkWidth(Handle, unsigned* value) { return answer(value, 16); }
API Status nvmlDeviceGetComputeRunningProcesses_v3(Handle, unsigned* count, Process* to) {
  if (stub.everything != success) return stub.everything;
  const unsigned room = *count;
  *count = static_cast<unsigned>(stub.processes.size());
  if (*count > room) return insufficient_size;
  for (unsigned i = 0; i < *count; ++i) to[i] = stub.processes[i];
  return success;
}
#endif
