#include "server/services/live_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace lynx::server {
namespace {

using nlohmann::json;

std::vector<NodeSummary> ManyNodes(int count) {
  std::vector<NodeSummary> nodes;
  for (int i = 0; i < count; ++i) {
    nodes.push_back({.name = NodeId(absl::StrFormat("n%05d", i)),
                     .presence = static_cast<NodePresence>(i % 4),
                     .cordoned = i % 5 == 0,
                     .devices = 8,
                     .used = i % 9});
  }
  return nodes;
}

TEST(LiveViews, TheMapHasACellForEachNodeWhileThereIsRoom) {
  EXPECT_TRUE(MapOf({}).empty());
  const std::vector<MapCell> cells = MapOf(ManyNodes(400));
  ASSERT_EQ(cells.size(), 400u);
  EXPECT_EQ(cells[7].first, NodeId("n00007"));
  EXPECT_EQ(cells[7].last, NodeId("n00007"));
  EXPECT_EQ(cells[7].nodes, 1);
  EXPECT_EQ(cells[7].used, 7);
  EXPECT_EQ(cells[7].presence[static_cast<size_t>(NodePresence::kLost)], 1);
}

TEST(LiveViews, OfManyNodesACellIsSeveralAndNoneIsLeftOut) {
  for (const int count : {401, 799, 801, 10'000}) {
    const std::vector<MapCell> cells = MapOf(ManyNodes(count));
    EXPECT_LE(cells.size(), kMaxCells);
    int64_t nodes = 0, presence = 0, devices = 0;
    NodeId before("");
    for (const MapCell& cell : cells) {
      EXPECT_LT(before.value, cell.first.value);
      EXPECT_LE(cell.first.value, cell.last.value);
      before = cell.last;
      nodes += cell.nodes;
      devices += cell.devices;
      for (const int64_t of : cell.presence) presence += of;
    }
    EXPECT_EQ(nodes, count);
    EXPECT_EQ(presence, count);
    EXPECT_EQ(devices, 8 * count);
  }
}

TEST(LiveViews, TenThousandNodesMakeASmallAnswer) {
  const std::string text = ClusterJson({.nodes = ManyNodes(10'000), .jobs = {}, .now = Nanos(5'000'000'000)});
  EXPECT_LT(text.size(), 128u << 10);
  const json parsed = json::parse(text);
  EXPECT_EQ(parsed["all"]["nodes"], 10'000);
  EXPECT_EQ(parsed["all"]["cordoned"], 2'000);
  EXPECT_EQ(parsed["all"]["presence"]["lost"], 2'500);
  EXPECT_EQ(parsed["timeMs"], 5'000);
  EXPECT_EQ(parsed["cells"].size(), 400u);
}

TEST(LiveViews, NumbersAndTextsThatJsonDoesNotKnow) {
  JobSummary job{.id = JobId("j1"), .name = "a", .reason = "<b>\"\xff\n"};
  job.progress.loss = NAN;
  job.progress.tokens_per_second = INFINITY;
  for (int i = 0; i < 9; ++i) job.pending.push_back({.kind = "capacity", .text = "why"});
  const json parsed = json::parse(JobsJson({job}, true));
  const json& row = parsed["jobs"][0];
  EXPECT_TRUE(row["loss"].is_null());
  EXPECT_TRUE(row["tokensPerSecond"].is_null());
  EXPECT_TRUE(row["goodput"].is_null());
  EXPECT_EQ(row["reason"], "<b>\"\xEF\xBF\xBD\n");
  EXPECT_EQ(row["pending"].size(), 3u);
  EXPECT_EQ(parsed["more"], true);
}

TEST(LiveViews, NodesInFullAreBounded) {
  NodeView node{.name = NodeId("n0"), .cordon = Cordon{.reason = "", .drain = true}};
  for (int i = 0; i < 100; ++i) {
    node.jobs.emplace_back("j");
    node.conditions.push_back({.kind = "xid", .message = "m"});
  }
  const json parsed = json::parse(NodesJson({node}, false))["nodes"][0];
  EXPECT_EQ(parsed["jobs"].size(), 16u);
  EXPECT_EQ(parsed["conditions"].size(), 8u);
  EXPECT_EQ(parsed["cordon"], "no reason given");
  EXPECT_EQ(parsed["drain"], true);
}

}  // namespace
}  // namespace lynx::server
