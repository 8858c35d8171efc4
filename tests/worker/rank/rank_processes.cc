#include "tests/worker/rank/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/cost/cost_model.h"
#include "planner/lower/lower.h"
#include "planner/lower/weave.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(60);
const char* const kFaultyBinary = LYNX_BINARY_DIR "/bin/faulty_rank";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Starts the binary, with stdout and stderr in files. The descriptor `keep_fd` stays open in it; -1: none stays open.
pid_t Spawn(const char* binary, const std::vector<std::string>& arguments, const std::string& out, const std::string& err,
            int keep_fd) {
  std::vector<char*> argv = {const_cast<char*>(binary)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  LYNX_CHECK(pid >= 0);
  if (pid > 0) return pid;
  if (keep_fd >= 0) fcntl(keep_fd, F_SETFD, 0);
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
  execv(binary, argv.data());
  _exit(127);
}

// Returns false if the process still runs. Otherwise sets `exit_code`: kKilled if a signal ended the process.
bool Ended(pid_t pid, int& exit_code) {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, WNOHANG);
  LYNX_CHECK(ended >= 0);
  if (ended == 0) return false;
  exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : RankProcesses::kKilled;
  return true;
}

int AwaitExit(pid_t pid) {
  const steady_clock::time_point deadline = steady_clock::now() + kPatience;
  int exit_code = RankProcesses::kKilled;
  while (!Ended(pid, exit_code)) {
    if (steady_clock::now() > deadline) {
      ADD_FAILURE() << "process " << pid << " does not end";
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      return RankProcesses::kKilled;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return exit_code;
}

}  // namespace

ModelSpec SmallGpt() { return {.layers = 4, .hidden = 16, .heads = 4, .ffn = 32, .seq = 8, .vocab = 256, .dropout = 0.1}; }

ModelSpec SmallMoe() {
  ModelSpec model = SmallGpt();
  model.family = ModelFamily::kLlama;
  model.dropout = 0;
  model.moe = {.experts = 8, .top_k = 2, .ffn = 12, .capacity = 4};
  return model;
}

RankConfig SmallConfig(const TestFolder& folder, int64_t steps, int32_t stage, const ParallelLayout& layout,
                       const ModelSpec& model) {
  RankConfig config;
  config.job = JobId("small");
  config.spec.name = "small";
  config.spec.model = model;
  config.spec.train.steps = steps;
  config.spec.train.global_batch = 4;
  config.spec.train.micro_batch = 1;
  std::string text;
  for (int i = 0; i < 400; ++i) absl::StrAppend(&text, i * i, " ");
  config.spec.data = {.kind = DataKind::kText, .path = folder.Write("text", text)};
  const int32_t layers = config.spec.model.layers / layout.pp;
  config.context = {.model = config.spec.model,
                    .layout = layout,
                    .micro_batch = 1,
                    .microbatches = 4 / layout.dp,
                    .pipeline_rank = stage,
                    .slices = {SliceOf(layout, stage, layers * stage, layers * (stage + 1))}};
  const CostModel costs(StatedCpuProfile(), config.spec.model, layout, config.context.micro_batch, layout.ranks());
  const Program program = LowerStage(config.context, NamedPolicy(config.context.graph(), RecomputeMode::kFull, layers));
  config.program = Weave(program, config.context, costs).program;
  config.arena = PlanMemory(config.program, config.context)->arena;
  config.connection_secret = std::string(64, 'a');
  config.checkpoint_directory = folder.path() + "/checkpoints";
  config.spec.checkpoint.directory = config.checkpoint_directory;
  return config;
}

std::vector<RankConfig> Configs(const TestFolder& folder, int64_t steps, const std::function<void(RankConfig&)>& change,
                                const ParallelLayout& layout, const ModelSpec& model) {
  std::vector<RankConfig> configs;
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    configs.push_back(SmallConfig(folder, steps, stage, layout, model));
    if (change != nullptr) change(configs.back());
  }
  return configs;
}

std::string DirectoryForShortNames(const TestFolder& folder) {
  constexpr size_t kMaxPath = 4095;
  const std::string longest = "/.step-00000003.small.g1/shard-0000-0000.safetensors";
  std::string path = folder.path();
  while (path.size() + longest.size() <= kMaxPath) {
    path += "/" + std::string(std::min<size_t>(200, kMaxPath + 1 - longest.size() - path.size()), 'd');
  }
  return path;
}

RankProcesses::RankProcesses(const TestFolder& folder, std::vector<RankConfig> configs, int64_t generation,
                             const std::vector<int>& absent, const std::map<int, RankFault>& faults, bool yields)
    : folder_(folder), generation_(generation) {
  std::vector<PeerAddress> peers;
  std::vector<int> sockets;
  for (int rank = 0; rank < kRanks; ++rank) {
    const ListeningSocket socket = ListenTcp("127.0.0.1").value();
    sockets.push_back(socket.fd);
    peers.push_back({"127.0.0.1", socket.port});
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    RankConfig config = configs[CoordinatesOf(configs[0].context.layout, rank).stage];
    config.generation = Generation(generation);
    config.rank = rank;
    config.peers = peers;
    std::ofstream(FileOf("config", rank)) << RankConfigText(config);
    if (yields) AskToYield(rank);
    const bool is_absent = std::find(absent.begin(), absent.end(), rank) != absent.end();
    processes_.push_back(is_absent ? -1 : Start(rank, sockets[rank], faults));
  }
  for (int fd : sockets) close(fd);
}

RankProcesses::~RankProcesses() {
  for (pid_t pid : processes_) {
    if (pid < 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

std::string RankProcesses::FileOf(const char* what, int rank) const {
  return absl::StrCat(folder_.path(), "/", what, ".", generation_, ".", rank);
}

pid_t RankProcesses::Start(int rank, int listen_fd, const std::map<int, RankFault>& faults) const {
  std::vector<std::string> arguments = {"--config",      FileOf("config", rank), "--listen-fd", absl::StrCat(listen_fd),
                                        "--report-file", FileOf("reports", rank)};
  const auto fault = faults.find(rank);
  if (fault != faults.end()) {
    arguments.push_back(fault->second.name);
    arguments.push_back(absl::StrCat(fault->second.step));
  } else {
    arguments.insert(arguments.end(), {"--yield-file", FileOf("yield", rank)});
    if (std::filesystem::exists(LeaseOf(folder_))) arguments.insert(arguments.end(), {"--lease-file", LeaseOf(folder_)});
  }
  return Spawn(fault == faults.end() ? kLynxRank : kFaultyBinary, arguments, FileOf("out", rank), FileOf("err", rank),
               listen_fd);
}

void RankProcesses::AskToYield(int rank) const { std::ofstream(FileOf("yield", rank)).put('\n'); }

void RankProcesses::Signal(int rank, int signal) const { kill(processes_[rank], signal); }

int RankProcesses::ExitCode(int rank) {
  const int exit_code = AwaitExit(processes_[rank]);
  processes_[rank] = -1;
  return exit_code;
}

std::vector<RankReport> RankProcesses::Reports(int rank) const {
  std::vector<RankReport> reports;
  std::istringstream lines(ReadFile(FileOf("reports", rank)));
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const absl::StatusOr<RankReport> report = ParseRankReport(line);
    EXPECT_TRUE(report.ok()) << report.status() << ": " << line;
    if (report.ok()) reports.push_back(*report);
  }
  return reports;
}

void RankProcesses::WaitForSteps(int rank, int64_t steps) const {
  const steady_clock::time_point deadline = steady_clock::now() + kPatience;
  while (static_cast<int64_t>(Only<StepReport>(Reports(rank)).size()) < steps) {
    ASSERT_LT(steady_clock::now(), deadline) << "rank " << rank << " makes no progress: " << Log(rank);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string RankProcesses::Log(int rank) const { return ReadFile(FileOf("err", rank)); }

void RankProcesses::ExpectAllExit(int expected) {
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ExitCode(rank), expected) << "rank " << rank << ": " << Log(rank);
  }
}

std::vector<double> RankProcesses::Losses() const {
  std::vector<double> losses;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<double> own;
    for (const StepReport& report : Only<StepReport>(Reports(rank))) own.push_back(report.loss);
    if (rank == 0) losses = own;
    EXPECT_EQ(own, losses) << "rank " << rank;
  }
  return losses;
}

Output RunLynxRank(const TestFolder& folder, const std::vector<std::string>& arguments, const std::string& binary) {
  const std::string out = folder.path() + "/out", err = folder.path() + "/err";
  const int exit_code = AwaitExit(Spawn(binary.c_str(), arguments, out, err, -1));
  return {exit_code, ReadFile(out), ReadFile(err)};
}

}  // namespace lynx::worker
