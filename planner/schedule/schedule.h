// Pipeline schedules: the order in which each rank of a pipeline runs the passes of its stages, as values that do not
// depend on layers, times or bytes. A pipeline here is a sequence of tensor-parallel groups; `rank` is a place in it,
// 0..ranks-1.
//
// Virtual stages. A rank holds `chunks` parts of the model (in a bidirectional pipeline: of two copies of the model), so a
// pipeline has stages() = ranks * chunks virtual stages. Stage k is chunk k / ranks of its rank. The placement says on which
// rank each stage is, and to which stage the data goes next:
//
//   looping         stage k on rank k % p; the model is the stages 0..pv-1 in turn.         v any  1F1B, interleaved
//   v               the second chunk runs back: stage p+i on rank p-1-i; 0..2p-1 in turn.   v = 2  ZB-V
//   bidirectional   stages 0..p-1 on ranks 0..p-1 are one copy of the model (pipe 0, down),  v = 2  Chimera
//                   stages p..2p-1 on ranks p-1..0 a second one (pipe 1, up).
//
// Slots. A slot is one pass of one stage for one microbatch. If the schedule splits weight gradients off
// (`splits_weight`), B computes the gradient of the stage's input and W the gradients of its weights; else B computes
// both.
//
// Text, which is printed and parsed back exactly: one line with the kind and the shape, then one line per rank with one
// word per slot (stage, letter, microbatch: the numbers that the lowered actions carry). `#` starts a comment.
//
//   1f1b ranks=2 chunks=1 microbatches=3
//   0F0 0F1 0B0 0F2 0B1 0B2
//   1F0 1B0 1F1 1B1 1F2 1B2
//
// Every kind except `custom` fixes the placement and whether weights are split. `custom` states them:
// `placement=looping|v|bidirectional` `weight=fused|split`; the defaults are looping and fused. `chunks` is required only
// for interleaved.
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

// Order of forward and backward passes of a pipeline; schedule_generate.h describes each. kAuto: the planner chooses. kCustom:
// given by the user as text.
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

// Limits for all schedules. They are far above any existing pipeline, but low enough that no product overflows and that no text
// leads to tables that are larger than memory.
inline constexpr int32_t kMaxPipelineRanks = 4096;
inline constexpr int32_t kMaxPipelineChunks = 256;
inline constexpr int64_t kMaxScheduleSlots = int64_t{1} << 24;  // over all ranks

// The table of kinds and what each kind fixes. A custom schedule is read from text and has no generator.
struct ScheduleKindInfo {
  ScheduleKind kind;
  StagePlacement placement;  // custom: the default, if the text does not state it
  int32_t min_chunks, max_chunks;
  bool splits_weight;  // custom: the default, if the text does not state it
};
// The kind must not be kAuto.
const ScheduleKindInfo& InfoOf(ScheduleKind kind);

// Says which rank holds which virtual stage, and in which order the data passes through the stages. Stages must be in [0,
// stages()).
struct PipelineShape {
  StagePlacement placement = StagePlacement::kLooping;
  int32_t ranks = 1;   // p
  int32_t chunks = 1;  // v: virtual stages on each rank

  bool operator==(const PipelineShape&) const = default;

  constexpr int32_t stages() const { return ranks * chunks; }
  constexpr bool bidirectional() const { return placement == StagePlacement::kBidirectional; }
  // Copies of the model; each microbatch goes through one of them.
  constexpr int32_t pipes() const { return bidirectional() ? 2 : 1; }
  // Parts into which the model is cut.
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
  // The part of the model that the stage holds; part 0 has the embedding.
  constexpr int32_t PieceOf(int32_t stage) const { return stage % pieces(); }
  // kNoStage after the last piece, and before the first one.
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
  int32_t microbatches = 1;  // M, both pipes together
  bool splits_weight = false;
  std::vector<std::vector<Slot>> ranks;  // per rank, in the order in which it runs its slots

  bool operator==(const Schedule&) const = default;
};

// An immutable schedule shared by copies of a layout. Compared by value.
struct SharedSchedule {
  std::shared_ptr<const Schedule> schedule;

  bool operator==(const SharedSchedule& other) const;
};

// Returns OK if a schedule of `kind` exists for this shape and number of microbatches within the limits above. Otherwise
// returns InvalidArgument, which says what the kind needs.
absl::Status CheckScheduleShape(ScheduleKind kind, const PipelineShape& shape, int32_t microbatches, bool splits_weight);

std::string SlotText(const Slot& slot);  // "0F3"
// Ends with a newline.
std::string ScheduleText(const Schedule& schedule);
// Parses the text. It does not check whether the slots form a schedule; ValidateSchedule (planner/schedule/schedule_order.h)
// does. Returns InvalidArgument with line and word.
absl::StatusOr<Schedule> ParseSchedule(std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_H_
