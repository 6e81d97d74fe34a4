#include "cpu/flush.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace roofline::cpu {
namespace {

LineFlush find() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  std::int64_t line_bytes = 64;
  bool clflush = false;
  if (__get_cpuid(1, &a, &b, &c, &d)) {
    clflush = d >> 19 & 1;
    if (const unsigned quarters = b >> 8 & 0xFF; clflush && quarters) line_bytes = 8 * std::int64_t{quarters};
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 23 & 1)) return {"clflushopt", line_bytes};
  return {clflush ? "clflush" : "", line_bytes};
#elif defined(__aarch64__)
  std::uint64_t ctr;
  asm("mrs %0, ctr_el0" : "=r"(ctr));
  return {"dc civac", std::int64_t{4} << (ctr >> 16 & 0xF)};  // words of the shortest line
#else
  return {"", 64};
#endif
}

// The part of one thread, finished: reads after it come from memory.
void flush_part(const std::vector<Extent>& memory, int worker, int workers) {
  const LineFlush& by = line_flush();
#if defined(__x86_64__)
  if (by.instruction[sizeof("clflush") - 1] == 'o')
    each_line(memory, worker, workers, by.line_bytes, [](std::uintptr_t line) {
      asm volatile("clflushopt (%0)" : : "r"(line) : "memory");  // unlike clflush, not one after the other
    });
  else
    each_line(memory, worker, workers, by.line_bytes,
              [](std::uintptr_t line) { asm volatile("clflush (%0)" : : "r"(line) : "memory"); });
  asm volatile("mfence" : : : "memory");
#elif defined(__aarch64__)
  each_line(memory, worker, workers, by.line_bytes,
            [](std::uintptr_t line) { asm volatile("dc civac, %0" : : "r"(line) : "memory"); });
  asm volatile("dsb sy" : : : "memory");
#else
  (void)by;
#endif
}

}  // namespace

const LineFlush& line_flush() {
  static const LineFlush found = find();
  return found;
}

void flush(Pool& pool, const std::vector<Extent>& memory) {
  if (!*line_flush().instruction)
    throw Unsupported("cpu: no instruction takes a line out of the caches of this CPU; measure with cache_state='warm'");
  pool.run([&](int worker) { flush_part(memory, worker, pool.threads()); });
}

}  // namespace roofline::cpu
