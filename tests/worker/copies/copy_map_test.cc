#include "worker/copies/copy_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "worker/checkpoint/checkpoint_index.h"

namespace lynx::worker {
namespace {

using testing::ElementsAre;

// Returns the node of each rank. Each node has `each` consecutive ranks.
std::vector<int32_t> Nodes(int32_t ranks, int32_t each) {
  std::vector<int32_t> nodes;
  for (int32_t rank = 0; rank < ranks; ++rank) nodes.push_back(rank / each);
  return nodes;
}

TEST(CopyMapTest, NodesAreHostsAndDirectories) {
  EXPECT_THAT(NodeNumbers({{"10.0.0.2", "a"}, {"10.0.0.1", "a"}, {"10.0.0.2", "a"}, {"10.0.0.2", "b"}}),
              ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(RanksOfNode({0, 1, 0, 2}, 0), ElementsAre(0, 2));
}

TEST(CopyMapTest, EachShardHasTwoPlacesOnDifferentNodes) {
  const ParallelLayout replicas_first{.tp = 2, .pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp};
  const ParallelLayout layouts[] = {{2, 2, 1}, {1, 2, 2}, {4, 2, 2}, {2, 1, 4}, {1, 8, 1}, replicas_first};
  for (ParallelLayout layout : layouts) {
    for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer}) {
      layout.zero = zero;
      const int32_t ranks = layout.ranks();
      for (int32_t each = 1; each < ranks; each *= 2) {
        const std::vector<int32_t> nodes = Nodes(ranks, each);
        const std::vector<ShardKeepers> shards = KeepersOf(layout, nodes);
        const std::vector<std::string> files = ShardFiles(layout);
        ASSERT_EQ(shards.size(), files.size());
        std::set<int32_t> writers;
        for (size_t i = 0; i < shards.size(); ++i) {
          EXPECT_EQ(shards[i].file, files[i]);
          ASSERT_GE(shards[i].second, 0);
          EXPECT_NE(nodes[static_cast<size_t>(shards[i].first)], nodes[static_cast<size_t>(shards[i].second)]);
          // No rank writes two shards. If a shard is not sent, its second keeper writes it too.
          EXPECT_TRUE(writers.insert(shards[i].first).second);
          if (!shards[i].sent) EXPECT_TRUE(writers.insert(shards[i].second).second);
        }
      }
    }
  }
}

TEST(CopyMapTest, ReplicasOnTwoNodesSendNothing) {
  // tp 2, pp 1, dp 2: replica 0 is on node 0, replica 1 is on node 1.
  const std::vector<ShardKeepers> shards = KeepersOf({2, 1, 2}, Nodes(4, 2));
  ASSERT_EQ(shards.size(), 2u);
  for (const ShardKeepers& shard : shards) {
    EXPECT_FALSE(shard.sent);
    const RankCoordinates first = CoordinatesOf({2, 1, 2}, shard.first), second = CoordinatesOf({2, 1, 2}, shard.second);
    EXPECT_EQ(first.tp, second.tp);
    EXPECT_NE(first.dp, second.dp);
  }
}

// With ZeRO each replica has a part of the states that no other replica has.
TEST(CopyMapTest, SharesOfReplicasAreSent) {
  ParallelLayout layout{2, 1, 2};
  layout.zero = ZeroStage::kOptimizer;
  const std::vector<ShardKeepers> shards = KeepersOf(layout, Nodes(4, 2));
  ASSERT_EQ(shards.size(), 4u);
  for (const ShardKeepers& shard : shards) EXPECT_TRUE(shard.sent);
}

// A second keeper that writes a shard itself must have the same states, experts included.
TEST(CopyMapTest, KeepersThatBothWriteHaveTheSameExperts) {
  for (const auto& [tp, dp] : {std::pair(1, 4), {2, 2}, {2, 3}, {3, 2}, {4, 3}}) {
    for (int32_t ep = 1; ep <= tp * dp; ++ep) {
      if (tp * dp % ep != 0) continue;
      const ParallelLayout layout{.tp = tp, .dp = dp, .ep = ep};
      for (const int32_t each : {1, tp}) {
        for (const ShardKeepers& shard : KeepersOf(layout, Nodes(layout.ranks(), each))) {
          if (shard.sent || shard.second < 0) continue;
          const auto place = [&](int32_t rank) { return NumberInStage(layout, CoordinatesOf(layout, rank)) % ep; };
          EXPECT_EQ(place(shard.first), place(shard.second)) << LayoutText(layout);
        }
      }
    }
  }
}

TEST(CopyMapTest, ReplicasOfOneNodeSendOneCopy) {
  // All replicas of a stage are on one node.
  const ParallelLayout layout{1, 2, 2};
  std::vector<int32_t> nodes;
  for (int32_t rank = 0; rank < 4; ++rank) nodes.push_back(CoordinatesOf(layout, rank).stage);
  const std::vector<ShardKeepers> shards = KeepersOf(layout, nodes);
  ASSERT_EQ(shards.size(), 2u);
  for (const ShardKeepers& shard : shards) EXPECT_TRUE(shard.sent);
}

// The copies that a node keeps for other nodes are spread over the node's ranks.
TEST(CopyMapTest, PartnersAreSpreadOverRanks) {
  const std::vector<int32_t> nodes = Nodes(8, 4);
  std::map<int32_t, int> taken;
  for (const ShardKeepers& shard : KeepersOf({4, 2, 1}, nodes)) ++taken[shard.second];
  EXPECT_EQ(taken.size(), 8u);
  for (const auto& [rank, shards] : taken) EXPECT_EQ(shards, 1) << rank;
}

TEST(CopyMapTest, OneNodeKeepsItsOwnOnly) {
  for (const ShardKeepers& shard : KeepersOf({2, 2, 1}, Nodes(4, 4))) {
    EXPECT_EQ(shard.second, -1);
    EXPECT_FALSE(shard.sent);
  }
}

}  // namespace
}  // namespace lynx::worker
