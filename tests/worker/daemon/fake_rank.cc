// A rank process for tests of the worker daemon. It has the flags of lynx-rank and computes nothing. It executes commands that
// the test writes to the file $LYNX_FAKE_RANK/rank<R>, one per line, as soon as the lines appear:
//
//   ready | step N | done N | yielded N | fail REASON | peer-lost REASON    append that report to the report file
//   trace N          append N parts of a trace, each of the largest size that a part may have
//   raw TEXT         append TEXT and a line end;   partial TEXT: without the line end
//   stderr TEXT      write a line to standard error
//   ignore-term      from now on SIGTERM does nothing (before: exit code 4)
//   term-step N      on SIGTERM append the report of step N, then exit as before
//   progress N QUIET tell N pieces of progress, and quiet work of QUIET ns, in the progress file (only a rank without peers)
//   crash            SIGSEGV
//   exit N           end
//
// When it starts, it writes "PID PORT" and a line end to $LYNX_FAKE_RANK/started<R>. PORT is the port of the socket that the
// daemon passed to it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "common/clock.h"
#include "planner/report/step_trace.h"
#include "worker/contract/lease_file.h"
#include "worker/contract/progress_file.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_report.h"

namespace {

using namespace lynx;  // NOLINT: a test program of one file

[[noreturn]] void Fail(const std::string& why) {
  std::cerr << "fake rank: " << why << std::endl;
  std::exit(1);
}

int PortOf(int fd) {
  int accepts = 0;
  socklen_t length = sizeof(accepts);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &length) != 0 || accepts == 0) Fail("no listening socket");
  sockaddr_in address{};
  length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) Fail("getsockname");
  return ntohs(address.sin_port);
}

RankReport StepOf(int64_t step) {
  return StepReport{.step = step,
                    .loss = 5.0 - 0.01 * static_cast<double>(step),
                    .gradient_norm = 1,
                    .lr = 1e-3,
                    .tokens = 512,
                    .duration = Nanos(20'000'000),
                    .forward = Nanos(7'000'000),
                    .backward = Nanos(9'000'000),
                    .arena_peak = Bytes(4096),
                    .bytes_sent = 1000};
}

// The text that the signal handler appends. It is prepared before, because a signal handler may not allocate memory.
std::string g_last_words;
int g_report_fd = -1;

void EndOnTerm(int) {
  if (g_report_fd >= 0 && ::write(g_report_fd, g_last_words.data(), g_last_words.size()) < 0) ::_exit(1);
  ::_exit(kRankExitCancelled);
}

class Rank {
 public:
  Rank(const RankConfig& config, const std::string& report_file, const std::string& progress_file)
      : config_(config), report_file_(report_file), progress_file_(progress_file) {}

  void Do(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    std::string rest;
    std::getline(words >> std::ws, rest);
    if (command == "ready") Append(RankReportLine(RankReady{.arena = config_.arena, .backend = "fake"}) + "\n");
    if (command == "step") Append(RankReportLine(StepOf(std::stoll(rest))) + "\n");
    if (command == "trace") {
      const auto parts = static_cast<int32_t>(std::stoi(rest));
      constexpr auto kActions = static_cast<int32_t>(kTraceActionsPerPart);
      const std::vector<int64_t> times(kTimesPerAction * kTraceActionsPerPart, int64_t{1} << 49);
      for (int32_t i = 0; i < parts; ++i) {
        Append(RankReportLine(TraceReport{.actions = parts * kActions, .first = i * kActions, .times = times}) + "\n");
      }
    }
    if (command == "done") Append(RankReportLine(RankDone{std::stoll(rest)}) + "\n");
    if (command == "yielded") Append(RankReportLine(RankYielded{std::stoll(rest)}) + "\n");
    if (command == "fail") Append(RankReportLine(RankFailure{rest, false}) + "\n");
    if (command == "peer-lost") Append(RankReportLine(RankFailure{rest, true}) + "\n");
    if (command == "raw") Append(rest + "\n");
    if (command == "partial") Append(rest);
    if (command == "stderr") std::cerr << rest << std::endl;
    if (command == "ignore-term") ::signal(SIGTERM, SIG_IGN);
    if (command == "term-step") {
      g_last_words = RankReportLine(StepOf(std::stoll(rest))) + "\n";
      g_report_fd = ::open(report_file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    if (command == "progress") {
      if (!progress_.has_value()) progress_ = ProgressFile::OpenToWrite(progress_file_).value();
      std::istringstream numbers(rest);
      ToldProgress told;
      numbers >> told.made >> told.quiet.value;
      progress_->Tell(told);
    }
    if (command == "crash") {
      ::signal(SIGSEGV, SIG_DFL);  // because a sanitizer would turn the signal into an exit
      ::raise(SIGSEGV);
    }
    if (command == "exit") ::_exit(std::stoi(rest));
  }

 private:
  void Append(const std::string& text) { std::ofstream(report_file_, std::ios::app) << text << std::flush; }

  const RankConfig& config_;
  const std::string report_file_;
  const std::string progress_file_;
  std::optional<ProgressFile> progress_;
};

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGTERM, EndOnTerm);
  ::alarm(170);  // so that no rank is left forever if the test is killed
  const bool alone = argc == 13 && std::string(argv[11]) == "--progress-file";
  if ((argc != 11 && !alone) || std::string(argv[1]) != "--config" || std::string(argv[3]) != "--listen-fd" ||
      std::string(argv[5]) != "--report-file" || std::string(argv[7]) != "--yield-file" ||
      std::string(argv[9]) != "--lease-file") {
    Fail("wrong flags");
  }
  const char* folder = std::getenv("LYNX_FAKE_RANK");
  if (folder == nullptr) Fail("LYNX_FAKE_RANK is not set");
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const absl::StatusOr<RankConfig> config = ParseRankConfig(text);
  if (!config.ok()) Fail(std::string(config.status().message()));
  const std::string suffix = std::to_string(config->rank);
  std::ofstream(std::string(folder) + "/started" + suffix, std::ios::app)
      << ::getpid() << " " << PortOf(std::stoi(argv[4])) << std::endl;

  const absl::StatusOr<LeaseFile> lease = LeaseFile::OpenToRead(argv[10]);
  if (!lease.ok()) Fail(std::string(lease.status().message()));
  if (alone != (config->peers.size() == 1)) Fail("only a rank without peers tells its progress in a file");
  Rank rank(*config, argv[6], alone ? argv[12] : "");
  std::ifstream script;
  std::string line;
  while (true) {
    if (BootTime() >= lease->Deadline()) ::_exit(kRankExitLeaseOver);
    if (!script.is_open()) script.open(std::string(folder) + "/rank" + suffix);
    // A line is a command when its line end is there. The test writes whole lines at once.
    while (script.is_open() && std::getline(script, line)) rank.Do(line);
    script.clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}
