// The CPU backend: memory with huge pages, the thread pool, cache sizes, and its kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "cpu/elements.h"
#include "cpu/isa.h"
#include "cpu/pool.h"
#include "cpu/system.h"

namespace roofline::cpu {


enum class Pages : std::uint8_t {
  huge,   // where the system gives them, of 2 MiB and more
  small,  // never huge ones
};

class Device final : public Backend, public Queue {
 public:
  explicit Device(int threads);

  Pool& pool() { return *pool_; }
  const Caches& caches() const { return caches_; }
  int threads() const { return pool_->threads(); }
  std::int64_t lasting_bytes() const { return caches_.llc_bytes_of(usable_cores_); }  // of results that may stay in the last cache

  std::string name() const override { return "cpu"; }
  Turn& turn() override;
  std::vector<std::pair<std::string, Value>> facts() const override;
  const std::vector<KernelEntry>& kernels() const override;
  std::string lacks(const Requires& needs) const override;
  std::int64_t available_bytes() const override;
  std::int64_t flush_bytes() const override;
  bool host_memory() const override { return true; }
  void* allocate(std::size_t size_bytes) override { return allocate(size_bytes, Pages::huge); }
  void* allocate(std::size_t size_bytes, Pages pages);
  void release(void* memory, std::size_t size_bytes) noexcept override;
  void copy_in(void* device, const void* host, std::size_t size_bytes) override;
  void copy_out(void* host, const void* device, std::size_t size_bytes) override;
  void fill(void* memory, DType dtype, std::int64_t elements, Fill fill, std::uint64_t seed) override;
  std::vector<Extent> allocated_by(const std::function<void()>& work) override;
  void share_last_cache(std::int64_t bytes) override { caches_.l3_bytes = std::max<std::int64_t>(bytes, 0); }
  struct Trial {
    std::vector<Extent> memory;     // that no cache holds when a run begins
    std::function<void(int)> run;   // a candidate
  };
  // The quickest of `candidates`, measured in turns when `what` is asked for the first time.
  int quickest(const std::string& what, int candidates, const std::function<Trial()>& prepare);
  double run_batch(const Batch& batch) override;
  double clock_hz() override;
  double huge_page_share(const void* memory, std::size_t size) const override { return cpu::huge_page_share(memory, size); }
  void begin_load() override { pool_->begin_load(); }
  Load end_load() override { return pool_->end_load(); }

 private:
  void make_cold(const std::vector<Extent>& memory);

  std::unique_ptr<Pool> pool_;
  Caches caches_;
  std::int64_t reported_l3_bytes_ = 0;
  std::int64_t usable_cores_ = 1;
  std::shared_ptr<void> scratch_;  // of `make_cold`
  std::int64_t scratch_lines_ = 0, next_scratch_line_ = 0;
  std::map<std::string, int> quickest_;
};

// A launch receives the device as its queue.
inline Pool& pool(Queue& queue) { return static_cast<Device&>(queue).pool(); }

// What a kernel's bind returns, with the first facts of its plan: what it is, and its threads.
Bound planned(const std::string& implementation, const Device& device);

// Workspace of a launch: allocated in bind (never in a launch), with huge pages, freed with the last owner. Trials that move it
// want it uniform, in fp32: an AMD EPYC (family 25, model 17) stores lines of zeros past its caches at least twice as
// fast as others.
std::shared_ptr<void> workspace(Device& device, std::size_t size_bytes, Fill fill = Fill::zeros);

}  // namespace roofline::cpu
