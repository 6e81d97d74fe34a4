// Whose turn it is: one holder at a time, in the order of asking, again for its holder, across forks and callables; and under
// ThreadSanitizer.
#include "core/turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"
#include "cpu/device.h"
#include "forked.h"

namespace roofline {
namespace {

using namespace std::chrono_literals;

void wait_for(const std::atomic<int>& count, int value) {
  while (count.load() < value) std::this_thread::sleep_for(1ms);
}

TEST(Turn, HasOneHolderAtATime) {
  Turn turn("test");
  std::int64_t plain = 0;  // no atomic: ThreadSanitizer sees a race where two hold the turn
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const Turn::Held outer(turn);
        const Turn::Held inner(turn);
        ++plain;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plain, 160'000);
}

TEST(Turn, ComesInTheOrderOfAsking) {
  Turn turn("test");
  std::atomic<int> asked{0};
  std::vector<int> order;
  std::vector<std::thread> threads;
  {
    const Turn::Held held(turn);
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        ++asked;
        const Turn::Held mine(turn);
        order.push_back(t);
      });
      wait_for(asked, t + 1);
      std::this_thread::sleep_for(20ms);  // from having asked to standing in the queue
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

// A thread that asks again at once does not come before one that waits.
TEST(Turn, NobodyIsKeptOutByALoop) {
  Turn turn("test");
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread greedy([&] {
    while (!stop) {
      const Turn::Held held(turn);
      ++rounds;
      std::this_thread::sleep_for(1ms);
    }
  });
  wait_for(rounds, 1);
  for (int i = 0; i < 20; ++i) {
    const int before = rounds;
    const Turn::Held held(turn);
    EXPECT_LE(rounds - before, 5) << "one at work, and those that ended while this thread was waking up";
  }
  stop = true;
  greedy.join();
}

TEST(Turn, WaitingCanBeGivenUp) {
  Turn turn("test");
  std::optional<Turn::Held> held(turn);
  std::thread other([&] {
    int polls = 0;
    EXPECT_THROW(turn.take([&] {
      if (++polls == 2) throw Cancelled();
    }), Cancelled);
  });
  other.join();
  held.reset();
  const Turn::Held again(turn);  // nobody is left in the queue
}

TEST(Turn, AChildProcessWaitsForNoThreadThatItDoesNotHave) {
  Turn turn("test");
  std::atomic<int> state{0};
  std::thread holder([&] {
    const Turn::Held held(turn);
    state = 1;
    wait_for(state, 2);
  });
  wait_for(state, 1);
  EXPECT_EQ(status_of_child([&] {
    { const Turn::Held held(turn); }
    const Turn::Held again(turn);
    return true;
  }), 0);
  state = 2;
  holder.join();
}

TEST(Turn, TheForkingThreadMayHoldIt) {
  Turn turn("test");
  const Turn::Held held(turn);
  EXPECT_EQ(status_of_child([&] {
    const Turn::Held mine(turn);
    return true;
  }), 0);
}

TEST(Turn, ACallableThatMeasuresIsRefused) {
  Turn turn("measure");
  const Turn::Held held(turn);
  const Turn::Callable callable(turn);
  EXPECT_THROW(turn.take(), Error) << "on its own thread";
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] { EXPECT_THROW(turn.take(), Error) << "on another one"; });
  other.join();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, Turn::kPatience);
}

TEST(Turn, AMeasurementWaitsForCallablesThatReturn) {
  Turn turn("measure");
  std::atomic<int> state{0};
  std::thread measuring([&] {
    const Turn::Held held(turn);
    state = 1;
    for (int i = 0; i < 10; ++i) {
      const Turn::Callable callable(turn);
      std::this_thread::sleep_for(20ms);
    }
  });
  wait_for(state, 1);
  EXPECT_NO_THROW(turn.take());
  turn.give();
  measuring.join();
}

// One for all CPU devices: they share the cores.
TEST(Turn, OfEveryCpuDevice) {
  cpu::Device one(1), all(0);
  EXPECT_EQ(&one.turn(), &all.turn());
}

// Uncontended: what every launch from Python pays. Printed, since how long it takes depends on the machine.
TEST(Turn, CostsLittle) {
  Turn turn("test");
  constexpr int kTimes = 1'000'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) const Turn::Held held(turn);
  const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kTimes;
  RecordProperty("ns_per_turn", std::to_string(ns));
  std::printf("an uncontended turn: %.1f ns\n", ns);
}

}  // namespace
}  // namespace roofline
