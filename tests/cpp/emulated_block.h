// A block of GPU threads on the host. Every thread is a fiber. Instructions of a whole warp wait until its 32 lanes have come to
// the same one; __syncthreads until all threads have. A warp runs as far as it can before another one does, in either order, and
// asynchronous copies are done at once or as late as allowed: so a missing barrier or wait shows as a wrong result, and a barrier
// that some threads never reach is an error. Shared memory starts as NaN. Blocks run one after the other.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace roofline::cuda {

struct Emulation {
  bool late_copies = false;
  bool last_warp_first = false;
  bool last_block_first = false;
};

class EmulatedBlock {
 public:
  static constexpr int kSharedBytes = 227 << 10;
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  static constexpr int kMostPolls = 1000;

  // Counted over all blocks run.
  static inline long matrix_rows = 0;      // groups of eight rows that ldmatrix read
  static inline long bank_conflicts = 0;   // of them, those with two rows in the same banks
  static inline long products = 0;         // mma instructions of a warp

  static inline EmulatedBlock* current = nullptr;

  EmulatedBlock(std::int64_t index, int threads, int shared_bytes, Emulation mode, const std::function<void()>& kernel)
      : index_(index), mode_(mode), kernel_(kernel), shared_bytes_(shared_bytes) {
    if (!shared_) shared_ = std::make_unique<Storage>();
    std::memset(shared_->bytes, 0xFF, shared_bytes);
    warps_.resize((threads + 31) / 32);
    for (int i = 0; i < threads; ++i) threads_.push_back(std::make_unique<Thread>());
    current = this;
    for (int i = 0; i < threads; ++i) start(i);
    run();
    current = nullptr;
  }

  int thread() const { return running_; }
  std::int64_t block() const { return index_; }
  bool late() const { return mode_.late_copies; }

  unsigned char* shared(std::int64_t offset, std::int64_t size) {
    expect(offset >= 0 && offset + size <= shared_bytes_, "inside shared memory");
    return shared_->bytes + offset;
  }

  // One instruction of a whole warp: all(in, out) once, with what every lane brings and takes.
  template <class In, class Out, class F>
  Out together(const char* what, const In& in, F all) {
    Warp& warp = warps_[running_ / 32];
    const int lane = running_ % 32;
    Out out{};
    if (warp.arrived == 0) warp.what = what;
    expect(std::strcmp(warp.what, what) == 0, what);
    warp.in[lane] = &in;
    warp.out[lane] = &out;
    if (++warp.arrived < 32) {
      wait(State::at_warp);
    } else {
      const In* ins[32];
      Out* outs[32];
      for (int i = 0; i < 32; ++i) ins[i] = static_cast<const In*>(warp.in[i]), outs[i] = static_cast<Out*>(warp.out[i]);
      all(ins, outs);
      warp.arrived = 0;
      for (int i = 0; i < 32; ++i) threads_[running_ / 32 * 32 + i]->state = State::ready;
    }
    return out;
  }

  // Warp-wide, as __shfl_xor_sync and __any_sync: the value of the lane whose index is xor `mask`, and whether any lane's is true.
  template <class X>
  X from_lane_xor(X x, int mask) {
    struct In {
      X x;
      int mask;
    };
    return together<In, X>("shfl.xor", {x, mask}, [](const In* const* in, X* const* out) {
      for (int lane = 0; lane < 32; ++lane) *out[lane] = in[lane ^ in[lane]->mask]->x;
    });
  }
  bool any_lane(bool is) {
    return together<bool, bool>("vote.any", is, [](const bool* const* in, bool* const* out) {
      bool any = false;
      for (int lane = 0; lane < 32; ++lane) any |= *in[lane];
      for (int lane = 0; lane < 32; ++lane) *out[lane] = any;
    });
  }

  void synchronize() { wait(State::at_block); }
  // Lets the others run: for what asks again and again whether something has come.
  void poll() { wait(State::polling); }

  void copy(std::uint32_t to, const void* from, std::uint32_t size, bool valid) {
    expect(to % size == 0 && reinterpret_cast<std::uintptr_t>(from) % size == 0, "copies aligned to their size");
    Thread& mine = *threads_[running_];
    mine.open.push_back({to, size, valid ? from : nullptr});
    if (!mode_.late_copies) perform(mine.open.back());
  }
  void commit() {
    Thread& mine = *threads_[running_];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
  }
  void wait_groups(std::size_t pending) {
    Thread& mine = *threads_[running_];
    while (mine.groups.size() > pending) {
      if (mode_.late_copies)
        for (const Copy& each : mine.groups.front()) perform(each);
      mine.groups.erase(mine.groups.begin());
    }
  }

  static void expect(bool condition, const char* what) {
    if (condition) return;
    const long long index = current ? static_cast<long long>(current->index_) : -1;
    std::fprintf(stderr, "emulated GPU: expected %s (block %lld, thread %d)\n", what, index, current ? current->running_ : -1);
    std::abort();
  }

 private:
  enum class State : std::uint8_t { ready, at_warp, at_block, polling, done };
  struct Copy {
    std::uint32_t to, size;
    const void* from;  // null: zeros
  };
  using Place = void*[5];
  struct Thread {
    ucontext_t context;
    Place place;
    bool entered = false;
    State state = State::ready;
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
    void* fake_stack = nullptr;
  };
  struct Warp {
    int arrived = 0;
    const char* what = "";
    const void* in[32];
    void* out[32];
  };
  struct alignas(1024) Storage {
    unsigned char bytes[kSharedBytes];
  };

  void perform(const Copy& copy) {
    unsigned char* to = shared(copy.to, copy.size);
    if (copy.from)
      std::memcpy(to, copy.from, copy.size);
    else
      std::memset(to, 0, copy.size);
  }

  void start(int index) {
    Thread& thread = *threads_[index];
    if (index == static_cast<int>(stacks_.size())) stacks_.emplace_back(new char[kStackBytes]);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stacks_[index].get(), kStackBytes);  // of the fiber before, which never returned
#endif
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks_[index].get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, &EmulatedBlock::enter, 0);
  }
  static void enter() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &current->host_stack_, &current->host_stack_bytes_);
#endif
    current->kernel_();
    current->wait(State::done);
  }

  // Goes on at a place, or the first time where a context begins. As swapcontext without its system calls, which take longer than
  // what threads do between two of them.
  __attribute__((noinline, no_sanitize("address"))) static void go(Place& from, Place& to, const ucontext_t* begin = nullptr) {
    if (__builtin_setjmp(from)) return;
    if (begin) setcontext(begin);
    __builtin_longjmp(to, 1);
  }

  void wait(State state) {
    Thread& mine = *threads_[running_];
    mine.state = state;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(state == State::done ? nullptr : &mine.fake_stack, host_stack_, host_stack_bytes_);
#endif
    go(mine.place, host_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(mine.fake_stack, &host_stack_, &host_stack_bytes_);
#endif
  }

  void resume(int index) {
    running_ = index;
    Thread& thread = *threads_[index];
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, stacks_[index].get(), kStackBytes);
#endif
    go(host_, thread.place, std::exchange(thread.entered, true) ? nullptr : &thread.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  void run() {
    const int warps = static_cast<int>(warps_.size()), threads = static_cast<int>(threads_.size());
    for (int polls = 0;;) {
      for (int i = 0; i < warps; ++i) {
        const int warp = mode_.last_warp_first ? warps - 1 - i : i, last = std::min(32 * warp + 32, threads);
        for (bool moved = true; moved;) {
          moved = false;
          for (int thread = 32 * warp; thread < last; ++thread)
            if (threads_[thread]->state == State::ready) resume(thread), moved = true;
        }
        if (!any(State::polling)) expect(warps_[warp].arrived == 0, "all lanes at one instruction");
      }
      const State released = any(State::polling) ? State::polling : State::at_block;
      if (!any(released)) return;
      expect(released == State::polling || !any(State::done), "all threads at a barrier");
      polls = released == State::polling ? polls + 1 : 0;
      expect(polls < kMostPolls, "what is waited for");
      for (auto& each : threads_)
        if (each->state == released) each->state = State::ready;
    }
  }
  bool any(State state) const {
    return std::any_of(threads_.begin(), threads_.end(), [&](const auto& each) { return each->state == state; });
  }

  std::int64_t index_;
  Emulation mode_;
  const std::function<void()>& kernel_;
  int shared_bytes_;
  // From block to block the same: under a sanitizer fresh memory takes longer than most kernels.
  static inline std::unique_ptr<Storage> shared_;
  static inline std::vector<std::unique_ptr<char[]>> stacks_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Thread>> threads_;
  int running_ = 0;
  Place host_;
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
};

// Runs kernel() as every thread of `blocks` blocks, one block after the other.
inline void emulate(std::int64_t blocks, int threads, std::int64_t shared_bytes, Emulation mode,
                    const std::function<void()>& kernel) {
  EmulatedBlock::expect(shared_bytes <= EmulatedBlock::kSharedBytes, "shared memory of a block");
  for (std::int64_t i = 0; i < blocks; ++i)
    EmulatedBlock(mode.last_block_first ? blocks - 1 - i : i, threads, static_cast<int>(shared_bytes), mode, kernel);
}

}  // namespace roofline::cuda
