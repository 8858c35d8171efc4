// lynx-studio answers one question of the studio's page (studio/answers.h): it reads the question from standard input and
// prints the answer. It is a process of its own, so that a question that nobody waits for any more can be stopped, and so that
// a large plan takes no memory of the program that serves the page.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cores.h"
#include "node/flags.h"
#include "node/solver_process.h"
#include "studio/answers.h"

namespace lynx {
namespace {

constexpr int kExitUsage = 2;

int FailUsage(const std::string& message) {
  std::fprintf(stderr, "lynx-studio: %s\n", message.c_str());
  return kExitUsage;
}

// Makes the kernel kill this process when its parent process ends, because no other process would end it then. Returns false if
// the parent has already ended.
bool EndWith(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent;
}

bool LimitMemory(int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return bytes > 0;  // sanitizers themselves map terabytes
#endif
  const rlimit limit{.rlim_cur = static_cast<rlim_t>(bytes), .rlim_max = static_cast<rlim_t>(bytes)};
  return ::setrlimit(RLIMIT_DATA, &limit) == 0;
}

// Best effort: a question is answered with any priority.
void GoToBackground() {
  constexpr int kLowest = 19;
  (void)::setpriority(PRIO_PROCESS, 0, kLowest);
  std::ofstream("/proc/self/oom_score_adj") << 1000;
}

// The answer to a question that needs more memory than the limit.
std::string TooLarge(int64_t memory) {
  const std::string text = absl::StrCat("the answer needs more than ", FormatBytes(Bytes(memory)),
                                        " of memory here; ask for fewer microbatches (train.globalBatch) or devices, or use "
                                        "lynxctl plan");
  return absl::StrCat("{}\n", nlohmann::json{{"error", ErrorJson({.text = text})}}.dump(), "\n");
}

int Main(int argc, char** argv) {
  int64_t parent = 0, memory = 0;
  bool one_thread = false, background = false;
  ParseCommandLine(argc, argv, "lynx-studio", "answers one question of the studio's page, from standard input",
                   {{"parent", &parent, "end with this process, which started it; 0: with none"},
                    {"memory", &memory, "most memory, in bytes; 0: no limit"},
                    {"one-thread", &one_thread, "use one core"},
                    {"background", &background, "lowest priority, and the first to end when the machine lacks memory"}});
  if (background) GoToBackground();
  if (parent != 0 && !EndWith(static_cast<pid_t>(parent))) {
    return FailUsage("--parent: that process did not start this one, or has ended");
  }
  if (memory < 0 || (memory > 0 && !LimitMemory(memory))) return FailUsage("--memory: not a limit that can be set");
  const RealClock clock;
  AnswerMeans means{.clock = &clock};
  if (!one_thread) means.run = RunOnAllCores;
  // Without the solver's program, the planner refuses jobs that need it, and says why.
  if (absl::StatusOr<StageSolver> solver = SolverInProcess({}); solver.ok()) means.exact = *std::move(solver);
  const std::string question{std::istreambuf_iterator<char>(std::cin), {}};
  try {
    std::fputs(AnswerQuestion(question, means).c_str(), stdout);
  } catch (const std::bad_alloc&) {
    std::fputs(TooLarge(memory).c_str(), stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) { return lynx::Main(argc, argv); }
