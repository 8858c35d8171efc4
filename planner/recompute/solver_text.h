// A stage's problem and an exact solver's answer as text. The planner and a solver in another process exchange these texts
// (node/solver_process.h, solver/main.cc). Each line is one record; blanks separate words. Times are in nanoseconds, memory is
// in bytes, and sets are numbers with the bits of recompute_problem.h:
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
// If an answer has no layers, the solver found no solution. Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_SOLVER_TEXT_H_
#define LYNX_PLANNER_RECOMPUTE_SOLVER_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

std::string ProblemText(const RecomputeProblem& problem);
// Returns InvalidArgument with the number of the wrong line, or the error of ValidateProblem.
absl::StatusOr<RecomputeProblem> ParseProblem(std::string_view text);

std::string AnswerText(const RecomputeProblem& problem, const StageAnswer& answer);
// Parses an answer. EvaluateStage computes the value of the solution again; the only number that is taken from the solver is
// the bound. Returns InvalidArgument with the number of the wrong line, or with what the solution violates: a rule, a budget,
// or the answer's own bound.
absl::StatusOr<StageAnswer> ParseAnswer(const RecomputeProblem& problem, std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_SOLVER_TEXT_H_
