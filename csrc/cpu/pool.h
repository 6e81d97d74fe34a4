// A thread pool whose caller is worker 0: workers spin for a while, then sleep. One caller at a time: see Backend::turn.
//
// With N threads on N cores the caller must work too: a spinning caller beside N workers costs half the bandwidth.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include "core/backend.h"
#include "cpu/share.h"

namespace roofline::cpu {

class Pool {
 public:
  // cpus: one logical CPU per thread; workers stay pinned to theirs, the caller only between pin() and unpin().
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

  // work(worker, item) for item in [0, items), one by one: each worker has a contiguous share, the same in every launch, so that
  // what it wrote last time is in its own caches; who is done takes items of others' shares.
  template <class F>
  void for_each(std::int64_t items, F&& work) {
    const int n = threads();
    if (items < 1) return;
    if (items == 1) return work(0, std::int64_t{0});
    if (items <= n)  // nothing to take from others
      return run([&](int worker) {
        if (worker < items) work(worker, std::int64_t{worker});
      });
    for (int w = 0; w < n; ++w) shares_[w].next.store(items * w / n, std::memory_order_relaxed);
    run([&](int worker) {
      for (int i = 0; i < n; ++i) {
        const int owner = (worker + i) % n;
        const std::int64_t end = items * (owner + 1) / n;
        for (std::int64_t item; (item = shares_[owner].next.fetch_add(1, std::memory_order_relaxed)) < end;) work(worker, item);
      }
    });
  }

  // work(worker, part) with each worker's part of n elements, whole lines of `line`; a single line wakes nobody.
  template <class F>
  void share_out(std::int64_t n, std::int64_t line, F&& work) {
    if (n <= line) return work(0, Range{0, n});
    run([&](int worker) { work(worker, share(n, worker, threads(), line)); });
  }

  void pin();    // the caller to its CPU
  void unpin();  // to where it was allowed before
  bool in_place() const;  // whether the caller runs on its CPU now, pinned or not
  void park();   // the workers sleep until the next run: before a library with its own threads

  void begin_load();
  Load end_load();

 private:
  using Erased = void (*)(void*, int);
  void run_erased(Erased work, void* context);
  void start();
  void abandon();
  void worker(int index);

  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};  // item
  };
  std::vector<Share> shares_;  // [threads]; of for_each
  std::vector<int> cpus_;
  std::vector<std::thread> workers_;
  std::vector<pid_t> tids_;  // [threads]; kernel thread ids, the caller's first
  struct alignas(64) Sleep {
    std::atomic<std::int64_t> slept_ns{0};
    std::atomic<std::int64_t> since_ns{0};  // 0 while awake
  };
  std::vector<Sleep> sleeps_;  // [threads]; of workers with nothing to do
  std::atomic<int> started_{0};
  Erased work_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<int> epoch_{0};
  alignas(64) std::atomic<int> remaining_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> park_{false};
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
