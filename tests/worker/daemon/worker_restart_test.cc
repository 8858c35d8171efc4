// Tests lynx-worker as a process: the daemon is killed, restarts or ends, and its ranks go on.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/worker/daemon/worker_harness.h"
#include "worker/daemon/rank_folder.h"

namespace lynx::worker {
namespace {

class WorkerRestartTest : public WorkerTest {
 protected:
  // Runs rank 0 of j1, and sets assignment_ to its assignment.
  pid_t Run() {
    assignment_ = MakeAssignment("j1", 1, 0);
    const pid_t pid = RunRank(assignment_);
    SetPeers(assignment_, StatusOf(cluster_.told(), 1, 0)->port());
    return pid;
  }
  void KillAndRestartDaemon() {
    KillDaemon();
    StartDaemon();
  }
  void KillDaemon() { EXPECT_EQ(EndDaemon(SIGKILL).signal, SIGKILL); }
  RankKey key() const { return {JobId("j1"), Generation(1), 0}; }
  RankFolder folder() const { return FolderOf(data_ + "/ranks", key()); }

  v1::RankAssignment assignment_;
};

TEST_F(WorkerRestartTest, ARestartedDaemonTakesUpItsRankAndItsReports) {
  StartDaemon();
  const pid_t pid = Run();
  Tell(0, "ready");
  Tell(0, "step 0");
  cluster_.WaitUntil("two reports", [](const Told& told) { return told.stream_reports.size() == 2; });
  const std::string boot = cluster_.told().boot_id;

  KillDaemon();
  EXPECT_TRUE(ProcessLives(pid));
  Tell(0, "step 1");  // the rank does this step while no daemon runs
  StartDaemon();
  cluster_.WaitUntil("three reports", [](const Told& told) { return told.stream_reports.size() >= 3; });
  Told told = cluster_.told();
  EXPECT_NE(told.boot_id, boot);
  EXPECT_EQ(StatusOf(told, 1, 0)->pid(), pid);
  EXPECT_TRUE(InPhase(told, 1, 0, v1::RANK_PHASE_RUNNING));

  Tell(0, "done 2");
  Tell(0, "exit 0");
  cluster_.WaitUntil("EXITED", [](const Told& t) { return InPhase(t, 1, 0, v1::RANK_PHASE_EXITED); });
  EXPECT_EQ(StatusOf(cluster_.told(), 1, 0)->exit_code(), 0);
  EXPECT_EQ(StartedPids(0), std::vector<pid_t>{pid});
}

// A request to give way is a file. So it outlives the daemon that made it, and the next daemon can withdraw it.
TEST_F(WorkerRestartTest, ARankIsAskedToGiveWayUntilThatIsTakenBack) {
  StartDaemon();
  Run();
  const auto asked = [&] { return std::filesystem::exists(folder().yield()); };
  const auto await_asked = [&](bool expected) {
    for (int i = 0; i < 3000 && asked() != expected; ++i) ::usleep(10'000);
    EXPECT_EQ(asked(), expected);
  };
  EXPECT_FALSE(asked());
  assignment_.set_yield(true);
  WantOnly({assignment_});
  await_asked(true);
  KillAndRestartDaemon();
  cluster_.WaitUntil("taken up", [](const Told& told) { return told.attached == 2; });
  EXPECT_TRUE(asked());
  assignment_.set_yield(false);
  WantOnly({assignment_});
  await_asked(false);
  assignment_.set_yield(true);
  WantOnly({assignment_});
  await_asked(true);
  EXPECT_TRUE(ProcessLives(StartedPids(0).back())) << "nothing else happens to it";

  Tell(0, "yielded 3");
  Tell(0, "exit 5");
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.exit_code(), 5);
  EXPECT_EQ(status.reason(), "gave way after 3 steps, as asked");
  EXPECT_EQ(cluster_.told().reports.back().yielded().steps(), 3);
}

TEST_F(WorkerRestartTest, ARankThatEndedWhileNobodyWatchedIsReportedByItsLastReport) {
  StartDaemon();
  const pid_t pid = Run();
  KillDaemon();
  Tell(0, "peer-lost rank 3 is gone");
  Tell(0, "exit 3");
  while (ProcessLives(pid)) ::usleep(1000);
  StartDaemon();
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.reason(), "rank 3 is gone");
  EXPECT_EQ(status.exit_code(), 3);
  EXPECT_TRUE(status.peer_lost());
  EXPECT_FALSE(cluster_.told().end_before_report);
}

TEST_F(WorkerRestartTest, AnAdoptedRankThatDiesSilentlyIsAFailure) {
  StartDaemon();
  const pid_t pid = Run();
  KillAndRestartDaemon();
  cluster_.WaitUntil("taken up",
                     [](const Told& told) { return told.attached == 2 && InPhase(told, 1, 0, v1::RANK_PHASE_RUNNING); });
  ::kill(pid, SIGKILL);
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_NE(status.exit_code(), 0);
  EXPECT_NE(status.reason().find("ended without a report"), std::string::npos) << status.reason();
}

TEST_F(WorkerRestartTest, AnAdoptedRankIsEndedWhenItIsNotWanted) {
  StartDaemon();
  const pid_t pid = Run();
  KillDaemon();
  WantOnly({});
  StartDaemon();
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.attached == 2 && told.ranks.empty(); });
  EXPECT_FALSE(ProcessLives(pid));
}

TEST_F(WorkerRestartTest, AnEndedRankIsNotStartedASecondTime) {
  StartDaemon();
  const pid_t pid = Run();
  Tell(0, "done 1");
  Tell(0, "exit 0");
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  KillAndRestartDaemon();
  cluster_.WaitUntil("EXITED again", [](const Told& told) {
    return told.attached == 2 && InPhase(told, 1, 0, v1::RANK_PHASE_EXITED) && !told.stream_reports.empty();
  });
  EXPECT_EQ(StatusOf(cluster_.told(), 1, 0)->exit_code(), 0);
  EXPECT_EQ(StartedPids(0), std::vector<pid_t>{pid});
}

// The rank ended because it was not wanted, and its daemon was killed before the server released the rank. So the next daemon
// sends the rank's reports again.
TEST_F(WorkerRestartTest, AnEndedRankIsToldOfUntilItIsReleased) {
  cluster_.SetReleases(false);
  StartDaemon();
  Run();
  Tell(0, "step 0");
  cluster_.WaitUntil("the step", [](const Told& told) { return told.reports.size() == 1; });
  WantOnly({});
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  KillAndRestartDaemon();
  cluster_.WaitUntil("EXITED again, with its report", [](const Told& told) {
    return told.attached == 2 && InPhase(told, 1, 0, v1::RANK_PHASE_EXITED) && told.stream_reports.size() == 1;
  });
  cluster_.SetReleases(true);
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.ranks.empty(); });
  EXPECT_EQ(LoadRecord(folder(), key())->phase, RecordedPhase::kReleased);

  const int messages = cluster_.told().messages;
  KillAndRestartDaemon();
  cluster_.WaitUntil("attached", [=](const Told& told) { return told.attached == 3 && told.messages > messages; });
  EXPECT_TRUE(cluster_.told().ranks.empty());
}

TEST_F(WorkerRestartTest, ARankThatOnlyListenedGetsANewSocket) {
  StartDaemon();
  const v1::RankAssignment assignment = MakeAssignment("j1", 1, 0);
  WantOnly({assignment});
  cluster_.WaitUntil("LISTENING", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING); });
  KillAndRestartDaemon();
  cluster_.WaitUntil("LISTENING again",
                     [](const Told& told) { return told.attached == 2 && InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING); });
  RunRank(assignment);
}

TEST_F(WorkerRestartTest, ALostSocketThatPeersKnowIsSaidAndNothingIsStarted) {
  StartDaemon();
  v1::RankAssignment assignment = MakeAssignment("j1", 1, 0);
  WantOnly({assignment});
  cluster_.WaitUntil("LISTENING", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING); });
  KillDaemon();
  SetPeers(assignment, StatusOf(cluster_.told(), 1, 0)->port());
  WantOnly({assignment});
  StartDaemon();
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_NE(status.reason().find("restarted"), std::string::npos) << status.reason();
  EXPECT_TRUE(StartedPids(0).empty());
}

// The daemon was killed after it started the process and before it recorded this.
TEST_F(WorkerRestartTest, ARankThatWasBeingStartedIsFoundByItsArguments) {
  StartDaemon();
  const pid_t pid = Run();
  KillDaemon();
  StoredRank record = *LoadRecord(folder(), key());
  record.phase = RecordedPhase::kStarting;
  record.process = {};
  ASSERT_TRUE(StoreRecord(folder(), record).ok());
  StartDaemon();
  cluster_.WaitUntil("taken up", [&](const Told& told) {
    return told.attached == 2 && InPhase(told, 1, 0, v1::RANK_PHASE_RUNNING) && StatusOf(told, 1, 0)->pid() == pid;
  });
  EXPECT_EQ(StartedPids(0), std::vector<pid_t>{pid});
}

TEST_F(WorkerRestartTest, AProcessIdThatIsUsedAgainIsNotTrusted) {
  StartDaemon();
  const pid_t pid = Run();
  KillDaemon();
  // The record now looks as if the rank had ended and another process had got its process id.
  StoredRank record = *LoadRecord(folder(), key());
  record.process.start_ticks -= 1;
  ASSERT_TRUE(StoreRecord(folder(), record).ok());
  WantOnly({});
  StartDaemon();
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.attached == 2 && told.ranks.empty(); });
  EXPECT_TRUE(ProcessLives(pid));
}

TEST_F(WorkerRestartTest, ADamagedRecordIsSaidAndTheRankIsStillFound) {
  StartDaemon();
  const pid_t pid = Run();
  KillDaemon();
  std::ofstream(folder().state()) << "{ damaged";
  WantOnly({});
  StartDaemon();
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.attached == 2 && told.ranks.empty(); });
  EXPECT_FALSE(ProcessLives(pid));
  EXPECT_NE(DaemonLog().find("state.json"), std::string::npos);
}

TEST_F(WorkerRestartTest, LeavingLetsRanksGoOn) {
  StartDaemon();
  const pid_t pid = Run();
  EXPECT_EQ(EndDaemon(SIGTERM).code, 0);
  EXPECT_TRUE(ProcessLives(pid));
  StartDaemon();
  cluster_.WaitUntil("taken up",
                     [](const Told& told) { return told.attached == 2 && InPhase(told, 1, 0, v1::RANK_PHASE_RUNNING); });
}

TEST_F(WorkerRestartTest, StopRanksOnExitEndsThem) {
  StartDaemon({"--stop-ranks-on-exit", "--stop-grace-ms", "300"});
  const pid_t pid = Run();
  Tell(0, "ignore-term");
  Tell(0, "step 0");
  cluster_.WaitUntil("the step", [](const Told& told) { return !told.reports.empty(); });
  EXPECT_EQ(EndDaemon(SIGINT).code, 0);
  EXPECT_FALSE(ProcessLives(pid));
}

TEST_F(WorkerRestartTest, StopAllEndsWhatADeadDaemonHasLeft) {
  StartDaemon();
  const pid_t pid = Run();
  KillDaemon();
  EXPECT_TRUE(ProcessLives(pid));
  StartDaemon({"--stop-all"});
  EXPECT_EQ(WaitForDaemon().code, 0);
  EXPECT_FALSE(ProcessLives(pid));
  // The second call has no ranks left to stop.
  StartDaemon({"--stop-all"});
  EXPECT_EQ(WaitForDaemon().code, 0);
}

TEST_F(WorkerRestartTest, RanksGoOnWithoutAServer) {
  StartDaemon();
  const pid_t pid = Run();
  cluster_.EndStream();
  WantOnly({assignment_});
  Tell(0, "step 0");
  cluster_.WaitUntil("the step on another stream",
                     [](const Told& told) { return told.attached >= 2 && !told.stream_reports.empty(); });
  EXPECT_TRUE(ProcessLives(pid));
}

}  // namespace
}  // namespace lynx::worker
