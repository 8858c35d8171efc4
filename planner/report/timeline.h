// The predicted step for display: what each stage does at which time (spans on lanes), the meaning of each span (kinds and
// words), and what the stage's memory holds at each time. It is built from a program and its simulation, with the table of
// action kinds. So a new kind of action needs no change in this file. Both the page and the trace are made from it. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_REPORT_TIMELINE_H_
#define LYNX_PLANNER_REPORT_TIMELINE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "planner/program/action.h"

namespace lynx {

// The kind of a span, for its colour and the legend. The first nine kinds are on the compute lane; with idle time, they fill
// the whole step.
enum class SpanKind : uint8_t {
  kForward,
  kBackward,
  kWeight,
  kRecomputeHidden,
  kRecomputeExposed,
  kOptimizer,
  kCommunicationWait,  // the device waits for a collective
  kCopyWait,           // the device waits for a copy to or from the host
  kStall,              // the device waits for a neighbour stage
  kTensorTransfer,
  kBoundaryTransfer,
  kDataTransfer,
  kCopyTransfer,
};
inline constexpr int kSpanKindCount = static_cast<int>(SpanKind::kCopyTransfer) + 1;
inline constexpr int kComputeSpanKinds = static_cast<int>(SpanKind::kStall) + 1;
const char* SpanKindName(SpanKind kind);  // such as "forward", "hidden recomputation", "stall"
const char* SpanKindId(SpanKind kind);    // short name for CSS classes and traces, such as "hidden" or "stall"

struct TimelineSpan {
  int32_t action = 0;  // index of the action in the program
  int32_t lane = 0;
  SpanKind kind = SpanKind::kForward;
  Nanos begin, end;  // for a wait: equal if the transfer was already complete when the wait began
};

struct TimeRange {
  Nanos begin, end;
};

struct StageTimeline {
  std::vector<std::string> lanes;   // "compute" first; then, if needed, "communication", "communication 2", "copy", ...
  std::vector<TimelineSpan> spans;  // in the order of begin, then of lane; spans of one lane never overlap
};

// Lane 0 has the compute actions, the waits and, in measured steps, the starts. If a recompute action is partly hidden, it
// becomes two spans. Every start action puts its transfer on a lane of its stream. If another transfer is still in flight on
// that lane, the transfer gets another lane.
StageTimeline TimelineOf(const Program& program, const std::vector<ActionSpan>& times);

// The time of each kind of span on lane 0.
using Breakdown = std::array<Nanos, kComputeSpanKinds>;
Breakdown BreakdownOf(const StageTimeline& timeline);

// Divides `range` into equal columns. Returns for each of them the time of each kind of span in it, in nanoseconds: of the
// spans on lane 0 if `compute`, else of those on the other lanes.
using KindTimes = std::array<int64_t, kSpanKindCount>;
std::vector<KindTimes> TimesInColumns(const StageTimeline& timeline, bool compute, TimeRange range, int64_t columns);

// The meaning of an action as one sentence, such as "recomputation (ln1, qkv), layer 12, segment attn, microbatch 3".
std::string ActionMeaning(const Action& action);

// Kinds of use of the device memory.
enum class MemoryKind : uint8_t {
  kWeights,
  kGradients,
  kOptimizerStates,
  kStored,      // forward results that are kept for the backward pass, or until they have been copied to the host
  kRecomputed,  // forward results that were recomputed
  kActivationGradients,
  kWorkspace,  // memory that one action uses while it runs, and forward results that no backward pass reads
  kPacking,    // the part of the arena that no buffer uses at the time of the peak
};
inline constexpr int kMemoryKindCount = static_cast<int>(MemoryKind::kPacking) + 1;
const char* MemoryKindName(MemoryKind kind);
const char* MemoryKindId(MemoryKind kind);

// The bytes of each kind in the arena. Kinds outside the arena are 0.
using LiveBytes = std::array<Bytes, kMemoryKindCount>;
Bytes TotalOf(const LiveBytes& live);

struct MemoryPoint {
  Nanos begin;  // these values apply until the next point begins
  LiveBytes live;
};

struct StageMemory {
  LiveBytes peak;  // values at the time of the arena's peak, with model states and packing; together they are the allocated
                   // memory
  std::vector<MemoryPoint> points;  // memory of the arena during the step; if several points have the same time, only the
                                    // largest of them is in the list
};

// Computes what the memory of a stage holds. Returns FailedPrecondition in the same cases as FoldLiveness.
absl::StatusOr<StageMemory> MemoryOf(const StagePlan& stage, const StageContext& context, const std::vector<ActionSpan>& times);
// Reduces `points` to at most `limit` points. Each interval keeps its largest point, so no peak is lost.
std::vector<MemoryPoint> Thinned(const std::vector<MemoryPoint>& points, Nanos step, size_t limit);

// Simulates the plan's step on these devices, which may differ from the devices for which the plan was made. Returns
// FailedPrecondition in the same cases as Simulate (planner/cost/simulate.h).
absl::StatusOr<Simulation> SimulateOn(const ClusterTopology& cluster, const Plan& plan);

// What an uneven load of experts costs: returns the plan once for each of `skews` (MoeSpec::skew), without programs. The
// actions are those of `plan`, and the step and the times of recomputation are those that it has if the fullest rank of an
// expert group has `skew` times the even share of rows. If the programs of `plan` are those of a shorter step
// (PlanRequest::most_program_actions), the times are those of the shorter step times plan.step / its length. Empty if all
// experts of a layer are on each rank, where the load is always even, or if the model has no experts. Fails as SimulateOn does.
absl::StatusOr<std::vector<Plan>> PlanAtSkews(const ClusterTopology& cluster, const Plan& plan,
                                              const std::vector<double>& skews);

// A plan and a new simulation of its step.
struct PredictedStep {
  const PlanRequest* request = nullptr;  // not owned
  const Plan* plan = nullptr;            // not owned
  Simulation simulation;
};
// Simulates the plan's step with the request's profile. Returns FailedPrecondition if the plan's programs cannot run, or if the
// step that the plan predicts differs from this simulation.
absl::StatusOr<PredictedStep> PredictStep(const PlanRequest& request, const Plan& plan);

// The memory that the stage may use on each device. It is the smaller of the device's memory and the stage's states plus the
// activation limit. 0 = no known limit.
Bytes MemoryLimitOf(const PlanRequest& request, const Plan& plan, int32_t stage);

// The time ranges in which each span is shown. This is the whole step, or, if there are more than `budget` spans, only its
// begin and its end. Two thirds of the budget are for the begin.
std::vector<TimeRange> DetailRanges(const std::vector<StageTimeline>& stages, Nanos step, size_t budget);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_TIMELINE_H_
