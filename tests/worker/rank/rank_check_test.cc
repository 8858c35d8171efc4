// Tests real rank processes that check their nodes before they train. Good nodes train normally, bad nodes are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/rank/rank_processes.h"

namespace lynx::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

void WithCheck(RankConfig& config) { config.check = true; }

std::vector<RankFailure> FailuresOf(RankProcesses& ranks, int rank) { return Only<RankFailure>(ranks.Reports(rank)); }

TEST(RankCheck, WhatPassesTrainsTheSame) {
  const TestFolder folder;
  RankProcesses plain(folder, Configs(folder, 3));
  plain.ExpectAllExit(kRankExitOk);
  EXPECT_THAT(Only<NodeCheckReport>(plain.Reports(0)), IsEmpty());
  const TestFolder checked_folder;
  RankProcesses checked(checked_folder, Configs(checked_folder, 3, WithCheck));
  checked.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(checked.Losses(), plain.Losses());
  ASSERT_TRUE(std::holds_alternative<NodeCheckReport>(checked.Reports(0).front()));
  const auto report = std::get<NodeCheckReport>(checked.Reports(0).front());
  EXPECT_EQ(report.devices, 4);
  EXPECT_EQ(report.links, 6);
  for (const int rank : {1, 2, 3}) EXPECT_THAT(Only<NodeCheckReport>(checked.Reports(rank)), IsEmpty());
}

TEST(RankCheck, AWrongProductEndsTheRankThatComputedIt) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 3, WithCheck), 1, {}, {{2, {"wrong-product", 0}}});
  EXPECT_EQ(ranks.ExitCode(2), kRankExitFailure) << ranks.Log(2);
  for (const int rank : {0, 1, 3}) EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
  const std::vector<RankFailure> failures = FailuresOf(ranks, 2);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].cause, FaultCause::kCheck);
  EXPECT_THAT(failures[0].reason,
              HasSubstr("node check: the device computes wrongly: element (0, 7) of the product of matrices of 256 x 256 is"));
  EXPECT_THAT(FailuresOf(ranks, 0).at(0).reason, HasSubstr("rank 2 has failed its node check"));
}

TEST(RankCheck, WordsThatALinkChangesEndTheRanksThatReadThem) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 3, WithCheck), 1, {}, {{3, {"corrupt-link", 0}}});
  EXPECT_EQ(ranks.ExitCode(3), kRankExitPeerLost) << ranks.Log(3);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitFailure) << ranks.Log(rank);
    const std::vector<RankFailure> failures = FailuresOf(ranks, rank);
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].cause, FaultCause::kLink);
    EXPECT_THAT(failures[0].peers, ElementsAre(3));
    EXPECT_THAT(failures[0].reason, AllOf(HasSubstr("node check: what rank 3 at 127.0.0.1 sends arrives wrong: word"),
                                          HasSubstr(" of 262144 is 0x")));
  }
}

TEST(RankCheck, ASlowLinkEndsTheRanksAtItsEnds) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 3, WithCheck), 1, {}, {{3, {"slow-link", 0}}});
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitFailure) << ranks.Log(rank);
    const std::vector<RankFailure> failures = FailuresOf(ranks, rank);
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].cause, FaultCause::kLink);
    EXPECT_THAT(failures[0].peers,
                UnorderedElementsAreArray(rank == 3 ? std::vector<int32_t>{0, 1, 2} : std::vector<int32_t>{3}))
        << failures[0].reason;
    EXPECT_THAT(failures[0].reason,
                AllOf(HasSubstr("node check: the link to rank "), HasSubstr(", where others like it move ")));
  }
}

}  // namespace
}  // namespace lynx::worker
