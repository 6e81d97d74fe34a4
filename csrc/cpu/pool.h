// A thread pool whose caller is worker 0: workers spin for a while, then sleep. One caller at a time: see Backend::turn.
//
// With N threads on N cores the caller must work too: a spinning caller beside N workers costs half the bandwidth.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include "core/backend.h"
#include "core/error.h"
#include "cpu/share.h"

namespace roofline::cpu {

// In a loop that waits for another core.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Pool {
 public:
  // cpus: one logical CPU per thread; workers stay pinned to theirs, the caller only while it is `Pinned`.
  explicit Pool(std::vector<int> cpus);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(cpus_.size()); }

  // work(worker) on every worker, worker 0 being the caller; returns when all are done. `work` must not throw.
  template <class F>
  void run(F&& work) {
    run_erased([](void* f, int worker) { (*static_cast<F*>(f))(worker); }, &work);
  }

  // work(worker, item) for item in [0, items), fewer than 2^32, one by one: each worker has a contiguous share, the same in every
  // launch, so that what it wrote last time is in its own caches; who is done takes items of others' shares.
  template <class F>
  void for_each(std::int64_t items, F&& work) {
    const int n = threads();
    if (items < 1) return;
    if (items >= std::int64_t{1} << 32) throw Error("cpu: " + std::to_string(items) + " parts are too many for the threads");
    if (items == 1) return work(0, std::int64_t{0});
    if (items <= n)  // nothing to take from others
      return run([&](int worker) {
        if (worker < items) work(worker, std::int64_t{worker});
      });
    run([this, items, n, turn = ++turn_, &work](int worker) {
      for (int i = 0; i < n; ++i) {
        const int owner = (worker + i) % n;
        const Range share{items * owner / n, items * (owner + 1) / n};
        for (std::int64_t item; (item = take(turn, owner, share)) < share.last;) work(worker, item);
      }
    });
  }

  // work(worker, part) with each worker's part of n elements, whole lines of `line`; a single line wakes nobody.
  template <class F>
  void share_out(std::int64_t n, std::int64_t line, F&& work) {
    if (n <= line) return work(0, Range{0, n});
    run([&](int worker) { work(worker, share(n, worker, threads(), line)); });
  }

  // While one lives the caller runs on its CPU, then again where it was allowed before; another one inside it does nothing.
  class Pinned {
   public:
    explicit Pinned(Pool& pool, bool wanted = true) : pool_(wanted && !pool.pinned_ && pool.pin() ? &pool : nullptr) {}
    ~Pinned() {
      if (pool_) pool_->unpin();
    }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

   private:
    Pool* pool_;
  };
  bool in_place() const;  // whether the caller runs on its CPU now, pinned or not

  void begin_load();
  Load end_load();

 private:
  using Erased = void (*)(void*, int);
  void run_erased(Erased work, void* context);
  void start();
  void stop();
  void abandon();
  bool pin();  // whether it did
  void unpin();
  void worker(int index);

  // The next item of a worker's share, or its end. Whoever takes the first one of a turn resets the share, so that the caller does
  // not write to its cache line: passing one on takes 0.1 us between cores of different caches.
  std::int64_t take(std::uint32_t turn, int owner, Range share) {
    std::atomic<std::uint64_t>& next = shares_[owner].next;
    for (std::uint64_t seen = next.load(std::memory_order_relaxed);;) {
      const std::int64_t item = seen >> 32 == turn ? static_cast<std::int64_t>(seen & 0xFFFFFFFF) : share.first;
      if (item >= share.last) return share.last;
      const std::uint64_t then = std::uint64_t{turn} << 32 | static_cast<std::uint64_t>(item + 1);
      if (next.compare_exchange_weak(seen, then, std::memory_order_relaxed)) return item;
    }
  }

  struct alignas(64) Share {
    std::atomic<std::uint64_t> next{0};  // turn, item
  };
  std::vector<Share> shares_;  // [threads]; of for_each
  std::uint32_t turn_ = 0;     // of for_each
  std::vector<int> cpus_;
  std::vector<std::thread> workers_;
  std::vector<pid_t> tids_;  // [threads]; kernel thread ids, the caller's first
  struct alignas(64) Sleep {
    std::atomic<std::int64_t> slept_ns{0};
    std::atomic<std::int64_t> since_ns{0};  // 0 while awake
  };
  std::vector<Sleep> sleeps_;  // [threads]; of workers with nothing to do
  std::atomic<int> started_{0};
  // What a worker needs to begin is one cache line, and its end another, which only it writes.
  struct alignas(64) Launch {
    std::atomic<int> epoch{0};
    Erased work = nullptr;
    void* context = nullptr;
  };
  Launch launch_;
  struct alignas(64) Done {
    std::atomic<int> epoch{0};
  };
  std::vector<Done> done_;  // [threads]
  alignas(64) std::atomic<bool> stop_{false};
  int fork_generation_ = 0;
  bool pinned_ = false;
  cpu_set_t before_pin_{};
  struct Snapshot {
    double wall_s = 0;
    std::vector<double> cpu_s;
    std::vector<double> delay_s;
    std::vector<double> slept_s;
    std::map<pid_t, double> process_delay_s;
    double own_s = 0;      // CPU time of this process
    double machine_s = 0;  // CPU time of everything, stolen time included
  };
  Snapshot snapshot() const;
  Snapshot load_start_;
};

}  // namespace roofline::cpu
