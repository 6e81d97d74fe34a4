// What is read from /proc and /sys, on files written here: quotas and limits of control groups, caches, huge pages.
#include "cpu/system.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

namespace roofline::cpu {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// A folder that stands for the root of a system.
class SystemTest : public testing::Test {
 protected:
  SystemTest() {
    char name[] = "/tmp/roofline_system_XXXXXX";
    root_ = mkdtemp(name);
  }
  ~SystemTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string root_;
};

TEST_F(SystemTest, NothingThereIsNoLimit) {
  EXPECT_TRUE(std::isinf(cgroup_cpus(root_)));
  EXPECT_EQ(cgroup_memory_bytes(root_), kNone);
  EXPECT_EQ(cgroup_free_bytes(root_), kNone);
  EXPECT_GT(available_bytes(root_), std::int64_t{1} << 60);
  EXPECT_GT(memory_bytes(root_), 1 << 20);
  EXPECT_EQ(cpuinfo("model name", root_), "");
  int here = 0;
  EXPECT_EQ(huge_page_share(&here, sizeof here, root_), -1);
  EXPECT_GT(find_caches({0}, root_).l1_bytes, 1 << 10);  // sysconf's, or the defaults
}

TEST_F(SystemTest, TheSmallestQuotaOfAllAncestorsCounts) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(cgroup_cpus(root_)));
  write("/sys/fs/cgroup/a/b/cpu.max", "350000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpus(root_), 3.5);
  write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpus(root_), 0.5);
}

TEST_F(SystemTest, AContainerSeesItsGroupAtTheRoot) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  write("/sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_DOUBLE_EQ(cgroup_cpus(root_), 2);
  EXPECT_EQ(cgroup_memory_bytes(root_), 1 << 30);
  write("/proc/self/cgroup", "0::/docker/0123\n");  // the host's path, which is not there
  EXPECT_DOUBLE_EQ(cgroup_cpus(root_), 2);
}

TEST_F(SystemTest, VersionOne) {
  write("/proc/self/cgroup", "12:cpuset:/other\n4:cpu,cpuacct:/job\n3:memory:/job\n1:name=systemd:/x\n0::/\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_DOUBLE_EQ(cgroup_cpus(root_), 1.5);
  EXPECT_EQ(cgroup_memory_bytes(root_), kNone);
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4000000\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "3000000\n");
  write("/sys/fs/cgroup/memory/job/memory.stat", "cache 7\ntotal_inactive_file 500000\n");
  EXPECT_EQ(cgroup_memory_bytes(root_), 4'000'000);
  EXPECT_EQ(cgroup_free_bytes(root_), 1'500'000);
}

TEST_F(SystemTest, BadQuotasAreNoQuotas) {
  write("/proc/self/cgroup", "0::/a\nnonsense\n");
  for (const char* text : {"", "max", "-1 100000", "100000", "0 0", "many 100000"}) {
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_TRUE(std::isinf(cgroup_cpus(root_))) << text;
  }
}

TEST_F(SystemTest, CachedFilesAreFreeMemory) {
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/memory.max", "1000000\n");
  write("/sys/fs/cgroup/a/memory.current", "900000\n");
  EXPECT_EQ(cgroup_free_bytes(root_), 100'000);
  write("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 5\ninactive_file 300000\n");
  EXPECT_EQ(cgroup_free_bytes(root_), 400'000);
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.current", "99999999\n");
  EXPECT_EQ(cgroup_free_bytes(root_), 400'000);
  write("/proc/meminfo", "MemTotal:  1 kB\nMemAvailable:     300 kB\n");
  EXPECT_EQ(available_bytes(root_), 300 * 1024);
  write("/sys/fs/cgroup/a/memory.current", "9000000\n");
  EXPECT_EQ(available_bytes(root_), 0);
}

TEST_F(SystemTest, TheSmallestMemoryOfAllAncestorsCounts) {
  write("/proc/meminfo", "MemAvailable:     9000 kB\n");
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "100\n");
  write("/sys/fs/cgroup/a/memory.max", "3000000\n");
  write("/sys/fs/cgroup/a/memory.current", "1000000\n");  // with what its other groups use
  EXPECT_EQ(available_bytes(root_), 2'000'000);
  write("/sys/fs/cgroup/memory.max", "1500000\n");
  write("/sys/fs/cgroup/memory.current", "1400000\n");
  EXPECT_EQ(available_bytes(root_), 100'000);
  write("/proc/self/cgroup", "3:memory:/a/b\n");  // version 1
  write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(available_bytes(root_), 3000);
}

TEST_F(SystemTest, LimitsOfTheProcess) {
  const std::string head = "Limit                     Soft Limit           Hard Limit           Units     \n";
  const auto limits = [&](const std::string& data, const std::string& space) {
    write("/proc/self/limits", head + "Max data size             " + data +
                                   "  unlimited            bytes\nMax address space         " + space +
                                   "  unlimited            bytes\n");
  };
  write("/proc/meminfo", "MemAvailable:     9000 kB\n");
  write("/proc/self/status", "Name:\tx\nVmPeak:\t 800 kB\nVmSize:\t     700 kB\nVmData:\t     100 kB\n");
  limits("unlimited", "unlimited");
  EXPECT_EQ(available_bytes(root_), 9000 * 1024);
  limits("unlimited", "1024000");
  EXPECT_EQ(available_bytes(root_), 300 * 1024) << "1000 kB less the 700 that are mapped";
  limits("307200", "1024000");
  EXPECT_EQ(available_bytes(root_), 200 * 1024) << "300 kB less the 100 of data";
  limits("307200", "512000");
  EXPECT_EQ(available_bytes(root_), 0) << "more is mapped than may be";
  limits("18446744073709551615", "18446744073709551615");
  EXPECT_EQ(available_bytes(root_), 9000 * 1024);
}

TEST_F(SystemTest, CachesOfSysfs) {
  const auto cache = [&](int cpu, int index, const char* level, const char* type, const char* size, const char* sharing) {
    const std::string here = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    write(here + "/level", level);
    write(here + "/type", type);
    write(here + "/size", size);
    write(here + "/shared_cpu_list", sharing);
  };
  cache(3, 0, "1\n", "Data\n", "48K\n", "3\n");
  cache(3, 1, "1\n", "Instruction\n", "32K\n", "3\n");
  cache(3, 2, "2\n", "Unified\n", "2048K\n", "3\n");
  EXPECT_EQ(find_caches({3}, root_).l1_bytes, 48 << 10);
  EXPECT_EQ(find_caches({3}, root_).l2_bytes, 2 << 20);
  EXPECT_EQ(find_caches({3}, root_).llc_bytes(), 2 << 20);
  EXPECT_EQ(find_caches({3}, root_).l3_instances, 0);
  cache(3, 3, "3\n", "Unified\n", "32M\n", "2-3\n");
  EXPECT_EQ(find_caches({3}, root_).llc_bytes(), 32 << 20);
  EXPECT_EQ(find_caches({3}, root_).llc_bytes_of(1), 16 << 20);
  EXPECT_EQ(find_caches({3}, root_).llc_bytes_of(384), 32 << 20);
  cache(2, 3, "3\n", "Unified\n", "32M\n", "2-3\n");
  cache(4, 3, "3\n", "Unified\n", "96M\n", "4-5\n");
  EXPECT_EQ(find_caches({2, 3}, root_).l3_bytes, 32 << 20) << "one, which both share";
  EXPECT_EQ(find_caches({2, 3, 4}, root_).l3_bytes, 128 << 20);
  EXPECT_EQ(find_caches({2, 3, 4}, root_).l3_instances, 2);
  EXPECT_EQ(find_caches({2, 3, 4}, root_).l2_bytes, Caches().l2_bytes) << "the first CPU's, which says nothing of it";
}

TEST_F(SystemTest, HugePagesOfARange) {
  const auto* start = reinterpret_cast<const void*>(std::uintptr_t{0x200000});
  constexpr std::size_t mib = 1 << 20;
  write("/proc/self/smaps",
        "00100000-00200000 rw-p 00000000 00:00 0 \nSize: 1024 kB\nAnonHugePages:      1024 kB\n"
        "00200000-00600000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\nVmFlags: rd wr hg\n"
        "00600000-00800000 rw-p 00000000 00:00 0 \nAnonHugePages:         0 kB\n"
        "00800000-00c00000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:      4096 kB\n");
  EXPECT_DOUBLE_EQ(huge_page_share(start, 4 * mib, root_), 0.5);
  EXPECT_DOUBLE_EQ(huge_page_share(start, 6 * mib, root_), 2.0 / 6);
  EXPECT_DOUBLE_EQ(huge_page_share(start, 8 * mib, root_), 0.5) << "2 MiB, and half of the last mapping's four";
  EXPECT_DOUBLE_EQ(huge_page_share(start, 10 * mib, root_), 0.6);
  EXPECT_DOUBLE_EQ(huge_page_share(reinterpret_cast<const void*>(std::uintptr_t{0x600000}), mib, root_), 0);
  EXPECT_EQ(huge_page_share(reinterpret_cast<const void*>(std::uintptr_t{0xd00000}), mib, root_), -1) << "not mapped";
  write("/proc/self/smaps", "00200000-00600000 rw-p 00000000 00:00 0 \nSize: 4096 kB\n");
  EXPECT_EQ(huge_page_share(start, mib, root_), -1) << "a kernel without the line";
}

TEST(System, HasACpu) { EXPECT_GE(usable_cpus().size(), 1u); }

}  // namespace
}  // namespace roofline::cpu
