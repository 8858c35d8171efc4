// Step traces: one step of each pipeline rank as it was measured, action by action, in the form of the simulation's,
// so that both are shown by the same code. Pure; thread-safe.
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

// A generation's `nth` step, from 1 on, is traced: 1, 2, 4, 8, ..., so that there is one soon, and every 4,096th, so
// that there is a fresh one; what is kept of a long run stays small.
bool IsTracedStep(int64_t nth);

// The rank that traces for its pipeline rank: the first of it.
bool TracesForItsStage(const RankCoordinates& coordinates);

// How a trace travels: for each action its begin after the end of the action before (of the first: after the step's
// begin), its duration, the begin of its transfer after its own begin, the transfer's duration, and how much of the
// action is hidden recomputation; in nanoseconds, 0 where there is nothing.
inline constexpr size_t kTimesPerAction = 5;
// It travels in parts of so many actions.
inline constexpr size_t kTraceActionsPerPart = 8192;
std::vector<int64_t> TraceTimes(std::span<const ActionSpan> spans);
// InvalidArgument unless `times` holds that for each action of the program: of others than starts no transfer, of
// others than recomputation nothing hidden, nothing negative, at most kMaxTracedStep in all.
absl::StatusOr<std::vector<ActionSpan>> SpansOfTrace(const Program& program, std::span<const int64_t> times);
inline constexpr Nanos kMaxTracedStep{int64_t{1} << 50};  // 13 days

// One step of the whole pipeline.
struct MeasuredStep {
  int64_t step = 0;                             // 0-based
  std::vector<std::vector<ActionSpan>> stages;  // by pipeline rank; Nanos(0) is when the first of them began its step
  Nanos end;                                    // when the last action of all ended
};

// Clocks of different nodes have nothing in common. So the stages are moved to where the sum over all ranks at the
// step's end completes everywhere at the same time, which is right up to that small exchange's own skew. `stages`: by
// pipeline rank, as SpansOfTrace. Each program has that sum once.
MeasuredStep AlignStages(const Plan& plan, int64_t step, std::vector<std::vector<ActionSpan>> stages);

// A row a stage: where its time went, measured and predicted. `predicted`: null where it is not known.
Table MeasuredStepTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted);
// "step 64 took 1.21 s, predicted 1.18 s", then that table.
std::string MeasuredTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_STEP_TRACE_H_
