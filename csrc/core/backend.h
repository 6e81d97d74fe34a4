// A kind of device: its memory, its kernels and its clock. Everything above it is written once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/kernel.h"
#include "core/turn.h"

namespace roofline {

enum class Fill : std::uint8_t {
  uniform,  // random in [-sqrt(3), sqrt(3)): mean 0, variance 1; integers over their whole range
  zeros,
  pattern,  // every byte 0xA5: guard zones
};

// What the operating system says of our threads, and a device of itself, over a window of wall time.
struct Load {
  double wall_s = 0;
  double cpu_share = 1;        // smallest CPU time over wall time of the threads at work
  double run_delay_share = 0;  // largest share of the window that one of them waited for a core
  double process_run_delay_share = 0;  // the same over every thread of the process: for a user's callable
  double foreign_cores = 0;    // cores kept busy by other processes; only told of windows of a second or more
  std::vector<std::pair<std::string, Value>> conditions;  // clocks, power, temperature, shares of what slowed it, as it names them
  bool throttled = false;      // it slowed down for heat or a fault of its supply, and may not when it is measured again
};

// A stream of somebody else's, which a user's callable launches on, and the facts found out about the callable there.
struct ForeignStream {
  std::uintptr_t handle = 0;
  bool called = false;      // once: what a first call does (loads code, takes memory) may wait for the GPU, and later ones do not
  bool waits = false;       // a call waits for the GPU, so that it cannot be held back until all are enqueued
  std::int64_t chunk = 16;  // calls that are enqueued at once: nobody knows how many launches one makes
};

// Whether a batch pins its caller to the caller's CPU. Never for a callable, whose own threads would inherit the mask.
enum class Pin { never, if_elsewhere, always };

// One batch: `launches` launches, launch i on set (first + i) mod sets.
struct Batch {
  const std::vector<std::vector<Launch>>* sets;
  std::int64_t first = 0;
  std::int64_t launches = 1;
  bool flush_each = false;  // what a launch touches leaves the caches before it, outside the clock
  Pin pin = Pin::always;
  bool host_timed =
      false;  // by the host's clock, from an idle device to an idle one: launches that wait, or that work elsewhere too
  ForeignStream* stream = nullptr;  // where the launches go, if not to the device's own
  bool gate = true;         // launches may be held back until all are enqueued; false under a profiler that runs one at a time
  std::int64_t entries = 0;  // of a queue that one launch takes (see Step); 0: one for each step
  const std::vector<std::vector<Extent>>* memory = nullptr;  // of each set; for flush_each, where a device flushes ranges
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;                                 // "cpu", "cuda:0"
  virtual Turn& turn() = 0;  // to be held around every call below that works on the device: its threads, its stream
  virtual std::vector<std::pair<std::string, Value>> facts() const = 0;  // of the device, for provenance
  virtual const std::vector<KernelEntry>& kernels() const = 0;
  virtual std::string lacks(const Requires& needs) const = 0;  // why a kernel with these needs cannot run; empty if it can

  virtual std::int64_t available_bytes() const { return INT64_MAX; }  // that allocate() could give now
  virtual std::int64_t flush_bytes() const { return 0; }  // that the first launch on cold memory takes, and later ones share
  virtual bool host_memory() const { return false; }  // the host may read what allocate() gives
  virtual void* allocate(std::size_t size_bytes) = 0;  // aligned for any kernel; throws OutOfMemory
  virtual void release(void* memory, std::size_t size_bytes) noexcept = 0;
  virtual void copy_in(void* device, const void* source, std::size_t size_bytes) = 0;  // source: the host's, or this device's
  virtual void copy_out(void* host, const void* device, std::size_t size_bytes) = 0;
  // Does `work`; what allocate() gave it and release() did not take back, where launches on cold memory need to know.
  virtual std::vector<Extent> allocated_by(const std::function<void()>& work) {
    work();
    return {};
  }
  virtual void fill(void* memory, DType dtype, std::int64_t elements, Fill fill, std::uint64_t seed) = 0;

  // Streams of other libraries, by their handles (of CUDA; 1: the legacy default stream, 2: the thread's default stream), for
  // memory that is theirs. Where launches are done when they return, there is nothing to order.
  virtual std::uintptr_t stream_handle() const { return 0; }
  virtual void wait_for(std::uintptr_t) {}  // what is enqueued here next begins after what that stream holds now
  virtual void signal(std::uintptr_t) {}    // what that stream is given next begins after what is enqueued here now
  virtual std::string place_of(const void*) const { return name(); }  // the device whose memory it is

  // For profilers: named ranges around binding and running, and the part of the program that they are to look at.
  virtual void push_range(const std::string&) {}
  virtual void pop_range() noexcept {}
  virtual void begin_profile() {}
  virtual void end_profile() noexcept {}

  virtual double run_batch(const Batch& batch) = 0;  // seconds for the whole batch, finished
  virtual double clock_hz() = 0;                     // of the core at work, measured now; 0 where it cannot be

  // What this machine gets of a last cache that it shares with others: plans and cold launches then go by it.
  virtual void share_last_cache(std::int64_t) {}

  // Share of a range that lies in huge pages of the host; -1 where that means nothing or is not known.
  virtual double huge_page_share(const void*, std::size_t) const { return -1; }

  // Contention and conditions since `begin_load`. Backends whose work is not on our threads leave the former at the default.
  virtual void begin_load() {}
  virtual Load end_load() { return {}; }
};

// A named range as long as it lives.
class Range {
 public:
  Range(Backend& backend, const std::string& name) : backend_(backend) { backend_.push_range(name); }
  ~Range() { backend_.pop_range(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Backend& backend_;
};

// What could be opened, and why not: one entry per device, or one per backend that has none.
struct DeviceInfo {
  std::string name;
  std::string summary;
  std::string missing;  // empty if usable
};

// A library that a backend opens on first use.
struct LibraryInfo {
  std::string name;     // "onednn", "openblas", "cublaslt", "nccl"
  std::string version;  // empty where it is missing
  std::string path;     // of the file that was opened
  std::string missing;  // why it cannot be used, and the cure; empty if it can
};

std::vector<DeviceInfo> list_devices();

// Every kernel of a backend ("cpu", "cuda"), whether there is a device for it or not; none where it was not built.
std::vector<KernelEntry> list_kernels(const std::string& backend);

// Opens every library of the backends that were built: what they are, or why not.
std::vector<LibraryInfo> list_libraries();

// Throws Error for an unknown name, Unsupported with the reason where there is no such device.
// threads: of a CPU; 0 = all usable cores.
std::shared_ptr<Backend> open_device(const std::string& name, int threads);

// The file to open for a library ("onednn", "openblas", "cublaslt", "nccl", "nvml"), tried before the system's. Throws Error once
// it is open.
void set_library_path(const std::string& name, const std::string& path);

}  // namespace roofline
