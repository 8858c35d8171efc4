#include "node/solver_process.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "node/command.h"
#include "node/daemon.h"
#include "node/wake.h"
#include "planner/recompute/solver_text.h"

namespace lynx {
namespace {

constexpr char kSolverName[] = "lynx-opt";
// The solver checks its clock between pieces of work. If it runs for longer than kPatience times its limit plus kGrace, it
// counts as stuck and is killed.
constexpr int64_t kPatience = 2;
constexpr Nanos kGrace{30'000'000'000};

}  // namespace

absl::StatusOr<StageSolver> SolverInProcess(SolverProcessOptions options) {
  if (options.binary.empty()) options.binary = BesideThisBinary(kSolverName);
  if (::access(options.binary.c_str(), X_OK) != 0) {
    const bool there = ::access(options.binary.c_str(), F_OK) == 0;
    const std::string text = absl::StrCat("the exact solver ", options.binary, there ? " may not be executed" : " is not there",
                                          ": it is built with the target ", kSolverName,
                                          " and belongs beside the program that plans; or use "
                                          "recompute heu, which needs none");
    return there ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  return StageSolver([options](const RecomputeProblem& problem) -> absl::StatusOr<StageAnswer> {
    const Nanos limit = Nanos(static_cast<int64_t>(options.seconds * 1e9)) * kPatience + kGrace;
    const WakeEvent never;
    const CommandResult result =
        RunCommands({{options.binary, "--seconds", absl::StrCat(options.seconds), "--parent", absl::StrCat(::getpid())}}, limit,
                    never, ProblemText(problem))
            .front();
    if (absl::IsDeadlineExceeded(result.status)) return StageAnswer{};
    LYNX_RETURN_IF_ERROR(result.status);
    absl::StatusOr<StageAnswer> answer = ParseAnswer(problem, result.output);
    if (!answer.ok()) return absl::InternalError(absl::StrCat(options.binary, ": ", std::string(answer.status().message())));
    return answer;
  });
}

}  // namespace lynx
