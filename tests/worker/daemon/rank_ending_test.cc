#include "worker/daemon/rank_ending.h"

#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

const RankReport kDone = RankDone{10};
const RankReport kDataFailure = RankFailure{"the data file is empty", false};
const RankReport kPeerFailure = RankFailure{"rank 1 is gone", true};

TEST(DescribeEnding, ChildrenByExitStatusAndReport) {
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{0, 0}, .last_report = kDone}), RankEnding{});
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{1, 0}, .last_report = kDataFailure}),
            (RankEnding{1, "the data file is empty", false, RankOutcome::kFailed}));
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{3, 0}, .last_report = kPeerFailure}),
            (RankEnding{3, "rank 1 is gone", true, RankOutcome::kPeerLost}));
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{137, 9}}),
            (RankEnding{137, "killed by signal 9 (Killed)", false, RankOutcome::kKilled}));
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{135, 7}}).reason,
            "killed by signal 7 (Bus error), as a process is that reads a mapped file beyond its end: a data file may "
            "have been cut short");
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{1, 0}, .last_line = "out of memory"}),
            (RankEnding{1, "exit code 1; the last it wrote was: out of memory", false, RankOutcome::kFailed}));
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{3, 0}}).outcome, RankOutcome::kPeerLost);
}

TEST(DescribeEnding, TellsTheCauseWhereItIsKnown) {
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{1, 0}, .last_report = RankFailure{"no room", false, FaultCause::kMemory}}).cause,
            FaultCause::kMemory);
  const RankEnding killed = DescribeEnding({.exit = ExitStatus{137, 9}, .oom_kill = true});
  EXPECT_EQ(killed.cause, FaultCause::kMemory);
  EXPECT_EQ(killed.reason,
            "killed by signal 9 (Killed): the kernel's out-of-memory killer ended a process of this node at that moment");
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{137, 9}}).cause, FaultCause::kUnknown);
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{139, 11}, .oom_kill = true}).cause, FaultCause::kUnknown) << "not how it kills";
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{135, 7}}).cause, FaultCause::kData);
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{137, 9}, .oom_kill = true, .stop = StopStage::kKilled}).cause,
            FaultCause::kUnknown)
      << "by this daemon";
}

TEST(DescribeEnding, ARankThatWasKilledBecauseItHungSaysForHowLong) {
  const Nanos hung(120'000'000'000);
  const ExitStatus killed{137, 9};
  EXPECT_EQ(DescribeEnding({.exit = killed, .last_line = "step 7", .oom_kill = true, .hung = hung}),
            (RankEnding{kRankExitFailure,
                        "had made no progress for 2m00s, and was killed by the worker daemon; the last it wrote was: step 7",
                        false, RankOutcome::kKilled}));
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{139, 11}, .hung = hung}).reason.find("no progress"), std::string::npos)
      << "it ended before it was killed";
  EXPECT_EQ(DescribeEnding({.exit = killed, .last_report = kDataFailure, .hung = hung}).reason, "the data file is empty");
}

TEST(DescribeEnding, ASuccessThatIsNoneIsAFailure) {
  const RankEnding silent = DescribeEnding({.exit = ExitStatus{0, 0}});
  EXPECT_EQ(silent.exit_code, kRankExitFailure);
  EXPECT_EQ(silent.outcome, RankOutcome::kFailed);
  EXPECT_NE(silent.reason.find("never reported that it was done"), std::string::npos);

  const RankEnding crashed_after = DescribeEnding({.exit = ExitStatus{139, 11}, .last_report = kDone});
  EXPECT_EQ(crashed_after.exit_code, 139);
  EXPECT_EQ(crashed_after.outcome, RankOutcome::kFailed);

  // The rank reported a failure, but its exit code is 0.
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{0, 0}, .last_report = kDataFailure}).exit_code, kRankExitFailure);
}

TEST(DescribeEnding, WhatGaveWayDidAsItWasAsked) {
  const RankEnding expected{kRankExitYielded, "gave way after 7 steps, as asked", false, RankOutcome::kStopped};
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{5, 0}, .last_report = RankYielded{7}}), expected);
  EXPECT_EQ(DescribeEnding({.last_report = RankYielded{7}}), expected) << "not a child of this daemon";
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{137, 9}, .last_report = RankYielded{7}, .stop = StopStage::kKilled}), expected)
      << "its checkpoint is there";
}

TEST(DescribeEnding, AdoptedOnesByTheirReportAlone) {
  EXPECT_EQ(DescribeEnding({.last_report = kDone}), RankEnding{});
  EXPECT_EQ(DescribeEnding({.last_report = kDataFailure}).exit_code, kRankExitFailure);
  EXPECT_EQ(DescribeEnding({.last_report = kPeerFailure}).exit_code, kRankExitPeerLost);
  const RankEnding silent = DescribeEnding({.last_line = "last words"});
  EXPECT_EQ(silent.exit_code, kRankExitFailure);
  EXPECT_NE(silent.reason.find("without a report"), std::string::npos);
  EXPECT_NE(silent.reason.find("last words"), std::string::npos);
}

TEST(DescribeEnding, WhatWasAskedToEndWasStopped) {
  const RankEnding asked = DescribeEnding({.exit = ExitStatus{4, 0}, .stop = StopStage::kAsked});
  EXPECT_EQ(asked, (RankEnding{4, "was asked to end", false, RankOutcome::kStopped}));
  const RankEnding killed = DescribeEnding({.exit = ExitStatus{137, 9}, .stop = StopStage::kKilled});
  EXPECT_EQ(killed.outcome, RankOutcome::kStopped);
  EXPECT_NE(killed.reason.find("did not in time"), std::string::npos);
  // The rank was done before it noticed the signal.
  EXPECT_EQ(DescribeEnding({.exit = ExitStatus{0, 0}, .last_report = kDone, .stop = StopStage::kAsked}), RankEnding{});
}

}  // namespace
}  // namespace lynx::worker
