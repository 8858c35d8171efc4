// Tests the groups for experts, and which connections all ranks have, against a model that compares every pair of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "common/rng.h"
#include "planner/problem/stage_context.h"
#include "tests/worker/collectives/rank_threads.h"
#include "worker/collectives/lanes.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns a random layout of at most 64 ranks. `ep` divides the ranks of a stage.
ParallelLayout RandomLayout(uint64_t seed) {
  auto draw = [&, n = uint64_t{0}](int32_t limit) mutable {
    return static_cast<int32_t>(Mix64(seed * 97 + n++) % static_cast<uint64_t>(limit));
  };
  ParallelLayout layout{.tp = 1 << draw(3), .pp = 1 + draw(3), .dp = 1 + draw(5)};
  std::vector<int32_t> divisors;
  for (int32_t ep = 1; ep <= RanksOfStage(layout); ++ep) {
    if (RanksOfStage(layout) % ep == 0) divisors.push_back(ep);
  }
  layout.ep = divisors[static_cast<size_t>(draw(static_cast<int32_t>(divisors.size())))];
  layout.rank_order = draw(2) == 0 ? RankOrder::kTpPpDp : RankOrder::kTpDpPp;
  layout.sequence_parallel = layout.tp > 1;
  if (layout.pp > 1 && draw(2) == 0) {
    layout.schedule = ScheduleKind::kInterleaved;
    layout.virtual_stages = 2;
  }
  return layout;
}

// A rank's number among the ranks of its stage, by counting the ranks that come before it. Ranks are ordered by replica, then
// by tensor number.
int32_t CountBefore(const ParallelLayout& layout, int32_t rank) {
  const RankCoordinates own = CoordinatesOf(layout, rank);
  int32_t before = 0;
  for (int32_t other = 0; other < layout.ranks(); ++other) {
    const RankCoordinates at = CoordinatesOf(layout, other);
    if (at.stage == own.stage && std::pair(at.dp, at.tp) < std::pair(own.dp, own.tp)) ++before;
  }
  return before;
}

bool Together(const ParallelLayout& layout, int32_t a, int32_t b, Group group) {
  if (CoordinatesOf(layout, a).stage != CoordinatesOf(layout, b).stage) return false;
  const int32_t first = CountBefore(layout, a), second = CountBefore(layout, b);
  return group == Group::kExpert ? first / layout.ep == second / layout.ep : first % layout.ep == second % layout.ep;
}

std::vector<int32_t> MembersByHand(const ParallelLayout& layout, int32_t rank, Group group) {
  std::vector<int32_t> members;
  for (int32_t other = 0; other < layout.ranks(); ++other) {
    if (Together(layout, rank, other, group)) members.push_back(other);
  }
  std::sort(members.begin(), members.end(),
            [&](int32_t a, int32_t b) { return CountBefore(layout, a) < CountBefore(layout, b); });
  return members;
}

// The connections for experts that a rank needs: to all members of the expert group, and to its neighbours in the ring of the
// expert data group.
std::set<LinkKey> ExpertLinksByHand(const ParallelLayout& layout, int32_t rank) {
  std::set<LinkKey> links;
  for (const int32_t member : MembersByHand(layout, rank, Group::kExpert)) {
    if (member != rank) links.insert({member, Channel::kExpert, 0});
  }
  const std::vector<int32_t> ring = MembersByHand(layout, rank, Group::kExpertData);
  for (size_t i = 0; i < ring.size(); ++i) {
    const int32_t next = ring[(i + 1) % ring.size()];
    if (ring[i] == rank && next != rank) links.insert({next, Channel::kExpertData, 0});
    if (next == rank && ring[i] != rank) links.insert({ring[i], Channel::kExpertData, 0});
  }
  return links;
}

TEST(ExpertGroups, EqualThoseFoundByComparingAllRanks) {
  constexpr uint64_t kSeed = 20261128;
  RecordProperty("seed", std::to_string(kSeed));
  for (uint64_t round = 0; round < 200; ++round) {
    const ParallelLayout layout = RandomLayout(kSeed + round);
    SCOPED_TRACE(LayoutText(layout));
    for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
      for (const Group group : {Group::kExpert, Group::kExpertData}) {
        const GroupMembers members = MembersOf(layout, rank, group);
        EXPECT_EQ(members.ranks, MembersByHand(layout, rank, group)) << GroupName(group) << " of rank " << rank;
        EXPECT_EQ(members.ranks[static_cast<size_t>(members.index)], rank);
      }
    }
  }
}

TEST(ExpertGroups, LinksAreThoseOfTheOtherGroupsAndOfTheExperts) {
  constexpr uint64_t kSeed = 20261129;
  RecordProperty("seed", std::to_string(kSeed));
  for (uint64_t round = 0; round < 200; ++round) {
    const ParallelLayout layout = RandomLayout(kSeed + round);
    ParallelLayout plain = layout;
    plain.ep = 1;
    SCOPED_TRACE(LayoutText(layout));
    for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
      std::set<LinkKey> expected = ExpertLinksByHand(layout, rank);
      for (const LinkKey& link : LinksOf(plain, rank)) {
        EXPECT_TRUE(link.channel != Channel::kExpert && link.channel != Channel::kExpertData) << "a model without experts";
        expected.insert(link);
      }
      for (const LinkKey& link : ExpertLinksByHand(layout, rank)) expected.insert({link.peer, Channel::kControl});
      const std::vector<LinkKey> links = LinksOf(layout, rank, /*experts=*/true);
      EXPECT_EQ(links, std::vector<LinkKey>(expected.begin(), expected.end())) << "rank " << rank;
      // Both ends have the same connection.
      for (LinkKey link : links) {
        const std::vector<LinkKey> of_peer = LinksOf(layout, link.peer, /*experts=*/true);
        EXPECT_EQ(std::count(of_peer.begin(), of_peer.end(), LinkKey{rank, link.channel, link.part}), 1);
      }
      // Every lane has its connections.
      const LaneTable lanes(layout, rank, /*experts=*/true);
      for (int32_t lane = 0; lane < lanes.size(); ++lane) {
        std::vector<LinkKey> needed = lanes.at(lane).by_distance;
        if (lanes.at(lane).out) needed.push_back(*lanes.at(lane).out);
        if (lanes.at(lane).in) needed.push_back(*lanes.at(lane).in);
        for (const LinkKey& link : needed) EXPECT_EQ(std::count(links.begin(), links.end(), link), 1) << lanes.at(lane).name;
      }
    }
  }
}

TEST(ExpertGroups, WithoutExpertsThereAreNone) {
  const ParallelLayout layout{.tp = 2, .dp = 2};
  EXPECT_FALSE(LaneTable(layout, 0).has_experts());
  EXPECT_TRUE(LaneTable(layout, 0, /*experts=*/true).has_experts());
  EXPECT_TRUE(LaneTable({.tp = 2, .dp = 2, .ep = 2}, 0).has_experts());
  EXPECT_LT(LinksOf(layout, 0).size(), LinksOf(layout, 0, /*experts=*/true).size());
}

TEST(ExpertGroups, AreNeighboursInAStage) {
  const ParallelLayout layout{.tp = 2, .pp = 2, .dp = 4, .ep = 4};
  EXPECT_THAT(MembersOf(layout, 0, Group::kExpert).ranks, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(MembersOf(layout, 13, Group::kExpert).ranks, ElementsAre(8, 9, 12, 13));
  EXPECT_THAT(MembersOf(layout, 2, Group::kExpertData).ranks, ElementsAre(2, 10));
  EXPECT_EQ(RankText(layout, 5), "rank 5 (stage 0, tp 1, dp 1, ep 3)");
  EXPECT_EQ(RankText({.tp = 2, .pp = 2, .dp = 4}, 5), "rank 5 (stage 0, tp 1, dp 1)");
}

TEST(ExpertGroups, OfAnImpossibleLayoutAreRefused) {
  CommunicatorOptions options;
  options.peers.resize(4);
  options.secret = NewConnectionSecret();
  options.layout.dp = 4;
  for (const int32_t ep : {0, 3, 8}) {
    options.layout.ep = ep;
    const absl::Status status = ConnectTcp(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("which do not divide the 4 ranks of a stage"));
  }
  options.layout = {.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kChimera};
  EXPECT_THAT(std::string(ConnectTcp(options).status().message()), HasSubstr("there are no groups for experts"));
}

// A rank of a model with experts and a rank of a model without experts would wait for different connections.
TEST(ExpertGroups, RanksThatDoNotAgreeWhetherThereAreExpertsSayIt) {
  std::vector<CommunicatorOptions> options = LoopbackOptions({.dp = 2});
  options[0].experts = true;
  for (CommunicatorOptions& of_rank : options) of_rank.connect_timeout = Nanos(500'000'000);
  OnThreads(2, [&](int32_t rank) {
    const absl::Status status = ConnectTcp(options[static_cast<size_t>(rank)]).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a model without experts was offered, a model with experts runs here"));
  });
}

}  // namespace
}  // namespace lynx::worker
