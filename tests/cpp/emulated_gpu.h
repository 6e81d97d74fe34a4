// Enough of CUDA to run a kernel's source on the host: every thread of a block is a fiber, blocks run one after the other. Barriers
// and shuffles switch fibers; a barrier that some threads never reach is an error. Slow, exact, and without a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ucontext.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(...)

namespace emulated {

inline dim3 thread_index, block_index, block_size, grid_size;

struct Fiber {
  ucontext_t context;
  dim3 thread;
  bool done = false;
  int shuffles = 0;
};

struct Barrier {
  int arrived = 0, generation = 0;
};

struct Block {
  ucontext_t scheduler;
  std::vector<Fiber> fibers;
  std::vector<char> stacks;
  std::vector<Barrier> warps;
  std::vector<double> exchanged;  // [warp][2][32]
  Barrier all;
  std::function<void()> body;
  int current = 0;
  bool progress = false;
};
inline Block* block = nullptr;
constexpr std::size_t kStackBytes = 128 << 10;

inline void switch_context(ucontext_t& from, ucontext_t& to, [[maybe_unused]] void* stack, [[maybe_unused]] std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  void* kept = nullptr;
  __sanitizer_start_switch_fiber(&kept, stack, size);
  swapcontext(&from, &to);
  __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#else
  swapcontext(&from, &to);
#endif
}

// The scheduler runs on the stack of whoever called launch(); the sanitizer is told of it when a fiber begins.
inline const void* scheduler_stack = nullptr;
inline std::size_t scheduler_stack_bytes = 0;

inline void yield() {
  Fiber& self = block->fibers[block->current];
  switch_context(self.context, block->scheduler, const_cast<void*>(scheduler_stack), scheduler_stack_bytes);
}

inline void wait(Barrier& barrier, int expected) {
  const int generation = barrier.generation;
  if (++barrier.arrived == expected) {
    barrier.arrived = 0;
    ++barrier.generation;
    block->progress = true;
    return;
  }
  while (barrier.generation == generation) yield();
}

inline void run_fiber() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
  block->body();
  block->fibers[block->current].done = true;
  block->progress = true;
  yield();
}

// Apart, so that no local variable of launch() lives across getcontext.
[[gnu::noinline]] inline void begin_fiber(Block& block, int index) {
  Fiber& fiber = block.fibers[index];
  fiber.thread = dim3(index);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = block.stacks.data() + kStackBytes * index;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_fiber, 0);
}

template <class Kernel, class... Given>
void launch(std::int64_t grid, int threads, Kernel kernel, Given... given) {
  Block mine;
  block = &mine;
  mine.stacks.resize(kStackBytes * threads);
  mine.body = [&] { kernel(given...); };
  block_size = dim3(threads);
  grid_size = dim3(static_cast<unsigned>(grid));
  for (std::int64_t index = 0; index < grid; ++index) {
    block_index = dim3(static_cast<unsigned>(index));
    mine.fibers.assign(threads, Fiber{});
    mine.warps.assign((threads + 31) / 32, Barrier{});
    mine.exchanged.assign(mine.warps.size() * 64, 0);
    mine.all = {};
    for (int i = 0; i < threads; ++i) begin_fiber(mine, i);
    for (int left = threads; left > 0;) {
      mine.progress = false;
      for (int i = 0; i < threads; ++i) {
        Fiber& fiber = mine.fibers[i];
        if (fiber.done) continue;
        mine.current = i;
        thread_index = fiber.thread;
        switch_context(mine.scheduler, fiber.context, fiber.context.uc_stack.ss_sp, kStackBytes);
        if (fiber.done) --left;
      }
      if (!mine.progress) {
        std::fprintf(stderr, "emulated GPU: some threads of block %lld wait for others that never come\n",
                     static_cast<long long>(index));
        std::abort();
      }
    }
  }
  block = nullptr;
}

}  // namespace emulated

#define threadIdx ::emulated::thread_index
#define blockIdx ::emulated::block_index
#define blockDim ::emulated::block_size
#define gridDim ::emulated::grid_size

inline void __syncthreads() { emulated::wait(emulated::block->all, static_cast<int>(emulated::block_size.x)); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  emulated::Block& block = *emulated::block;
  const int self = block.current, warp = self / 32;
  if (mask != 0xFFFFFFFFu) {
    std::fprintf(stderr, "emulated GPU: shuffles of part of a warp are not emulated\n");
    std::abort();
  }
  double* slots = &block.exchanged[static_cast<std::size_t>(warp * 64 + block.fibers[self].shuffles++ % 2 * 32)];
  std::memcpy(&slots[self % 32], &value, sizeof value);
  emulated::wait(block.warps[warp], 32);
  T other;
  std::memcpy(&other, &slots[(self % 32) ^ lanes], sizeof other);
  return other;
}

// Blocks run one after the other, threads of a block in turn: what is written is seen, and nothing intervenes.
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* at, unsigned more) { return *at += more, *at - more; }
inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long expected, unsigned long long value) {
  const unsigned long long before = *at;
  if (before == expected) *at = value;
  return before;
}
inline long long clock64() {
  static long long ticks = 0;
  return ++ticks;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldca(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T x) {
  *p = x;
}

inline float __expf(float x) { return std::exp(x); }
