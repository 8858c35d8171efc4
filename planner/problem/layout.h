// ParallelLayout: how ranks divide a model, and the numbering of ranks. Pure values.
//
// Rank order, innermost first: tensor, context, pipeline stage, data. So the ranks of one tensor-parallel group are
// neighbours (and land on one node), and pipeline neighbours are tp * cp ranks apart.
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
  int32_t virtual_stages = 1;                                    // model chunks of a rank
  bool sequence_parallel = false;                                // only with tp > 1
  ZeroStage zero = ZeroStage::kNone;                             // never kAuto
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;  // never kAuto
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

// "tp2 pp2 dp1"; what is not at its plain value follows: "tp8 pp8 dp2 cp2 vp3 sp zero-optimizer interleaved"
std::string LayoutText(const ParallelLayout& layout);

// What is pinned; the rest at its plain value (degrees 1, nothing sharded, 1F1B). Of a spec that has passed
// ValidateJobSpec: LYNX_CHECK fails where its custom schedule is none.
ParallelLayout PinnedLayout(const ParallelSpec& parallel);
// The other way: every degree and mode at what the layout has.
ParallelSpec SpecOf(const ParallelLayout& layout, PartitionMethod partition);

// FailedPrecondition naming the job file's field, unless Lynx's own engine can train the model in this layout: so far
// what planner/problem/model_families.h lists as trained, with regenerated masks and sequences within the attention window,
// over tp (with sequence parallelism or without), pp and dp, with any schedule. Anything else can be planned only.
inline constexpr int32_t kMaxRotaryDims = 512;  // elements of a head that the engine turns
absl::Status CheckEngineRuns(const ModelSpec& model, const ParallelLayout& layout);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYOUT_H_
