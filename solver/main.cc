// lynx-opt reads the recomputation problem of a stage from standard input, solves it exactly within a time limit, and prints
// the answer (planner/recompute/solver_text.h). No other program links a MILP solver.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/strings/numbers.h"
#include "node/flags.h"
#include "planner/opt/exact_stage.h"
#include "planner/recompute/solver_text.h"

namespace lynx {
namespace {

constexpr int kExitSolver = 1;
constexpr int kExitUsage = 2;

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "lynx-opt: %s\n", message.c_str());
  return code;
}

// Makes the kernel kill this process when its parent process ends, because no other process would end it then. Returns false if
// the parent has already ended.
bool EndWith(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent;
}

int Main(int argc, char** argv) {
  std::string seconds_text = "60";
  int64_t parent = 0;
  ParseCommandLine(argc, argv, "lynx-opt", "solves the recomputation problem of one stage exactly, from standard input",
                   {{"seconds", &seconds_text, "time limit, about"},
                    {"parent", &parent, "end with this process, which started it; 0: with none"}});
  double seconds = 0;
  if (!absl::SimpleAtod(seconds_text, &seconds) || !(seconds >= 0 && seconds <= 1e6)) {
    return Fail(kExitUsage, "--seconds " + seconds_text + " is not a number from 0 to 1000000");
  }
  if (parent != 0 && !EndWith(static_cast<pid_t>(parent))) {
    return Fail(kExitUsage, "--parent: that process did not start this one, or has ended");
  }
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const absl::StatusOr<RecomputeProblem> problem = ParseProblem(text);
  if (!problem.ok()) return Fail(kExitUsage, std::string(problem.status().message()));
  const absl::StatusOr<StageAnswer> answer = ExactStageSolver({.seconds = seconds})(*problem);
  if (!answer.ok()) return Fail(kExitSolver, std::string(answer.status().message()));
  std::fputs(AnswerText(*problem, *answer).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) { return lynx::Main(argc, argv); }
