#include "worker/daemon/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "node/command.h"
#include "node/file.h"
#include "node/log.h"
#include "proto/bounds.h"
#include "proto/convert_report.h"
#include "worker/copies/copies_directory.h"
#include "worker/daemon/rank_launch.h"

namespace lynx::worker {
namespace {

constexpr int kReportsPerMessage = 500;
// When a message has this size, no report is added. The last report may exceed the size, but the message stays far below the
// limit of the protocol.
constexpr size_t kReportBytesPerMessage = 8 << 20;
constexpr size_t kLogLinesPerRank = 100;
constexpr size_t kLogBytesPerMessage = 1 << 20;
constexpr int64_t kLastLineBytes = 4096;
constexpr size_t kReasonBytes = 4096;
constexpr size_t kMaxCopiesTold = 1024;

void Log(const absl::Status& status) {
  if (!status.ok()) LogError("{}", std::string(status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankSupervisor>> RankSupervisor::Open(SupervisorOptions options, const Clock& clock,
                                                                     WorkerMetrics& metrics) {
  LYNX_RETURN_IF_ERROR(MakeDirectories(options.data_directory + "/ranks"));
  absl::StatusOr<UniqueFd> lock = LockFile(options.data_directory + "/lynx-worker.lock");
  if (!lock.ok()) {
    return absl::Status(lock.status().code(),
                        absl::StrCat("another lynx-worker uses this data directory: ", std::string(lock.status().message()),
                                     "; stop it or give another --data-dir"));
  }
  std::unique_ptr<RankSupervisor> supervisor(new RankSupervisor(std::move(options), *std::move(lock), clock, metrics));
  for (const RankKey& key : RanksOnDisk(supervisor->ranks_directory_)) supervisor->Adopt(key);
  supervisor->CountRunning();
  return supervisor;
}

RankSupervisor::RankSupervisor(SupervisorOptions options, UniqueFd lock, const Clock& clock, WorkerMetrics& metrics)
    : options_(std::move(options)), ranks_directory_(options_.data_directory + "/ranks"), lock_(std::move(lock)), clock_(clock),
      metrics_(metrics), oom_kills_(options_.oom_counter) {
  oom_kills_.Look(clock_.Monotonic());
}

RankSupervisor::Rank& RankSupervisor::Insert(const RankKey& key, RankPhase phase) {
  changed_ = true;
  const RankFolder folder = Folder(key);
  auto [at, inserted] =
      ranks_.try_emplace(key, Rank{.phase = phase, .reports = ReportTail(folder.report(), key), .log = LogTail(folder.log())});
  LYNX_CHECK(inserted);
  at->second.record.key = key;
  return at->second;
}

// Finds the process of a rank whose record is damaged, or whose record only says that an earlier daemon was starting it.
std::optional<ProcessIdentity> RankSupervisor::FindStarted(const RankKey& key) const {
  for (const pid_t pid : FindProcessesByArgument(Folder(key).config())) {
    if (std::optional<ProcessIdentity> identity = IdentifyProcess(pid)) return identity;
  }
  return std::nullopt;
}

void RankSupervisor::Adopt(const RankKey& key) {
  absl::StatusOr<StoredRank> record = LoadRecord(Folder(key), key);
  if (absl::IsNotFound(record.status())) return;  // the rank was never started
  if (record.ok() && record->phase == RecordedPhase::kReleased) return;
  if (record.ok() && record->phase == RecordedPhase::kExited) return TakeUpEnded(key);
  if (!record.ok()) {
    Log(record.status());
    record = StoredRank{.key = key};
  }
  std::optional<ProcessIdentity> process = record->process;
  if (record->phase == RecordedPhase::kStarting) process = FindStarted(key);

  Rank& rank = Insert(key, RankPhase::kRunning);
  rank.record = *record;
  rank.log.SkipExisting();
  rank.measured = true;
  metrics_.AddRank(key);
  absl::StatusOr<UniqueFd> pidfd = absl::NotFoundError("");
  if (process.has_value()) pidfd = OpenProcess(*process);
  if (!pidfd.ok()) {
    if (!absl::IsNotFound(pidfd.status())) Log(pidfd.status());
    End(rank, DescribeEnding({.last_report = FinalReport(Folder(key).report()),
                              .last_line = CleanLine(LastLine(FileEnd(Folder(key).log(), kLastLineBytes)))}));
    return;
  }
  rank.record.process = *process;
  rank.record.phase = RecordedPhase::kRunning;
  rank.yield = std::filesystem::exists(Folder(key).yield());
  if (ReadToldProgress(Folder(key).progress()).has_value()) rank.watch.emplace(options_.hang_limit, clock_.Monotonic());
  rank.pidfd = *std::move(pidfd);
  Log(StoreRecord(Folder(key), rank.record));
  LogInfo("{} runs as process {}: taken up again", RankKeyText(key), process->pid);
}

// Adds a rank that ended under an earlier daemon. Called if the server has not released the rank, or still wants it. The
// rank's end is reported again, and the rank is never started a second time.
void RankSupervisor::TakeUpEnded(const RankKey& key) {
  const absl::StatusOr<StoredRank> record = LoadRecord(Folder(key), key);
  if (absl::IsNotFound(record.status())) return;
  Rank& rank = Insert(key, RankPhase::kExited);
  rank.log.SkipExisting();
  if (record.ok()) {
    rank.record = *record;
    return;
  }
  rank.record = {.key = key,
                 .phase = RecordedPhase::kExited,
                 .exit_code = kRankExitFailure,
                 .reason = std::string(record.status().message())};
}

void RankSupervisor::SetDesired(const v1::WorkerDesired& desired) {
  for (const v1::ReportAck& ack : desired.acks()) {
    const auto found = ranks_.find({JobId(ack.job_id()), Generation(ack.generation()), ack.rank()});
    if (found == ranks_.end()) continue;
    found->second.reports.Acknowledge(ack.sequence());
    found->second.released = found->second.released || ack.released();
  }
  RemoveEndedCopies(desired);
  if (stopping_) return;
  wanted_.emplace();
  for (const v1::RankAssignment& assignment : desired.ranks()) {
    const RankKey key = KeyOf(assignment);
    const absl::Status name = CheckName("job_id", key.job.value);
    if (!name.ok()) {
      // The job's name is invalid. It would become a part of the name of the rank's folder, so the assignment is ignored.
      // Nothing can be reported about such a rank.
      LogError("passed over an assignment: {}", std::string(name.message()));
      continue;
    }
    Wanted wanted{.assignment = assignment,
                  .rank = {.key = key, .start = assignment.peers_size() > 0, .yield = assignment.yield()}};
    if (key.rank >= 0 && key.rank < assignment.peers_size()) {
      const v1::PeerAddress& own = assignment.peers(key.rank);
      wanted.rank.address = {own.host(), own.port()};
    }
    if (!ranks_.contains(key)) TakeUpEnded(key);
    wanted_->insert_or_assign(key, std::move(wanted));
  }
}

// Removes the in-memory checkpoints of jobs that have ended or that the server does not know.
void RankSupervisor::RemoveEndedCopies(const v1::WorkerDesired& desired) {
  if (options_.copies_directory.empty()) return;
  for (const std::string& id : desired.ended_jobs()) {
    if (!CheckName("ended_jobs", id).ok()) continue;
    RemoveCopies(options_.copies_directory, JobId(id));
    LogInfo("removed the copies of job {} in memory: it has ended", id);
    changed_ = true;
  }
}

void RankSupervisor::StopAll() {
  stopping_ = true;
  wanted_.emplace();
}

void RankSupervisor::Step() {
  Reap();
  KillHanging();
  ReadTails();
  ReconcileOnce();
}

bool RankSupervisor::AnyRuns() const {
  for (const auto& [key, rank] : ranks_) {
    if (rank.phase == RankPhase::kRunning) return true;
  }
  return false;
}

bool RankSupervisor::Busy() const {
  for (const auto& [key, rank] : ranks_) {
    if (rank.phase == RankPhase::kRunning || !rank.reports.Drained()) return true;
  }
  return false;
}

std::vector<int> RankSupervisor::WatchedFds() const {
  std::vector<int> fds;
  for (const auto& [key, rank] : ranks_) {
    if (rank.pidfd.valid()) fds.push_back(rank.pidfd.get());
  }
  return fds;
}

void RankSupervisor::Reap() {
  oom_kills_.Look(clock_.Monotonic());
  for (auto& [key, rank] : ranks_) {
    if (rank.phase != RankPhase::kRunning || !HasEnded(rank.pidfd)) continue;
    const RankFolder folder = Folder(key);
    End(rank, DescribeEnding({.exit = ReapChild(rank.pidfd),
                              .last_report = FinalReport(folder.report()),
                              .last_line = CleanLine(LastLine(FileEnd(folder.log(), kLastLineBytes))),
                              .oom_kill = oom_kills_.Recent(clock_.Monotonic()),
                              .stop = rank.stop,
                              .hung = rank.hung}));
  }
}

// A rank that hangs cannot end by itself, so it is not asked to.
void RankSupervisor::KillHanging() {
  const Nanos now = clock_.Monotonic();
  for (auto& [key, rank] : ranks_) {
    if (rank.phase != RankPhase::kRunning || !rank.watch.has_value() || rank.hung > Nanos(0)) continue;
    // A disk that does not answer also keeps the rank from telling that it trains on.
    if (WaitsInKernel(rank.record.process.pid)) {
      rank.watch->Excuse(now);
      continue;
    }
    if (!rank.watch->Hangs(ReadToldProgress(Folder(key).progress()), now) || rank.stop != StopStage::kNone) continue;
    rank.hung = rank.watch->still();
    LogError("{} has made no progress for {}: it is killed", RankKeyText(key), FormatDuration(rank.hung));
    SignalProcess(rank.pidfd, SIGKILL);
  }
}

// Records the end of a rank whose process has ended or has never existed.
void RankSupervisor::End(Rank& rank, const RankEnding& ending) {
  rank.phase = RankPhase::kExited;
  rank.pidfd.Reset();
  rank.socket.Reset();
  rank.stop = StopStage::kNone;
  rank.record.phase = RecordedPhase::kExited;
  rank.record.exit_code = ending.exit_code;
  rank.record.reason = CleanLine(ending.reason, kReasonBytes);
  rank.record.peer_lost = ending.peer_lost;
  rank.record.cause = ending.cause;
  Log(StoreRecord(Folder(rank.record.key), rank.record));
  metrics_.CountExit(ending.outcome);
  CountRunning();
  changed_ = true;
  if (ending.outcome == RankOutcome::kDone || ending.outcome == RankOutcome::kStopped) {
    LogInfo("{} has ended: {}", RankKeyText(rank.record.key), RankOutcomeName(ending.outcome));
  } else {
    LogWarn("{} has ended: {}", RankKeyText(rank.record.key), rank.record.reason);
  }
}

void RankSupervisor::CountRunning() {
  int running = 0;
  for (const auto& [key, rank] : ranks_) running += rank.phase == RankPhase::kRunning ? 1 : 0;
  metrics_.SetRanksRunning(running);
}

void RankSupervisor::ReadTails(Rank& rank) {
  for (const RankReport& report : rank.reports.Read()) {
    const auto* step = std::get_if<StepReport>(&report);
    if (step != nullptr && rank.measured) metrics_.Observe(rank.record.key, *step);
  }
  if (rank.phase == RankPhase::kExited) {
    rank.log.Finish();
  } else {
    rank.log.Read();
  }
}

void RankSupervisor::ReadTails() {
  for (auto& [key, rank] : ranks_) {
    if (rank.phase != RankPhase::kListening) ReadTails(rank);
  }
}

void RankSupervisor::ReconcileOnce() {
  if (!wanted_.has_value()) return;
  std::vector<DesiredRank> desired;
  for (const auto& [key, wanted] : *wanted_) desired.push_back(wanted.rank);
  std::vector<ActualRank> actual;
  for (const auto& [key, rank] : ranks_) {
    actual.push_back({.key = key,
                      .phase = rank.phase,
                      .address = rank.record.address,
                      .stop = rank.stop,
                      .asked_at = rank.asked_at,
                      .yield = rank.yield,
                      .released = rank.released});
  }
  for (const RankOperation& operation : Reconcile(desired, actual, clock_.Monotonic(), options_.grace)) {
    Execute(operation);
  }
}

void RankSupervisor::Execute(const RankOperation& operation) {
  changed_ = true;
  switch (operation.kind) {
    case SupervisorActionKind::kListen: return Listen(operation.key);
    case SupervisorActionKind::kStart: return Start(operation.key);
    case SupervisorActionKind::kRefuse: return Refuse(operation.key, operation.reason);
    case SupervisorActionKind::kAskToYield: return SetYield(ranks_.at(operation.key), true);
    case SupervisorActionKind::kTakeYieldBack: return SetYield(ranks_.at(operation.key), false);
    case SupervisorActionKind::kTerminate: return Signal(ranks_.at(operation.key), StopStage::kAsked);
    case SupervisorActionKind::kKill: return Signal(ranks_.at(operation.key), StopStage::kKilled);
    case SupervisorActionKind::kForget: return Forget(operation.key);
  }
}

void RankSupervisor::Listen(const RankKey& key) {
  const absl::StatusOr<ListeningSocket> socket = ListenTcp(options_.address);
  if (!socket.ok()) return Refuse(key, std::string(socket.status().message()));
  Rank& rank = Insert(key, RankPhase::kListening);
  rank.socket = UniqueFd(socket->fd);
  rank.record.address = {options_.address, socket->port};
  LogInfo("{} will listen on {}:{}", RankKeyText(key), options_.address, socket->port);
}

void RankSupervisor::Start(const RankKey& key) {
  Rank& rank = ranks_.at(key);
  const RankFolder folder = Folder(key);
  absl::StatusOr<RankConfig> config = ConfigFor(wanted_->at(key).assignment, options_.pacing_bytes_per_second);
  if (!config.ok()) return Refuse(key, std::string(config.status().message()));
  if (const absl::Status allowed = CheckPaths(options_.allowed, *config); !allowed.ok()) {
    return Refuse(key, std::string(allowed.message()),
                  absl::IsPermissionDenied(allowed) ? FaultCause::kPath : FaultCause::kUnknown);
  }
  config->copies_directory = options_.copies_directory;
  config->copies_limit = options_.copies_limit;
  absl::StatusOr<LaunchedRank> launched =
      LaunchRank(folder, *config, rank.record.address, rank.socket.get(),
                 {.binary = options_.rank_binary, .lease_file = options_.lease_file(), .user = options_.user});
  if (!launched.ok()) {
    const bool disk = absl::IsResourceExhausted(launched.status()) || absl::IsDataLoss(launched.status());
    return Refuse(key, std::string(launched.status().message()), disk ? FaultCause::kDisk : FaultCause::kUnknown);
  }
  rank.phase = RankPhase::kRunning;
  rank.record = std::move(launched->record);
  rank.pidfd = std::move(launched->child.pidfd);
  rank.socket.Reset();
  if (IsAlone(*config)) rank.watch.emplace(options_.hang_limit, clock_.Monotonic());
  rank.measured = true;
  metrics_.AddRank(key);
  CountRunning();
  LogInfo("{} runs as process {}", RankKeyText(key), launched->child.pid);
}

void RankSupervisor::Refuse(const RankKey& key, const std::string& reason, FaultCause cause) {
  const auto found = ranks_.find(key);
  Rank& rank = found != ranks_.end() ? found->second : Insert(key, RankPhase::kListening);
  if (!MakeDirectories(Folder(key).path).ok()) LogWarn("cannot keep a record of {}", RankKeyText(key));
  End(rank, {.exit_code = kRankExitFailure, .reason = reason, .outcome = RankOutcome::kFailed, .cause = cause});
}

void RankSupervisor::Signal(Rank& rank, StopStage stage) {
  rank.stop = stage;
  rank.asked_at = clock_.Monotonic();
  const bool kill = stage == StopStage::kKilled;
  LogInfo("{} is {}", RankKeyText(rank.record.key), kill ? "killed: it did not end in time" : "asked to end");
  SignalProcess(rank.pidfd, kill ? SIGKILL : SIGTERM);
}

// Creates or removes the file that asks the rank to give way. If this fails, the supervisor's next round tries again.
void RankSupervisor::SetYield(Rank& rank, bool yield) {
  const std::string path = Folder(rank.record.key).yield();
  std::error_code failure;
  const absl::Status status = yield ? WriteFileDurably(path, "") : absl::OkStatus();
  if (!yield) std::filesystem::remove(path, failure);
  if (!status.ok() || failure) {
    return LogError("cannot change {}: {}", path, failure ? failure.message() : std::string(status.message()));
  }
  rank.yield = yield;
  LogInfo("{} is {}", RankKeyText(rank.record.key),
          yield ? "asked to give way when a step is done" : "no longer asked to give way");
}

void RankSupervisor::Forget(const RankKey& key) {
  Rank& rank = ranks_.at(key);
  if (rank.measured) metrics_.RemoveRank(key);
  if (rank.phase == RankPhase::kExited) {
    rank.record.phase = RecordedPhase::kReleased;
    Log(StoreRecord(Folder(key), rank.record));
  }
  ranks_.erase(key);
  std::set<RankKey> kept;
  for (const auto& [other, rank] : ranks_) kept.insert(other);
  PruneRankFolders(ranks_directory_, kept, options_.kept_folders);
}

void RankSupervisor::Rewind() {
  for (auto& [key, rank] : ranks_) rank.reports.Rewind();
}

bool RankSupervisor::HasNews() const {
  if (changed_) return true;
  for (const auto& [key, rank] : ranks_) {
    if (rank.reports.HasNext() || rank.log.HasLines()) return true;
    if (rank.phase == RankPhase::kExited && !rank.end_reported && rank.reports.Drained()) return true;
  }
  return false;
}

void RankSupervisor::Fill(v1::WorkerReport& report) {
  changed_ = false;
  const std::vector<JobId> copies = JobsWithCopies(options_.copies_directory);
  for (size_t i = 0; i < std::min(copies.size(), kMaxCopiesTold); ++i) report.add_copies_of_jobs(copies[i].value);
  size_t report_bytes = 0, log_bytes = 0;
  for (auto& [key, rank] : ranks_) {
    FillReports(key, rank, report, report_bytes);
    if (log_bytes < kLogBytesPerMessage && rank.log.HasLines()) {
      v1::RankLogLines& log = *report.add_logs();
      log.set_job_id(key.job.value);
      log.set_generation(key.generation.value);
      log.set_rank(key.rank);
      for (std::string& line : rank.log.Take(kLogLinesPerRank)) {
        log_bytes += line.size();
        log.add_lines(std::move(line));
      }
    }
    // FillStatus comes after FillReports, because the server must not learn that the rank has ended before it has the rank's
    // last report.
    FillStatus(key, rank, *report.add_ranks());
  }
}

void RankSupervisor::FillReports(const RankKey& key, Rank& rank, v1::WorkerReport& report, size_t& report_bytes) const {
  while (report.reports_size() < kReportsPerMessage && report_bytes < kReportBytesPerMessage) {
    const NumberedReport* next = rank.reports.Next();
    if (next == nullptr) return;
    v1::RankReport& message = *report.add_reports();
    message.set_job_id(key.job.value);
    message.set_generation(key.generation.value);
    message.set_rank(key.rank);
    message.set_sequence(next->sequence);
    SetReport(next->report, message);
    report_bytes += message.ByteSizeLong();
  }
}

void RankSupervisor::FillStatus(const RankKey& key, Rank& rank, v1::RankStatus& status) const {
  status.set_job_id(key.job.value);
  status.set_generation(key.generation.value);
  status.set_rank(key.rank);
  status.set_host(rank.record.address.host);
  status.set_port(rank.record.address.port);
  status.set_pid(rank.record.process.pid);
  if (rank.phase == RankPhase::kListening) {
    status.set_phase(v1::RANK_PHASE_LISTENING);
  } else if (rank.phase == RankPhase::kRunning || (!rank.end_reported && !rank.reports.Drained())) {
    status.set_phase(v1::RANK_PHASE_RUNNING);
  } else {
    rank.end_reported = true;
    status.set_phase(v1::RANK_PHASE_EXITED);
    status.set_exit_code(rank.record.exit_code);
    status.set_reason(rank.record.reason);
    status.set_peer_lost(rank.record.peer_lost);
    status.set_cause(static_cast<v1::FaultCause>(rank.record.cause));
  }
}

}  // namespace lynx::worker
