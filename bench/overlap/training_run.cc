#include "bench/overlap/training_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "node/process.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/peer_proof.h"
#include "worker/contract/rank_config.h"

namespace lynx::bench {
namespace {

struct RankProcess {
  std::string name;  // path of the rank's files, without extension
  UniqueFd socket;
  int32_t port = 0;
  Child child;
};

std::string LastLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

// `secret`: the connection secret, the same for all ranks of the run.
RankConfig ConfigOf(const JobSpec& spec, const Plan& plan, int32_t rank, const std::vector<PeerAddress>& peers,
                    const std::string& secret, const RankNetwork& network, const RunSettings& settings) {
  const int32_t stage = CoordinatesOf(plan.layout, rank).stage;
  const StagePlan& part = plan.stages[static_cast<size_t>(stage)];
  std::vector<int32_t> cores;
  for (int32_t i = 0; i < settings.cores_per_rank; ++i) {
    cores.push_back(settings.cores[static_cast<size_t>(rank * settings.cores_per_rank + i) % settings.cores.size()]);
  }
  return {.job = JobId(spec.name),
          .generation = Generation(1),
          .rank = rank,
          .spec = spec,
          .context = plan.ContextOf(stage),
          .program = part.program,
          .arena = part.arena,
          .plan_digest = plan.digest,
          .peers = peers,
          .connection_secret = secret,
          .checkpoint_directory = settings.folder + "/checkpoint",
          .device = settings.device,
          .threads = settings.cores_per_rank,
          .cores = cores,
          .pacing_bytes_per_second = network.pacing_bytes_per_second()};
}

absl::Status Start(const RunSettings& settings, const RankConfig& config, RankProcess& process) {
  const std::string config_file = process.name + ".json", report_file = process.name + ".report";
  std::ofstream(config_file) << RankConfigText(config);
  const UniqueFd log(::open((process.name + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  LYNX_ASSIGN_OR_RETURN(process.child,
                        SpawnInSession({settings.rank_binary, "--config", config_file, "--listen-fd", absl::StrCat(kPassedFd),
                                        "--report-file", report_file},
                                       {.in = -1, .out = log.get(), .error = log.get(), .passed = process.socket.get()}));
  process.socket.Reset();
  return absl::OkStatus();
}

// What the rank has reported until now.
absl::StatusOr<std::vector<RankReport>> ReportsOf(const RankProcess& process) {
  std::ifstream file(process.name + ".report");
  std::vector<RankReport> reports;
  for (std::string line; std::getline(file, line) && !file.eof();) {  // the rank may be writing a line without its end
    LYNX_ASSIGN_OR_RETURN(RankReport report, ParseRankReport(line));
    reports.push_back(std::move(report));
  }
  return reports;
}

absl::Status FailureOf(const RankProcess& process, const std::optional<ExitStatus>& status) {
  const std::string how = absl::StrCat(process.name, ": ", status ? ExitText(*status) : "lost", ": ");
  LYNX_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, ReportsOf(process));
  const auto* failure = reports.empty() ? nullptr : std::get_if<RankFailure>(&reports.back());
  if (failure == nullptr) return absl::InternalError(how + LastLineOf(process.name + ".log"));
  return failure->cause == FaultCause::kMemory ? absl::ResourceExhaustedError(how + failure->reason)
                                               : absl::InternalError(how + failure->reason);
}

// Waits until the process has ended, at most for `wait`. OK: the process has done all its steps. DeadlineExceeded: it has not
// ended.
absl::Status AwaitEnd(const RankProcess& process, std::chrono::milliseconds wait) {
  pollfd ends{process.child.pidfd.get(), POLLIN, 0};
  ::poll(&ends, 1, static_cast<int>(wait.count()));
  if (!HasEnded(process.child.pidfd)) return absl::DeadlineExceededError(absl::StrCat(process.name, ": not done in time"));
  const std::optional<ExitStatus> status = ReapChild(process.child.pidfd);
  return status && *status == ExitStatus{} ? absl::OkStatus() : FailureOf(process, status);
}

std::chrono::milliseconds LeftUntil(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

// Waits until the rank has done settings.stop_after steps. OK also if the time is over and the rank has done more than the
// warm-up steps.
absl::Status AwaitSteps(const RankProcess& process, const RunSettings& settings, std::chrono::steady_clock::time_point end) {
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  for (;;) {
    const std::chrono::milliseconds left = LeftUntil(end);
    const absl::Status ended = AwaitEnd(process, std::min(left, kBetweenLooks));
    if (!absl::IsDeadlineExceeded(ended)) {
      return ended.ok() ? absl::InternalError(absl::StrCat(process.name, ": ended before it was stopped")) : ended;
    }
    LYNX_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, ReportsOf(process));
    const int64_t steps = std::count_if(reports.begin(), reports.end(),
                                        [](const RankReport& report) { return std::holds_alternative<StepReport>(report); });
    if (steps >= settings.stop_after) return absl::OkStatus();
    if (left.count() == 0) return steps > settings.warmup_steps ? absl::OkStatus() : ended;
  }
}

// Kills the ranks that still run, and waits until they have ended, so that their devices are free again.
void KillAll(const std::vector<RankProcess>& processes) {
  for (const RankProcess& process : processes) {
    if (process.child.pid != 0) SignalProcess(process.child.pidfd, SIGKILL);
  }
  for (const RankProcess& process : processes) {
    if (process.child.pid == 0) continue;
    pollfd ends{process.child.pidfd.get(), POLLIN, 0};
    ::poll(&ends, 1, -1);
    ReapChild(process.child.pidfd);
  }
}

absl::Status Collect(const RankProcess& process, const RunSettings& settings, TrainingRun& run) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, ReportsOf(process));
  RankReady& ready = run.ready.emplace_back();
  std::vector<StepReport>& steps = run.steps.emplace_back();
  for (const RankReport& report : reports) {
    if (const auto* is_ready = std::get_if<RankReady>(&report)) ready = *is_ready;
    const auto* step = std::get_if<StepReport>(&report);
    const bool counts = step != nullptr && step->step >= settings.warmup_steps;
    if (counts && (settings.stop_after == 0 || step->step < settings.stop_after)) steps.push_back(*step);
  }
  return absl::OkStatus();
}

absl::Status Listen(const RankNetwork& network, int32_t rank, RankProcess& process) {
  return network.InPlace(rank, [&]() -> absl::Status {
    LYNX_ASSIGN_OR_RETURN(const worker::ListeningSocket socket, worker::ListenTcp(network.HostOf(rank)));
    process.socket = UniqueFd(socket.fd);
    process.port = socket.port;
    return absl::OkStatus();
  });
}

}  // namespace

ProcessorTime ProcessorTimeNow() {
  ProcessorTime now;
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, io = 0, irq = 0, soft = 0, stolen = 0;
  stat >> cpu >> user >> nice >> system >> idle >> io >> irq >> soft >> stolen;
  now.machine = (user + nice + system + irq + soft + stolen) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const int who : {RUSAGE_CHILDREN, RUSAGE_SELF}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& part : {usage.ru_utime, usage.ru_stime}) {
      now.own += static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
    }
  }
  return now;
}

ForeignLoad::ForeignLoad() : before_(ProcessorTimeNow()), begin_(std::chrono::steady_clock::now()) {}

double ForeignLoad::Share() const {
  const ProcessorTime after = ProcessorTimeNow();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const double foreign = (after.machine - before_.machine) - (after.own - before_.own);
  return std::max(0.0, foreign / (seconds * static_cast<double>(std::thread::hardware_concurrency())));
}

absl::StatusOr<TrainingRun> Train(const JobSpec& spec, const Plan& plan, const RankNetwork& network,
                                  const RunSettings& settings) {
  std::error_code ignored;  // the folder may not exist
  std::filesystem::remove_all(settings.folder + "/checkpoint", ignored);
  std::filesystem::create_directories(settings.folder + "/checkpoint");
  const ForeignLoad foreign;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RankProcess> processes(static_cast<size_t>(plan.layout.ranks()));
  std::vector<PeerAddress> peers;
  for (int32_t rank = 0; rank < plan.layout.ranks(); ++rank) {
    RankProcess& process = processes[static_cast<size_t>(rank)];
    process.name = absl::StrCat(settings.folder, "/rank", rank);
    std::filesystem::remove(process.name + ".report", ignored);
    LYNX_RETURN_IF_ERROR(Listen(network, rank, process));
    peers.push_back({network.HostOf(rank), process.port});
  }
  const std::string secret = worker::NewConnectionSecret();
  absl::Status status;
  for (int32_t rank = 0; rank < plan.layout.ranks() && status.ok(); ++rank) {
    const RankConfig config = ConfigOf(spec, plan, rank, peers, secret, network, settings);
    status = network.InPlace(rank, [&] { return Start(settings, config, processes[static_cast<size_t>(rank)]); });
  }
  const auto end = begin + std::chrono::nanoseconds(settings.limit.value);
  for (const RankProcess& process : processes) {
    if (status.ok()) status = settings.stop_after > 0 ? AwaitSteps(process, settings, end) : AwaitEnd(process, LeftUntil(end));
  }
  if (!status.ok() || settings.stop_after > 0) KillAll(processes);
  LYNX_RETURN_IF_ERROR(status);
  TrainingRun run;
  for (const RankProcess& process : processes) LYNX_RETURN_IF_ERROR(Collect(process, settings, run));
  run.foreign_share = foreign.Share();
  return run;
}

}  // namespace lynx::bench
