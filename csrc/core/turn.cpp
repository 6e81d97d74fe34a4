#include "core/turn.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "core/error.h"

namespace roofline {
namespace {

constexpr std::chrono::milliseconds kPoll{50};  // Ctrl-C is answered within this

std::atomic<int> generation{0};

}  // namespace

int fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

// In a child, which has one thread: whoever held or waited for the turn may be gone, and the mutex may be left locked.
void Turn::forget_other_processes() {
  if (fork_generation_ == roofline::fork_generation()) return;
  fork_generation_ = roofline::fork_generation();
  new (&mutex_) std::mutex;
  new (&waiting_) std::deque<Waiting*>;  // the old one may have been cut off in the middle of a change
  owner_ = {};
  depth_ = 0;
  in_callable_ = false;
}

void Turn::take(const std::function<void()>& poll) {
  forget_other_processes();
  std::unique_lock lock(mutex_);
  if (depth_ == 0) {
    owner_ = std::this_thread::get_id();
    depth_ = 1;
    return;
  }
  if (mine()) {
    if (in_callable_)
      throw Error(what_ + ": called by the callable that is being measured; measure before or after it, and let it only run");
    ++depth_;
    return;
  }
  Waiting me{std::this_thread::get_id(), {}};
  waiting_.push_back(&me);
  const auto withdraw = [&] { waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &me)); };
  while (!mine()) {
    me.granted.wait_for(lock, kPoll);
    if (mine()) break;
    if (in_callable_ && Clock::now() - called_ > kPatience) {
      withdraw();
      throw Error(what_ + ": another thread has measured a callable for more than " + std::to_string(kPatience.count()) +
                  " s in one call; if that call waits for this one, neither would end: measure when it is done");
    }
    if (!poll) continue;
    lock.unlock();
    try {
      poll();
    } catch (...) {
      lock.lock();
      if (!mine()) {
        withdraw();
        throw;
      }
      lock.unlock();
      give();
      throw;
    }
    lock.lock();
  }
}

void Turn::give() noexcept {
  forget_other_processes();
  const std::lock_guard lock(mutex_);
  if (!mine() || --depth_ > 0) return;  // not the owner: a child process that was forked while its parent held the turn
  owner_ = {};
  if (waiting_.empty()) return;
  Waiting* next = waiting_.front();
  waiting_.pop_front();
  owner_ = next->thread;
  depth_ = 1;
  next->granted.notify_one();
}

void Turn::call(bool begins) noexcept {
  forget_other_processes();
  const std::lock_guard lock(mutex_);
  in_callable_ = begins;
  called_ = Clock::now();
}

Turn& measuring() {
  static auto* turn = new Turn("measure");
  return *turn;
}

}  // namespace roofline
