#include "cuda/device.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "core/stopwatch.h"
#include "cuda/check.h"
#include "cuda/device_kernels.h"
#include "cuda/kernels.h"
#include "cuda/libraries/nvtx.h"
#include "cuda/plan.h"

namespace roofline::cuda {
namespace {

// Enqueuing a chunk takes milliseconds; a gate that waits longer means that the host cannot get on (a full queue, a debugger, a
// launch that waits), and must open by itself.
constexpr std::uint64_t kGateTimeoutNs = 500'000'000;

// Long against the step of %globaltimer (1 us on some GPUs): 0.1 %.
constexpr std::uint64_t kClockNs = 1'000'000;

// Left to the driver, which needs memory of its own for kernels and their stacks.
constexpr std::size_t kSpareBytes = std::size_t{64} << 20;

bool launches_block() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value && *value && std::strcmp(value, "0") != 0;
}

}  // namespace

struct Device::Mailbox {
  volatile int open;
  volatile int timed_out;
  volatile std::uint64_t cycles;
  volatile std::uint64_t nanoseconds;
  volatile ClockStamp stamps[2][kClockStamps];  // before and after a batch
};

Device::Device(int index) : index_(index), gated_(!launches_block()) {
  use();
  try {
    properties_ = find_properties(index);
    telemetry_ = std::make_unique<Telemetry>(properties_.pci_bus_id, !properties_.mig);
    load_primitives();  // throws Unsupported where the build holds no code for this GPU
    // Non-blocking: the default stream, which other libraries use, must not wait for a gate.
    ROOFLINE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ROOFLINE_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&mailbox_), sizeof(Mailbox), cudaHostAllocMapped));
    ROOFLINE_CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_mailbox_), mailbox_, 0));
    std::memset(static_cast<void*>(mailbox_), 0, sizeof(Mailbox));
    // Twice the L2, so that reading it leaves nothing else there.
    flush_bytes_ = 2 * std::max<std::int64_t>(properties_.l2_bytes, 1 << 20);
  } catch (...) {
    destroy();
    throw;
  }
}

Device::~Device() { destroy(); }

void Device::destroy() noexcept {
  ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(index_));
  if (mailbox_) open_gate();
  for (CUevent_st* each : events_) ROOFLINE_CUDA_NOEXCEPT(cudaEventDestroy(each));
  if (order_event_) ROOFLINE_CUDA_NOEXCEPT(cudaEventDestroy(order_event_));
  if (flush_memory_) ROOFLINE_CUDA_NOEXCEPT(cudaFree(flush_memory_));
  if (stream_) ROOFLINE_CUDA_NOEXCEPT(cudaStreamDestroy(stream_));
  if (mailbox_) ROOFLINE_CUDA_NOEXCEPT(cudaFreeHost(mailbox_));
}

void Device::use() const { ROOFLINE_CUDA(cudaSetDevice(index_)); }

std::vector<std::pair<std::string, Value>> Device::facts() const {
  const Properties& p = properties_;
  std::vector<std::pair<std::string, Value>> all = {
      {"gpu_name", p.gpu_name},
      {"architecture", p.architecture()},
      {"sms", std::int64_t{p.sms}},
      {"threads_per_sm", std::int64_t{p.threads_per_sm}},
      {"shared_bytes_per_sm", p.shared_bytes_per_sm},
      {"shared_bytes_per_block", p.shared_bytes_per_block},
      {"max_clock_hz", p.clock_hz},
      {"memory_clock_hz", p.memory_clock_hz},
      {"memory_bus_bits", p.memory_bus_bits},
      {"memory_bytes_per_s", 2 * p.memory_clock_hz * static_cast<double>(p.memory_bus_bits) / 8},  // two transfers per cycle
      {"memory_bytes", p.memory_bytes},
      {"l2_bytes", p.l2_bytes},
      {"ecc", std::int64_t{p.ecc}},
      {"mig", std::int64_t{p.mig}},
      {"pci_bus_id", p.pci_bus_id},
      {"driver_version", cuda_version_text(p.driver_version)},
      {"runtime_version", cuda_version_text(p.runtime_version)},
      {"gate", std::string(gated_ ? "on" : "off")},
      {"gate_timeouts", gate_timeouts_}};
  for (auto& fact : telemetry_->facts()) all.push_back(std::move(fact));
  return all;
}

void Device::begin_load() {
  cycles_ = counted_ns_ = 0;
  telemetry_->begin();
}

Load Device::end_load() {
  Load load;
  telemetry_->end(load);
  if (counted_ns_ > 0) load.conditions.emplace_back("sm_clock_in_batches_hz", Value(cycles_ / counted_ns_ * 1e9));
  return load;
}

const std::vector<KernelEntry>& Device::kernels() const {
  static const std::vector<KernelEntry> all = all_kernels();
  return all;
}

std::string Device::lacks(const Requires& needs) const {
  if (needs.empty() || (needs.rfind("sm_", 0) == 0 && architecture_fits(needs.c_str(), properties_.capability))) return "";
  return "it needs " + needs + ", and this GPU is " + properties_.architecture();
}

std::int64_t Device::available_bytes() const {
  use();
  std::size_t free_bytes = 0, total_bytes = 0;
  ROOFLINE_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes > kSpareBytes ? static_cast<std::int64_t>(free_bytes - kSpareBytes) : 0;
}

void* Device::allocate(std::size_t size_bytes) {
  size_bytes = std::max<std::size_t>(size_bytes, 1);
  const std::int64_t available = available_bytes();
  const auto refuse = [&] {
    return OutOfMemory(name() + ": " + std::to_string(size_bytes) + " bytes are needed, " + std::to_string(available) + " of " +
                       std::to_string(properties_.memory_bytes) + " are available; use a smaller problem");
  };
  if (size_bytes > static_cast<std::size_t>(available)) throw refuse();
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, size_bytes);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw refuse();
  }
  check(code, "cudaMalloc", __FILE__, __LINE__);
  return memory;
}

void Device::release(void* memory, std::size_t) noexcept {
  if (!memory) return;
  ROOFLINE_CUDA_NOEXCEPT(cudaSetDevice(index_));
  ROOFLINE_CUDA_NOEXCEPT(cudaFree(memory));
}

void Device::copy_in(void* device, const void* source, std::size_t size_bytes) {
  use();
  ROOFLINE_CUDA(cudaMemcpyAsync(device, source, size_bytes, cudaMemcpyDefault, stream_));
  ROOFLINE_CUDA(cudaStreamSynchronize(stream_));
}

void Device::copy_out(void* host, const void* device, std::size_t size_bytes) {
  use();
  ROOFLINE_CUDA(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, stream_));
  ROOFLINE_CUDA(cudaStreamSynchronize(stream_));
}

void Device::fill(void* memory, DType dtype, std::int64_t elements, Fill fill, std::uint64_t seed) {
  use();
  if (elements == 0) return;
  if (fill == Fill::uniform) {
    launch_fill(stream_, memory, dtype, elements, seed, properties_.sms);
    ROOFLINE_CUDA_LAUNCHED("fill_kernel");
  } else {
    const std::size_t size = static_cast<std::size_t>(size_bytes(dtype, elements));
    ROOFLINE_CUDA(cudaMemsetAsync(memory, fill == Fill::zeros ? 0 : 0xA5, size, stream_));
  }
  ROOFLINE_CUDA(cudaStreamSynchronize(stream_));
}

// An event without a time in it, which a stream passes sooner.
void Device::order(CUstream_st* first, CUstream_st* then) {
  use();
  if (!order_event_) ROOFLINE_CUDA(cudaEventCreateWithFlags(&order_event_, cudaEventDisableTiming));
  ROOFLINE_CUDA(cudaEventRecord(order_event_, first));
  ROOFLINE_CUDA(cudaStreamWaitEvent(then, order_event_, 0));
}

void Device::wait_for(std::uintptr_t stream) { order(reinterpret_cast<CUstream_st*>(stream), stream_); }

void Device::signal(std::uintptr_t stream) { order(stream_, reinterpret_cast<CUstream_st*>(stream)); }

void Device::push_range(const std::string& name) { nvtx::push(name); }

void Device::pop_range() noexcept { nvtx::pop(); }

void Device::begin_profile() {
  use();
  ROOFLINE_CUDA(cudaProfilerStart());
}

void Device::end_profile() noexcept { ROOFLINE_CUDA_NOEXCEPT(cudaProfilerStop()); }

std::string Device::place_of(const void* address) const {
  use();
  cudaPointerAttributes attributes{};
  ROOFLINE_CUDA(cudaPointerGetAttributes(&attributes, address));
  const bool on_gpu = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return on_gpu ? "cuda:" + std::to_string(attributes.device) : "cpu";
}

CUevent_st* Device::event(std::size_t index) {
  while (events_.size() <= index) {
    cudaEvent_t created = nullptr;
    ROOFLINE_CUDA(cudaEventCreate(&created));
    events_.push_back(created);
  }
  return events_[index];
}

void Device::close_gate(CUstream_st* stream, bool gated) {
  mailbox_->open = 0;
  mailbox_->timed_out = 0;
  if (!gated) return;
  launch_gate(stream, &device_mailbox_->open, &device_mailbox_->timed_out, kGateTimeoutNs);
  ROOFLINE_CUDA_LAUNCHED("gate_kernel");
}

void Device::open_gate() noexcept {
  // Everything enqueued is on its way before the flag is.
  __atomic_store_n(const_cast<int*>(&mailbox_->open), 1, __ATOMIC_SEQ_CST);
}

// Opens the gate, waits, and sums the windows between event pairs 0 ... windows - 1.
double Device::finish(int windows) {
  open_gate();
  ROOFLINE_CUDA(cudaEventSynchronize(events_[2 * windows - 1]));
  double seconds = 0;
  for (int window = 0; window < windows; ++window) {
    float milliseconds = 0;
    ROOFLINE_CUDA(cudaEventElapsedTime(&milliseconds, events_[2 * window], events_[2 * window + 1]));
    seconds += 1e-3 * static_cast<double>(milliseconds);
  }
  return seconds;
}

// The clock at which the batch ran: every SM's cycles between the two stamps, over the time between them.
void Device::count_cycles() {
  ROOFLINE_CUDA(cudaStreamSynchronize(stream_));  // the second stamp comes after the last event
  for (int sm = 0; sm < kClockStamps; ++sm) {
    const volatile ClockStamp &before = mailbox_->stamps[0][sm], &after = mailbox_->stamps[1][sm];
    if (before.nanoseconds == 0 || after.nanoseconds <= before.nanoseconds) continue;
    cycles_ += static_cast<double>(after.cycles - before.cycles);
    counted_ns_ += static_cast<double>(after.nanoseconds - before.nanoseconds);
  }
}

// By reading, not writing: lines that have to be written back would cost the launch after it bandwidth.
void Device::flush(CUstream_st* stream) {
  launch_flush(stream, flush_memory_, flush_bytes_, properties_.sms);
  ROOFLINE_CUDA_LAUNCHED("flush_kernel");
}

// Launches that wait would wait for ever behind a gate, and work on other streams is not seen by events on ours: by the host's
// clock, from an idle GPU to an idle GPU.
double Device::run_host_timed(const Batch& batch) {
  const auto& sets = *batch.sets;
  const std::int64_t windows = batch.flush_each ? batch.launches : 1;
  double seconds = 0;
  for (std::int64_t window = 0; window < windows; ++window) {
    if (batch.flush_each) flush(stream_);
    ROOFLINE_CUDA(cudaDeviceSynchronize());
    const Stopwatch watch;
    for (std::int64_t i = window; i < (batch.flush_each ? window + 1 : batch.launches); ++i)
      for (const Launch& step : sets[(batch.first + i) % static_cast<std::int64_t>(sets.size())]) step(*this);
    ROOFLINE_CUDA(cudaDeviceSynchronize());
    seconds += watch.seconds();
  }
  return seconds;
}

double Device::run_batch(const Batch& batch) {
  use();
  const auto& sets = *batch.sets;
  if (sets.empty() || batch.launches < 1) return 0;
  if (batch.flush_each && !flush_memory_) {
    flush_memory_ = allocate(static_cast<std::size_t>(flush_bytes_));
    fill(flush_memory_, DType::int8, flush_bytes_, Fill::zeros, 0);
  }
  if (batch.host_timed) return run_host_timed(batch);
  const std::int64_t entries = std::max(batch.entries, static_cast<std::int64_t>(sets[0].size())) + (batch.flush_each ? 3 : 0);
  ForeignStream* const foreign = batch.stream;
  CUstream_st* const stream = foreign ? reinterpret_cast<CUstream_st*>(foreign->handle) : stream_;
  // An exception must not leave the stream behind a closed gate, nor a gate that the next batch would close again.
  struct Opener {
    Device& device;
    CUstream_st* stream;
    int thrown = std::uncaught_exceptions();
    ~Opener() {
      device.open_gate();
      if (std::uncaught_exceptions() > thrown) cudaStreamSynchronize(stream);
    }
  } opener{*this, stream};
  std::int64_t chunk = foreign ? std::min(foreign->chunk, batch.launches) : gate_chunk(batch.launches, entries);
  // Work that is held back is on the GPU without gaps. Loading code waits until the GPU is idle, and so for the gate.
  const bool gated = batch.gate && entries <= kMostGateEntries && !(foreign && !foreign->called);
  if (foreign) foreign->called = true;
  double seconds = 0, gapless_s = 0;
  std::int64_t gapless = 0;  // launches
  for (std::int64_t done = 0; done < batch.launches;) {
    const std::int64_t count = std::min(chunk, batch.launches - done);
    const int windows = batch.flush_each ? static_cast<int>(count) : 1;
    event(2 * static_cast<std::size_t>(windows) - 1);
    if (foreign) use();  // a user's call may have chosen another GPU
    close_gate(stream, gated && gated_ && !(foreign && foreign->waits));
    if (!foreign) {
      std::memset(const_cast<ClockStamp*>(&mailbox_->stamps[0][0]), 0, sizeof mailbox_->stamps);
      launch_stamp(stream, device_mailbox_->stamps[0], properties_.sms);
    }
    if (!batch.flush_each) ROOFLINE_CUDA(cudaEventRecord(events_[0], stream));
    for (std::int64_t i = 0; i < count; ++i) {
      if (batch.flush_each) {
        flush(stream);
        ROOFLINE_CUDA(cudaEventRecord(events_[2 * i], stream));
      }
      for (const Launch& step : sets[(batch.first + done + i) % static_cast<std::int64_t>(sets.size())]) step(*this);
      if (batch.flush_each) ROOFLINE_CUDA(cudaEventRecord(events_[2 * i + 1], stream));
    }
    if (!batch.flush_each) ROOFLINE_CUDA(cudaEventRecord(events_[1], stream));
    if (!foreign) launch_stamp(stream, device_mailbox_->stamps[1], properties_.sms);
    ROOFLINE_CUDA_LAUNCHED("a launch of the batch");
    const double chunk_s = finish(windows);
    seconds += chunk_s;
    if (!foreign) count_cycles();
    done += count;
    if (!mailbox_->timed_out) {
      gapless_s += chunk_s, gapless += count;
      if (!foreign) stuck_ = 0;
      continue;
    }
    // The host got stuck while it filled the queue, so this chunk holds gaps. Queue less; where even one launch is too much (a
    // launch that waits), do without. For our own kernels do so only the second time: one that was not loaded waits once.
    ++gate_timeouts_;
    chunk = std::max<std::int64_t>(1, count / 4);
    if (foreign) {
      foreign->chunk = chunk;
      foreign->waits = count == 1;
    } else if (count == 1 && entries <= kGateEntries && ++stuck_ == 2) {
      gated_ = false;
    }
  }
  return gapless ? gapless_s / static_cast<double>(gapless) * static_cast<double>(batch.launches) : seconds;
}

double Device::clock_hz() {
  use();
  launch_clock(stream_, &device_mailbox_->cycles, &device_mailbox_->nanoseconds, kClockNs);
  ROOFLINE_CUDA_LAUNCHED("clock_kernel");
  ROOFLINE_CUDA(cudaStreamSynchronize(stream_));
  const double nanoseconds = static_cast<double>(mailbox_->nanoseconds);
  return nanoseconds > 0 ? static_cast<double>(mailbox_->cycles) / nanoseconds * 1e9 : 0;
}

Bound planned(const std::string& implementation, const Device& device) {
  Bound bound;
  bound.plan.set("implementation", implementation + "/" + device.properties().architecture());
  return bound;
}

std::shared_ptr<void> workspace(Device& device, std::int64_t size_bytes) {
  void* memory = device.allocate(static_cast<std::size_t>(size_bytes));
  return {memory, [&device](void* p) { device.release(p, 0); }};
}

}  // namespace roofline::cuda
