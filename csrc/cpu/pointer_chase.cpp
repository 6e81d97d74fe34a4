// pointer_chase on a CPU: worker 0 follows absolute addresses, one load a hop; bind lays the cycle out.
//
// Each line holds the address of the next one and its own place in the cycle. An address is loaded and used as it is, since base
// plus index costs a cycle more (4 against 5 on Zen 3). A launch goes on where the last one ended: if each began at the same line,
// a few thousand hops of a large set would stay in a cache. The places tell how far a launch came, and its result is
// the line that far from the first.
#include "ops/pointer_chase.h"

#include "cpu/device.h"
#include "cpu/kernels.h"

namespace roofline::cpu {
namespace {

struct alignas(ops::PointerChase::kLineBytes) Line {
  const Line* next;
  std::int64_t place;  // in the cycle
};
static_assert(sizeof(Line) == ops::PointerChase::kLineBytes);

constexpr int kUnroll = 16;

const Line* follow(const Line* at, std::int64_t hops) {
#if defined(__x86_64__)
#define ROOFLINE_HOP4 "mov (%0), %0\n mov (%0), %0\n mov (%0), %0\n mov (%0), %0\n"
#elif defined(__aarch64__)
#define ROOFLINE_HOP4 "ldr %0, [%0]\n ldr %0, [%0]\n ldr %0, [%0]\n ldr %0, [%0]\n"
#endif
#if defined(ROOFLINE_HOP4)
  for (; hops >= kUnroll; hops -= kUnroll)
    asm volatile(ROOFLINE_HOP4 ROOFLINE_HOP4 ROOFLINE_HOP4 ROOFLINE_HOP4 : "+r"(at) : : "memory");
#endif
  for (; hops > 0; --hops) at = *const_cast<const Line* const volatile*>(&at->next);
  return at;
}

// Pages of one kind, touched first by worker 0, so that they lie next to its core; the cycle of `order` in them.
std::shared_ptr<Line[]> lay_out(const ops::PointerChase& problem, Device& device, std::size_t size_bytes) {
  auto* lines = static_cast<Line*>(device.allocate(size_bytes, problem.huge_pages ? Pages::huge : Pages::small));
  std::shared_ptr<Line[]> owned(lines, [&device, size_bytes](Line* memory) { device.release(memory, size_bytes); });
  const std::int64_t count = problem.lines;
  std::int64_t wrong = -1;  // place of the first entry that makes `order` no permutation
  const Pool::Pinned pinned(device.pool());
  device.pool().run([&](int worker) {
    if (worker != 0) return;
    for (std::int64_t i = 0; i < count; ++i) lines[i].place = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t after = i + 1 < count ? i + 1 : 0, line = problem.order[i], next = problem.order[after];
      const bool strays = next < 0 || next >= count;
      if (strays || line < 0 || line >= count || lines[line].place >= 0) {
        wrong = strays ? after : i;
        return;
      }
      lines[line] = {&lines[next], i};
    }
  });
  if (wrong >= 0)
    throw Error("pointer_chase: tensor 'order' is no permutation of 0 to " + std::to_string(count - 1) + ": see its place " +
                std::to_string(wrong));
  return owned;
}

Bound bind(const ops::PointerChase& problem, Device& device) {
  // A small set has a huge page to itself: its 4 KiB pages would miss the first TLB.
  const auto wanted = static_cast<std::size_t>(problem.size_bytes());
  const std::size_t size = problem.huge_pages ? (wanted + kHugePage - 1) / kHugePage * kHugePage : wanted;
  const std::shared_ptr<Line[]> lines = lay_out(problem, device, size);
  const double share = device.huge_page_share(lines.get(), wanted);

  Bound bound;
  bound.plan.set("implementation", "one load a hop");
  bound.plan.set("threads", 1);
  bound.plan.set("huge_page_share", share);
  const auto at = std::make_shared<const Line*>(&lines[problem.order[0]]);
  bound.steps.push_back({"pointer_chase", [problem, lines, at](Queue&) {
    const std::int64_t from = (*at)->place;
    *at = follow(*at, problem.hops);
    *problem.reached = problem.order[((*at)->place - from + problem.lines) % problem.lines];
  }});
  return bound;
}

}  // namespace

std::vector<KernelEntry> pointer_chase_kernels() { return {entry("dependent", DType::int32, "", bind)}; }

}  // namespace roofline::cpu
