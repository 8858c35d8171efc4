#include "server/scheduling/queue_order.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

using Waiting = std::map<std::string, std::vector<WaitingJob>>;
constexpr Standing kWithin = Standing::kWithinQuota;

std::map<std::string, QueueConfig> Configs(std::vector<QueueConfig> all) {
  std::map<std::string, QueueConfig> configs;
  for (QueueConfig& config : all) configs[config.name] = config;
  return configs;
}

UsedDevices Used(std::map<std::string, int32_t> by_queue) { return {.by_queue = std::move(by_queue), .by_user = {}}; }

std::vector<int64_t> Submissions(const std::vector<Turn>& turns) {
  std::vector<int64_t> result;
  for (const Turn& turn : turns) result.push_back(turn.submission);
  return result;
}

TEST(QueueOrder, OneQueueKeepsItsOrder) {
  EXPECT_EQ(Submissions(OrderOfTurns({{"default", {{7, 4}, {2, 1}, {9, 2}}}}, Used({{"default", 50}}), {})),
            (std::vector<int64_t>{7, 2, 9}));
  EXPECT_TRUE(OrderOfTurns({}, {}, {}).empty());
}

TEST(QueueOrder, TheQueueWithTheLeastForItsWeightIsNext) {
  const Waiting waiting = {{"a", {{1, 2}, {2, 2}, {3, 2}}}, {"b", {{4, 2}, {5, 2}, {6, 2}}}};
  EXPECT_EQ(Submissions(OrderOfTurns(waiting, {}, {})), (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Submissions(OrderOfTurns(waiting, Used({{"a", 3}}), {})), (std::vector<int64_t>{4, 5, 1, 6, 2, 3}));
  const auto configs = Configs({{.name = "a", .weight = 3}});
  EXPECT_EQ(Submissions(OrderOfTurns(waiting, {}, configs)), (std::vector<int64_t>{1, 4, 2, 3, 5, 6}));
}

TEST(QueueOrder, ThoseBeyondTheirQuotaComeLastOrNotAtAll) {
  const Waiting waiting = {{"a", {{1, 2}, {2, 4}, {3, 1}}}, {"b", {{4, 2}}}, {"c", {{5, 3}}}};
  const auto configs = Configs({{.name = "a", .quota = 4}, {.name = "c", .quota = 2, .may_borrow = false}});
  const std::vector<Turn> expected = {
      {1, kWithin}, {4, kWithin}, {2, Standing::kBorrows}, {3, Standing::kBorrows}, {5, Standing::kOverQuota}};
  EXPECT_EQ(OrderOfTurns(waiting, {}, configs), expected) << "a smaller job does not pass one of its queue";
  const std::vector<Turn> used = {
      {4, kWithin}, {1, Standing::kBorrows}, {2, Standing::kBorrows}, {3, Standing::kBorrows}, {5, Standing::kOverQuota}};
  EXPECT_EQ(OrderOfTurns(waiting, Used({{"a", 4}}), configs), used);
  // If the queue may not borrow, its jobs keep their order too. Only a job that never fits is overtaken.
  const auto strict = Configs({{.name = "a", .quota = 4, .may_borrow = false}});
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 5}, {2, 4}, {3, 1}}}}, Used({{"a", 1}}), strict),
            (std::vector<Turn>{{1, Standing::kOverQuota}, {2, Standing::kOverQuota}, {3, Standing::kOverQuota}}));
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 5}, {3, 1}}}}, Used({{"a", 1}}), strict),
            (std::vector<Turn>{{3, kWithin}, {1, Standing::kOverQuota}}));
}

TEST(QueueOrder, AUsersQuotaHoldsUpOnlyThisUser) {
  const Waiting waiting = {{"a", {{1, 2, "alice"}, {2, 1, "alice"}, {3, 2, "bob"}, {4, 2, "bob"}, {5, 1, "carol"}}}};
  const auto strict = Configs({{.name = "a", .may_borrow = false, .user_quota = 2}});
  EXPECT_EQ(OrderOfTurns(waiting, {}, strict),
            (std::vector<Turn>{
                {1, kWithin}, {3, kWithin}, {5, kWithin}, {2, Standing::kOverQuota, true}, {4, Standing::kOverQuota, true}}));
  const UsedDevices used{.by_queue = {{"a", 4}}, .by_user = {{{"a", "alice"}, 1}, {{"a", "bob"}, 1}, {{"b", "carol"}, 2}}};
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 2, "alice"}, {2, 1, "alice"}, {3, 1, "bob"}, {5, 1, "carol"}}}}, used, strict),
            (std::vector<Turn>{{3, kWithin}, {5, kWithin}, {1, Standing::kOverQuota, true}, {2, Standing::kOverQuota, true}}))
      << "a smaller job does not pass one of its user, and other queues do not count";
  const auto borrows = Configs({{.name = "a", .user_quota = 2}});
  EXPECT_EQ(OrderOfTurns(waiting, {}, borrows),
            (std::vector<Turn>{
                {1, kWithin}, {3, kWithin}, {5, kWithin}, {2, Standing::kBorrows, true}, {4, Standing::kBorrows, true}}));
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 3, "alice"}, {2, 2, "alice"}}}}, {}, strict),
            (std::vector<Turn>{{2, kWithin}, {1, Standing::kOverQuota, true}}))
      << "a job that never fits is overtaken";
}

// A job that waits for the quota of its user must not keep the queue's quota from others.
TEST(QueueOrder, TheQuotasOfQueueAndUserHoldTogether) {
  const auto both = Configs({{.name = "a", .quota = 3, .may_borrow = false, .user_quota = 2}});
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 2, "alice"}, {2, 1, "alice"}, {3, 1, "bob"}, {4, 1, "carol"}}}}, {}, both),
            (std::vector<Turn>{{1, kWithin}, {3, kWithin}, {2, Standing::kOverQuota, true}, {4, Standing::kOverQuota, false}}));
}

}  // namespace
}  // namespace lynx::server
