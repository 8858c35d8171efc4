// A stage's problem and an exact solver's answer as text: how the planner's side and a solver in another process
// speak (node/solver_process.h, solver/main.cc). One line a record, words separated by blanks; times in nanoseconds,
// memory in bytes, sets as numbers whose bits are recompute_problem.h's:
//
//   problem layers 2 in_flight 4 budget 100 stall 0 early 0 resident 2 copy_out 0 copy_in 0 host_budget 0
//   forward 3 4
//   backward 5
//   item bytes 10 cost 7 inputs 0 read_by 1 collective 0 allowed 65535 copy_out 0 copy_in 0
//   end
//
//   answer proven 1 bound 4
//   layer store f1
//   end
//
// An answer without layers has no solution. Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_SOLVER_TEXT_H_
#define LYNX_PLANNER_RECOMPUTE_SOLVER_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

std::string ProblemText(const RecomputeProblem& problem);
// InvalidArgument naming the line, or what ValidateProblem refuses.
absl::StatusOr<RecomputeProblem> ParseProblem(std::string_view text);

std::string AnswerText(const RecomputeProblem& problem, const StageAnswer& answer);
// Nothing is taken on trust but the bound: the solution's value is EvaluateStage's. InvalidArgument naming the line,
// or what a solution breaks: a rule, a budget, its own bound.
absl::StatusOr<StageAnswer> ParseAnswer(const RecomputeProblem& problem, std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_SOLVER_TEXT_H_
