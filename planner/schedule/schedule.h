// A pipeline schedule is the order in which each rank of a pipeline runs the passes of its stages. Schedules are values that do
// not depend on layers, times or bytes. In this file, a pipeline is a sequence of tensor-parallel groups, and `rank` is a place
// in this sequence, 0..ranks-1.
//
// Virtual stages. A rank holds `chunks` parts of the model (in a bidirectional pipeline: of two copies of the model), so a
// pipeline has stages() = ranks * chunks virtual stages. Stage k is chunk k / ranks of its rank. The placement says on which
// rank each stage is, and to which stage the data goes next (p = ranks, v = chunks):
//
//   looping         stage k is on rank k % p; data passes through the stages 0..pv-1.               v any  all other kinds
//   v               stage p+i, of the second chunk, is on rank p-1-i; data passes through 0..2p-1.   v = 2  ZB-V
//   bidirectional   stages 0..p-1, on ranks 0..p-1, are one copy of the model (pipe 0, down);       v = 2  Chimera
//                   stages p..2p-1, on ranks p-1..0, are a second copy (pipe 1, up).
//
// Slots. A slot is one pass of one stage for one microbatch. If the schedule splits weight gradients off (`splits_weight`), B
// computes the gradient of the stage's input and W computes the gradients of its weights. Otherwise B computes both.
//
// Text. A schedule prints as text, and the text parses back to the same schedule. The first line has the kind and the shape.
// Then each rank has one line with one word per slot: stage, letter, microbatch. The lowered actions have the same stage and
// microbatch numbers. `#` starts a comment.
//
//   1f1b ranks=2 chunks=1 microbatches=3
//   0F0 0F1 0B0 0F2 0B1 0B2
//   1F0 1B0 1F1 1B1 1F2 1B2
//
// Every kind except `custom` fixes the placement and whether weights are split. A custom schedule states both:
// `placement=looping|v|bidirectional` `weight=fused|split`. The defaults are looping and fused. `chunks` is required only for
// interleaved.
//
// docs/schedules.md draws each schedule and gives its formulas and sources. Pure values; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/enum_names.h"

namespace lynx {

// The order of forward and backward passes in a pipeline; schedule_generate.h describes each kind. kAuto: the planner chooses.
// kCustom: the user gives the schedule as text.
enum class ScheduleKind : uint8_t {
  kAuto,
  kGpipe,
  kOneForwardOneBackward,
  kInterleaved,
  kZeroBubble,
  kZeroBubbleV,
  kChimera,
  kCustom,
};
inline constexpr int kScheduleKindCount = static_cast<int>(ScheduleKind::kCustom) + 1;
template <>
inline constexpr auto kEnumNames<ScheduleKind> = EnumTable("auto", "gpipe", "1f1b", "interleaved", "zero-bubble",
                                                           "zero-bubble-v", "chimera", "custom");
static_assert(kEnumNames<ScheduleKind>.size() == kScheduleKindCount);

enum class Pass : uint8_t { kForward, kBackward, kWeight };

enum class StagePlacement : uint8_t { kLooping, kV, kBidirectional };
template <>
inline constexpr auto kEnumNames<StagePlacement> = EnumTable("looping", "v", "bidirectional");

inline constexpr int32_t kNoStage = -1;

// Limits for all schedules. They are far above any existing pipeline. They are low enough that no product overflows, and that
// no text leads to tables that are larger than memory.
inline constexpr int32_t kMaxPipelineRanks = 4096;
inline constexpr int32_t kMaxPipelineChunks = 256;
inline constexpr int64_t kMaxScheduleSlots = int64_t{1} << 24;  // over all ranks

// A row of the table of kinds: what a kind fixes. A custom schedule is read from text and has no generator.
struct ScheduleKindInfo {
  ScheduleKind kind;
  StagePlacement placement;  // for kCustom: the default, if the text does not state the placement
  int32_t min_chunks, max_chunks;
  bool splits_weight;  // for kCustom: the default, if the text does not state `weight`
};
// Returns the row of a kind, which must not be kAuto.
const ScheduleKindInfo& InfoOf(ScheduleKind kind);

// Says which rank holds which virtual stage, and in which order the data passes through the stages. Arguments that are stages
// must be in [0, stages()).
struct PipelineShape {
  StagePlacement placement = StagePlacement::kLooping;
  int32_t ranks = 1;   // p
  int32_t chunks = 1;  // v: virtual stages on each rank

  bool operator==(const PipelineShape&) const = default;

  constexpr int32_t stages() const { return ranks * chunks; }
  constexpr bool bidirectional() const { return placement == StagePlacement::kBidirectional; }
  // Number of copies of the model. Each microbatch goes through one of them.
  constexpr int32_t pipes() const { return bidirectional() ? 2 : 1; }
  // Number of parts into which the model is cut.
  constexpr int32_t pieces() const { return stages() / pipes(); }

  constexpr int32_t RankOf(int32_t stage) const {
    const int32_t place = stage % ranks;
    return placement != StagePlacement::kLooping && stage >= ranks ? ranks - 1 - place : place;
  }
  constexpr int32_t ChunkOf(int32_t stage) const { return stage / ranks; }
  constexpr int32_t StageOn(int32_t rank, int32_t chunk) const {
    return chunk * ranks + (placement != StagePlacement::kLooping && chunk > 0 ? ranks - 1 - rank : rank);
  }
  constexpr int32_t PipeOf(int32_t stage) const { return stage / pieces(); }
  // The part of the model that the stage holds. Part 0 has the embedding.
  constexpr int32_t PieceOf(int32_t stage) const { return stage % pieces(); }
  // The stage after or before this stage. kNoStage: the stage holds the last piece (Next) or the first piece (Previous).
  constexpr int32_t Next(int32_t stage) const { return PieceOf(stage) + 1 < pieces() ? stage + 1 : kNoStage; }
  constexpr int32_t Previous(int32_t stage) const { return PieceOf(stage) > 0 ? stage - 1 : kNoStage; }
};

struct Slot {
  Pass pass = Pass::kForward;
  int32_t stage = 0;
  int32_t microbatch = 0;

  bool operator==(const Slot&) const = default;
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCustom;  // never kAuto
  PipelineShape shape;
  int32_t microbatches = 1;  // M: microbatches of both pipes together
  bool splits_weight = false;
  std::vector<std::vector<Slot>> ranks;  // per rank, in the order in which it runs its slots

  bool operator==(const Schedule&) const = default;
};

// An immutable schedule that the copies of a layout share. Two of these are equal if their schedules have equal values.
struct SharedSchedule {
  std::shared_ptr<const Schedule> schedule;

  bool operator==(const SharedSchedule& other) const;
};

// Returns OK if a schedule of `kind` exists for this shape and number of microbatches and is within the limits above. Otherwise
// returns InvalidArgument and says what the kind needs.
absl::Status CheckScheduleShape(ScheduleKind kind, const PipelineShape& shape, int32_t microbatches, bool splits_weight);

std::string SlotText(const Slot& slot);  // text such as "0F3"
// The text ends with a newline.
std::string ScheduleText(const Schedule& schedule);
// Parses the text. Returns InvalidArgument with line and word. ParseSchedule does not check whether the slots form a schedule;
// ValidateSchedule (planner/schedule/schedule_order.h) checks this.
absl::StatusOr<Schedule> ParseSchedule(std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_H_
