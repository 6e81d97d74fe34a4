// What Linux says of this machine and this process: caches, usable CPUs, limits of control groups, memory, huge pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace roofline::cpu {

// Page size that the alignment of large allocations serves: 2 MiB on x86-64, and on AArch64 with pages of 4 KiB.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct Caches {
  std::int64_t l1_bytes = 32 << 10;   // data, per core
  std::int64_t l2_bytes = 512 << 10;  // per core
  std::int64_t l3_bytes = 0;          // of all L3 caches that the CPUs in use share; 0 where there is none
  std::int64_t l3_instances = 0;      // how many those are
  std::int64_t llc_bytes() const { return l3_bytes ? l3_bytes : l2_bytes; }
  // What so many cores may count on. A guest is told the whole last cache of its host, which many cores share; few CPUs have more
  // than 16 MiB for each core.
  std::int64_t llc_bytes_of(std::int64_t cores) const { return std::min(llc_bytes(), cores << 24); }
};

// `root` is put before /proc and /sys: empty, but for tests.

std::string first_line(const std::string& path);                                       // empty where it cannot be read
std::string cpuinfo(const std::string& key, const std::string& root = "");             // of the first CPU
// The caches of the CPUs in use; L1 and L2 are the first CPU's. Read from sysfs, else from sysconf, else the defaults.
Caches find_caches(const std::vector<int>& cpus, const std::string& root = "");

// The smallest over all ancestors of the control groups this process is in; version 1 and 2. Infinity, or INT64_MAX: no limit.
double cgroup_cpus(const std::string& root = "");                // CPUs' worth of the quota
std::int64_t cgroup_memory_bytes(const std::string& root = "");  // limit
std::int64_t cgroup_free_bytes(const std::string& root = "");    // limit less the memory that cannot be dropped

std::int64_t memory_bytes(const std::string& root = "");     // of the machine, or the control group's limit
// That could be had without swapping, within the control groups and the process's own limits (RLIMIT_AS, RLIMIT_DATA).
std::int64_t available_bytes(const std::string& root = "");

// Logical CPUs this process may use: affinity, one per physical core first, cut to the cgroup's quota; at least one.
std::vector<int> usable_cpus();

// Share of [memory, memory + size_bytes) that lies in huge pages now: 0 before it is touched, -1 where it cannot be known.
double huge_page_share(const void* memory, std::size_t size_bytes, const std::string& root = "");

}  // namespace roofline::cpu
