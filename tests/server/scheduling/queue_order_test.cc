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

std::vector<int64_t> Submissions(const std::vector<Turn>& turns) {
  std::vector<int64_t> result;
  for (const Turn& turn : turns) result.push_back(turn.submission);
  return result;
}

TEST(QueueOrder, OneQueueKeepsItsOrder) {
  EXPECT_EQ(Submissions(OrderOfTurns({{"default", {{7, 4}, {2, 1}, {9, 2}}}}, {{"default", 50}}, {})),
            (std::vector<int64_t>{7, 2, 9}));
  EXPECT_TRUE(OrderOfTurns({}, {}, {}).empty());
}

TEST(QueueOrder, TheQueueWithTheLeastForItsWeightIsNext) {
  const Waiting waiting = {{"a", {{1, 2}, {2, 2}, {3, 2}}}, {"b", {{4, 2}, {5, 2}, {6, 2}}}};
  EXPECT_EQ(Submissions(OrderOfTurns(waiting, {}, {})), (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Submissions(OrderOfTurns(waiting, {{"a", 3}}, {})), (std::vector<int64_t>{4, 5, 1, 6, 2, 3}));
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
  EXPECT_EQ(OrderOfTurns(waiting, {{"a", 4}}, configs), used);
  // If the queue may not borrow, its jobs keep their order too. Only a job that never fits is overtaken.
  const auto strict = Configs({{.name = "a", .quota = 4, .may_borrow = false}});
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 5}, {2, 4}, {3, 1}}}}, {{"a", 1}}, strict),
            (std::vector<Turn>{{1, Standing::kOverQuota}, {2, Standing::kOverQuota}, {3, Standing::kOverQuota}}));
  EXPECT_EQ(OrderOfTurns({{"a", {{1, 5}, {3, 1}}}}, {{"a", 1}}, strict),
            (std::vector<Turn>{{3, kWithin}, {1, Standing::kOverQuota}}));
}

}  // namespace
}  // namespace lynx::server
