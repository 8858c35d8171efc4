// ParallelLayout says how the ranks divide a model, and numbers the ranks. Pure values.
//
// The order of ranks, innermost first, is tensor, context, pipeline stage, data. So the ranks of one tensor-parallel
// group are neighbours (and land on one node), and pipeline neighbours are tp * cp ranks apart.
#ifndef LYNX_PLANNER_PROBLEM_LAYOUT_H_
#define LYNX_PLANNER_PROBLEM_LAYOUT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "planner/problem/job_spec.h"
#include "planner/schedule/schedule.h"

namespace lynx {

struct ParallelLayout {
  int32_t tp = 1;
  int32_t pp = 1;
  int32_t dp = 1;
  int32_t cp = 1;
  int32_t virtual_stages = 1;                                    // model chunks per rank
  bool sequence_parallel = false;                                // only with tp > 1
  ZeroStage zero = ZeroStage::kNone;                             // never kAuto
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;  // never kAuto
  WeaveMode weave = WeaveMode::kOff;                             // never kAuto
  SharedSchedule custom = {};                                    // null unless the schedule is kCustom

  int32_t ranks() const { return tp * cp * pp * dp; }
  bool operator==(const ParallelLayout&) const = default;
};

struct RankCoordinates {
  int32_t tp = 0;
  int32_t stage = 0;
  int32_t dp = 0;
  int32_t cp = 0;
  bool operator==(const RankCoordinates&) const = default;
};

inline RankCoordinates CoordinatesOf(const ParallelLayout& l, int32_t rank) {
  return {rank % l.tp, rank / (l.tp * l.cp) % l.pp, rank / (l.tp * l.cp * l.pp), rank / l.tp % l.cp};
}
inline int32_t RankOf(const ParallelLayout& l, const RankCoordinates& c) {
  return ((c.dp * l.pp + c.stage) * l.cp + c.cp) * l.tp + c.tp;
}

// "tp2 pp2 dp1"; whatever differs from its plain value follows: "tp8 pp8 dp2 cp2 vp3 sp zero-optimizer interleaved"
std::string LayoutText(const ParallelLayout& layout);

// Returns a layout with the pinned degrees and modes; all others have their default values (degrees 1, nothing sharded, 1F1B).
// The spec has passed ValidateJobSpec: LYNX_CHECK fails if its custom schedule is invalid.
ParallelLayout PinnedLayout(const ParallelSpec& parallel);
// The inverse of PinnedLayout: pins every degree and mode to the layout's value.
ParallelSpec SpecOf(const ParallelLayout& layout, PartitionMethod partition);

// Returns FailedPrecondition with the job file's field unless Lynx's own engine can train the model in this layout. The engine
// trains what planner/problem/model_families.h lists as trained, with regenerated masks and sequences within the attention
// window, over tp (with or without sequence parallelism), pp and dp, with any schedule. Other models and layouts can only be
// planned.
inline constexpr int32_t kMaxRotaryDims = 512;  // elements of a head that the engine can rotate
absl::Status CheckEngineRuns(const ModelSpec& model, const ParallelLayout& layout);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYOUT_H_
