// Tests how many requests the studio's tab serves at a time, as an object without a server.
#include "server/services/studio_tab.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

HttpRequest Get(const std::string& path) { return {.method = "GET", .path = path, .host = "localhost", .from = "127.0.0.1"}; }

TEST(StudioTab, KnowsItsPaths) {
  for (const char* path : {"/studio", "/studio/", "/studio/api/plan"}) EXPECT_TRUE(StudioTab::Has(path)) << path;
  for (const char* path : {"/", "/studios", "/page/studio/", ""}) EXPECT_FALSE(StudioTab::Has(path)) << path;
}

TEST(StudioTab, ServesAFewQuestionsAtATimeSoThatTheLivePageHasThreads) {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false, released = false;
  SimulatedClock clock;
  StudioTab tab(
      {"localhost"},
      [&]() -> absl::StatusOr<std::vector<WholeNode>> {
        std::unique_lock lock(mutex);
        held = true;
        changed.notify_all();
        changed.wait(lock, [&] { return released; });
        return absl::UnavailableError("the server is behind");
      },
      Nanos(1'000'000'000), clock);
  std::vector<std::thread> askers;
  std::vector<HttpReply> replies(StudioTab::kMaxRequests);
  for (HttpReply& reply : replies) askers.emplace_back([&] { reply = tab.Answer(Get("/studio/api/choices")); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return held; });
  }
  // The first of them waits for the nodes, and the others wait for the first.
  while (tab.requests() < StudioTab::kMaxRequests) std::this_thread::yield();
  const HttpReply more = tab.Answer(Get("/studio/api/choices"));
  EXPECT_EQ(more.status, 503);
  EXPECT_THAT(more.body, HasSubstr("too many questions at once"));
  EXPECT_THAT(more.headers, testing::Contains(testing::Pair("Retry-After", "1")));
  EXPECT_EQ(tab.Answer(Get("/studio/")).status, 200) << "files need no turn";
  {
    const std::lock_guard lock(mutex);
    released = true;
    changed.notify_all();
  }
  for (std::thread& asker : askers) asker.join();
  for (const HttpReply& reply : replies) EXPECT_EQ(reply.status, 503) << "the server is behind";
  EXPECT_EQ(tab.requests(), 0);
}

}  // namespace
}  // namespace lynx::server
