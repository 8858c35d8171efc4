// Tests lynx-worker as a process: its reports to a server that goes away and comes back.
#include <signal.h>

#include "tests/worker/daemon/worker_harness.h"

namespace lynx::worker {
namespace {

using Sequences = std::vector<int64_t>;

Sequences SequencesOf(const std::vector<v1::RankReport>& reports) {
  Sequences sequences;
  for (const v1::RankReport& report : reports) sequences.push_back(report.sequence());
  return sequences;
}

v1::ReportAck AckOf(int64_t sequence) {
  v1::ReportAck ack;
  ack.set_job_id("j1");
  ack.set_generation(1);
  ack.set_sequence(sequence);
  return ack;
}

class WorkerReportsTest : public WorkerTest {
 protected:
  // Runs rank 0 of j1, and sets assignment_ to its assignment.
  pid_t Run() {
    assignment_ = MakeAssignment("j1", 1, 0);
    const pid_t pid = RunRank(assignment_);
    SetPeers(assignment_, StatusOf(cluster_.told(), 1, 0)->port());
    return pid;
  }
  void WaitForReports(size_t count) {
    cluster_.WaitUntil(std::to_string(count) + " reports on this stream",
                       [=](const Told& told) { return told.stream_reports.size() >= count; });
  }
  void Reattach() {
    const int attached = cluster_.told().attached;
    cluster_.EndStream();
    cluster_.WaitUntil("another stream", [=](const Told& told) { return told.attached > attached; });
  }

  v1::RankAssignment assignment_;
};

TEST_F(WorkerReportsTest, WhatIsNotAcknowledgedIsSentAgainAfterReconnecting) {
  StartDaemon();
  const pid_t pid = Run();
  for (const char* command : {"ready", "step 0", "step 1", "step 2"}) Tell(0, command);
  WaitForReports(4);
  EXPECT_EQ(SequencesOf(cluster_.told().stream_reports), (Sequences{1, 2, 3, 4}));

  Reattach();
  WaitForReports(4);
  EXPECT_EQ(SequencesOf(cluster_.told().stream_reports), (Sequences{1, 2, 3, 4}));

  WantOnly({assignment_}, {AckOf(3)});
  // When a later report arrives here, the daemon has processed the acknowledgement.
  Tell(0, "step 3");
  WaitForReports(5);
  Tell(0, "step 4");
  WaitForReports(6);
  Reattach();
  WaitForReports(3);
  EXPECT_EQ(SequencesOf(cluster_.told().stream_reports), (Sequences{4, 5, 6}));
  EXPECT_TRUE(ProcessLives(pid));
  EXPECT_EQ(StartedPids(0).size(), 1u);
}

TEST_F(WorkerReportsTest, ReportsMadeWithoutAServerArriveInOrder) {
  StartDaemon();
  Run();
  cluster_.EndStream();
  for (int step = 0; step < 1200; ++step) Tell(0, "step " + std::to_string(step));
  Tell(0, "done 1200");
  Tell(0, "exit 0");
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const Told told = cluster_.told();
  Sequences expected;
  for (int64_t i = 1; i <= 1201; ++i) expected.push_back(i);
  EXPECT_EQ(SequencesOf(told.stream_reports), expected);
  EXPECT_FALSE(told.end_before_report);
  EXPECT_EQ(told.stream_reports.back().done().steps(), 1200);
}

// The trace has 80 parts, each with 40,960 times of 8 bytes. One message with all of them would have 25 MiB.
TEST_F(WorkerReportsTest, LargeReportsTravelInSeveralMessages) {
  StartDaemon();
  Run();
  cluster_.EndStream();
  Tell(0, "trace 80");
  WaitForReports(80);
  const Told told = cluster_.told();
  EXPECT_LE(told.largest_message, size_t{9} << 20);
  EXPECT_EQ(told.stream_reports.back().trace().first(), 79 * 8192);
}

// If a rank ends because it is not wanted, it may still have something to report, such as the checkpoint that it has just
// written.
TEST_F(WorkerReportsTest, TheLastWordsOfARankThatIsNotWantedArrive) {
  cluster_.SetReleases(false);
  StartDaemon();
  const pid_t pid = Run();
  Tell(0, "term-step 7");
  Tell(0, "step 0");
  WaitForReports(1);
  WantOnly({});
  WaitForReports(2);
  EXPECT_EQ(cluster_.told().stream_reports.back().step().step(), 7);
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  EXPECT_FALSE(cluster_.told().end_before_report);
  EXPECT_FALSE(ProcessLives(pid));
  // The stream may have lost the reports. So the daemon sends them again until the rank is released.
  Reattach();
  WaitForReports(2);
  EXPECT_EQ(SequencesOf(cluster_.told().stream_reports), (Sequences{1, 2}));
  EXPECT_EQ(StatusOf(cluster_.told(), 1, 0)->exit_code(), 4);
  cluster_.SetReleases(true);
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.ranks.empty(); });
}

TEST_F(WorkerReportsTest, DamagedLinesKeepTheirNumberAndIncompleteOnesWait) {
  StartDaemon();
  Run();
  Tell(0, "step 0");
  Tell(0, "raw this is no report");
  Tell(0, "partial {\"report\":");
  Tell(0, "stderr mark");
  cluster_.WaitUntil("the mark", [](const Told& told) { return !told.lines.empty(); });
  WaitForReports(1);
  EXPECT_EQ(SequencesOf(cluster_.told().stream_reports), (Sequences{1}));
  Tell(0, "raw damaged}");
  Tell(0, "step 1");
  WaitForReports(2);
  EXPECT_EQ(SequencesOf(cluster_.told().stream_reports), (Sequences{1, 4}));
}

TEST_F(WorkerReportsTest, LinesOfStandardErrorAreForwarded) {
  StartDaemon();
  Run();
  for (int i = 0; i < 250; ++i) Tell(0, "stderr line " + std::to_string(i));
  cluster_.WaitUntil("250 lines", [](const Told& told) { return told.lines.size() >= 250; });
  const Told told = cluster_.told();
  ASSERT_EQ(told.lines.size(), 250u);
  for (size_t i = 0; i < told.lines.size(); ++i) EXPECT_EQ(told.lines[i], "line " + std::to_string(i));
}

TEST_F(WorkerReportsTest, HeartbeatsComeAtTheIntervalThatTheServerAsksFor) {
  StartDaemon();
  WantOnly({});
  const int before = cluster_.told().messages;
  cluster_.WaitUntil("three heartbeats", [=](const Told& told) { return told.messages >= before + 3; });
}

}  // namespace
}  // namespace lynx::worker
