// Opening NVML, asking it, and summing up what it said over a window.
#include "cuda/libraries/nvml.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "cuda/libraries/opened.h"

#if defined(ROOFLINE_HAVE_NVML_HEADERS)
#include <nvml.h>
#endif

namespace roofline::cuda {
namespace {

#if defined(ROOFLINE_HAVE_NVML_HEADERS)
static_assert(nv::success == int{NVML_SUCCESS} && nv::not_supported == int{NVML_ERROR_NOT_SUPPORTED} &&
              nv::no_permission == int{NVML_ERROR_NO_PERMISSION} && nv::insufficient_size == int{NVML_ERROR_INSUFFICIENT_SIZE});
static_assert(nv::clock_sm == int{NVML_CLOCK_SM} && nv::clock_memory == int{NVML_CLOCK_MEM} &&
              nv::sensor_gpu == int{NVML_TEMPERATURE_GPU});
static_assert(nv::field_power_instant == unsigned{NVML_FI_DEV_POWER_INSTANT} &&
              nv::value_unsigned == int{NVML_VALUE_TYPE_UNSIGNED_INT});
static_assert(sizeof(nv::Process) == sizeof(nvmlProcessInfo_t) &&
              offsetof(nv::Process, used_bytes) == offsetof(nvmlProcessInfo_t, usedGpuMemory));
static_assert(sizeof(nv::FieldValue) == sizeof(nvmlFieldValue_t) &&
              offsetof(nv::FieldValue, status) == offsetof(nvmlFieldValue_t, nvmlReturn) &&
              offsetof(nv::FieldValue, value) == offsetof(nvmlFieldValue_t, value));
static_assert(nv::gpu_idle == nvmlClocksEventReasonGpuIdle && nv::sw_power_cap == nvmlClocksEventReasonSwPowerCap &&
              nv::application_clocks == nvmlClocksEventReasonApplicationsClocksSetting &&
              nv::sync_boost == nvmlClocksEventReasonSyncBoost && nv::hw_slowdown == nvmlClocksThrottleReasonHwSlowdown &&
              nv::sw_thermal_slowdown == nvmlClocksEventReasonSwThermalSlowdown &&
              nv::hw_thermal_slowdown == nvmlClocksThrottleReasonHwThermalSlowdown &&
              nv::hw_power_brake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown &&
              nv::display_clocks == nvmlClocksEventReasonDisplayClockSetting);
#endif

constexpr std::pair<nv::Reason, const char*> kReasons[] = {{nv::gpu_idle, "gpu_idle"},
                                                           {nv::application_clocks, "application_clocks"},
                                                           {nv::sw_power_cap, "sw_power_cap"},
                                                           {nv::hw_slowdown, "hw_slowdown"},
                                                           {nv::sync_boost, "sync_boost"},
                                                           {nv::sw_thermal_slowdown, "sw_thermal_slowdown"},
                                                           {nv::hw_thermal_slowdown, "hw_thermal_slowdown"},
                                                           {nv::hw_power_brake, "hw_power_brake"},
                                                           {nv::display_clocks, "display_clocks"}};
// Heat and faults of the supply. The power cap is none of them: it is what a sustained ceiling is made of.
constexpr unsigned long long kThrottling = nv::hw_slowdown | nv::sw_thermal_slowdown | nv::hw_thermal_slowdown | nv::hw_power_brake;
constexpr double kThrottledShare = 0.02;  // of the window, as for other load on a CPU
constexpr double kLimitedShare = 0.05;    // more than one reading in a short window
constexpr auto kPeriod = std::chrono::milliseconds(10);
// The energy counter moves in steps of up to 100 ms: over a second it is within a tenth. Below, readings of the power are summed.
constexpr double kCounterWindow_s = 1;
// A window without readings of its own takes those of an earlier one that are not older, rather than call NVML again.
constexpr double kFresh_s = 0.25;
constexpr std::size_t kFewestPowerReadings = 5;

// null where the library is too old for it
template <class Function>
void take(const SharedObject& from, Function& function, const char* symbol) {
  if (!function) function = from.find<Function>(symbol);
}

// What a call gives; 0 where there is no such function, or it fails.
template <class T>
double ask(nv::Status (*function)(nv::Handle, T*), nv::Handle handle) {
  T value{};
  return function && function(handle, &value) == nv::success ? static_cast<double>(value) : 0;
}

template <class Kind>
double ask(nv::Status (*function)(nv::Handle, Kind, unsigned*), nv::Handle handle, Kind kind) {
  unsigned value = 0;
  return function && function(handle, kind, &value) == nv::success ? static_cast<double>(value) : 0;
}

// The same as a fact, where it is told.
template <class T>
void add(Telemetry::Facts& facts, const char* name, nv::Status (*function)(nv::Handle, T*), nv::Handle handle, double scale = 0) {
  T value{};
  if (!function || function(handle, &value) != nv::success) return;
  if (scale > 0)
    facts.emplace_back(name, scale * static_cast<double>(value));
  else
    facts.emplace_back(name, static_cast<std::int64_t>(value));
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

void set_nvml_path(const std::string& path) { opened<Nvml>().prefer("nvml", path); }

Nvml open_nvml(const std::string& file) {
  SharedObject from(file);
  Nvml library;
  take(from, library.init, "nvmlInit_v2");
  take(from, library.by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
  take(from, library.error_text, "nvmlErrorString");
  take(from, library.driver_release, "nvmlSystemGetDriverVersion");
  take(from, library.clock_mhz, "nvmlDeviceGetClockInfo");
  take(from, library.power_mw, "nvmlDeviceGetPowerUsage");
  take(from, library.fields, "nvmlDeviceGetFieldValues");
  take(from, library.temperature_c, "nvmlDeviceGetTemperature");
  take(from, library.reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  take(from, library.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // its name before driver 535
  take(from, library.energy_mj, "nvmlDeviceGetTotalEnergyConsumption");
  take(from, library.power_limit_mw, "nvmlDeviceGetEnforcedPowerLimit");
  take(from, library.power_limit_default_mw, "nvmlDeviceGetPowerManagementDefaultLimit");
  take(from, library.persistence, "nvmlDeviceGetPersistenceMode");
  take(from, library.mig_mode, "nvmlDeviceGetMigMode");
  take(from, library.compute_mode, "nvmlDeviceGetComputeMode");
  take(from, library.pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  take(from, library.pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration");
  take(from, library.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  take(from, library.pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth");
  take(from, library.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!library.init || !library.by_bus || !library.error_text) throw Unsupported(file + " is not NVML, or too old");
  library.path = SharedObject::path_of(library.init);
  from.keep();
  if (const nv::Status status = library.init(); status != nv::success)
    throw Unsupported(std::string("NVML does not start: ") + library.error_text(status));
  return library;
}

const Nvml& nvml() {
  return opened<Nvml>().get("libnvidia-ml.so.1", [](const std::vector<std::string>& files) { return open_nvml(files.front()); });
}

Telemetry::Telemetry(const std::string& pci_bus_id, bool whole, const Nvml& (*open)()) noexcept : whole_(whole) {
  try {
    const Nvml& library = open();
    if (const nv::Status status = library.by_bus(pci_bus_id.c_str(), &handle_); status != nv::success)
      throw Unsupported(std::string("NVML does not know this GPU: ") + library.error_text(status));
    library_ = &library;
    has_instant_power_ = instant_power_w() > 0;
  } catch (const std::exception& why) {
    missing_ = why.what();
  }
}

Telemetry::~Telemetry() { stop(); }

double Telemetry::instant_power_w() const {
  if (!library_->fields) return 0;
  nv::FieldValue value{};
  value.field = nv::field_power_instant;
  const bool told = library_->fields(handle_, 1, &value) == nv::success && value.status == nv::success &&
                    value.type == nv::value_unsigned;
  return told ? 1e-3 * value.value.whole : 0;
}

double Telemetry::energy_j() const { return 1e-3 * ask(library_->energy_mj, handle_); }

Telemetry::Reading Telemetry::read() const {
  Reading reading;
  reading.sm_clock_hz = 1e6 * ask(library_->clock_mhz, handle_, nv::clock_sm);
  reading.memory_clock_hz = 1e6 * ask(library_->clock_mhz, handle_, nv::clock_memory);
  reading.power_w = has_instant_power_ ? instant_power_w() : 1e-3 * ask(library_->power_mw, handle_);
  reading.temperature_c = ask(library_->temperature_c, handle_, nv::sensor_gpu);
  if (library_->reasons && library_->reasons(handle_, &reading.reasons) != nv::success) reading.reasons = 0;
  return reading;
}

// In a container NVML may number processes as the host does, and ours is then one of those we do not know.
Telemetry::Others Telemetry::others() const {
  if (!library_->processes) return {};
  std::vector<nv::Process> all(64);
  auto count = static_cast<unsigned>(all.size());
  nv::Status status = library_->processes(handle_, &count, all.data());
  if (status == nv::insufficient_size) {
    all.resize(2 * std::size_t{count});
    count = static_cast<unsigned>(all.size());
    status = library_->processes(handle_, &count, all.data());
  }
  if (status != nv::success || count == 0) return {};  // not even ours: this container does not see them
  all.resize(std::min<std::size_t>(count, all.size()));
  const auto own = static_cast<unsigned>(getpid());
  const auto ours = [own](const nv::Process& each) { return each.pid == own; };
  Others found{true, static_cast<std::int64_t>(all.size()) - 1, -1};
  if (std::none_of(all.begin(), all.end(), ours)) return found;
  all.erase(std::remove_if(all.begin(), all.end(), ours), all.end());
  found.count = static_cast<std::int64_t>(all.size());
  found.bytes = 0;
  for (const nv::Process& each : all) {
    if (each.used_bytes == nv::kUnknownBytes) return {true, found.count, -1};
    found.bytes += static_cast<std::int64_t>(each.used_bytes);
  }
  return found;
}

Telemetry::Facts Telemetry::facts() const {
  Facts all;
  if (!library_) {
    all.emplace_back("nvml_missing", missing_);
    return all;
  }
  char release[96] = "";
  if (library_->driver_release && library_->driver_release(release, sizeof release) == nv::success)
    all.emplace_back("driver_release", std::string(release));
  add(all, "power_limit_w", library_->power_limit_mw, handle_, 1e-3);
  add(all, "power_limit_default_w", library_->power_limit_default_mw, handle_, 1e-3);
  add(all, "persistence_mode", library_->persistence, handle_);
  unsigned now = 0, pending = 0;
  if (library_->mig_mode && library_->mig_mode(handle_, &now, &pending) == nv::success)
    all.emplace_back("mig_mode", std::int64_t{now});
  int mode = 0;
  if (library_->compute_mode && library_->compute_mode(handle_, &mode) == nv::success)
    all.emplace_back("compute_mode", std::string(mode == 0 ? "default" : mode == 2 ? "prohibited" : "exclusive"));
  add(all, "pcie_generation", library_->pcie_generation, handle_);
  add(all, "pcie_generation_max", library_->pcie_generation_max, handle_);
  add(all, "pcie_width", library_->pcie_width, handle_);
  add(all, "pcie_width_max", library_->pcie_width_max, handle_);
  if (const Others found = others(); found.known) {
    all.emplace_back("other_processes", found.count);
    if (found.bytes >= 0) all.emplace_back("other_processes_bytes", found.bytes);
  }
  unsigned long long reasons = 0;
  if (library_->reasons && library_->reasons(handle_, &reasons) == nv::success) {
    std::string names;
    for (const auto& [reason, name] : kReasons)
      if (reasons & reason) names.append(names.empty() ? "" : ",").append(name);
    all.emplace_back("clock_reasons", names);
  }
  return all;
}

void Telemetry::begin() {
  if (!library_) return;
  stop();
  readings_.clear();
  stopping_ = false;
  begun_energy_j_ = energy_j();
  window_ = Stopwatch();
  try {
    sampler_ = std::thread([this] {
      std::unique_lock<std::mutex> lock(mutex_);
      while (!wake_.wait_for(lock, kPeriod, [this] { return stopping_; })) readings_.push_back(read());
    });
  } catch (const std::system_error&) {  // no more threads: end() then says nothing
  }
}

void Telemetry::stop() {
  if (!sampler_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  sampler_.join();
}

void Telemetry::end(Load& load) {
  if (!library_ || !sampler_.joinable()) return;
  load.wall_s = window_.seconds();
  const double counted_j = load.wall_s >= kCounterWindow_s ? energy_j() - begun_energy_j_ : 0;
  stop();
  const bool asks = !readings_.empty() || !asked_ || asked_->seconds() > kFresh_s;
  if (readings_.empty()) readings_.push_back(asks ? read() : last_);
  if (asks) others_ = others(), last_ = readings_.back(), asked_.emplace();
  auto& said = load.conditions;
  // One quantity of all readings that have it.
  const auto told = [&](double Reading::* member) {
    std::vector<double> values;
    for (const Reading& each : readings_)
      if (each.*member > 0) values.push_back(each.*member);
    return values;
  };
  for (const auto& [name, member] :
       {std::pair{"sm_clock_hz", &Reading::sm_clock_hz}, {"memory_clock_hz", &Reading::memory_clock_hz}})
    if (const auto values = told(member); !values.empty()) said.emplace_back(name, median(values));
  const auto power = told(&Reading::power_w);
  if (!power.empty()) {
    said.emplace_back("power_w", median(power));
    said.emplace_back("power_max_w", *std::max_element(power.begin(), power.end()));
  }
  if (const auto values = told(&Reading::temperature_c); !values.empty())
    said.emplace_back("temperature_c", *std::max_element(values.begin(), values.end()));

  const auto share = [&](unsigned long long bits) {
    const auto seen = std::count_if(readings_.begin(), readings_.end(), [&](const Reading& each) { return each.reasons & bits; });
    return static_cast<double>(seen) / static_cast<double>(readings_.size());
  };
  for (const auto& [reason, name] : kReasons)
    if (const double part = share(reason); part > 0) said.emplace_back(std::string(name) + "_share", part);
  load.throttled = share(kThrottling) > kThrottledShare;
  if (share(nv::sw_power_cap) > kLimitedShare) said.emplace_back("power_limited", std::int64_t{1});

  if (others_.known) said.emplace_back("other_processes", others_.count);
  if (!whole_ || others_.count > 0) return;  // the energy is then not ours alone
  if (begun_energy_j_ > 0 && load.wall_s >= kCounterWindow_s) {
    said.emplace_back("energy_j", counted_j);
    said.emplace_back("energy_source", std::string("counter"));
  } else if (has_instant_power_ && power.size() >= kFewestPowerReadings) {
    double sum = 0;
    for (const double each : power) sum += each;
    said.emplace_back("energy_j", sum / static_cast<double>(power.size()) * load.wall_s);
    said.emplace_back("energy_source", std::string("power readings"));
  }
}

}  // namespace roofline::cuda
