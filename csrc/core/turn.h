// A lock that threads get in the order in which they asked, and that its holder may take again.
//
// A device runs one thing at a time: two callers of one thread pool would overwrite each other's work. `std::mutex` promises no
// order, so that a thread which measures in a loop could keep all others out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace roofline {

// How often this process has been forked off: a child has none of its parent's other threads, and none of what they held.
int fork_generation();

class Turn {
 public:
  explicit Turn(std::string what) : what_(std::move(what)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Waits for the turn. poll: called now and then while waiting; it throws to give up. Throws Error where waiting would never
  // end: in a user's callable that is being measured under this turn, on its own thread or (after `kPatience`) on another.
  void take(const std::function<void()>& poll = {});
  void give() noexcept;

  class Held {
   public:
    explicit Held(Turn& turn, const std::function<void()>& poll = {}) : turn_(turn) { turn_.take(poll); }
    ~Held() { turn_.give(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Turn& turn_;
  };

  // Around one call of a user's callable, which must not wait for this turn itself.
  class Callable {
   public:
    explicit Callable(Turn& turn) : turn_(turn) { turn_.call(true); }
    ~Callable() { turn_.call(false); }
    Callable(const Callable&) = delete;
    Callable& operator=(const Callable&) = delete;

   private:
    Turn& turn_;
  };

  static constexpr std::chrono::seconds kPatience{5};  // with one call of a callable

 private:
  void call(bool begins) noexcept;
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    std::thread::id thread;
    std::condition_variable granted;
  };
  void forget_other_processes();
  bool mine() const { return owner_ == std::this_thread::get_id(); }

  std::string what_;  // as an error names it
  std::mutex mutex_;
  std::deque<Waiting*> waiting_;
  std::thread::id owner_;
  int depth_ = 0;
  bool in_callable_ = false;
  Clock::time_point called_;
  int fork_generation_ = roofline::fork_generation();
};

// Held by whoever measures, on any device: two measurements at a time would disturb each other.
Turn& measuring();

}  // namespace roofline
