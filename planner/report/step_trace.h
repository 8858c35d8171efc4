// Step traces: one measured step of each pipeline rank, action by action, in the form that the simulation uses, so that
// the same code shows both. Pure; thread-safe.
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

// True if a generation's `nth` step (from 1) is traced: steps 1, 2, 4, 8, ..., so that a trace exists soon, and every
// 4,096th step, so that there is a recent one. The traces of a long run stay small.
bool IsTracedStep(int64_t nth);

// True for the rank that makes the traces of its pipeline rank: the pipeline rank's first rank.
bool TracesForItsStage(const RankCoordinates& coordinates);

// The format in which a trace is sent: numbers of nanoseconds, 0 if not applicable. For each action: its begin, relative to the
// end of the previous action (for the first action: to the step's begin); its duration; the begin of its transfer, relative to
// its own begin; the transfer's duration; the part of the action that is hidden recomputation.
inline constexpr size_t kTimesPerAction = 5;
// A trace is sent in parts with this number of actions.
inline constexpr size_t kTraceActionsPerPart = 8192;
std::vector<int64_t> TraceTimes(std::span<const ActionSpan> spans);
// Converts times back to spans. Returns InvalidArgument unless `times` has kTimesPerAction valid numbers for each action of the
// program: only starts have transfers, only recomputation has a hidden part, nothing is negative, and the total is at most
// kMaxTracedStep.
absl::StatusOr<std::vector<ActionSpan>> SpansOfTrace(const Program& program, std::span<const int64_t> times);
inline constexpr Nanos kMaxTracedStep{int64_t{1} << 50};  // 13 days

// One step of the whole pipeline.
struct MeasuredStep {
  int64_t step = 0;                             // 0-based
  std::vector<std::vector<ActionSpan>> stages;  // by pipeline rank; Nanos(0) is when the first rank began its step
  Nanos end;                                    // when the last action of all ranks ended
};

// Clocks of different nodes are independent. So the times of each stage are shifted such that the sum over all ranks at the
// step's end (NORM) completes at the same time on all stages. The error is the real difference of these completion times.
// `stages`: by pipeline rank, as SpansOfTrace returns them. Each program must contain NORM once.
MeasuredStep AlignStages(const Plan& plan, int64_t step, std::vector<std::vector<ActionSpan>> stages);

// One row per stage: how its time was spent, measured and predicted. `predicted`: nullptr if unknown.
Table MeasuredStepTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted);
// "step 64 took 1.21 s, predicted 1.18 s", then MeasuredStepTable.
std::string MeasuredTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_STEP_TRACE_H_
