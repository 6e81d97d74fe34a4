#include "cpu/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/random.h"
#include "core/stopwatch.h"
#include "cpu/flush.h"
#include "cpu/kernels.h"
#include "cpu/share.h"

namespace roofline::cpu {
namespace {

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::string joined_isas() {
  std::string all;
  for (const Isa isa : available()) all += (all.empty() ? "" : ",") + name(isa);
  return all;
}

#if defined(__aarch64__)
using Half = __fp16;  // GCC 12 has no _Float16 in C++ there
#else
using Half = _Float16;
#endif

std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);  // to nearest even
}

template <class T, class Make>
void fill_range(void* memory, Range part, Make make) {
  T* out = static_cast<T*>(memory);
  for (std::int64_t i = part.first; i < part.last; ++i) out[i] = static_cast<T>(make(i));
}

thread_local std::vector<Extent>* recorded = nullptr;  // where Device::allocated_by collects what this thread allocates

// Cycles per second by dependent register adds: one cycle each. Immediate adds can be folded at rename on some cores.
double chain_hz() {
#if defined(__x86_64__) || defined(__aarch64__)
  constexpr int kUnroll = 64;
  constexpr int kRounds = 4000;
  std::uint64_t value = 1, step = 3;
  const Stopwatch watch;
  for (int i = 0; i < kRounds; ++i) {
#if defined(__x86_64__)
#define ROOFLINE_ADD4 "add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n"
#define ROOFLINE_ADD16 ROOFLINE_ADD4 ROOFLINE_ADD4 ROOFLINE_ADD4 ROOFLINE_ADD4
    asm volatile(ROOFLINE_ADD16 ROOFLINE_ADD16 ROOFLINE_ADD16 ROOFLINE_ADD16 : "+r"(value) : "r"(step) : "cc");
#else
#define ROOFLINE_ADD4 "add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n"
#define ROOFLINE_ADD16 ROOFLINE_ADD4 ROOFLINE_ADD4 ROOFLINE_ADD4 ROOFLINE_ADD4
    asm volatile(ROOFLINE_ADD16 ROOFLINE_ADD16 ROOFLINE_ADD16 ROOFLINE_ADD16 : "+r"(value) : "r"(step));
#endif
  }
  return kUnroll * static_cast<double>(kRounds) / watch.seconds();
#else
  return 0;
#endif
}

}  // namespace

Device::Device(int threads) {
  std::vector<int> cpus = usable_cpus();
  usable_cores_ = static_cast<std::int64_t>(cpus.size());
  if (threads < 0) throw Error("cpu: threads must be 0 (all usable cores) or more, got " + std::to_string(threads));
  if (threads > static_cast<int>(cpus.size()))
    throw Error("cpu: " + std::to_string(threads) + " threads asked for, but only " + std::to_string(cpus.size()) +
                " cores are usable (affinity, one thread per core, cgroup quota); use fewer threads");
  if (threads > 0) cpus.resize(threads);
  caches_ = find_caches(cpus);
  reported_l3_bytes_ = caches_.l3_bytes;
  pool_ = std::make_unique<Pool>(cpus);
}

std::vector<std::pair<std::string, Value>> Device::facts() const {
  std::string model = cpuinfo("model name");
  if (model.empty()) model = cpuinfo("CPU part");
  std::string huge = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (const auto open = huge.find('['); open != std::string::npos) huge = huge.substr(open + 1, huge.find(']') - open - 1);
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  const auto number = [](const std::string& text) { return Value(std::int64_t{std::atoll(text.c_str())}); };
  const double quota = cgroup_cpus();
  return {{"cpu_name", model.empty() ? std::string("unknown CPU") : model},
          {"cpu_vendor", cpuinfo("vendor_id")},
          {"cpu_family", number(cpuinfo("cpu family"))},
          {"cpu_model", number(cpuinfo("model\t"))},
          {"threads", std::int64_t{pool_->threads()}},
          {"usable_cores", usable_cores_},
          {"quota_cores", std::isfinite(quota) ? quota : 0.0},  // 0: none
          {"isas", joined_isas()},
          {"l1_bytes", caches_.l1_bytes},
          {"l2_bytes", caches_.l2_bytes},
          {"l3_bytes", reported_l3_bytes_},
          {"l3_instances", caches_.l3_instances},
          {"memory_bytes", memory_bytes()},
          {"huge_pages", huge.empty() ? std::string("unknown") : huge},
          {"flush", std::string(line_flush().instruction)},
          {"governor", governor.empty() ? std::string("unknown") : governor},
          {"virtual_machine", std::int64_t{cpuinfo("flags").find(" hypervisor") != std::string::npos}}};
}

const std::vector<KernelEntry>& Device::kernels() const {
  static const std::vector<KernelEntry> all = all_kernels();
  return all;
}

std::string Device::lacks(const Requires& needs) const { return needs.empty() ? "" : cpu::lacks(needs); }

std::int64_t Device::available_bytes() const {
  // A small part of memory is left to the rest of the system, which would otherwise be pushed out or killed.
  constexpr std::int64_t kSpare = std::int64_t{64} << 20;
  return std::max<std::int64_t>(cpu::available_bytes() - kSpare, 0);
}

std::int64_t Device::flush_bytes() const {
  if (scratch_) return scratch_lines_ * kLineBytes;
  // Twice the caches, so that lines have left them when their turn comes again.
  constexpr std::int64_t kMost = std::int64_t{256} << 20;
  const std::int64_t caches = reported_l3_bytes_ + caches_.l2_bytes * threads();
  return std::min({2 * caches, kMost, available_bytes() / 8}) / kLineBytes * kLineBytes;
}

void* Device::allocate(std::size_t size_bytes, Pages pages) {
  if (size_bytes == 0) size_bytes = 1;
  const std::int64_t available = available_bytes();
  if (size_bytes > static_cast<std::size_t>(available))
    throw OutOfMemory("cpu: " + std::to_string(size_bytes) + " bytes are needed, " + std::to_string(available) +
                      " are available; use a smaller problem");
  const bool huge = size_bytes >= kHugePage;
  const std::size_t alignment = std::max(huge ? kHugePage : 0, page_bytes());
  const std::size_t rounded = (size_bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  // Mapped larger and trimmed, so that huge pages can begin at the first byte.
  const std::size_t mapped = rounded + alignment;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory("cpu: mmap of " + std::to_string(mapped) + " bytes failed: " + std::strerror(errno));
  const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) munmap(memory, aligned - start);
  const std::size_t tail = start + mapped - (aligned + rounded);
  if (tail) munmap(reinterpret_cast<void*>(aligned + rounded), tail);
  void* result = reinterpret_cast<void*>(aligned);
  // Advice may be refused (no huge pages in this kernel, or switched off): ordinary pages then, and `huge_page_share` tells.
  if (huge || pages == Pages::small) madvise(result, rounded, pages == Pages::small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (recorded) recorded->push_back({result, static_cast<std::int64_t>(size_bytes)});
  return result;
}

std::vector<Extent> Device::allocated_by(const std::function<void()>& work) {
  std::vector<Extent> found;
  struct Recording {
    explicit Recording(std::vector<Extent>* into) { recorded = into; }
    ~Recording() { recorded = nullptr; }
  } recording(&found);
  work();
  return found;
}

void Device::release(void* memory, std::size_t size_bytes) noexcept {
  if (recorded) std::erase_if(*recorded, [&](const Extent& extent) { return extent.start == memory; });
  if (memory) munmap(memory, (std::max<std::size_t>(size_bytes, 1) + page_bytes() - 1) / page_bytes() * page_bytes());
}

void Device::copy_in(void* device, const void* host, std::size_t size_bytes) { std::memcpy(device, host, size_bytes); }
void Device::copy_out(void* host, const void* device, std::size_t size_bytes) { std::memcpy(host, device, size_bytes); }

void Device::fill(void* memory, DType dtype, std::int64_t elements, Fill fill, std::uint64_t seed) {
  const bool packed = bits(dtype) < 8;  // filled by bytes
  const std::int64_t size = packed ? 1 : size_bytes(dtype), count = packed ? size_bytes(dtype, elements) : elements;
  const Pool::Pinned pinned(*pool_);
  pool_->run([&](int worker) {
    const Range part = share(count, worker, pool_->threads(), 64 / size);
    if (fill != Fill::uniform) {
      std::memset(static_cast<char*>(memory) + part.first * size, fill == Fill::zeros ? 0 : 0xA5, part.size() * size);
      return;
    }
    const auto number = [=](std::int64_t i) { return static_cast<float>(random_uniform(seed, i)); };
    const auto word = [=](std::int64_t i) { return random_bits(seed, i); };
    switch (dtype) {
      case DType::fp64: return fill_range<double>(memory, part, [=](std::int64_t i) { return random_uniform(seed, i); });
      case DType::tf32:
      case DType::fp32: return fill_range<float>(memory, part, number);
      case DType::bf16: return fill_range<std::uint16_t>(memory, part, [=](std::int64_t i) { return to_bf16(number(i)); });
      case DType::fp16: return fill_range<Half>(memory, part, number);
      case DType::int32: return fill_range<std::int32_t>(memory, part, word);
      case DType::fp8_e4m3:
        return fill_range<std::uint8_t>(memory, part, [=](std::int64_t i) { return to_fp8_e4m3(random_uniform(seed, i)); });
      case DType::fp8_e5m2:
        return fill_range<std::uint8_t>(memory, part, [=](std::int64_t i) { return to_fp8_e5m2(random_uniform(seed, i)); });
      case DType::fp8_e8m0: return fill_range<std::uint8_t>(memory, part, [=](std::int64_t i) { return random_fp8_e8m0(seed, i); });
      case DType::int4:
      case DType::nvfp4:
      case DType::int8: return fill_range<std::int8_t>(memory, part, word);
      case DType::int16: return fill_range<std::int16_t>(memory, part, word);
    }
  });
}

// A program's caches are full when an operator begins: of lines that others read, which make room for its own at no cost, and of
// lines that others wrote, which go to memory then. Here these are lines of a scratch buffer, touched after the flush: without them
// an AMD EPYC (Zen 4) reads 4 MiB a quarter faster, and results stay in the caches while nothing else goes to memory. As many are
// written as the launch leaves to be written, so that every byte into the caches costs one into memory.
//
// Every thread touches some, for an Intel Xeon takes twice as long to fetch a line for a store if its core held that line a moment
// ago: a copy of 120 KiB takes 240 ns/KiB, and one of 130 KiB 130 ns/KiB.
void Device::make_cold(const std::vector<Extent>& memory) {
  constexpr std::int64_t kLeast = 512 << 10;  // bytes of a thread; half of it is enough
  double touched = 0, written = 0;
  for (const Extent& extent : memory) {
    touched += static_cast<double>(extent.size_bytes);
    written += extent.written ? static_cast<double>(extent.size_bytes) : 0;
  }
  if (!scratch_) {
    scratch_lines_ = flush_bytes() / kLineBytes;
    std::vector<Extent>* const of_kernel = std::exchange(recorded, nullptr);
    scratch_ = workspace(*this, static_cast<std::size_t>(scratch_lines_ * kLineBytes));
    recorded = of_kernel;
  }
  const auto most = static_cast<double>(caches_.l3_bytes + caches_.l2_bytes * threads());
  const double fill = std::min(std::max(2 * touched, static_cast<double>(kLeast * threads())), most);  // twice: sets fill unevenly
  const std::int64_t lines = std::min(static_cast<std::int64_t>(fill) / kLineBytes, scratch_lines_);
  const double share_written = touched > 0 ? written / touched : 0;
  flush(*pool_, memory);
  pool_->run([&](int worker) {
    auto* const scratch = static_cast<volatile char*>(scratch_.get());
    const Range part = share(lines, worker, threads(), 1);
    std::int64_t at = (next_scratch_line_ + part.first) % scratch_lines_;
    double due = 0;  // lines to be written
    for (std::int64_t line = part.first; line < part.last; ++line, at = at + 1 == scratch_lines_ ? 0 : at + 1) {
      due += share_written;
      if (due < 1) {
        (void)scratch[at * kLineBytes];
      } else {
        scratch[at * kLineBytes] = static_cast<char>(line);
        due -= 1;
      }
    }
  });
  next_scratch_line_ = (next_scratch_line_ + lines) % scratch_lines_;
}

int Device::quickest(const std::string& what, int candidates, const std::function<Trial()>& prepare) {
  constexpr int kTurns = 10;        // the first wakes all threads, and does not count
  constexpr double kBetter = 0.97;  // of the time of an earlier candidate: below is noise
  constexpr double kNear = 1.15;    // of the quickest one's time
  constexpr int kFar = 3;           // turns beyond that which end a candidate's trial
  if (const auto known = quickest_.find(what); known != quickest_.end()) return known->second;
  const Trial trial = prepare();
  const Pool::Pinned pinned(*pool_);
  std::vector<std::array<double, kTurns>> took_s(candidates);
  std::vector<int> far(candidates);  // turns in which it was not near
  for (int turn = 0; turn < kTurns; ++turn) {
    double least_s = INFINITY;
    for (int candidate = 0; candidate < candidates; ++candidate) {
      if (far[candidate] == kFar) continue;
      if (!trial.memory.empty() && *line_flush().instruction) make_cold(trial.memory);
      const Stopwatch watch;
      trial.run(candidate);
      took_s[candidate][turn] = watch.seconds();
      least_s = std::min(least_s, took_s[candidate][turn]);
    }
    // Ratios are to the first one, which stays.
    for (int candidate = 1; turn && candidate < candidates; ++candidate)
      far[candidate] += far[candidate] < kFar && took_s[candidate][turn] > kNear * least_s;
  }
  // The median of ratios within a turn, for memory may change its rate from turn to turn.
  std::vector<double> ratio(candidates);
  int best = 0;
  for (int candidate = 0; candidate < candidates; ++candidate) {
    if (far[candidate] == kFar) continue;
    auto ratios = took_s[candidate];
    for (int turn = 0; turn < kTurns; ++turn) ratios[turn] /= took_s[0][turn];
    std::nth_element(ratios.begin() + 1, ratios.begin() + kTurns / 2, ratios.end());
    ratio[candidate] = ratios[kTurns / 2];
    if (ratio[candidate] < kBetter * ratio[best]) best = candidate;
  }
  return quickest_[what] = best;
}

double Device::run_batch(const Batch& batch) {
  const auto& sets = *batch.sets;
  const auto launch = [&](std::int64_t i) {
    for (const Launch& step : sets[(batch.first + i) % sets.size()]) step(*this);
  };
  // A user's callable does not hold the turn: the pool, and whom it has pinned, may be another thread's.
  const Pool::Pinned pinned(*pool_, batch.pin == Pin::always || (batch.pin == Pin::if_elsewhere && !pool_->in_place()));

  if (!batch.flush_each) {
    const Stopwatch watch;
    for (std::int64_t i = 0; i < batch.launches; ++i) launch(i);
    return watch.seconds();
  }
  if (!batch.memory || batch.memory->size() != sets.size())
    throw Error("cpu: a batch to be flushed must state the memory of its sets");
  double seconds = 0;
  for (std::int64_t i = 0; i < batch.launches; ++i) {
    make_cold((*batch.memory)[(batch.first + i) % sets.size()]);  // by every thread: all of them are awake when the launch begins
    const Stopwatch watch;
    launch(i);
    seconds += watch.seconds();
  }
  return seconds;
}

double Device::clock_hz() {
  double best = 0;
  for (int attempt = 0; attempt < 3; ++attempt) best = std::max(best, chain_hz());  // an interrupt only lengthens one
  return best;
}

// One for all: devices of other numbers of threads work on the same cores.
Turn& Device::turn() {
  static auto* turn = new Turn("cpu");  // outlives threads that are still at work when the process ends
  return *turn;
}

Bound planned(const std::string& implementation, const Device& device) {
  Bound bound;
  bound.plan.set("implementation", implementation);
  bound.plan.set("threads", device.threads());
  return bound;
}

std::shared_ptr<void> workspace(Device& device, std::size_t size_bytes, Fill fill) {
  // Whole huge pages, but for little: small ones at its end would make a launch slower, until the system joins them.
  if (size_bytes >= kHugePage / 8) size_bytes = (size_bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = device.allocate(size_bytes);
  // First touch outside any clock; the device outlives every launch bound on it.
  const DType dtype = fill == Fill::zeros ? DType::int8 : DType::fp32;
  device.fill(memory, dtype, static_cast<std::int64_t>(size_bytes) / roofline::size_bytes(dtype), fill, 0);
  return {memory, [&device, size_bytes](void* p) { device.release(p, size_bytes); }};
}

}  // namespace roofline::cpu
