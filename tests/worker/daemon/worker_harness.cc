#include "tests/worker/daemon/worker_harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "node/file.h"
#include "proto/convert.h"

namespace lynx::worker {
namespace {

constexpr std::chrono::seconds kPatience{30};

// Kills and reaps all children of this process, including adopted ones, until there is no child left.
void KillChildren() {
  while (::waitpid(-1, nullptr, WNOHANG) >= 0) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream children(task.path() / "children");
      for (pid_t pid = 0; children >> pid;) ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

v1::RankAssignment MakeAssignment(const std::string& job, int64_t generation, int32_t rank, int32_t ranks) {
  JobSpec spec;
  spec.name = "test";
  spec.model = {.layers = 2, .hidden = 64, .heads = 4, .seq = 32};
  spec.data.path = "/tmp/text";
  spec.train.steps = 100;
  spec.train.global_batch = 4;
  spec.resources = {.min_ranks = ranks, .max_ranks = ranks};
  Normalize(spec);

  v1::RankAssignment assignment;
  assignment.set_job_id(job);
  assignment.set_generation(generation);
  assignment.set_rank(rank);
  assignment.set_device_kind(v1::DEVICE_KIND_CPU);
  assignment.add_cores(0);
  *assignment.mutable_spec() = ToProto(spec);
  *assignment.mutable_layout() = ToProto(ParallelLayout{.tp = ranks, .pp = 1, .dp = 1});
  assignment.set_micro_batch(1);
  assignment.set_microbatches(4);
  assignment.add_slices()->set_end_layer(2);
  assignment.set_program("0F0:e.embed 0OPT");
  assignment.set_arena_bytes(4096);
  assignment.set_plan_digest(std::string(64, 'a'));
  assignment.set_connection_secret(std::string(64, 'c'));
  assignment.set_resume_step(-1);
  assignment.set_checkpoint_directory("/tmp/checkpoints");
  return assignment;
}

void SetPeers(v1::RankAssignment& assignment, int32_t own_port) {
  assignment.clear_peers();
  for (int32_t i = 0; i < assignment.layout().tp(); ++i) {
    v1::PeerAddress& peer = *assignment.add_peers();
    peer.set_host("127.0.0.1");
    peer.set_port(i == assignment.rank() ? own_port : 1000 + i);
  }
}

FakeCluster::FakeCluster() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeCluster::~FakeCluster() {
  EndStream();
  server_->Shutdown(std::chrono::system_clock::now());
}

void FakeCluster::Want(const v1::WorkerDesired& desired) {
  std::lock_guard lock(mutex_);
  desired_ = desired;
  desired_.set_heartbeat_ns(200'000'000);
  ++desired_version_;
  changed_.notify_all();
  ReleaseEnded();
}

void FakeCluster::SetReleases(bool releases) {
  std::lock_guard lock(mutex_);
  releases_ = releases;
  ReleaseEnded();
}

void FakeCluster::ReleaseEnded() {
  if (!releases_) return;
  for (const v1::RankStatus& status : told_.ranks) {
    const auto same = [&](const auto& other) {
      return other.job_id() == status.job_id() && other.generation() == status.generation() && other.rank() == status.rank();
    };
    const auto released = [&](const v1::ReportAck& ack) { return same(ack) && ack.released(); };
    if (status.phase() != v1::RANK_PHASE_EXITED || std::any_of(desired_.ranks().begin(), desired_.ranks().end(), same) ||
        std::any_of(desired_.acks().begin(), desired_.acks().end(), released)) {
      continue;
    }
    v1::ReportAck& ack = *desired_.add_acks();
    ack.set_job_id(status.job_id());
    ack.set_generation(status.generation());
    ack.set_rank(status.rank());
    ack.set_released(true);
    ++desired_version_;
    changed_.notify_all();
  }
}

void FakeCluster::Renew(const v1::LeaseRenewal& terms) {
  std::lock_guard lock(mutex_);
  terms_ = terms;
}

void FakeCluster::StopRenewing() {
  std::lock_guard lock(mutex_);
  terms_.reset();
}

void FakeCluster::EndStream() {
  std::lock_guard lock(mutex_);
  ++end_streams_;
  changed_.notify_all();
}

bool FakeCluster::WaitUntil(const std::string& what, const std::function<bool(const Told&)>& holds) {
  std::unique_lock lock(mutex_);
  const bool held = changed_.wait_for(lock, kPatience, [&] { return holds(told_); });
  EXPECT_TRUE(held) << "waited in vain for: " << what;
  return held;
}

Told FakeCluster::told() {
  std::lock_guard lock(mutex_);
  return told_;
}

void FakeCluster::Record(const v1::WorkerReport& report) {
  std::lock_guard lock(mutex_);
  ++told_.messages;
  told_.largest_message = std::max(told_.largest_message, report.ByteSizeLong());
  told_.boot_id = report.boot_id();
  told_.witness_port = report.witness_port();
  reported_ = report.number();
  for (const v1::RankReport& rank : report.reports()) {
    for (const v1::RankStatus& status : told_.ranks) {
      const bool same =
          status.job_id() == rank.job_id() && status.generation() == rank.generation() && status.rank() == rank.rank();
      if (same && status.phase() == v1::RANK_PHASE_EXITED) told_.end_before_report = true;
    }
    told_.reports.push_back(rank);
    told_.stream_reports.push_back(rank);
  }
  told_.ranks.assign(report.ranks().begin(), report.ranks().end());
  told_.copies_of_jobs.assign(report.copies_of_jobs().begin(), report.copies_of_jobs().end());
  for (const v1::RankLogLines& log : report.logs()) {
    EXPECT_LE(log.lines_size(), 100);
    told_.lines.insert(told_.lines.end(), log.lines().begin(), log.lines().end());
  }
  EXPECT_LE(report.reports_size(), 500);
  changed_.notify_all();
  ReleaseEnded();
}

grpc::Status FakeCluster::AttachWorker(grpc::ServerContext* context,
                                       grpc::ServerReaderWriter<v1::WorkerDesired, v1::WorkerReport>* stream) {
  std::unique_lock lock(mutex_);
  ++told_.attached;
  told_.stream_reports.clear();
  told_.end_before_report = false;
  const int64_t ends = end_streams_;
  int64_t sent_version = 0, renewed = 0;
  bool over = false;
  lock.unlock();
  std::thread reader([&] {
    v1::WorkerReport report;
    while (stream->Read(&report)) Record(report);
    std::lock_guard guard(mutex_);
    over = true;
    changed_.notify_all();
  });
  lock.lock();
  while (!over && end_streams_ == ends) {
    if (desired_version_ > sent_version) {
      const v1::WorkerDesired desired = desired_;
      sent_version = desired_version_;
      lock.unlock();
      stream->Write(desired);
      lock.lock();
      continue;
    }
    if (terms_.has_value() && reported_ > renewed) {
      renewed = reported_;
      v1::WorkerDesired answer;
      *answer.mutable_renewal() = *terms_;
      answer.mutable_renewal()->set_report(renewed);
      answer.mutable_renewal()->set_server_up_ns((BootTime() - began_).value);
      lock.unlock();
      stream->Write(answer);
      lock.lock();
      continue;
    }
    changed_.wait(lock);
  }
  lock.unlock();
  context->TryCancel();
  reader.join();
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream is ended by the test");
}

std::optional<v1::RankStatus> StatusOf(const Told& told, int64_t generation, int32_t rank) {
  for (const v1::RankStatus& status : told.ranks) {
    if (status.generation() == generation && status.rank() == rank) return status;
  }
  return std::nullopt;
}

bool InPhase(const Told& told, int64_t generation, int32_t rank, v1::RankPhase phase) {
  const std::optional<v1::RankStatus> status = StatusOf(told, generation, rank);
  return status.has_value() && status->phase() == phase;
}

bool ProcessLives(pid_t pid) { return IdentifyProcess(pid).has_value(); }

void WorkerTest::SetUp() {
  // If ranks outlive their daemon, they become children of this process, so that this process can end them.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  char pattern[] = "/tmp/lynx-worker-test-XXXXXX";
  folder_ = ::mkdtemp(pattern);
  data_ = folder_ + "/data";
  ::setenv("LYNX_FAKE_RANK", folder_.c_str(), 1);
}

void WorkerTest::TearDown() {
  if (HasFailure()) std::cerr << "---- log of lynx-worker\n" << DaemonLog() << "----\n";
  if (daemon_.has_value()) EndDaemon(SIGKILL);
  KillChildren();
  std::filesystem::remove_all(folder_);
}

void WorkerTest::StartDaemon(const std::vector<std::string>& flags) {
  ASSERT_FALSE(daemon_.has_value());
  UniqueFd log(::open((folder_ + "/daemon.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  std::vector<std::string> argv = {std::string(LYNX_BINARY_DIR) + "/bin/lynx-worker", "--node", "n1", "--data-dir", data_};
  argv.insert(argv.end(), flags.begin(), flags.end());
  if (std::find(flags.begin(), flags.end(), "--server") == flags.end()) {
    argv.insert(argv.end(), {"--server", cluster_.address()});
  }
  if (std::find(flags.begin(), flags.end(), "--copies-dir") == flags.end()) {
    argv.insert(argv.end(), {"--copies-dir", folder_ + "/copies"});
  }
  if (std::find(flags.begin(), flags.end(), "--rank-binary") == flags.end()) {
    argv.insert(argv.end(), {"--rank-binary", std::string(LYNX_BINARY_DIR) + "/bin/fake_rank"});
  }
  absl::StatusOr<Child> child = SpawnInSession(argv, {.out = log.get(), .error = log.get()});
  ASSERT_TRUE(child.ok()) << child.status();
  daemon_ = *std::move(child);
}

ExitStatus WorkerTest::WaitForDaemon() {
  pollfd fd{.fd = daemon_->pidfd.get(), .events = POLLIN, .revents = 0};
  const std::chrono::milliseconds patience = kPatience;
  EXPECT_EQ(::poll(&fd, 1, static_cast<int>(patience.count())), 1) << "lynx-worker did not end";
  const ExitStatus exit = ReapChild(daemon_->pidfd).value_or(ExitStatus{.code = -1});
  daemon_.reset();
  return exit;
}

ExitStatus WorkerTest::EndDaemon(int signal) {
  SignalProcess(daemon_->pidfd, signal);
  return WaitForDaemon();
}

std::string WorkerTest::DaemonLog() const {
  const absl::StatusOr<std::string> log = ReadFile(folder_ + "/daemon.log");
  return log.ok() ? *log : "";
}

void WorkerTest::Tell(int32_t rank, const std::string& command) {
  std::ofstream(folder_ + "/rank" + std::to_string(rank), std::ios::app) << command + "\n" << std::flush;
}

std::vector<pid_t> WorkerTest::StartedPids(int32_t rank) const {
  std::ifstream file(folder_ + "/started" + std::to_string(rank));
  std::vector<pid_t> pids;
  pid_t pid = 0;
  int port = 0;
  while (file >> pid >> port) pids.push_back(pid);
  return pids;
}

void WorkerTest::WantOnly(const std::vector<v1::RankAssignment>& assignments, const std::vector<v1::ReportAck>& acks) {
  v1::WorkerDesired desired;
  for (const v1::RankAssignment& assignment : assignments) *desired.add_ranks() = assignment;
  for (const v1::ReportAck& ack : acks) *desired.add_acks() = ack;
  cluster_.Want(desired);
}

pid_t WorkerTest::RunRank(v1::RankAssignment assignment) {
  const int64_t generation = assignment.generation();
  const int32_t rank = assignment.rank();
  WantOnly({assignment});
  cluster_.WaitUntil("LISTENING", [&](const Told& told) { return InPhase(told, generation, rank, v1::RANK_PHASE_LISTENING); });
  SetPeers(assignment, StatusOf(cluster_.told(), generation, rank)->port());
  WantOnly({assignment});
  cluster_.WaitUntil("RUNNING", [&](const Told& told) { return InPhase(told, generation, rank, v1::RANK_PHASE_RUNNING); });
  return static_cast<pid_t>(StatusOf(cluster_.told(), generation, rank)->pid());
}

}  // namespace lynx::worker
