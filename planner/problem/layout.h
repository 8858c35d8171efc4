// ParallelLayout says how a model is divided over ranks, and how the ranks are numbered. Pure values.
//
// The tensor number changes fastest, and then the context number. So the ranks of one tensor-parallel group have consecutive
// numbers (and run on one node). RankOrder says which number comes next: that of the stage or that of the replica.
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
  int32_t ep = 1;                                                // ranks that share the experts of a layer; a divisor of tp *
                                                                 // cp * dp. 1 without experts
  int32_t virtual_stages = 1;                                    // model chunks per rank
  bool sequence_parallel = false;                                // only with tp > 1
  ZeroStage zero = ZeroStage::kNone;                             // never kAuto
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;  // never kAuto
  WeaveMode weave = WeaveMode::kOff;                             // never kAuto
  RankOrder rank_order = RankOrder::kTpPpDp;                     // never kAuto; kTpPpDp if pp or dp is 1
  SharedSchedule custom = {};                                    // null unless the schedule is kCustom
  int32_t zero_group = 0;                                        // replicas that shard states among them; 0 = all of them;
                                                                 // otherwise below dp, and only with ZeRO

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
  const int32_t group = rank / (l.tp * l.cp);
  const bool stages_first = l.rank_order == RankOrder::kTpPpDp;
  return {.tp = rank % l.tp,
          .stage = stages_first ? group % l.pp : group / l.dp,
          .dp = stages_first ? group / l.pp : group % l.dp,
          .cp = rank / l.tp % l.cp};
}
inline int32_t RankOf(const ParallelLayout& l, const RankCoordinates& c) {
  const int32_t group = l.rank_order == RankOrder::kTpPpDp ? c.dp * l.pp + c.stage : c.stage * l.dp + c.dp;
  return (group * l.cp + c.cp) * l.tp + c.tp;
}

// "tp2 pp2 dp1". Values that are not the default follow: "tp8 pp8 dp2 cp2 vp3 sp zero-optimizer interleaved order-tp-dp-pp".
// "zero-weights-of-8": zero_group is 8. "ep4" comes after cp.
std::string LayoutText(const ParallelLayout& layout);

// Expert parallelism. The tp * cp * dp ranks of a stage, in the order of their tensor, context and replica numbers, form groups
// of ep consecutive ranks. Each rank of such an expert group has 1/ep of the experts of each layer, whole: tensor parallelism
// does not shard an expert. So ranks at the same place of different groups hold the same experts: these ExpertReplicas(layout)
// ranks sum the gradients of their experts.
inline int32_t RanksOfStage(const ParallelLayout& l) { return l.tp * l.cp * l.dp; }
inline int32_t ExpertReplicas(const ParallelLayout& l) { return RanksOfStage(l) / l.ep; }
// The number of a rank among the ranks of its stage; its place in its expert group is this number modulo ep.
inline int32_t NumberInStage(const ParallelLayout& l, const RankCoordinates& c) { return (c.dp * l.cp + c.cp) * l.tp + c.tp; }
// The rank of the stage with this number.
inline int32_t RankInStage(const ParallelLayout& l, int32_t stage, int32_t number) {
  return RankOf(l, {.tp = number % l.tp, .stage = stage, .dp = number / (l.tp * l.cp), .cp = number / l.tp % l.cp});
}

// Returns a layout with the degrees and modes that the job pins. The others have their default values (degrees 1, nothing
// sharded, 1F1B). The spec must have passed ValidateJobSpec: LYNX_CHECK fails if its custom schedule is invalid.
ParallelLayout PinnedLayout(const ParallelSpec& parallel);
// The inverse of PinnedLayout: pins every degree and mode to the layout's value. What a layout does not say (how layers are
// distributed over the stages) is that of `job`.
ParallelSpec SpecOf(const ParallelLayout& layout, const ParallelSpec& job);

inline constexpr int32_t kMaxRotaryDims = 512;  // the engine can rotate at most this number of elements of a head
// Returns FailedPrecondition, with the field of the job file, if Lynx's own engine cannot train the model in this layout. The
// engine trains the models that planner/problem/model_families.h lists as trained, with regenerated masks, with sequences that
// are not longer than the attention window, and with at most kMaxRotaryDims rotated elements. It trains with tp (with or
// without sequence parallelism), pp and dp, with ZeRO-1 over all replicas or without ZeRO, and with any schedule.
// Models with experts need a capacity, sequence parallelism if tp is above 1, and a schedule with one copy of the model on each
// rank. The engine does not train with cp above 1. Other models and layouts can only be planned.
absl::Status CheckEngineRuns(const ModelSpec& model, const ParallelLayout& layout);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYOUT_H_
