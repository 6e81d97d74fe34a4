// Instruction sets: what ROOFLINE_ISA allows, and which table is picked.
#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

namespace roofline::cpu {
namespace {

const std::vector<Isa> kAll = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni,       Isa::avx512_bf16,   Isa::avx512_fp16,
                               Isa::amx,    Isa::neon, Isa::neon_dotprod_fp16, Isa::neon_bf16_i8mm};

bool listed(const std::vector<Isa>& all, Isa isa) { return std::find(all.begin(), all.end(), isa) != all.end(); }

// ROOFLINE_ISA is read once in a process, so each setting gets a process of its own: `check` runs in it and returns what is
// wrong, empty if nothing.
void with_setting(const char* setting, const std::function<std::string()>& check) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("ROOFLINE_ISA", setting, 1);
        std::string wrong;
        try {
          wrong = check();
        } catch (const Error& error) {
          wrong = std::string("threw: ") + error.what();
        }
        std::fprintf(stderr, "%s", wrong.empty() ? "as expected" : wrong.c_str());
        std::exit(wrong.empty() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "as expected")
      << "ROOFLINE_ISA=" << setting;
}

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

// The sets of this CPU that its operating system supports, allowed or not.
std::vector<Isa> of_cpu() {
  std::vector<Isa> all;
  for (const Isa isa : kAll) {
    const std::string said = lacks(name(isa));
    if (!begins(said, "this CPU has no") && !begins(said, "the operating system refuses")) all.push_back(isa);
  }
  return all;
}

// Whether exactly these sets, as far as the CPU has them, may be used.
std::string only(const std::vector<Isa>& allowed) {
  const std::vector<Isa> cpu = of_cpu();
  for (const Isa isa : kAll) {
    const bool expected = listed(allowed, isa) && listed(cpu, isa);
    if (has(isa) != expected) return name(isa) + (expected ? " is missing" : " is too much");
    if (listed(available(), isa) != expected) return name(isa) + " is wrong in available()";
    if (lacks(name(isa)).empty() != expected) return name(isa) + ": lacks() says '" + lacks(name(isa)) + "'";
    if (listed(cpu, isa) && !expected && lacks(name(isa)) != "ROOFLINE_ISA does not allow " + name(isa)) return lacks(name(isa));
    if (!listed(cpu, isa) && lacks(name(isa)) != "this CPU has no " + name(isa) &&
        !begins(lacks(name(isa)), "the operating system refuses"))
      return lacks(name(isa));
  }
  return "";
}

TEST(Isa, ScalarIsAlwaysThere) {
  if (std::getenv("ROOFLINE_ISA") == nullptr) {
    EXPECT_TRUE(has(Isa::scalar));
    EXPECT_EQ(lacks("scalar"), "");
  }
}

TEST(Isa, UnknownNameIsSaid) { EXPECT_EQ(lacks("sse9"), "there is no instruction set 'sse9'"); }

TEST(Isa, SettingAllowsWhatItNamesAndWhatThatNeeds) {
  with_setting("scalar", [&] { return only({Isa::scalar}); });
  with_setting("avx2", [&] { return only({Isa::scalar, Isa::avx2}); });
  with_setting("avx512", [&] { return only({Isa::scalar, Isa::avx2, Isa::avx512}); });
  with_setting("avx512_vnni", [&] { return only({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni}); });
  with_setting("avx512_bf16", [&] { return only({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16}); });
  with_setting("neon", [&] { return only({Isa::scalar, Isa::neon}); });
  with_setting("neon_bf16_i8mm", [&] { return only({Isa::scalar, Isa::neon, Isa::neon_dotprod_fp16, Isa::neon_bf16_i8mm}); });
}

TEST(Isa, SettingIsASetAndNotALadder) {
  with_setting("amx", [&] { return only({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::amx}); });
  with_setting("avx512_fp16", [&] {
    return only({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::avx512_fp16});
  });
  with_setting("neon,avx2", [&] { return only({Isa::scalar, Isa::neon, Isa::avx2}); });
  with_setting("avx512_fp16,amx", [&] {
    return only({Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::avx512_fp16, Isa::amx});
  });
}

TEST(Isa, EmptySettingAllowsAll) {
  with_setting("", [&] { return only(kAll); });
}

TEST(Isa, UnknownSettingIsAnErrorThatListsTheKnown) {
  for (const char* bad : {"avx3", "avx2,avx3", "AVX2", "avx2;scalar", " avx2"})
    with_setting(bad, [&]() -> std::string {
      try {
        has(Isa::scalar);
      } catch (const Error& error) {
        const std::string said = error.what();
        if (said.find("ROOFLINE_ISA") == std::string::npos) return "no variable in: " + said;
        for (const Isa isa : kAll)
          if (said.find(name(isa)) == std::string::npos) return "no " + name(isa) + " in: " + said;
        return "";
      }
      return "no error";
    });
}

TEST(Choose, TakesTheFirstThatMayBeUsed) {
  const int wide = 512, middle = 256, narrow = 1;
  const auto pick = [&] { return choose<int>({{Isa::avx512, &wide}, {Isa::avx2, &middle}, {Isa::scalar, &narrow}}); };
  with_setting("scalar", [&]() -> std::string { return pick().table == &narrow && pick().isa == Isa::scalar ? "" : "not scalar"; });
  with_setting("avx2", [&]() -> std::string {
    const bool right = has(Isa::avx2) ? pick().table == &middle && pick().isa == Isa::avx2 : pick().table == &narrow;
    return right ? "" : "not avx2";
  });
  const auto best = pick();
  EXPECT_EQ(best.table, has(Isa::avx512) ? &wide : has(Isa::avx2) ? &middle : &narrow);
}

TEST(Choose, OrderIsThatOfTheList) {
  const int first = 1, second = 2;
  const auto choice = choose<int>({{Isa::scalar, &first}, {Isa::scalar, &second}});
  EXPECT_EQ(choice.table, &first);
}

TEST(Choose, SaysSoWhereNothingMayBeUsed) {
  with_setting("scalar", []() -> std::string {
    const int table = 0;
    try {
      choose<int>({{Isa::avx2, &table}, {Isa::neon, &table}});
    } catch (const Unsupported& reason) {
      return std::string(reason.what()).find("ROOFLINE_ISA") == std::string::npos ? reason.what() : "";
    }
    return "no error";
  });
}

}  // namespace
}  // namespace roofline::cpu
