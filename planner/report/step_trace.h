// A step trace is one measured step of each pipeline rank, action by action. It has the form that the simulation uses, so the
// same code shows both. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_STEP_TRACE_H_
#define LYNX_PLANNER_REPORT_STEP_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "planner/problem/layout.h"
#include "planner/report/table.h"

namespace lynx {

// True if the step number `nth` of a generation (from 1) is traced. Steps 1, 2, 4, 8, ... are traced, so that a trace exists
// soon. Every 4,096th step is also traced, so that there is always a recent trace. All other steps are not traced, so the
// traces of a long run take little space.
bool IsTracedStep(int64_t nth);

// True for the rank that makes the traces of its pipeline rank. This is the first rank of the pipeline rank.
bool TracesForItsStage(const RankCoordinates& coordinates);

// The format in which a trace is sent. Each action has five times in nanoseconds; a time that does not apply is 0. 1: the
// action's begin, relative to the end of the previous action (for the first action: to the step's begin). 2: the action's
// duration. 3: the begin of its transfer, relative to the action's begin. 4: the duration of its transfer. 5: the part of the
// action that is hidden recomputation.
inline constexpr size_t kTimesPerAction = 5;
// A trace is sent in parts. A part has this number of actions.
inline constexpr size_t kTraceActionsPerPart = 8192;
std::vector<int64_t> TraceTimes(std::span<const ActionSpan> spans);
// Converts times back to spans. `times` must have kTimesPerAction valid numbers for each action of the program: only starts
// have transfers, only recomputation has a hidden part, nothing is negative, and the total is at most kMaxTracedStep. Otherwise
// returns InvalidArgument.
absl::StatusOr<std::vector<ActionSpan>> SpansOfTrace(const Program& program, std::span<const int64_t> times);
inline constexpr Nanos kMaxTracedStep{int64_t{1} << 50};  // 13 days

// One step of the whole pipeline.
struct MeasuredStep {
  int64_t step = 0;                             // number of the step, from 0
  std::vector<std::vector<ActionSpan>> stages;  // the index is the pipeline rank; Nanos(0) is the time when the first rank
                                                // began its step
  Nanos end;                                    // the time when the last action of all ranks ended
};

// Puts the stages' traces onto one time line. The clocks of different nodes are independent. So the times of each stage are
// shifted until the sum over all ranks at the step's end (NORM) completes at the same time on all stages. In reality it
// completes at slightly different times; the shifted times are wrong by this difference. `stages` has one entry per pipeline
// rank, as SpansOfTrace returns it. Each program must contain NORM once.
MeasuredStep AlignStages(const Plan& plan, int64_t step, std::vector<std::vector<ActionSpan>> stages);

// One row per stage says how the stage spent its time, measured and predicted. `predicted` is nullptr if it is unknown.
Table MeasuredStepTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted);
// A line such as "step 64 took 1.21 s, predicted 1.18 s", and then MeasuredStepTable.
std::string MeasuredTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_STEP_TRACE_H_
