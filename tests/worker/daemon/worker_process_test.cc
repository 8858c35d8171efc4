// Tests lynx-worker as a process: how it starts, watches and ends ranks.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "node/file.h"
#include "tests/node/http_get.h"
#include "tests/worker/daemon/worker_harness.h"
#include "worker/contract/rank_config.h"

namespace lynx::worker {
namespace {

using Sequences = std::vector<int64_t>;

Sequences SequencesOf(const std::vector<v1::RankReport>& reports) {
  Sequences sequences;
  for (const v1::RankReport& report : reports) sequences.push_back(report.sequence());
  return sequences;
}

TEST_F(WorkerTest, RunsARankFromItsAssignmentToItsEnd) {
  StartDaemon({"--link-rate", "1Gbit"});
  v1::RankAssignment assignment = MakeAssignment("j1", 1, 0);
  assignment.add_cores(1);
  const pid_t pid = RunRank(assignment);
  EXPECT_TRUE(ProcessLives(pid));

  for (const char* command : {"ready", "step 0", "step 1", "done 2", "exit 0"}) Tell(0, command);
  ASSERT_TRUE(cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); }));
  Told told = cluster_.told();
  const v1::RankStatus status = *StatusOf(told, 1, 0);
  EXPECT_EQ(status.exit_code(), 0) << status.reason();
  EXPECT_EQ(status.reason(), "");
  EXPECT_EQ(status.pid(), pid);
  ASSERT_EQ(SequencesOf(told.reports), (Sequences{1, 2, 3, 4}));
  EXPECT_EQ(told.reports[0].ready().backend(), "fake");
  EXPECT_EQ(told.reports[2].step().step(), 1);
  EXPECT_EQ(told.reports[3].done().steps(), 2);
  EXPECT_FALSE(told.end_before_report);

  // The configuration that the rank was given is in the rank's folder.
  const std::string folder = data_ + "/ranks/j1.g1.r0";
  const absl::StatusOr<RankConfig> config = ParseRankConfig(*ReadFile(folder + "/config.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->threads, 2);
  EXPECT_EQ(config->cores, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(config->pacing_bytes_per_second, 125'000'000);
  EXPECT_EQ(config->peers[0].port, status.port());
  EXPECT_EQ(config->connection_secret, std::string(64, 'c'));
  EXPECT_EQ(std::filesystem::status(folder + "/config.json").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
      << "it has the secret of the ranks' connections";

  // The server does not want the rank any more, so the daemon forgets the rank. But the rank's files stay.
  WantOnly({});
  cluster_.WaitUntil("forgotten", [](const Told& t) { return t.ranks.empty(); });
  EXPECT_TRUE(std::filesystem::exists(folder + "/report.jsonl"));
  EXPECT_EQ(StartedPids(0), std::vector<pid_t>{pid});
}

// The daemon reports in-memory copies. They outlive the daemon, and are deleted when the server says that their job has ended.
TEST_F(WorkerTest, CopiesOfEndedJobsGoAndOthersStay) {
  const std::string copies = folder_ + "/copies";
  for (const char* job : {"ended", "running"}) {
    ASSERT_TRUE(MakeDirectories(copies + "/" + job).ok());
    ASSERT_TRUE(WriteFileDurably(copies + "/" + job + "/shard", "states").ok());
  }
  StartDaemon({"--copies-limit-mib", "7"});
  const std::vector<std::string> both = {"ended", "running"}, one = {"running"};
  ASSERT_TRUE(cluster_.WaitUntil("told of both", [&](const Told& told) { return told.copies_of_jobs == both; }));
  v1::WorkerDesired desired;
  desired.add_ended_jobs("ended");
  desired.add_ended_jobs("../data");  // no job has this id, so nothing may be deleted for it
  cluster_.Want(desired);
  ASSERT_TRUE(cluster_.WaitUntil("told of one", [&](const Told& told) { return told.copies_of_jobs == one; }));
  EXPECT_FALSE(std::filesystem::exists(copies + "/ended"));
  EXPECT_TRUE(std::filesystem::exists(copies + "/running/shard"));
  EXPECT_TRUE(std::filesystem::exists(data_));

  RunRank(MakeAssignment("j1", 1, 0));
  const absl::StatusOr<RankConfig> config = ParseRankConfig(*ReadFile(data_ + "/ranks/j1.g1.r0/config.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->copies_directory, copies);
  EXPECT_EQ(config->copies_limit, kMiB * 7);
}

TEST_F(WorkerTest, ADaemonThatCannotKeepCopiesGoesWithout) {
  ASSERT_TRUE(WriteFileDurably(folder_ + "/file", "").ok());
  StartDaemon({"--copies-dir", folder_ + "/file"});
  RunRank(MakeAssignment("j1", 1, 0));
  EXPECT_EQ(ParseRankConfig(*ReadFile(data_ + "/ranks/j1.g1.r0/config.json"))->copies_directory, "");
  EXPECT_NE(DaemonLog().find("keeps no copies of ranks' states in memory"), std::string::npos) << DaemonLog();
}

// A rank may be killed because memory ran out, or by somebody. The kernel's counters show which of the two happened.
TEST_F(WorkerTest, ARankThatIsKilledForMemoryIsToldFromOneThatIsKilled) {
  const std::string counter = folder_ + "/memory.events";
  ASSERT_TRUE(WriteFileDurably(counter, "oom 1\noom_kill 4\n").ok());
  StartDaemon({"--oom-counter", counter});
  const auto ended = [](int64_t generation) {
    return [generation](const Told& told) { return InPhase(told, generation, 0, v1::RANK_PHASE_EXITED); };
  };
  kill(RunRank(MakeAssignment("j1", 1, 0)), SIGKILL);
  ASSERT_TRUE(cluster_.WaitUntil("EXITED", ended(1)));
  EXPECT_EQ(StatusOf(cluster_.told(), 1, 0)->cause(), v1::FAULT_CAUSE_UNKNOWN);
  const pid_t second = RunRank(MakeAssignment("j1", 2, 0));
  ASSERT_TRUE(WriteFileDurably(counter, "oom 2\noom_kill 5\n").ok());
  kill(second, SIGKILL);
  ASSERT_TRUE(cluster_.WaitUntil("EXITED", ended(2)));
  const v1::RankStatus status = *StatusOf(cluster_.told(), 2, 0);
  EXPECT_EQ(status.cause(), v1::FAULT_CAUSE_MEMORY);
  EXPECT_NE(status.reason().find("out-of-memory killer"), std::string::npos) << status.reason();
}

TEST_F(WorkerTest, TheRankGetsTheVerySocketThatWasReported) {
  StartDaemon();
  RunRank(MakeAssignment("j1", 1, 0));
  const int port = StatusOf(cluster_.told(), 1, 0)->port();
  // fake_rank listens but never accepts. The kernel makes the connection as long as some process holds the socket.
  const auto connects = [&] {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  };
  EXPECT_TRUE(connects());
  Tell(0, "exit 0");
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  // The daemon does not hold a copy of the socket.
  EXPECT_FALSE(connects());
}

TEST_F(WorkerTest, RunsSeveralRanksAndTellsThemApart) {
  StartDaemon();
  std::vector<v1::RankAssignment> both = {MakeAssignment("j1", 1, 0, 2), MakeAssignment("j1", 1, 1, 2)};
  WantOnly(both);
  cluster_.WaitUntil("two LISTENING", [](const Told& told) {
    return InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING) && InPhase(told, 1, 1, v1::RANK_PHASE_LISTENING);
  });
  for (v1::RankAssignment& assignment : both) {
    SetPeers(assignment, StatusOf(cluster_.told(), 1, assignment.rank())->port());
  }
  WantOnly(both);
  cluster_.WaitUntil("two RUNNING", [](const Told& told) {
    return InPhase(told, 1, 0, v1::RANK_PHASE_RUNNING) && InPhase(told, 1, 1, v1::RANK_PHASE_RUNNING);
  });
  Tell(1, "fail the data file is empty");
  Tell(1, "exit 1");
  Tell(0, "peer-lost rank 1 is gone");
  Tell(0, "exit 3");
  cluster_.WaitUntil("two EXITED", [](const Told& told) {
    return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED) && InPhase(told, 1, 1, v1::RANK_PHASE_EXITED);
  });
  const Told told = cluster_.told();
  EXPECT_EQ(StatusOf(told, 1, 1)->reason(), "the data file is empty");
  EXPECT_EQ(StatusOf(told, 1, 1)->exit_code(), 1);
  EXPECT_FALSE(StatusOf(told, 1, 1)->peer_lost());
  EXPECT_EQ(StatusOf(told, 1, 0)->reason(), "rank 1 is gone");
  EXPECT_EQ(StatusOf(told, 1, 0)->exit_code(), 3);
  EXPECT_TRUE(StatusOf(told, 1, 0)->peer_lost());
}

TEST_F(WorkerTest, AKilledRankIsReportedWithItsSignal) {
  StartDaemon();
  const pid_t pid = RunRank(MakeAssignment("j1", 1, 0));
  ::kill(pid, SIGKILL);
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.exit_code(), 137);
  EXPECT_EQ(status.reason(), "killed by signal 9 (Killed)");
}

TEST_F(WorkerTest, ACrashIsReportedWithTheLastWords) {
  StartDaemon();
  RunRank(MakeAssignment("j1", 1, 0));
  Tell(0, "stderr about to fall");
  Tell(0, "crash");
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.exit_code(), 139);
  EXPECT_NE(status.reason().find("about to fall"), std::string::npos) << status.reason();
  cluster_.WaitUntil("its line", [](const Told& told) { return told.lines == std::vector<std::string>{"about to fall"}; });
}

// The server sends a rank's details only until the rank has started.
TEST_F(WorkerTest, ARankThatIsOnlyNamedGoesOnAndIsNotStartedAgain) {
  StartDaemon();
  const pid_t pid = RunRank(MakeAssignment("j1", 1, 0));
  v1::RankAssignment named;
  named.set_job_id("j1");
  named.set_generation(1);
  WantOnly({named});
  Tell(0, "step 0");
  cluster_.WaitUntil("the step", [](const Told& told) { return !told.reports.empty(); });
  EXPECT_TRUE(ProcessLives(pid));
  Tell(0, "exit 1");
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  WantOnly({named});
  const int messages = cluster_.told().messages;
  cluster_.WaitUntil("two more messages", [=](const Told& told) { return told.messages >= messages + 2; });
  EXPECT_TRUE(InPhase(cluster_.told(), 1, 0, v1::RANK_PHASE_EXITED));
  EXPECT_EQ(StartedPids(0), std::vector<pid_t>{pid});
}

TEST_F(WorkerTest, ARankThatIsNotWantedIsAskedToEnd) {
  StartDaemon();
  const pid_t pid = RunRank(MakeAssignment("j1", 1, 0));
  WantOnly({});
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.ranks.empty(); });
  EXPECT_FALSE(ProcessLives(pid));
  EXPECT_NE(ReadFile(data_ + "/ranks/j1.g1.r0/state.json")->find("was asked to end"), std::string::npos);
}

TEST_F(WorkerTest, ARankThatDoesNotEndIsKilled) {
  StartDaemon({"--stop-grace-ms", "300"});
  const pid_t pid = RunRank(MakeAssignment("j1", 1, 0));
  Tell(0, "ignore-term");
  Tell(0, "step 0");  // when this step is reported, the rank already ignores SIGTERM
  cluster_.WaitUntil("the step", [](const Told& told) { return !told.reports.empty(); });
  WantOnly({});
  cluster_.WaitUntil("forgotten", [](const Told& told) { return told.ranks.empty(); });
  EXPECT_FALSE(ProcessLives(pid));
  EXPECT_NE(ReadFile(data_ + "/ranks/j1.g1.r0/state.json")->find("was killed"), std::string::npos);
}

TEST_F(WorkerTest, ANewGenerationReplacesTheOld) {
  StartDaemon();
  const pid_t first = RunRank(MakeAssignment("j1", 1, 0));
  const pid_t second = RunRank(MakeAssignment("j1", 2, 0));
  EXPECT_NE(first, second);
  cluster_.WaitUntil("only the new one",
                     [](const Told& told) { return told.ranks.size() == 1 && InPhase(told, 2, 0, v1::RANK_PHASE_RUNNING); });
  EXPECT_FALSE(ProcessLives(first));
  EXPECT_TRUE(ProcessLives(second));
}

TEST_F(WorkerTest, AnAssignmentThatMakesNoSenseIsRefusedWithTheField) {
  StartDaemon();
  v1::RankAssignment assignment = MakeAssignment("j1", 1, 0);
  WantOnly({assignment});
  cluster_.WaitUntil("LISTENING", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING); });
  SetPeers(assignment, StatusOf(cluster_.told(), 1, 0)->port());
  assignment.set_plan_digest("no digest");
  WantOnly({assignment});
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_NE(status.reason().find("plan_digest"), std::string::npos) << status.reason();
}

TEST_F(WorkerTest, APathThatIsNotAllowedIsRefusedAsTheJobsFault) {
  const std::string root = folder_ + "/data";
  std::filesystem::create_directory(root);
  StartDaemon({"--data-root", root});
  v1::RankAssignment assignment = MakeAssignment("j1", 1, 0);
  assignment.mutable_spec()->mutable_data()->set_path("/etc/hostname");
  WantOnly({assignment});
  cluster_.WaitUntil("LISTENING", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING); });
  SetPeers(assignment, StatusOf(cluster_.told(), 1, 0)->port());
  WantOnly({assignment});
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const v1::RankStatus status = *StatusOf(cluster_.told(), 1, 0);
  EXPECT_EQ(status.cause(), v1::FAULT_CAUSE_PATH);
  EXPECT_NE(status.reason().find("data.path /etc/hostname is not allowed on this node: jobs may use " + root),
            std::string::npos)
      << status.reason();
  EXPECT_TRUE(StartedPids(0).empty());
}

TEST_F(WorkerTest, AMissingRankBinaryIsSaidAtTheStart) {
  StartDaemon({"--rank-binary", "/no/such/lynx-rank"});
  EXPECT_EQ(WaitForDaemon().code, 1);
  EXPECT_NE(DaemonLog().find("there is no file /no/such/lynx-rank; give the right one with --rank-binary"), std::string::npos)
      << DaemonLog();
}

TEST_F(WorkerTest, ARankBinaryThatVanishesIsTheRanksFailure) {
  const std::string binary = folder_ + "/lynx-rank";
  std::filesystem::copy_file(std::string(LYNX_BINARY_DIR) + "/bin/fake_rank", binary);
  StartDaemon({"--rank-binary", binary});
  v1::RankAssignment assignment = MakeAssignment("j1", 1, 0);
  WantOnly({assignment});
  cluster_.WaitUntil("LISTENING", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_LISTENING); });
  std::filesystem::remove(binary);
  SetPeers(assignment, StatusOf(cluster_.told(), 1, 0)->port());
  WantOnly({assignment});
  cluster_.WaitUntil("EXITED", [](const Told& told) { return InPhase(told, 1, 0, v1::RANK_PHASE_EXITED); });
  const std::string reason = StatusOf(cluster_.told(), 1, 0)->reason();
  EXPECT_NE(reason.find("cannot start " + binary), std::string::npos) << reason;
}

TEST_F(WorkerTest, AnAddressThatIsNotOfThisMachineIsRefusedAtTheStart) {
  StartDaemon({"--address", "192.0.2.1"});
  EXPECT_EQ(WaitForDaemon().code, 1);
  EXPECT_NE(DaemonLog().find("cannot listen on 192.0.2.1 for the daemons of other nodes; check --address"), std::string::npos);
}

TEST_F(WorkerTest, WrongFlagsEndWithCodeTwoAndASentence) {
  StartDaemon({"--log-level", "loud"});
  EXPECT_EQ(WaitForDaemon().code, 2);
  StartDaemon({"--link-rate", "fast"});
  EXPECT_EQ(WaitForDaemon().code, 2);
  StartDaemon({"--adress", "127.0.0.1"});
  EXPECT_EQ(WaitForDaemon().code, 2);
  StartDaemon({"--copies-limit-mib", "-1"});
  EXPECT_EQ(WaitForDaemon().code, 2);
  StartDaemon({"--server", "a:1,b:1,a:1"});
  EXPECT_EQ(WaitForDaemon().code, 2);
  const std::string log = DaemonLog();
  EXPECT_NE(log.find("'loud' is not one of"), std::string::npos) << log;
  EXPECT_NE(log.find("--link-rate: 'fast' is not a rate"), std::string::npos) << log;
  EXPECT_NE(log.find("did you mean --address?"), std::string::npos) << log;
  EXPECT_NE(log.find("--server: \"a:1,b:1,a:1\" does not name servers: part 3 (\"a:1\") is there twice"), std::string::npos)
      << log;
  EXPECT_NE(log.find("--copies-limit-mib -1 is not between 0 and"), std::string::npos) << log;
}

TEST_F(WorkerTest, TwoDaemonsOnOneDataDirectoryAreRefused) {
  StartDaemon();
  cluster_.WaitUntil("attached", [](const Told& told) { return told.messages > 0; });
  std::optional<Child> first = std::exchange(daemon_, std::nullopt);
  StartDaemon();
  EXPECT_EQ(WaitForDaemon().code, 1);
  EXPECT_NE(DaemonLog().find("another lynx-worker uses this data directory"), std::string::npos) << DaemonLog();
  daemon_ = std::move(first);
}

TEST_F(WorkerTest, ServesItsMetrics) {
  StartDaemon({"--metrics-address", "127.0.0.1:0", "--rank-metrics"});
  RunRank(MakeAssignment("j1", 1, 0));
  for (const char* command : {"step 0", "step 1"}) Tell(0, command);
  cluster_.WaitUntil("two steps", [](const Told& told) { return told.reports.size() == 2; });
  const std::string log = DaemonLog();
  const std::string mark = "metrics on port ";
  ASSERT_NE(log.find(mark), std::string::npos) << log;
  const std::string page = HttpGet(std::stoi(log.substr(log.find(mark) + mark.size())), "/metrics");
  EXPECT_NE(page.find("lynx_rank_steps_total{job_id=\"j1\",rank=\"0\"} 2"), std::string::npos) << page;
  EXPECT_NE(page.find("lynx_worker_ranks_running 1"), std::string::npos);
  EXPECT_NE(page.find("lynx_worker_attached 1"), std::string::npos);
}

TEST_F(WorkerTest, AMetricsAddressInUseIsSaid) {
  StartDaemon({"--metrics-address", cluster_.address()});
  EXPECT_EQ(WaitForDaemon().code, 1);
  EXPECT_NE(DaemonLog().find("cannot serve metrics on " + cluster_.address()), std::string::npos) << DaemonLog();
}

}  // namespace
}  // namespace lynx::worker
