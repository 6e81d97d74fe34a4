// NVML, opened with dlopen on first use: what a GPU says of itself, once (facts) and while it works (clocks, power, temperature and
// what slows it). The few prototypes and numbers that are used are declared here, so that its header need not be there to build;
// cuda/libraries/nvml.cpp compares them with it where it is. All of it is optional: what a driver, a GPU or a container does not
// tell is left out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/stopwatch.h"

namespace roofline::cuda {

namespace nv {

using Handle = struct NvmlDevice*;

enum Status : int { success = 0, not_supported = 3, no_permission = 4, insufficient_size = 7 };
enum Clock : int { clock_sm = 1, clock_memory = 2 };
enum Sensor : int { sensor_gpu = 0 };
enum Field : unsigned { field_power_instant = 186 };
enum ValueType : int { value_unsigned = 1 };
constexpr unsigned long long kUnknownBytes = ~0ULL;

// Why clocks are where they are: bits.
enum Reason : unsigned long long {
  gpu_idle = 0x1,
  application_clocks = 0x2,
  sw_power_cap = 0x4,
  hw_slowdown = 0x8,
  sync_boost = 0x10,
  sw_thermal_slowdown = 0x20,
  hw_thermal_slowdown = 0x40,
  hw_power_brake = 0x80,
  display_clocks = 0x100,
};

struct Process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct FieldValue {
  unsigned field, scope;
  long long time_us, latency_us;
  ValueType type;
  Status status;
  union {
    double real;
    unsigned whole;
    unsigned long long large;
  } value;
};

}  // namespace nv

// Its functions; null where the library has no such symbol, but for the first three.
struct Nvml {
  std::string path;  // of the file that was opened

  nv::Status (*init)() = nullptr;
  nv::Status (*by_bus)(const char* pci_bus_id, nv::Handle*) = nullptr;
  const char* (*error_text)(nv::Status) = nullptr;
  nv::Status (*driver_release)(char*, unsigned size) = nullptr;
  nv::Status (*clock_mhz)(nv::Handle, nv::Clock, unsigned*) = nullptr;
  nv::Status (*power_mw)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*fields)(nv::Handle, int count, nv::FieldValue*) = nullptr;
  nv::Status (*temperature_c)(nv::Handle, nv::Sensor, unsigned*) = nullptr;
  nv::Status (*reasons)(nv::Handle, unsigned long long*) = nullptr;
  nv::Status (*energy_mj)(nv::Handle, unsigned long long*) = nullptr;
  nv::Status (*power_limit_mw)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*power_limit_default_mw)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*persistence)(nv::Handle, int*) = nullptr;
  nv::Status (*mig_mode)(nv::Handle, unsigned* now, unsigned* pending) = nullptr;
  nv::Status (*compute_mode)(nv::Handle, int*) = nullptr;
  nv::Status (*pcie_generation)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*pcie_generation_max)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*pcie_width)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*pcie_width_max)(nv::Handle, unsigned*) = nullptr;
  nv::Status (*processes)(nv::Handle, unsigned* count, nv::Process*) = nullptr;
};

// The file to open instead of the driver's: for tests. Throws Error once one is open.
void set_nvml_path(const std::string& path);

// Opened and initialised once. Throws Unsupported with the reason; tried again at the next call.
const Nvml& nvml();

// The same from one file.
Nvml open_nvml(const std::string& file);

// One GPU through NVML. Nothing here throws: what cannot be read is left out.
class Telemetry {
 public:
  using Facts = std::vector<std::pair<std::string, Value>>;

  // whole: the device is all of the GPU, and no instance of it, so that its energy can be ours.
  Telemetry(const std::string& pci_bus_id, bool whole, const Nvml& (*library)() = nvml) noexcept;
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // Limits, modes, the link, other processes, and what slows the GPU now; or why NVML says nothing.
  Facts facts() const;

  // A thread reads the GPU every few milliseconds between both.
  void begin();
  void end(Load& load);  // fills wall_s, conditions and throttled

 private:
  struct Reading {
    double sm_clock_hz = 0, memory_clock_hz = 0, power_w = 0, temperature_c = 0;  // 0: not told
    unsigned long long reasons = 0;
  };
  struct Others {
    bool known = false;
    std::int64_t count = 0;
    std::int64_t bytes = -1;  // -1: not told
  };

  Reading read() const;
  Others others() const;
  double energy_j() const;  // since the driver was loaded; 0: not told
  double instant_power_w() const;  // 0: not told
  void stop();

  const Nvml* library_ = nullptr;
  nv::Handle handle_ = nullptr;
  std::string missing_;
  bool whole_;
  bool has_instant_power_ = false;

  std::thread sampler_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::vector<Reading> readings_;
  Reading last_;  // of the windows that ended
  Others others_;
  std::optional<Stopwatch> asked_;  // since both were asked for
  Stopwatch window_;
  double begun_energy_j_ = 0;
};

}  // namespace roofline::cuda
