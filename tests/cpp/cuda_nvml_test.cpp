// What the backend makes of NVML, over stubs of it: one that tells everything, an old driver's, one that forbids, and none.
#include "cuda/libraries/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <thread>

#include "core/sampling.h"
#include "cuda/device.h"
#include "fake_cuda.h"
#include "stub_nvml.h"

namespace {

using namespace roofline;
using namespace roofline::cuda;

constexpr const char* kBus = "0000:01:00.0";

StubNvml& stub_of(const char* file) {
  return *reinterpret_cast<StubNvml* (*)()>(dlsym(dlopen(file, RTLD_NOW), "stub_nvml"))();
}
StubNvml& stub() {
  static StubNvml& one = stub_of(STUB_NVML);
  return one;
}
const Nvml& full() {
  static const Nvml library = open_nvml(STUB_NVML);
  return library;
}
const Nvml& few() {
  static const Nvml library = open_nvml(STUB_NVML_FEW);
  return library;
}
const Nvml& none() {
  static const Nvml library = open_nvml("/nowhere/libnvidia-ml.so.1");  // tried again at the next call
  return library;
}

using Said = std::map<std::string, Value>;
Said all(const Telemetry::Facts& facts) { return {facts.begin(), facts.end()}; }
double number(const Said& said, const std::string& name) {
  const auto found = said.find(name);
  if (found == said.end()) return -1;
  const auto* whole = std::get_if<std::int64_t>(&found->second);
  return whole ? static_cast<double>(*whole) : std::get<double>(found->second);
}
std::string text(const Said& said, const std::string& name) {
  const auto found = said.find(name);
  return found == said.end() ? "not told" : std::get<std::string>(found->second);
}

class OverNvml : public testing::Test {
 protected:
  void SetUp() override {
    StubNvml& s = stub();
    s.init = s.by_bus = s.everything = nv::success;
    s.sm_mhz = 1980, s.memory_mhz = 3201, s.power_mw = 600'000, s.temperature_c = 60;
    s.reasons = 0, s.energy_mj = 5'000'000, s.instant_power = true, s.readings = 0;
    s.processes = {{static_cast<unsigned>(getpid()), 1 << 30, 0, 0}};
  }
};

// Until the sampler has read this often more.
void wait_readings(int more, const StubNvml& of = stub()) {
  const int until = of.readings + more;
  while (of.readings < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Load window(Telemetry& telemetry, int readings = 10, const StubNvml& of = stub()) {
  telemetry.begin();
  wait_readings(readings, of);
  Load load;
  telemetry.end(load);
  return load;
}

TEST_F(OverNvml, Facts) {
  stub().reasons = nv::gpu_idle | nv::application_clocks;
  stub().processes.push_back({1, 3 << 20, 0, 0});
  const Said said = all(Telemetry(kBus, true, full).facts());
  EXPECT_EQ(text(said, "driver_release"), "580.65.06");
  EXPECT_EQ(number(said, "power_limit_w"), 650);
  EXPECT_EQ(number(said, "power_limit_default_w"), 700);
  EXPECT_EQ(number(said, "persistence_mode"), 1);
  EXPECT_EQ(number(said, "mig_mode"), 0);
  EXPECT_EQ(text(said, "compute_mode"), "exclusive");
  EXPECT_EQ(number(said, "pcie_generation") * 100 + number(said, "pcie_generation_max"), 405);
  EXPECT_EQ(number(said, "pcie_width") * 100 + number(said, "pcie_width_max"), 816);
  EXPECT_EQ(number(said, "other_processes"), 1);
  EXPECT_EQ(number(said, "other_processes_bytes"), 3 << 20);
  EXPECT_EQ(text(said, "clock_reasons"), "gpu_idle,application_clocks");
  EXPECT_EQ(said.count("nvml_missing"), 0u);
}

TEST_F(OverNvml, OtherProcesses) {
  const auto others = [](const char* name) { return number(all(Telemetry(kBus, true, full).facts()), name); };
  EXPECT_EQ(others("other_processes"), 0);
  stub().processes = {{1, 1 << 20, 0, 0}, {2, 1 << 20, 0, 0}};  // ours among them, by the host's number
  EXPECT_EQ(others("other_processes"), 1);
  EXPECT_EQ(others("other_processes_bytes"), -1) << "whose is which is not known";
  stub().processes.clear();
  EXPECT_EQ(others("other_processes"), -1) << "a container that sees none, not even itself";
  for (unsigned pid = 1; pid <= 100; ++pid) stub().processes.push_back({pid, 10, 0, 0});
  stub().processes.push_back({static_cast<unsigned>(getpid()), 1 << 30, 0, 0});
  EXPECT_EQ(others("other_processes"), 100) << "more than there is room for at first";
  EXPECT_EQ(others("other_processes_bytes"), 1000);
  stub().processes[0].used_bytes = nv::kUnknownBytes;
  EXPECT_EQ(others("other_processes_bytes"), -1);
}

TEST_F(OverNvml, AWindowIsSummedUp) {
  Telemetry telemetry(kBus, true, full);
  telemetry.begin();
  wait_readings(12);
  stub().sm_mhz = 1500, stub().power_mw = 700'000, stub().temperature_c = 71, stub().reasons = nv::sw_power_cap;
  wait_readings(6);
  Load load;
  telemetry.end(load);
  const Said said = all(load.conditions);
  EXPECT_EQ(number(said, "sm_clock_hz"), 1980e6) << "the middle";
  EXPECT_EQ(number(said, "memory_clock_hz"), 3201e6);
  EXPECT_EQ(number(said, "power_w"), 600);
  EXPECT_EQ(number(said, "power_max_w"), 700);
  EXPECT_EQ(number(said, "temperature_c"), 71) << "the highest";
  EXPECT_NEAR(number(said, "sw_power_cap_share"), 6.0 / 18, 0.08);
  EXPECT_EQ(number(said, "power_limited"), 1);
  EXPECT_EQ(said.count("hw_slowdown_share") + said.count("gpu_idle_share"), 0u);
  EXPECT_EQ(number(said, "other_processes"), 0);
  EXPECT_GT(load.wall_s, 0.1);
  const double mean_w = 600 + 100 * number(said, "sw_power_cap_share");
  EXPECT_NEAR(number(said, "energy_j"), mean_w * load.wall_s, 0.06 * mean_w * load.wall_s);
  EXPECT_EQ(text(said, "energy_source"), "power readings");
  EXPECT_FALSE(load.throttled) << "the power cap is a property of the ceiling";
  EXPECT_FALSE(is_contended(load, false));
}

TEST_F(OverNvml, HeatAndFaultsOfTheSupplyAreThrottling) {
  Telemetry telemetry(kBus, true, full);
  for (const nv::Reason reason : {nv::hw_slowdown, nv::sw_thermal_slowdown, nv::hw_thermal_slowdown, nv::hw_power_brake}) {
    stub().reasons = reason | nv::sw_power_cap;
    const Load load = window(telemetry);
    EXPECT_TRUE(load.throttled && is_contended(load, false) && is_contended(load, true)) << reason;
  }
  for (const nv::Reason reason : {nv::gpu_idle, nv::application_clocks, nv::sw_power_cap, nv::sync_boost, nv::display_clocks}) {
    stub().reasons = reason;
    EXPECT_FALSE(window(telemetry).throttled) << reason;
  }
}

TEST_F(OverNvml, EnergyOfALongWindowIsCounted) {
  Telemetry telemetry(kBus, true, full);
  telemetry.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  stub().energy_mj = 5'000'000 + 650'000;
  Load load;
  telemetry.end(load);
  const Said said = all(load.conditions);
  EXPECT_NEAR(number(said, "energy_j"), 650, 1e-6);
  EXPECT_EQ(text(said, "energy_source"), "counter");
}

TEST_F(OverNvml, EnergyThatIsNotOursIsLeftOut) {
  Telemetry part(kBus, false, full);
  EXPECT_EQ(all(window(part).conditions).count("energy_j"), 0u) << "an instance of a GPU";
  stub().processes.push_back({1, 1 << 20, 0, 0});
  Telemetry shared(kBus, true, full);
  EXPECT_EQ(all(window(shared).conditions).count("energy_j"), 0u) << "another process";
  stub().processes.pop_back();
  stub().instant_power = false;
  Telemetry averaged(kBus, true, full);
  const Said said = all(window(averaged).conditions);
  EXPECT_EQ(said.count("energy_j"), 0u) << "an average over a second says little of a shorter window";
  EXPECT_EQ(number(said, "power_w"), 600);
}

TEST_F(OverNvml, WithoutPermission) {
  stub().everything = nv::no_permission;
  Telemetry telemetry(kBus, true, full);
  EXPECT_TRUE(telemetry.facts().empty());
  const Load load = window(telemetry);
  EXPECT_TRUE(load.conditions.empty());
  EXPECT_FALSE(load.throttled);
}

TEST_F(OverNvml, AnOldDriverTellsWhatItCan) {
  static StubNvml& old = stub_of(STUB_NVML_FEW);
  old.reasons = nv::hw_slowdown;
  Telemetry telemetry(kBus, true, few);
  const Said said = all(telemetry.facts());
  EXPECT_EQ(said.size(), 1u);
  EXPECT_EQ(text(said, "clock_reasons"), "hw_slowdown");
  const Load load = window(telemetry, 6, old);
  const Said seen = all(load.conditions);
  EXPECT_EQ(number(seen, "power_w"), 600);
  EXPECT_EQ(seen.count("temperature_c") + seen.count("energy_j") + seen.count("other_processes"), 0u);
  EXPECT_TRUE(load.throttled);
}

TEST_F(OverNvml, WhereItCannotBeUsedItSaysWhy) {
  const auto reason = [](const Telemetry& telemetry) { return text(all(telemetry.facts()), "nvml_missing"); };
  Telemetry missing(kBus, true, none);
  EXPECT_NE(reason(missing).find("/nowhere/libnvidia-ml.so.1"), std::string::npos);
  Load load = {};
  missing.begin();
  missing.end(load);
  EXPECT_TRUE(load.conditions.empty() && !load.throttled);
  EXPECT_NE(reason(Telemetry("0000:09:00.0", true, full)).find("does not know this GPU"), std::string::npos);
  stub().init = nv::no_permission;
  EXPECT_THROW(open_nvml(STUB_NVML), Unsupported);
  EXPECT_THROW(open_nvml("libm.so.6"), Unsupported);
}

TEST_F(OverNvml, AWindowThatIsNeverEndedEndsWithTheNextAndWithTheGpu) {
  Telemetry telemetry(kBus, true, full);
  telemetry.begin();
  wait_readings(2);
  const Load load = window(telemetry);
  EXPECT_FALSE(load.conditions.empty());
  telemetry.begin();
}

// The device asks it, and the sampling policy measures again where it throttled.
TEST_F(OverNvml, AThrottledSampleIsTakenAgain) {
  fake::reset();
  set_nvml_path(STUB_NVML);
  {
    const auto device = cuda::open(0);
    EXPECT_EQ(number(all(device->facts()), "power_limit_w"), 650);
    EXPECT_NEAR(number(all(device->facts()), "memory_bytes_per_s"), 2 * 1e9 * 6144 / 8, 1);
    Target target;
    target.sets = {{[](Queue&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      fake::runtime().clock_s += 2e-3;
    }}};
    const Policy policy{.warmup_min_s = 0.01, .warmup_max_s = 0.04, .batch_s = 5e-3, .min_samples = 10, .min_s = 0.1, .max_s = 0.2,
                        .noise = 0.005, .bracket_s = 0.012, .tries = 2};
    stub().reasons = nv::hw_thermal_slowdown;
    const auto measured = [&] { return sample_bracketed(*device, target, {target}, policy, [](const auto&) { return 0; }, {}); };
    const Bracketed hot = measured();
    EXPECT_TRUE(hot.contended && hot.sampled.load.throttled);
    EXPECT_EQ(hot.repeats, 1);
    stub().reasons = nv::sw_power_cap;
    const Bracketed limited = measured();
    EXPECT_FALSE(limited.contended);
    EXPECT_EQ(limited.repeats, 0);
    EXPECT_EQ(number(all(limited.sampled.load.conditions), "power_limited"), 1);
    EXPECT_THROW(set_nvml_path(STUB_NVML), Error);
  }
  EXPECT_EQ(fake::runtime().streams, 0);
}

}  // namespace
