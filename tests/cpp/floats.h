// Memory of a test: what lies before and after it must stay as it was.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/random.h"

namespace roofline {

// n floats, `offset` floats past a cache line, between guard zones.
class Floats {
 public:
  Floats(std::int64_t n, std::int64_t offset) : n_(n), memory_(n + offset + 3 * kGuard) {
    std::memset(memory_.data(), 0xA5, memory_.size() * sizeof(float));
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kGuard);
    first_ = kGuard + static_cast<std::int64_t>((64 - address % 64) % 64 / sizeof(float)) + offset;
  }
  float* data() { return memory_.data() + first_; }
  float& operator[](std::int64_t i) { return data()[i]; }
  void fill(std::uint64_t seed, double scale = 1, double shift = 0) {
    for (std::int64_t i = 0; i < n_; ++i) data()[i] = static_cast<float>(random_uniform(seed, i) * scale + shift);
  }
  bool guarded() const {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(memory_.size()); ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, &memory_[i], sizeof bits);
      if ((i < first_ || i >= first_ + n_) && bits != 0xA5A5A5A5u) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 32;
  std::int64_t n_;
  std::int64_t first_;
  std::vector<float> memory_;
};

}  // namespace roofline
