// Every memory access of every instruction set against double: all lengths around a step and a page, with guard zones around what
// is written. AVX-512 also runs by SIMDe's emulation (table stream_simde), where that is installed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "cpu/stream_kernels.h"
#include "guarded.h"
#include "tested.h"

namespace roofline::cpu {

extern const StreamKernels stream_simde;

namespace {

const std::vector<Tested<StreamKernels>> kTested = {ROOFLINE_TESTED(stream)};

// Around a vector and a step of one and of several streams; and, of several, streams that begin at different places of a page.
std::vector<std::int64_t> lengths(int streams) {
  std::vector<std::int64_t> all = {1, 3, 15, 16, 17, 63, 255, 511, 512, 513, 1030, 4099, 8191};
  if (streams > 1) all.push_back(streams * 65536 + 1041);
  return all;
}

using StreamTest = TableTest<StreamKernels>;

INSTANTIATE_TEST_SUITE_P(All, StreamTest, testing::ValuesIn(kTested), testing::PrintToStringParamName());

// Small whole numbers, whose sums are exact in any order.
template <class T>
double fill(Guarded<T>& array, std::int64_t n, std::uint64_t seed) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += array.data()[i] = static_cast<T>(static_cast<int>(random_bits(seed, i) % 17) - 8);
  return sum;
}

template <class T>
void reads(const StreamKernels& table, int width) {
  for (const int streams : {1, 2, 4, 8})
    for (const std::int64_t n : lengths(streams)) {
      Guarded<T> a(n);
      const double sum = fill(a, n, n);
      for (const std::int64_t passes : {1, 3, 32, 33}) {  // sums move on every 32 passes
        if (passes > 3 && n > 10000) continue;
        for (const Prefetch prefetch : {Prefetch::none, Prefetch::nta, Prefetch::sparse})
          ASSERT_EQ(table.run[width][0][0]({a.data(), nullptr, nullptr, 0, n, passes, streams, prefetch, 1}), passes * sum)
              << n << " elements, " << streams << " streams, " << passes << " passes";
        if (!table.strided[width] || streams > 1) continue;
        for (const std::int64_t stride : {2, 3, 7, 16, 64, 1000, 4098, 1 << 20})
          ASSERT_EQ(table.strided[width]({a.data(), nullptr, nullptr, 0, n, passes, 1, Prefetch::none, stride}), passes * sum)
              << n << " elements, stride " << stride << ", " << passes << " passes";
      }
    }
}

TEST_P(StreamTest, Reads32) { reads<float>(table(), 0); }
TEST_P(StreamTest, Reads64) { reads<double>(table(), 1); }

template <class T>
void writes(const StreamKernels& table, int width) {
  const double factor = 3;
  for (const int streams : {1, 2, 4, 8})
    for (const std::int64_t n : lengths(streams)) {
      Guarded<T> a(n), b(n), expected(n);
      fill(a, n, 1);
      fill(b, n, 2);
      for (int access = 1; access < 6; ++access) {
        for (std::int64_t i = 0; i < n; ++i) {
          const double x = a.data()[i], y = b.data()[i];
          const double values[] = {0, factor, x, factor * x, x + y, x + factor * y};
          expected.data()[i] = static_cast<T>(values[access]);
        }
        for (const int stores : {0, 1, 2}) {
          if (!table.run[width][access][stores]) continue;
          Guarded<T> c(n);
          EXPECT_EQ(table.run[width][access][stores]({a.data(), b.data(), c.data(), factor, n, 2, streams, Prefetch::none, 1}), 0);
          ASSERT_TRUE(c.guarded()) << n << " elements, access " << access << ", " << streams << " streams";
          const auto [wrong, right] = std::mismatch(c.data(), c.data() + n, expected.data());
          ASSERT_EQ(wrong, c.data() + n) << "element " << wrong - c.data() << " of " << n << " is " << *wrong << " and not "
                                         << *right << ", access " << access << ", " << streams << " streams, stores "
                                         << stores;
        }
      }
    }
}

TEST_P(StreamTest, Writes32) { writes<float>(table(), 0); }
TEST_P(StreamTest, Writes64) { writes<double>(table(), 1); }

// Which pages of [memory, memory + pages) have been touched since they were mapped.
std::vector<unsigned char> touched(void* memory, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / sysconf(_SC_PAGESIZE));
  EXPECT_EQ(mincore(memory, bytes, pages.data()), 0);
  for (unsigned char& page : pages) page &= 1;
  return pages;
}

// Loads go to every page of their range, and to none beyond.
TEST_P(StreamTest, LoadsTouchTheirRange) {
  const std::size_t page = sysconf(_SC_PAGESIZE), bytes = 64 * page;
  for (const int width : {0, 1})
    for (const int streams : {1, 2, 4, 8})
      for (const std::size_t size : {bytes - 2 * page, 3 * page, std::size_t{8}}) {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        char* start = static_cast<char*>(memory) + 2 * page - std::min(size, page);  // ends at a page's end, or spans several
        const std::int64_t n = size / (width ? 8 : 4);
        std::vector<unsigned char> expected(64);
        for (std::size_t at = start - static_cast<char*>(memory); at < start - static_cast<char*>(memory) + size; ++at)
          expected[at / page] = 1;
        EXPECT_EQ(table().loads[width]({start, nullptr, nullptr, 0, n, 2, streams, Prefetch::none, 1}), 0);
        EXPECT_EQ(touched(memory, bytes), expected) << size << " bytes, " << streams << " streams";
        munmap(memory, bytes);
      }
}

TEST(StreamTables, ScalarAloneReadsStrided) {
  for (const Tested<StreamKernels>& tested : kTested) {
    EXPECT_EQ(tested.table->strided[0] != nullptr, tested.table == &stream_scalar) << tested.name;
    EXPECT_EQ(tested.table->strided[1] != nullptr, tested.table == &stream_scalar) << tested.name;
  }
}

}  // namespace
}  // namespace roofline::cpu
