// Tests how the daemon ends a rank without peers that hangs. The supervisor runs in the test's process, with a clock that the
// test sets, so that two minutes take no time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/clock.h"
#include "proto/convert_worker.h"
#include "tests/worker/daemon/worker_harness.h"
#include "tests/worker/rank/rank_processes.h"
#include "tests/worker/test_folder.h"
#include "worker/contract/lease_file.h"
#include "worker/contract/progress_file.h"
#include "worker/daemon/rank_launch.h"
#include "worker/daemon/supervisor.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;

constexpr Nanos kSecond{1'000'000'000};
constexpr int kLimitSeconds = 120;
constexpr int kPatienceTurns = 12'000;  // of five milliseconds: a minute, longer than any wait here needs

class WorkerHangTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("LYNX_FAKE_RANK", folder_.path().c_str(), 1); }
  void TearDown() override {
    if (supervisor_ == nullptr) return;
    supervisor_->StopAll();
    supervisor_->Step();
    clock_.Advance(kSecond * 10);  // the grace is over
    for (int i = 0; i < kPatienceTurns && supervisor_->AnyRuns(); ++i, ::usleep(5000)) supervisor_->Step();
    EXPECT_FALSE(supervisor_->AnyRuns());
  }

  void Open(const std::string& binary) {
    supervisor_.reset();
    SupervisorOptions options;
    options.data_directory = folder_.path() + "/data";
    options.rank_binary = LYNX_BINARY_DIR "/bin/" + binary;
    options.address = "127.0.0.1";
    const std::string lease = options.lease_file();
    supervisor_ = RankSupervisor::Open(options, clock_, metrics_).value();
    ASSERT_TRUE(LeaseFile::OpenToWrite(lease).ok());  // ranks refuse to run without it
  }
  // Makes the server want this rank only, and waits until its process runs.
  void Run(v1::RankAssignment assignment) {
    key_ = KeyOf(assignment);
    v1::WorkerDesired desired;
    assignment.clear_peers();
    *desired.add_ranks() = assignment;
    supervisor_->SetDesired(desired);
    supervisor_->Step();
    SetPeers(assignment, Status().port());
    *desired.mutable_ranks(0) = assignment;
    supervisor_->SetDesired(desired);
    supervisor_->Step();
    ASSERT_EQ(Status().phase(), v1::RANK_PHASE_RUNNING) << Status().reason();
  }
  // Returns the status in a new report. Keeps the losses that the report has.
  v1::RankStatus Status() {
    v1::WorkerReport report;
    supervisor_->Fill(report);
    for (const v1::RankReport& one : report.reports()) {
      if (one.generation() == key_.generation.value && one.has_step()) losses_[one.step().step()] = one.step().loss();
    }
    for (const v1::RankStatus& status : report.ranks()) {
      if (status.generation() == key_.generation.value) return status;
    }
    return {};
  }
  std::optional<ToldProgress> Told() const {
    return ReadToldProgress(FolderOf(folder_.path() + "/data/ranks", key_).progress());
  }
  // Makes the fake rank tell this, and waits until it is told.
  void Tell(const ToldProgress& told) {
    std::ofstream(folder_.path() + "/rank0", std::ios::app) << "progress " << told.made << " " << told.quiet.value << std::endl;
    Await([&] { return Told() == told; });
  }
  template <class Holds>
  void Await(Holds holds) {
    for (int i = 0; i < kPatienceTurns && !holds(); ++i, ::usleep(5000)) supervisor_->Step();
    EXPECT_TRUE(holds());
  }
  // Lets the time pass second by second, as the daemon's rounds would see it.
  void Pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(kSecond);
      supervisor_->Step();
    }
  }
  // Expects that the rank goes on for a second less than `seconds`, and that it is then killed as a rank that hangs.
  void ExpectKilledAfter(int seconds) {
    Pass(seconds - 1);
    EXPECT_EQ(::kill(Status().pid(), 0), 0);
    EXPECT_EQ(Status().phase(), v1::RANK_PHASE_RUNNING);
    Pass(1);
    Await([this] { return Status().phase() == v1::RANK_PHASE_EXITED; });
    EXPECT_EQ(Status().exit_code(), kRankExitFailure);
    EXPECT_FALSE(Status().peer_lost());
    EXPECT_THAT(Status().reason(), HasSubstr("had made no progress for " + FormatDuration(kSecond * seconds) +
                                             ", and was killed by the worker daemon"));
  }

  const TestFolder folder_;
  SimulatedClock clock_;
  WorkerMetrics metrics_{/*of_ranks=*/false};
  std::unique_ptr<RankSupervisor> supervisor_;
  RankKey key_;
  std::map<int64_t, double> losses_;  // by step, of the generation of key_
};

TEST_F(WorkerHangTest, ARankWithoutPeersThatTellsNoProgressIsKilled) {
  Open("fake_rank");
  Run(MakeAssignment("j1", 1, 0));
  for (int64_t made = 1; made <= 3; ++made) {
    Tell({.made = made});
    Pass(kLimitSeconds - 1);
    EXPECT_EQ(Status().phase(), v1::RANK_PHASE_RUNNING);
  }
  Tell({.made = 4});
  supervisor_->Step();
  ExpectKilledAfter(kLimitSeconds);
}

TEST_F(WorkerHangTest, QuietWorkIsWaitedFor) {
  Open("fake_rank");
  Run(MakeAssignment("j1", 1, 0));
  Tell({.made = 1, .quiet = kSecond * 600});
  supervisor_->Step();
  ExpectKilledAfter(600 + kLimitSeconds);
}

TEST_F(WorkerHangTest, ARankThatNeverBeginsIsKilled) {
  Open("fake_rank");
  Run(MakeAssignment("j1", 1, 0));
  ExpectKilledAfter(kLimitSeconds);
}

TEST_F(WorkerHangTest, ARankWithPeersIsLeftToThem) {
  Open("fake_rank");
  Run(MakeAssignment("j1", 1, 0, /*ranks=*/2));
  Pass(10 * kLimitSeconds);
  EXPECT_EQ(Status().phase(), v1::RANK_PHASE_RUNNING);
  EXPECT_EQ(Told(), std::nullopt);
}

TEST_F(WorkerHangTest, ADaemonThatWasRestartedGoesOnWatching) {
  Open("fake_rank");
  Run(MakeAssignment("j1", 1, 0));
  Tell({.made = 1});
  Open("fake_rank");
  supervisor_->Step();
  Pass(kLimitSeconds - 1);
  EXPECT_EQ(Status().phase(), v1::RANK_PHASE_RUNNING);
  Pass(1);
  Await([this] { return Status().phase() == v1::RANK_PHASE_EXITED; });
}

TEST_F(WorkerHangTest, ARankThatIsToEndAnywayIsAskedFirst) {
  Open("fake_rank");
  Run(MakeAssignment("j1", 1, 0));
  std::ofstream(folder_.path() + "/rank0", std::ios::app) << "ignore-term" << std::endl;
  Tell({.made = 1});
  supervisor_->Step();
  Pass(kLimitSeconds - 1);
  supervisor_->StopAll();
  supervisor_->Step();
  Pass(2);
  EXPECT_EQ(Status().phase(), v1::RANK_PHASE_RUNNING);
  Pass(4);
  Await([this] { return Status().phase() == v1::RANK_PHASE_EXITED; });
  EXPECT_THAT(Status().reason(), HasSubstr("was asked to end, did not in time"));
}

// The real program, as the only rank of a job.
class OnlyRankTest : public WorkerHangTest {
 protected:
  v1::RankAssignment Assignment(int64_t generation, const std::string& checkpoints) const {
    RankConfig config = SmallConfig(folder_, kEndless, 0, ParallelLayout{});
    config.generation = Generation(generation);
    config.spec.checkpoint.every_steps = 10;
    config.spec.resources = {.min_ranks = 1, .max_ranks = 1};
    config.checkpoint_directory = config.spec.checkpoint.directory = folder_.path() + "/" + checkpoints;
    config.plan_digest = std::string(64, 'b');
    return ToProto(config);
  }
  // Waits until a step from `step` on is reported.
  void AwaitStep(int64_t step) {
    Await([&] {
      Status();
      return !losses_.empty() && losses_.rbegin()->first >= step;
    });
  }
  std::map<int64_t, double> TakeLosses() { return std::exchange(losses_, {}); }
};

TEST_F(OnlyRankTest, AStoppedRankIsKilledAndTheNextOneGoesOnWithTheSameLosses) {
  Open("lynx-rank");
  Run(Assignment(1, "checkpoints"));
  AwaitStep(25);
  Await([this] { return Told().has_value() && Told()->made > 0; });
  const auto pid = static_cast<pid_t>(Status().pid());
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED | WNOWAIT), 0);
  supervisor_->Step();
  // The rank may have been stopped while it wrote a checkpoint. Then it may show no progress for longer.
  const int64_t quiet = Told()->quiet.value;
  ExpectKilledAfter(kLimitSeconds + static_cast<int>((quiet + kSecond.value - 1) / kSecond.value));
  const std::map<int64_t, double> before = TakeLosses();
  const int64_t reached = before.rbegin()->first;

  Run(Assignment(2, "checkpoints"));
  AwaitStep(reached + 20);
  const std::map<int64_t, double> after = TakeLosses();
  EXPECT_GT(after.begin()->first, 0) << "it goes on from a checkpoint";
  EXPECT_LE(after.begin()->first, reached + 1);

  Run(Assignment(3, "undisturbed"));
  AwaitStep(after.rbegin()->first);
  const std::map<int64_t, double> undisturbed = TakeLosses();
  EXPECT_EQ(undisturbed.begin()->first, 0);
  for (const auto& losses : {before, after}) {
    for (const auto& [step, loss] : losses) EXPECT_EQ(loss, undisturbed.at(step)) << "step " << step;
  }
}

}  // namespace
}  // namespace lynx::worker
