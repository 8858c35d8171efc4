#include "worker/daemon/rank_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "node/file.h"
#include "proto/convert_worker.h"

namespace lynx::worker {
namespace {

// Makes the user the owner of the file. Creates the file first if it does not exist, because the user may not create files in
// the daemon's folder.
absl::Status GiveFile(const std::string& path, const JobUser& user) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.valid() && ::fchown(file.get(), user.user, user.group) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot give ", path, " to user ", user.user, ": ", std::string(::strerror(errno))));
}

absl::StatusOr<Child> Spawn(const RankFolder& folder, bool alone, int socket, const RankProgram& program) {
  const UniqueFd log(::open(folder.log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) {
    return absl::InternalError(absl::StrCat("cannot create ", folder.log(), ": ", std::string(::strerror(errno))));
  }
  std::vector<std::string> arguments = {program.binary,          "--config",      folder.config(),   "--listen-fd",
                                        absl::StrCat(kPassedFd), "--report-file", folder.report(),   "--yield-file",
                                        folder.yield(),          "--lease-file",  program.lease_file};
  std::vector<std::string> given = {folder.config(), folder.report()};
  if (alone) {
    arguments.insert(arguments.end(), {"--progress-file", folder.progress()});
    given.push_back(folder.progress());
  }
  if (program.user.user != 0) {
    for (const std::string& path : given) LYNX_RETURN_IF_ERROR(GiveFile(path, program.user));
    arguments.insert(arguments.end(), {"--run-as", RightsText(program.user)});
  }
  return SpawnInSession(arguments, {.out = log.get(), .error = log.get(), .passed = socket});
}

}  // namespace

RankKey KeyOf(const v1::RankAssignment& assignment) {
  return {JobId(assignment.job_id()), Generation(assignment.generation()), assignment.rank()};
}

absl::StatusOr<RankConfig> ConfigFor(const v1::RankAssignment& assignment, int64_t pacing_bytes_per_second) {
  LYNX_ASSIGN_OR_RETURN(RankConfig config, RankConfigFromProto(assignment));
  if (config.peers.empty()) return absl::InvalidArgumentError("assignment.peers is empty");
  if (config.checkpoint_directory.empty()) {
    return absl::InvalidArgumentError("assignment.checkpoint_directory is empty; the server must give one");
  }
  config.threads = std::max<int32_t>(1, static_cast<int32_t>(config.cores.size()));
  config.pacing_bytes_per_second = pacing_bytes_per_second;
  return config;
}

bool IsAlone(const RankConfig& config) { return config.peers.size() == 1; }

absl::StatusOr<LaunchedRank> LaunchRank(const RankFolder& folder, const RankConfig& config, const PeerAddress& address,
                                        int socket, const RankProgram& program) {
  LaunchedRank launched;
  launched.record = {
      .key = {config.job, config.generation, config.rank}, .phase = RecordedPhase::kStarting, .address = address};
  LYNX_RETURN_IF_ERROR(MakeDirectories(folder.path));
  LYNX_RETURN_IF_ERROR(WriteFileDurably(folder.config(), RankConfigText(config), 0600));
  // The record is stored before the process starts. If the daemon is restarted after this point, it looks for the process by
  // the process's arguments.
  LYNX_RETURN_IF_ERROR(StoreRecord(folder, launched.record));
  LYNX_ASSIGN_OR_RETURN(launched.child, Spawn(folder, IsAlone(config), socket, program));
  launched.record.phase = RecordedPhase::kRunning;
  launched.record.process.pid = launched.child.pid;
  // IdentifyProcess returns nullopt if the process has already ended. The caller then notices the end by the process's pidfd.
  if (const std::optional<ProcessIdentity> identity = IdentifyProcess(launched.child.pid)) {
    launched.record.process = *identity;
  }
  const absl::Status stored = StoreRecord(folder, launched.record);
  if (!stored.ok()) {
    SignalProcess(launched.child.pidfd, SIGKILL);
    ::waitpid(launched.child.pid, nullptr, 0);
    return stored;
  }
  return launched;
}

}  // namespace lynx::worker
