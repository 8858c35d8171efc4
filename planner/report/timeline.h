// The predicted step for display: what each stage does at which time (spans on lanes), the meaning of each span (kinds and
// words), and what the stage's memory holds at each time. It is built from a program and its simulation with the help of the
// table of action kinds, so a new kind of action needs no change here. Both the page and the trace are made from it. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_REPORT_TIMELINE_H_
#define LYNX_PLANNER_REPORT_TIMELINE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "planner/program/action.h"

namespace lynx {

// The kind of a span, for colour and legend. The first nine are on the compute lane; together with idle time they make up
// a step.
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
const char* SpanKindName(SpanKind kind);  // "forward", "hidden recomputation", "stall", ...
const char* SpanKindId(SpanKind kind);    // short name for CSS classes and traces: "hidden", "stall", ...

struct TimelineSpan {
  int32_t action = 0;  // index into the program
  int32_t lane = 0;
  SpanKind kind = SpanKind::kForward;
  Nanos begin, end;  // equal if a wait found its transfer complete
};

struct StageTimeline {
  std::vector<std::string> lanes;   // "compute", then "communication", "communication 2", "copy", ... as needed
  std::vector<TimelineSpan> spans;  // ordered by begin, then lane; spans of one lane never overlap
};

// Lane 0 has the compute actions, the waits and, for measured steps, the starts. A partly hidden recompute action becomes two
// spans. Every start action puts its transfer on a lane of its stream; if another transfer is still in flight on that lane, the
// transfer gets a further lane.
StageTimeline TimelineOf(const Program& program, const StageTimes& times);

// Time on lane 0 by kind.
using Breakdown = std::array<Nanos, kComputeSpanKinds>;
Breakdown BreakdownOf(const StageTimeline& timeline);

// The meaning of an action as one sentence: "recomputation (ln1, qkv), layer 12, segment attn, microbatch 3".
std::string ActionMeaning(const Action& action);

// Kinds of use of the device memory.
enum class MemoryKind : uint8_t {
  kWeights,
  kGradients,
  kOptimizerStates,
  kStored,      // forward results kept for the backward pass, or until they are on the host
  kRecomputed,  // forward results that were recomputed
  kActivationGradients,
  kWorkspace,  // scratch, and forward results that no backward pass reads
  kPacking,    // the part of the arena that no buffer uses at the time of the arena's peak
};
inline constexpr int kMemoryKindCount = static_cast<int>(MemoryKind::kPacking) + 1;
const char* MemoryKindName(MemoryKind kind);
const char* MemoryKindId(MemoryKind kind);

// Buffers of the arena by kind; kinds outside the arena are 0.
using LiveBytes = std::array<Bytes, kMemoryKindCount>;
Bytes TotalOf(const LiveBytes& live);

struct MemoryPoint {
  Nanos begin;  // lasts until the next point's begin
  LiveBytes live;
};

struct StageMemory {
  LiveBytes peak;  // values at the time of the arena's peak, with model states and packing; their sum is the allocated memory
  std::vector<MemoryPoint> points;  // memory of the arena over the step; if several points have the same time, only the largest
};

// Returns FailedPrecondition in the same cases as FoldLiveness.
absl::StatusOr<StageMemory> MemoryOf(const StagePlan& stage, const StageContext& context, const StageTimes& times);
// Reduces `points` to at most `limit`: the largest point of each interval, so that no peak is lost.
std::vector<MemoryPoint> Thinned(const std::vector<MemoryPoint>& points, Nanos step, size_t limit);

// Simulates the plan's step on these devices, which may differ from those that the plan was made for. Returns
// FailedPrecondition in the same cases as Simulate (planner/cost/simulate.h).
absl::StatusOr<Simulation> SimulateOn(const ClusterTopology& cluster, const Plan& plan);

// A plan with its step simulated again.
struct PredictedStep {
  const PlanRequest* request = nullptr;  // not owned
  const Plan* plan = nullptr;            // not owned
  Simulation simulation;
};
// Returns FailedPrecondition if the plan's programs cannot run, or if the predicted step differs from the result with the
// request's profile.
absl::StatusOr<PredictedStep> PredictStep(const PlanRequest& request, const Plan& plan);

// The memory that the stage may use on each device: the device's memory, or the stage's states plus the activation limit,
// whichever is smaller. 0 = no known limit.
Bytes MemoryLimitOf(const PlanRequest& request, const Plan& plan, int32_t stage);

struct TimeRange {
  Nanos begin, end;
};
// The time ranges in which each span is shown individually: the whole step, or only its begin and its end if there are more
// than `budget` spans. Two thirds of the budget are for the begin.
std::vector<TimeRange> DetailRanges(const std::vector<StageTimeline>& stages, Nanos step, size_t budget);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_TIMELINE_H_
