#include "cpu/pool.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>

namespace roofline::cpu {
namespace {

// Workers spin this long before they sleep: waking a sleeper costs 20 to 50 us, far above a fork-join of 0.4 us, and operators
// of one sweep follow each other within less than this.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr int kSpinsPerClockRead = 64;

// Share of a window below which a worker counts as asleep: going to sleep and waking up would be most of what it did.
constexpr double kLeastAwake = 0.1;

pid_t current_tid() { return static_cast<pid_t>(syscall(SYS_gettid)); }

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double clock_s(clockid_t clock) {
  timespec spent{};
  clock_gettime(clock, &spent);
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

// /proc/self/task/TID/schedstat: time on a CPU, time waiting for one (both in ns), slices.
double run_delay_s(pid_t tid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
  unsigned long long ran = 0, waited = 0;
  if (std::FILE* file = std::fopen(path, "r")) {
    if (std::fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    std::fclose(file);
  }
  return 1e-9 * static_cast<double>(waited);
}

// /proc/stat: user nice system idle iowait irq softirq steal, in ticks.
double machine_busy_s() {
  unsigned long long ticks[8] = {};
  if (std::FILE* file = std::fopen("/proc/stat", "r")) {
    if (std::fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
                    &ticks[5], &ticks[6], &ticks[7]) != 8)
      std::fill(std::begin(ticks), std::end(ticks), 0);
    std::fclose(file);
  }
  const unsigned long long busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return static_cast<double>(busy) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

Pool::Pool(std::vector<int> cpus)
    : shares_(cpus.size()), cpus_(std::move(cpus)), tids_(cpus_.size()), sleeps_(cpus_.size()), done_(cpus_.size()) {
  if (cpus_.empty()) throw Error("thread pool: at least one CPU is needed");
  start();
}

Pool::~Pool() {
  if (fork_generation_ != fork_generation()) {
    abandon();
    return;
  }
  stop();
}

void Pool::stop() {
  stop_.store(true);
  launch_.epoch.fetch_add(1);
  launch_.epoch.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

// In a forked child, which never had these threads: their handles are neither joined nor detached, but kept.
void Pool::abandon() {
  static auto* all = new std::vector<std::vector<std::thread>>;
  all->push_back(std::move(workers_));
  workers_.clear();
  pinned_ = false;
}

void Pool::start() {
  fork_generation_ = fork_generation();
  started_.store(1);
  try {
    for (int index = 1; index < threads(); ++index) workers_.emplace_back([this, index] { worker(index); });
  } catch (const std::exception& error) {
    const int begun = static_cast<int>(workers_.size()) + 1;
    while (started_.load(std::memory_order_acquire) != begun) relax();  // before, a worker would not see that it has to stop
    stop();
    workers_.clear();
    stop_.store(false);
    fork_generation_ = -1;  // the next launch begins them anew
    throw Error("cpu: only " + std::to_string(begun) + " of " + std::to_string(threads()) + " threads could be started (" +
                error.what() + "): ask for fewer, or raise the limit of processes or memory");
  }
  while (started_.load(std::memory_order_acquire) != threads()) relax();
}

void Pool::worker(int index) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpus_[index], &mine);
  pthread_setaffinity_np(pthread_self(), sizeof mine, &mine);  // a CPU taken away meanwhile leaves the thread where it may be
  tids_[index] = current_tid();
  int seen = launch_.epoch.load(std::memory_order_acquire);
  started_.fetch_add(1, std::memory_order_release);
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int spins = 1; launch_.epoch.load(std::memory_order_acquire) == seen; ++spins) {
      relax();
      if (spins % kSpinsPerClockRead == 0 && std::chrono::steady_clock::now() - begin > kSpin) {
        Sleep& sleep = sleeps_[index];
        const std::int64_t begin_ns = now_ns();
        sleep.since_ns.store(begin_ns, std::memory_order_relaxed);
        launch_.epoch.wait(seen, std::memory_order_acquire);
        sleep.since_ns.store(0, std::memory_order_relaxed);
        sleep.slept_ns.fetch_add(now_ns() - begin_ns, std::memory_order_relaxed);
        break;
      }
    }
    if (launch_.epoch.load(std::memory_order_acquire) == seen) continue;
    seen = launch_.epoch.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    launch_.work(launch_.context, index);
    done_[index].epoch.store(seen, std::memory_order_release);
  }
}

void Pool::run_erased(Erased work, void* context) {
  if (threads() == 1) return work(context, 0);
  if (fork_generation_ != fork_generation()) {
    abandon();
    start();
  }
  launch_.work = work;
  launch_.context = context;
  const int epoch = launch_.epoch.fetch_add(1, std::memory_order_release) + 1;
  launch_.epoch.notify_all();  // a load and a branch where nobody sleeps
  work(context, 0);
  for (int index = 1; index < threads(); ++index)
    while (done_[index].epoch.load(std::memory_order_acquire) != epoch) relax();
}

bool Pool::pin() {
  pthread_getaffinity_np(pthread_self(), sizeof before_pin_, &before_pin_);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpus_[0], &mine);
  return pinned_ = pthread_setaffinity_np(pthread_self(), sizeof mine, &mine) == 0;
}

void Pool::unpin() {
  pthread_setaffinity_np(pthread_self(), sizeof before_pin_, &before_pin_);
  pinned_ = false;
}

bool Pool::in_place() const { return sched_getcpu() == cpus_[0]; }

Pool::Snapshot Pool::snapshot() const {
  Snapshot shot;
  shot.wall_s = now_s();
  for (int index = 0; index < threads(); ++index) {
    clockid_t clock;
    const pthread_t thread = index == 0 ? pthread_self() : const_cast<std::thread&>(workers_[index - 1]).native_handle();
    if (pthread_getcpuclockid(thread, &clock) != 0) clock = CLOCK_THREAD_CPUTIME_ID;
    shot.cpu_s.push_back(clock_s(clock));
    shot.delay_s.push_back(run_delay_s(index == 0 ? current_tid() : tids_[index]));
    const Sleep& sleep = sleeps_[index];
    const std::int64_t since_ns = sleep.since_ns.load(std::memory_order_relaxed);
    shot.slept_s.push_back(
        1e-9 * static_cast<double>(sleep.slept_ns.load(std::memory_order_relaxed) + (since_ns ? now_ns() - since_ns : 0)));
  }
  if (DIR* tasks = opendir("/proc/self/task")) {
    while (const dirent* task = readdir(tasks))
      if (const int tid = std::atoi(task->d_name)) shot.process_delay_s[tid] = run_delay_s(tid);
    closedir(tasks);
  }
  shot.own_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  shot.machine_s = machine_busy_s();
  return shot;
}

void Pool::begin_load() { load_start_ = snapshot(); }

Load Pool::end_load() {
  const Snapshot end = snapshot();
  Load load;
  load.wall_s = end.wall_s - load_start_.wall_s;
  if (!(load.wall_s > 0)) return load;
  for (int index = 0; index < threads(); ++index) {
    // A worker that a launch leaves idle soon sleeps: it is judged by the time that it was awake, if that is any.
    const double awake_s = load.wall_s - (end.slept_s[index] - load_start_.slept_s[index]);
    if (awake_s > kLeastAwake * load.wall_s)
      load.cpu_share = std::min(load.cpu_share, (end.cpu_s[index] - load_start_.cpu_s[index]) / awake_s);
    load.run_delay_share = std::max(load.run_delay_share, (end.delay_s[index] - load_start_.delay_s[index]) / load.wall_s);
  }
  for (const auto& [tid, delay_s] : end.process_delay_s)
    if (const auto before = load_start_.process_delay_s.find(tid); before != load_start_.process_delay_s.end())
      load.process_run_delay_share = std::max(load.process_run_delay_share, (delay_s - before->second) / load.wall_s);
  // Ticks of 10 ms say nothing of shorter windows, and two of them are always in doubt.
  if (load.wall_s >= 1) {
    const double foreign_s = (end.machine_s - load_start_.machine_s) - (end.own_s - load_start_.own_s);
    if (foreign_s > 2.0 / static_cast<double>(sysconf(_SC_CLK_TCK))) load.foreign_cores = foreign_s / load.wall_s;
  }
  return load;
}

}  // namespace roofline::cpu
