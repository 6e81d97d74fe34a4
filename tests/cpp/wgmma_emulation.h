// wgmma on the host: descriptors and register fragments by the tables of the PTX ISA. A warp's part of a product, 16 rows, needs
// nothing of the other three warps. Products are done when they are issued, or with late copies those of multiply_async at the wait
// that they are due at: until then their sums are NaN, and a buffer that is given away too early holds what came later. Included by
// cuda/sm90a/wgmma.cuh under ROOFLINE_CUDA_EMULATED.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "mma_emulation.h"

namespace roofline::cuda {

inline bool shown_to_units = false;  // of the block: that a fence came before the first product
inline void show_to_units() { shown_to_units = true; }

struct ProductQueue {
  std::vector<std::function<void()>> open;
  std::vector<const float*> open_sums;  // that they add to
  std::deque<std::vector<std::function<void()>>> groups;
};
inline std::map<int, ProductQueue> product_queues;  // of each thread
inline ProductQueue& product_queue() { return product_queues[EmulatedBlock::current->thread()]; }

inline void begin_products() {}
inline void commit_products() {
  product_queue().groups.push_back(std::move(product_queue().open));
  product_queue().open.clear(), product_queue().open_sums.clear();
}
template <int Pending>
void wait_products() {
  ProductQueue& queue = product_queue();
  for (; queue.groups.size() > Pending; queue.groups.pop_front())
    for (const auto& perform : queue.groups.front()) perform();
}

// Where a row of an operand begins whose inner dimension is contiguous: eight rows of 128 bytes, then the next at the stride.
inline std::int64_t descriptor_bytes(std::uint64_t descriptor, int from) {
  return static_cast<std::int64_t>(descriptor >> from & 0x3FFF) * 16;
}
inline std::int64_t row_address(std::uint64_t descriptor, int row) {
  return descriptor_bytes(descriptor, 0) + row / 8 * descriptor_bytes(descriptor, 32) + row % 8 * 128;
}
// The address of a 16-bit element of an MN-major operand: 64 rows lie side by side in 128 bytes, eight of the inner dimension below
// each other, the next eight a stride on, the next 64 rows a leading dimension on.
inline std::int64_t column_address(std::uint64_t descriptor, int row, int k) {
  return descriptor_bytes(descriptor, 0) + row / 64 * descriptor_bytes(descriptor, 16) +
         k / 8 * descriptor_bytes(descriptor, 32) + k % 8 * 128 + row % 64 * 2;
}
inline std::int64_t swizzled_address(std::int64_t at) { return at ^ (at >> 7 & 7) << 4; }  // bits 4 to 6, by bits 7 to 9
inline void expect_swizzle(std::uint64_t descriptor) {
  EmulatedBlock::expect(descriptor >> 62 == 1 && (descriptor >> 49 & 7) == 0, "a swizzle over 128 bytes from an aligned base");
}

template <class In, class Sum>
void multiply_add_async(In, Sum (&c)[128], std::uint64_t a, std::uint64_t b) {
  EmulatedBlock::expect(shown_to_units, "a proxy fence before wgmma reads what threads wrote");
  expect_swizzle(a), expect_swizzle(b);
  struct Lane {
    std::uint64_t a, b;
    Sum c[128];
  };
  Lane mine;
  mine.a = a, mine.b = b;
  std::memcpy(mine.c, c, sizeof c);
  const int warp = EmulatedBlock::current->thread() / 32 % 4;
  const Lane done = EmulatedBlock::current->together<Lane, Lane>("wgmma", mine, [&](auto in, auto out) {
    constexpr int kBytes = kBitsOf<In> / 8, kDepth = 32 / kBytes;
    ++EmulatedBlock::products;
    static double left[16][kDepth], right[256][kDepth];
    const auto read = [&](std::uint64_t descriptor, int row, int k) {
      unsigned char bytes[4];
      for (int i = 0; i < kBytes; ++i)
        bytes[i] = *EmulatedBlock::current->shared(swizzled_address(row_address(descriptor, row) + k * kBytes + i), 1);
      return element(In{}, bytes, 0);
    };
    for (int k = 0; k < kDepth; ++k) {
      for (int row = 0; row < 16; ++row) left[row][k] = read(in[0]->a, 16 * warp + row, k);
      for (int column = 0; column < 256; ++column) right[column][k] = read(in[0]->b, column, k);
    }
    for (int lane = 0; lane < 32; ++lane) {
      EmulatedBlock::expect(in[lane]->a == in[0]->a && in[lane]->b == in[0]->b, "one descriptor in all lanes");
      for (int i = 0; i < 128; ++i) {
        const int row = lane / 4 + (i / 2 % 2) * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        double sum = 0;
        for (int k = 0; k < kDepth; ++k) sum += left[row][k] * right[column][k];
        out[lane]->c[i] = added(in[lane]->c[i], sum);
      }
    }
  });
  std::memcpy(c, done.c, sizeof c);
}

template <class In>
double read_operand(std::uint64_t descriptor, int row, int k, bool inner_contiguous) {
  expect_swizzle(descriptor);
  const std::int64_t at = inner_contiguous ? row_address(descriptor, row) + 2 * k : column_address(descriptor, row, k);
  std::uint16_t bits;
  std::memcpy(&bits, EmulatedBlock::current->shared(swizzled_address(at), 2), 2);
  return number(In{}, bits);
}

// left(row of two, k): the lane's rows of a.
template <class In, int Count, class F>
void enqueue_product(float (&c)[Count], F left, std::uint64_t b, bool inner_contiguous, bool add) {
  const int lane = EmulatedBlock::current->thread() % 32;
  std::array<float, Count> before;
  for (int i = 0; i < Count; ++i) before[i] = add ? c[i] : 0.f;
  std::vector<const float*>& others = product_queue().open_sums;
  const bool late = EmulatedBlock::current->late(), chained = late && std::find(others.begin(), others.end(), c) != others.end();
  float* const to = c;
  const auto perform = [=] {
    double a[2][16];
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < 16; ++k) a[half][k] = left(half, k);
    for (int pair = 0; pair < Count / 4; ++pair)
      for (int j = 0; j < 2; ++j) {
        double right[16], sums[2] = {0, 0};
        for (int k = 0; k < 16; ++k) right[k] = read_operand<In>(b, 8 * pair + lane % 4 * 2 + j, k, inner_contiguous);
        for (int half = 0; half < 2; ++half) {
          for (int k = 0; k < 16; ++k) sums[half] += a[half][k] * right[k];
          float& sum = to[4 * pair + 2 * half + j];
          // Within a group the sum before is there once the product before is done.
          sum = static_cast<float>((chained && add ? sum : before[4 * pair + 2 * half + j]) + sums[half]);
        }
      }
  };
  ++EmulatedBlock::products;
  if (!late) return perform();
  for (float& each : c) each = NAN;
  others.push_back(c);
  product_queue().open.push_back(perform);
}

template <class In, int Count>
void multiply_async(In, float (&c)[Count], std::uint64_t a, std::uint64_t b, int add) {
  const int thread = EmulatedBlock::current->thread(), first = thread / 32 % 4 * 16 + thread % 32 / 4;
  enqueue_product<In>(c, [=](int half, int k) { return read_operand<In>(a, first + 8 * half, k, true); }, b, true, add != 0);
}
template <class In, int Count>
void multiply_async(In, float (&c)[Count], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
  struct Rows {
    double a[2][16];
  };
  const Four mine = {{a[0], a[1], a[2], a[3]}};
  const Rows rows = EmulatedBlock::current->together<Four, Rows>("wgmma", mine, [](auto in, auto out) {
    for (int lane = 0; lane < 32; ++lane)
      for (int half = 0; half < 2; ++half)
        for (int k = 0; k < 16; ++k)
          out[lane]->a[half][k] = number(In{}, in[lane / 4 * 4 + k % 8 / 2]->r[half + k / 8 * 2] >> 16 * (k % 2) & 0xFFFF);
  });
  enqueue_product<In>(c, [=](int half, int k) { return rows.a[half][k]; }, b, false, add != 0);
}

template <int Count>
void hold(float (&)[Count]) {}
template <int Count>
void hold(std::uint32_t (&)[Count][4]) {}

}  // namespace roofline::cuda
