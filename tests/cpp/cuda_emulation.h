// A block of GPU threads on the host, as far as the kernels of cuda/simt/warp.cuh use one, so that whole kernels are compared with
// a reference where there is no GPU. Included by cuda/simt/warp.cuh under ROOFLINE_CUDA_EMULATED.
//
// Every thread is a fiber. Instructions of a whole warp wait until its 32 lanes have come to the same one; __syncthreads until all
// threads have. A warp runs as far as it can before another one does, in either order, and asynchronous copies are done at once or
// as late as allowed: so a missing barrier or wait shows as a wrong result. Shared memory starts as NaN. Fragments are those of the
// PTX ISA (sections on mma.m16n8k16, ldmatrix and movmatrix), written from its tables and not from cuda/tiles.h.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define ROOFLINE_DEVICE inline

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

  // Counted over all blocks run.
  static inline long matrix_rows = 0;      // groups of eight rows that ldmatrix read
  static inline long bank_conflicts = 0;   // of them, those with two rows in the same banks
  static inline long products = 0;         // mma instructions of a warp

  static inline EmulatedBlock* current = nullptr;

  EmulatedBlock(std::int64_t index, int threads, int shared_bytes, Emulation mode, const std::function<void()>& kernel)
      : index_(index), mode_(mode), kernel_(kernel), shared_bytes_(shared_bytes), shared_(new Storage) {
    std::memset(shared_->bytes, 0xFF, sizeof shared_->bytes);
    warps_.resize(threads / 32);
    for (int i = 0; i < threads; ++i) threads_.push_back(std::make_unique<Thread>());
    current = this;
    for (auto& each : threads_) start(*each);
    run();
    current = nullptr;
  }

  int thread() const { return running_; }
  std::int64_t block() const { return index_; }

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

  void synchronize() { wait(State::at_block); }

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
  enum class State : std::uint8_t { ready, at_warp, at_block, done };
  struct Copy {
    std::uint32_t to, size;
    const void* from;  // null: zeros
  };
  struct Thread {
    ucontext_t context;
    State state = State::ready;
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
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

  void start(Thread& thread) {
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
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

  void wait(State state) {
    Thread& mine = *threads_[running_];
    mine.state = state;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(state == State::done ? nullptr : &mine.fake_stack, host_stack_, host_stack_bytes_);
#endif
    swapcontext(&mine.context, &host_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(mine.fake_stack, &host_stack_, &host_stack_bytes_);
#endif
  }

  void resume(int index) {
    running_ = index;
    Thread& thread = *threads_[index];
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, thread.stack.get(), kStackBytes);
#endif
    swapcontext(&host_, &thread.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  void run() {
    const int warps = static_cast<int>(warps_.size());
    for (;;) {
      for (int i = 0; i < warps; ++i) {
        const int warp = mode_.last_warp_first ? warps - 1 - i : i;
        for (bool moved = true; moved;) {
          moved = false;
          for (int lane = 0; lane < 32; ++lane)
            if (threads_[32 * warp + lane]->state == State::ready) resume(32 * warp + lane), moved = true;
        }
        expect(warps_[warp].arrived == 0, "all lanes at one instruction");
      }
      bool left = false;
      for (auto& each : threads_) {
        if (each->state == State::done) continue;
        each->state = State::ready;
        left = true;
      }
      if (!left) return;
    }
  }

  std::int64_t index_;
  Emulation mode_;
  const std::function<void()>& kernel_;
  int shared_bytes_;
  std::unique_ptr<Storage> shared_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Thread>> threads_;
  int running_ = 0;
  ucontext_t host_;
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

// -- numbers ------------------------------------------------------------------------------------------------------------------

inline float as_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float number(Bf16, std::uint32_t bits) { return as_float(bits << 16); }
inline float number(Fp16, std::uint32_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -size : size;
}
inline std::uint32_t rounded(Bf16, float x) {
  const std::uint32_t bits = bits_of(x);
  if (std::isnan(x)) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline std::uint32_t rounded(Fp16, float x) {
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return 0x7FFF;
  if (size >= 65520) return sign | 0x7C00;
  if (size < 0x1p-14) return sign | static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24));
  const int exponent = std::ilogb(size);
  return sign + static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent))) + ((exponent + 14) << 10);
}
template <class T>
std::uint32_t packed(T type, float low, float high) {
  return rounded(type, low) | rounded(type, high) << 16;
}
template <class T>
std::uint32_t scaled(T type, std::uint32_t pair, std::uint32_t factors) {
  return packed(type, number(type, pair & 0xFFFF) * number(type, factors & 0xFFFF),
                number(type, pair >> 16) * number(type, factors >> 16));
}
inline std::uint32_t bytes_of(std::uint32_t a, std::uint32_t b, std::uint32_t digits) {
  const std::uint64_t all = a | static_cast<std::uint64_t>(b) << 32;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<std::uint32_t>(all >> 8 * (digits >> 4 * i & 7) & 255) << 8 * i;
  return out;
}
inline float exp2_of(float x) { return std::exp2(x); }
inline float larger_of(float a, float b) { return std::fmax(a, b); }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }

// -- instructions -------------------------------------------------------------------------------------------------------------

inline int thread() { return EmulatedBlock::current->thread(); }
inline std::int64_t block() { return EmulatedBlock::current->block(); }
inline void synchronize() { EmulatedBlock::current->synchronize(); }
inline std::uint32_t shared_address(int offset) { return static_cast<std::uint32_t>(offset); }
template <class T>
T* shared_at(int offset) {
  EmulatedBlock::expect(offset % alignof(T) == 0, "an aligned place in shared memory");
  return reinterpret_cast<T*>(EmulatedBlock::current->shared(offset, sizeof(T)));
}
inline void copy_async(std::uint32_t to, const void* from, bool valid) { EmulatedBlock::current->copy(to, from, 16, valid); }
inline void copy_word_async(std::uint32_t to, const void* from, bool valid) { EmulatedBlock::current->copy(to, from, 4, valid); }
inline void commit_copies() { EmulatedBlock::current->commit(); }
template <int Pending>
void wait_copies() {
  EmulatedBlock::current->wait_groups(Pending);
}

struct Nothing {};
inline void synchronize_warp() {
  EmulatedBlock::current->together<Nothing, Nothing>("__syncwarp", {}, [](auto, auto) {});
}
inline float from_lane_xor(float x, int mask) {
  struct In {
    float x;
    int mask;
  };
  return EmulatedBlock::current->together<In, float>("shfl.xor", {x, mask}, [](const In* const* in, float* const* out) {
    for (int lane = 0; lane < 32; ++lane) *out[lane] = in[lane ^ in[lane]->mask]->x;
  });
}

struct Four {
  std::uint32_t r[4];
};
inline void load_matrices_as(std::uint32_t (&r)[4], std::uint32_t address, bool transpose) {
  const char* what = transpose ? "ldmatrix.x4.trans" : "ldmatrix.x4";
  const Four loaded = EmulatedBlock::current->together<std::uint32_t, Four>(what, address, [&](auto in, auto out) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t elements[8][8];
      std::set<std::uint32_t> banks;
      for (int row = 0; row < 8; ++row) {
        const std::uint32_t at = *in[8 * matrix + row];
        EmulatedBlock::expect(at % 16 == 0, "rows of ldmatrix aligned to 16 bytes");
        std::memcpy(elements[row], EmulatedBlock::current->shared(at, 16), 16);
        banks.insert(at / 16 % 8);
      }
      ++EmulatedBlock::matrix_rows;
      EmulatedBlock::bank_conflicts += banks.size() != 8;
      for (int lane = 0; lane < 32; ++lane) {
        const int row = lane / 4, column = lane % 4 * 2;
        const std::uint32_t low = transpose ? elements[column][row] : elements[row][column];
        const std::uint32_t high = transpose ? elements[column + 1][row] : elements[row][column + 1];
        out[lane]->r[matrix] = low | high << 16;
      }
    }
  });
  std::memcpy(r, loaded.r, sizeof r);
}
inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) { load_matrices_as(r, address, false); }
inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) { load_matrices_as(r, address, true); }

inline std::uint32_t transposed(std::uint32_t pair) {
  return EmulatedBlock::current->together<std::uint32_t, std::uint32_t>("movmatrix", pair, [](auto in, auto out) {
    const auto element = [&](int row, int column) { return *in[4 * row + column / 2] >> 16 * (column % 2) & 0xFFFF; };
    for (int lane = 0; lane < 32; ++lane)
      *out[lane] = element(lane % 4 * 2, lane / 4) | element(lane % 4 * 2 + 1, lane / 4) << 16;
  });
}

template <class T>
void multiply_add(T type, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct In {
    std::uint32_t a[4], b[2];
    float c[4];
  };
  struct Out {
    float c[4];
  };
  const In mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  const Out sum = EmulatedBlock::current->together<In, Out>("mma.m16n8k16", mine, [&](auto in, auto out) {
    ++EmulatedBlock::products;
    float left[16][16], right[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane >> 2, in_group = lane & 3;
      for (int i = 0; i < 8; ++i) {
        const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
        const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        left[row][column] = number(type, in[lane]->a[i / 2] >> 16 * (i & 1) & 0xFFFF);
      }
      for (int i = 0; i < 4; ++i)
        right[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = number(type, in[lane]->b[i / 2] >> 16 * (i & 1) & 0xFFFF);
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8, column = (lane & 3) * 2 + (i & 1);
        double total = in[lane]->c[i];
        for (int k = 0; k < 16; ++k) total += static_cast<double>(left[row][k]) * right[k][column];
        out[lane]->c[i] = static_cast<float>(total);
      }
  });
  std::memcpy(c, sum.c, sizeof c);
}

// Blocks run one after the other, so that memory needs no care.
template <class T>
T from_others(const T* memory) {
  return *memory;
}
inline void publish() {}
inline unsigned arrive(unsigned* counter, unsigned arrivals) {
  const unsigned before = *counter;
  *counter = before >= arrivals - 1 ? 0 : before + 1;
  return before;
}

}  // namespace roofline::cuda
