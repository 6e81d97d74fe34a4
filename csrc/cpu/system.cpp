#include "cpu/system.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <sstream>

namespace roofline::cpu {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::int64_t parse_size(const std::string& text) {  // "32K", "1024K", "32M"
  if (text.empty()) return 0;
  const std::int64_t value = std::atoll(text.c_str());
  switch (text.back()) {
    case 'K': return value << 10;
    case 'M': return value << 20;
    case 'G': return value << 30;
    default: return value;
  }
}

// The value behind `key` in a file of lines "key value" or "key: value"; `otherwise` where there is none.
std::int64_t value_of(const std::string& path, const std::string& key, std::int64_t otherwise) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return std::atoll(line.c_str() + key.size());
  return otherwise;
}

// visit(folder, unified) for the control group of this process that has `controller`, and for each of its ancestors.
void each_cgroup(const std::string& root, const std::string& controller,
                 const std::function<void(const std::string&, bool)>& visit) {
  std::ifstream list(root + "/proc/self/cgroup");
  for (std::string line; std::getline(list, line);) {  // "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1)
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    for (;;) {
      visit(root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller) + (path == "/" ? "" : path), unified);
      if (path.empty() || path == "/") break;
      path = path.substr(0, path.rfind('/'));
      if (path.empty()) path = "/";
    }
  }
}

// A limit in bytes: "max" (version 2) and numbers that no memory has (version 1) are none.
std::int64_t limit_in(const std::string& path) {
  const std::string line = first_line(path);
  const std::int64_t limit = line.empty() || line == "max" ? kNoLimit : std::atoll(line.c_str());
  return limit <= 0 || limit > (kNoLimit >> 1) ? kNoLimit : limit;
}

// What the limit `name` of this process leaves above what it has, which `used` counts in kB.
std::int64_t left_of_limit(const std::string& root, const std::string& name, const std::string& used) {
  std::ifstream file(root + "/proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) != 0) continue;
    char* end = nullptr;
    const char* soft = line.c_str() + name.size();
    const unsigned long long limit = std::strtoull(soft, &end, 10);
    if (end == soft || limit > static_cast<unsigned long long>(kNoLimit)) return kNoLimit;  // "unlimited"
    return std::max<std::int64_t>(static_cast<std::int64_t>(limit) - 1024 * value_of(root + "/proc/self/status", used, 0), 0);
  }
  return kNoLimit;
}

std::string memory_limit_file(const std::string& folder, bool unified) {
  return folder + (unified ? "/memory.max" : "/memory.limit_in_bytes");
}

// Calls visit(level, bytes, the CPUs that share it) for each data cache of a CPU; whether there was one.
template <class Visit>
bool each_cache(int cpu, const std::string& root, Visit&& visit) {
  const std::string base = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
  bool found = false;
  for (int index = 0; index < 8; ++index) {
    const std::string here = base + std::to_string(index);
    const std::string type = first_line(here + "/type");
    if (type != "Data" && type != "Unified") continue;
    const std::int64_t bytes = parse_size(first_line(here + "/size"));
    if (bytes <= 0) continue;
    found = true;
    visit(std::atoi(first_line(here + "/level").c_str()), bytes, first_line(here + "/shared_cpu_list"));
  }
  return found;
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpuinfo(const std::string& key, const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0)
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "";
}

Caches find_caches(const std::vector<int>& cpus, const std::string& root) {
  Caches caches;
  const bool found = each_cache(cpus.at(0), root, [&](int level, std::int64_t bytes, const std::string&) {
    if (level == 1) caches.l1_bytes = bytes;
    if (level == 2) caches.l2_bytes = bytes;
  });
  if (!found) {
    if (const long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE); bytes > 0) caches.l1_bytes = bytes;
    if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) caches.l2_bytes = bytes;
    if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) caches.l3_bytes = bytes;
    caches.l3_instances = caches.l3_bytes > 0;
  }
  std::set<std::string> counted;  // an L3 by the CPUs that share it
  for (const int cpu : cpus)
    each_cache(cpu, root, [&](int level, std::int64_t bytes, const std::string& sharing) {
      if (level == 3 && counted.insert(sharing).second) caches.l3_bytes += bytes;
    });
  if (!counted.empty()) caches.l3_instances = static_cast<std::int64_t>(counted.size());
  return caches;
}

double cgroup_cpus(const std::string& root) {
  double cpus = std::numeric_limits<double>::infinity();
  each_cgroup(root, "cpu", [&](const std::string& folder, bool unified) {
    double quota = -1, period = 0;
    if (unified) {
      std::stringstream words(first_line(folder + "/cpu.max"));
      std::string limit;
      if (words >> limit >> period && limit != "max") quota = std::atof(limit.c_str());
    } else {
      quota = std::atof(first_line(folder + "/cpu.cfs_quota_us").c_str());
      period = std::atof(first_line(folder + "/cpu.cfs_period_us").c_str());
    }
    if (quota > 0 && period > 0) cpus = std::min(cpus, quota / period);
  });
  return cpus;
}

std::int64_t cgroup_memory_bytes(const std::string& root) {
  std::int64_t bytes = kNoLimit;
  each_cgroup(root, "memory", [&](const std::string& folder, bool unified) {
    bytes = std::min(bytes, limit_in(memory_limit_file(folder, unified)));
  });
  return bytes;
}

std::int64_t cgroup_free_bytes(const std::string& root) {
  std::int64_t bytes = kNoLimit;
  each_cgroup(root, "memory", [&](const std::string& folder, bool unified) {
    const std::int64_t limit = limit_in(memory_limit_file(folder, unified));
    const std::string used = first_line(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    if (limit == kNoLimit || used.empty()) return;
    // Cached files count as used, and are dropped when memory is asked for.
    const std::int64_t files = value_of(folder + "/memory.stat", unified ? "inactive_file " : "total_inactive_file ", 0);
    bytes = std::min(bytes, std::max<std::int64_t>(limit - std::atoll(used.c_str()) + files, 0));
  });
  return bytes;
}

std::int64_t memory_bytes(const std::string& root) {
  return std::min(static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE), cgroup_memory_bytes(root));
}

std::int64_t available_bytes(const std::string& root) {
  const std::int64_t kib = value_of(root + "/proc/meminfo", "MemAvailable:", kNoLimit >> 10);
  return std::min({kib * 1024, cgroup_free_bytes(root), left_of_limit(root, "Max address space", "VmSize:"),
                   left_of_limit(root, "Max data size", "VmData:")});
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;  // the first of each core's
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &mask)) continue;
      const std::string siblings =
          first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
      if (siblings.empty() || cores.insert(siblings).second) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  const double quota = cgroup_cpus();
  const std::size_t most = quota < 1 ? 1 : quota < 1e6 ? static_cast<std::size_t>(quota) : cpus.size();
  if (cpus.size() > most) cpus.resize(most);
  return cpus;
}

double huge_page_share(const void* memory, std::size_t size_bytes, const std::string& root) {
  if (size_bytes == 0) return -1;
  const auto first = reinterpret_cast<std::uintptr_t>(memory), last = first + size_bytes;
  std::ifstream maps(root + "/proc/self/smaps");
  double huge_bytes = 0;
  bool known = false;
  double overlap = 0;  // share of the current mapping that lies in the range
  std::uintptr_t mapped = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) {
      const std::uintptr_t low = std::max<std::uintptr_t>(from, first), high = std::min<std::uintptr_t>(to, last);
      mapped = to - from;
      overlap = low < high && mapped ? static_cast<double>(high - low) / static_cast<double>(mapped) : 0;
      if (from >= last) break;  // mappings come in order
    } else if (overlap > 0 && line.rfind("AnonHugePages:", 0) == 0) {
      known = true;
      huge_bytes += overlap * 1024 * std::atof(line.c_str() + 14);  // of a mapping that reaches beyond the range: its part
    }
  }
  return known ? std::min(huge_bytes / static_cast<double>(size_bytes), 1.0) : -1;
}

}  // namespace roofline::cpu
