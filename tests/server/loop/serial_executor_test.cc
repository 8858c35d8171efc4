#include "server/loop/serial_executor.h"

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::server {
namespace {

TEST(SerialExecutor, DoesWhatIsPostedInItsOrderOnAThreadOfItsOwn) {
  std::vector<int> done;
  std::thread::id where;
  {
    SerialExecutor executor;
    for (int i = 0; i < 1000; ++i) {
      executor.Post([&, i] {
        done.push_back(i);
        where = std::this_thread::get_id();
      });
    }
  }  // the destructor stops the executor
  ASSERT_EQ(done.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(SerialExecutor, SaysHowManyErrandsAreNotDone) {
  SerialExecutor executor;
  EXPECT_EQ(executor.Length(), 0u);
  std::promise<void> begun, go;
  executor.Post([&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  EXPECT_EQ(executor.Length(), 1u) << "it is being done";
  for (int i = 0; i < 3; ++i) executor.Post([] {});
  EXPECT_EQ(executor.Length(), 4u);
  go.set_value();
  while (executor.Length() > 0) std::this_thread::yield();
}

TEST(SerialExecutor, PostersDoNotWaitForAnErrand) {
  SerialExecutor executor;
  std::promise<void> go, done;
  executor.Post([&] { go.get_future().wait(); });
  executor.Post([&] { done.set_value(); });
  go.set_value();  // only now may the task continue
  done.get_future().wait();
}

TEST(SerialExecutor, TakesFromManyThreads) {
  std::atomic<int> count{0};
  SerialExecutor executor;
  std::vector<std::thread> posters;
  for (int t = 0; t < 4; ++t) {
    posters.emplace_back([&] {
      for (int i = 0; i < 500; ++i) executor.Post([&] { ++count; });
    });
  }
  for (std::thread& poster : posters) poster.join();
  executor.Stop();
  EXPECT_EQ(count, 2000);
}

TEST(SerialExecutor, AnErrandIsForgottenOnceItIsDoneAndNothingIsTakenAfterTheStop) {
  SerialExecutor executor;
  const auto held = std::make_shared<int>(0);
  executor.Post([held] {});
  executor.Post([&] { EXPECT_EQ(held.use_count(), 1) << "the one before has let it go"; });
  executor.Stop();
  executor.Stop();
  executor.Post([held] { ++*held; });
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

}  // namespace
}  // namespace lynx::server
