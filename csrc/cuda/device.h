// The CUDA backend: one GPU, one stream, and its kernels. No CUDA header here, so that core/ can include it.
//
// Nothing touches the driver before list_devices() or open(): importing the module is safe without one, and before a fork.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "cuda/libraries/nvml.h"

struct CUstream_st;
struct CUevent_st;

namespace roofline::cuda {

// What planning needs to know of a GPU.
struct Properties {
  std::string gpu_name;
  std::string pci_bus_id;
  int capability = 0;  // 90 for compute capability 9.0
  int sms = 0;
  int threads_per_sm = 0;
  std::int64_t shared_bytes_per_sm = 0;
  std::int64_t shared_bytes_per_block = 0;  // after asking for more than the default 48 KB
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t memory_bus_bits = 0;
  double clock_hz = 0;         // the highest the SMs may take
  double memory_clock_hz = 0;  // of the command clock: two transfers per cycle
  int driver_version = 0;      // 13000 for 13.0
  int runtime_version = 0;
  bool ecc = false;
  bool mig = false;
  std::string architecture() const { return "sm_" + std::to_string(capability); }
};

std::string cuda_version_text(int version);  // 13000 -> 13.0
Properties find_properties(int index);

class Device final : public Backend, public Queue {
 public:
  explicit Device(int index);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  const Properties& properties() const { return properties_; }
  CUstream_st* stream() const { return stream_; }
  void use() const;  // makes this GPU the calling thread's: before any CUDA call

  std::string name() const override { return "cuda:" + std::to_string(index_); }
  Turn& turn() override { return turn_; }
  std::vector<std::pair<std::string, Value>> facts() const override;
  const std::vector<KernelEntry>& kernels() const override;
  std::string lacks(const Requires& needs) const override;
  std::int64_t available_bytes() const override;
  std::int64_t flush_bytes() const override { return flush_bytes_; }
  void* allocate(std::size_t size_bytes) override;
  void release(void* memory, std::size_t size_bytes) noexcept override;
  void copy_in(void* device, const void* source, std::size_t size_bytes) override;
  void copy_out(void* host, const void* device, std::size_t size_bytes) override;
  void fill(void* memory, DType dtype, std::int64_t elements, Fill fill, std::uint64_t seed) override;
  std::uintptr_t stream_handle() const override { return reinterpret_cast<std::uintptr_t>(stream_); }
  void wait_for(std::uintptr_t stream) override;
  void signal(std::uintptr_t stream) override;
  void push_range(const std::string& name) override;
  void pop_range() noexcept override;
  void begin_profile() override;
  void end_profile() noexcept override;
  std::string place_of(const void* address) const override;
  double run_batch(const Batch& batch) override;
  double clock_hz() override;
  void begin_load() override;
  Load end_load() override;

 private:
  struct Mailbox;  // pinned memory that both sides see: the gate and the clock readings
  void close_gate(CUstream_st* stream, bool gated);
  void open_gate() noexcept;
  double finish(int windows);
  void count_cycles();
  double run_host_timed(const Batch& batch);
  void flush(CUstream_st* stream);
  CUevent_st* event(std::size_t index);
  void order(CUstream_st* first, CUstream_st* then);
  void destroy() noexcept;

  int index_;
  Turn turn_{name()};
  Properties properties_;
  std::unique_ptr<Telemetry> telemetry_;
  CUstream_st* stream_ = nullptr;
  Mailbox* mailbox_ = nullptr;         // as the host sees it
  Mailbox* device_mailbox_ = nullptr;  // the same memory, as the GPU sees it
  std::vector<CUevent_st*> events_;    // even: a window begins; odd: it ends
  CUevent_st* order_event_ = nullptr;
  void* flush_memory_ = nullptr;
  std::int64_t flush_bytes_ = 0;
  bool gated_ = true;
  std::int64_t gate_timeouts_ = 0;
  int stuck_ = 0;  // batches in a row whose gate timed out before a single launch
  double cycles_ = 0, counted_ns_ = 0;  // of all SMs during the batches since begin_load
};

// A launch receives the device as its queue.
inline CUstream_st* stream(Queue& queue) { return static_cast<Device&>(queue).stream(); }

// No steps yet, and a plan that says who computes ("tiled/mma") and on which architecture.
Bound planned(const std::string& implementation, const Device& device);

// Workspace of a launch: allocated in bind, never in a launch; freed with the last owner. The device outlives every launch.
std::shared_ptr<void> workspace(Device& device, std::int64_t size_bytes);

// Several workspaces of one kernel, which its steps are to `keep`.
struct Workspaces {
  Device& device;
  std::string what;  // as an error calls them
  std::int64_t size_bytes = 0;
  std::vector<std::shared_ptr<void>> kept = {};

  const std::shared_ptr<void>& take(const Shape& shape) {
    const std::int64_t bytes = product(shape, what);
    size_bytes += bytes;
    return kept.emplace_back(workspace(device, bytes));
  }
};

// One entry per GPU, or one that says why there is none.
std::vector<DeviceInfo> list_devices();
std::shared_ptr<Backend> open(int index);

}  // namespace roofline::cuda
