// Tests lynx-rank as real processes: they must end when their node's lease is over, even if there is no daemon to tell them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <fstream>

#include "common/clock.h"
#include "tests/worker/rank/rank_processes.h"
#include "worker/contract/lease_file.h"

namespace lynx::worker {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(RankLease, RanksEndWhenItIsOver) {
  const TestFolder folder;
  LeaseFile lease = LeaseFile::OpenToWrite(LeaseOf(folder)).value();
  lease.Set(BootTime() + Nanos(3'600'000'000'000));
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 3);
  lease.Set(BootTime());
  bool one_by_itself = false;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int code = ranks.ExitCode(rank);
    EXPECT_THAT(code, AnyOf(kRankExitLeaseOver, kRankExitPeerLost));  // another rank may have ended first
    one_by_itself |= code == kRankExitLeaseOver;
    if (code == kRankExitLeaseOver) EXPECT_THAT(ranks.Log(rank), HasSubstr("the lease of this node is over"));
  }
  EXPECT_TRUE(one_by_itself);
}

// The peers of rank 0 are frozen, so rank 0 waits for them in a transfer. The end of the lease must end this wait.
TEST(RankLease, ARankThatWaitsEndsTooWhenItIsOver) {
  const TestFolder folder;
  LeaseFile lease = LeaseFile::OpenToWrite(LeaseOf(folder)).value();
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 3);
  for (int rank = 1; rank < RankProcesses::kRanks; ++rank) ranks.Signal(rank, SIGSTOP);
  lease.Set(BootTime());
  EXPECT_EQ(ranks.ExitCode(0), kRankExitLeaseOver);
}

TEST(RankLease, ADamagedFileIsAnError) {
  const TestFolder folder;
  std::ofstream(LeaseOf(folder)) << "no lease";
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.ExpectAllExit(kRankExitFailure);
  EXPECT_THAT(Only<RankFailure>(ranks.Reports(0)).at(0).reason, HasSubstr("is not a lease file"));
}

}  // namespace
}  // namespace lynx::worker
