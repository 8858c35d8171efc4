// The table of schedule kinds, and what each kind needs. See schedule.h.
#include "planner/schedule/schedule.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {
namespace {

using enum ScheduleKind;

// Columns: kind, placement, minimum and maximum chunks, whether W is a slot of its own. The rows are in the order of
// ScheduleKind and begin with kGpipe.
constexpr std::array<ScheduleKindInfo, kScheduleKindCount - 1> kKinds = {{
    {kGpipe, StagePlacement::kLooping, 1, 1, false},
    {kOneForwardOneBackward, StagePlacement::kLooping, 1, 1, false},
    {kInterleaved, StagePlacement::kLooping, 2, kMaxPipelineChunks, false},
    {kZeroBubble, StagePlacement::kLooping, 1, 1, true},
    {kZeroBubbleV, StagePlacement::kV, 2, 2, true},
    {kChimera, StagePlacement::kBidirectional, 2, 2, false},
    {kCustom, StagePlacement::kLooping, 1, kMaxPipelineChunks, false},
}};

absl::Status CheckBounds(const PipelineShape& shape, int32_t microbatches, bool splits_weight) {
  if (shape.ranks < 1 || shape.ranks > kMaxPipelineRanks) {
    return absl::InvalidArgumentError(absl::StrCat("a pipeline has 1 to ", kMaxPipelineRanks, " ranks, not ", shape.ranks));
  }
  if (shape.chunks < 1 || shape.chunks > kMaxPipelineChunks) {
    return absl::InvalidArgumentError(absl::StrCat("a rank has 1 to ", kMaxPipelineChunks, " chunks, not ", shape.chunks));
  }
  if (shape.placement != StagePlacement::kLooping && shape.chunks != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", EnumName(shape.placement), " puts 2 chunks on each rank, not ", shape.chunks));
  }
  const int64_t passes = splits_weight ? 3 : 2;
  const int64_t most = kMaxScheduleSlots / (passes * shape.pieces());
  if (microbatches < 1 || microbatches > most) {
    return absl::InvalidArgumentError(absl::StrCat("a schedule of ", shape.pieces(), " stages has 1 to ", most,
                                                   " microbatches (", kMaxScheduleSlots, " slots), not ", microbatches));
  }
  return absl::OkStatus();
}

}  // namespace

const ScheduleKindInfo& InfoOf(ScheduleKind kind) {
  LYNX_CHECK(kind != kAuto);
  const ScheduleKindInfo& info = kKinds[static_cast<size_t>(kind) - 1];
  LYNX_CHECK(info.kind == kind);
  return info;
}

bool SharedSchedule::operator==(const SharedSchedule& other) const {
  if (schedule == other.schedule) return true;
  return schedule && other.schedule && *schedule == *other.schedule;
}

absl::Status CheckScheduleShape(ScheduleKind kind, const PipelineShape& shape, int32_t microbatches, bool splits_weight) {
  if (kind == kAuto) return absl::InvalidArgumentError("auto is no schedule but the choice of one");
  const ScheduleKindInfo& info = InfoOf(kind);
  const std::string name = EnumName(kind);
  if (kind != kCustom) {
    if (shape.placement != info.placement) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has placement ", EnumName(info.placement), ", not ",
                                                     EnumName(shape.placement), "; a custom schedule may"));
    }
    if (splits_weight != info.splits_weight) {
      return absl::InvalidArgumentError(absl::StrCat(name, info.splits_weight ? " splits" : " does not split",
                                                     " weight gradients from backward; a custom schedule may choose"));
    }
  }
  if (shape.chunks < info.min_chunks || shape.chunks > info.max_chunks) {
    const std::string range = info.min_chunks == info.max_chunks ? absl::StrCat(info.min_chunks)
                                                                 : absl::StrCat(info.min_chunks, " to ", info.max_chunks);
    return absl::InvalidArgumentError(absl::StrCat(name, " puts ", range, " chunks on each rank, not ", shape.chunks,
                                                   kind == kInterleaved && shape.chunks == 1 ? "; use 1f1b" : ""));
  }
  if (absl::Status status = CheckBounds(shape, microbatches, splits_weight); !status.ok()) return status;
  if (kind == kChimera && shape.ranks % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("chimera needs an even number of ranks, not ", shape.ranks,
                                                   ": in an odd one the two pipes would meet in the same slots"));
  }
  if (kind == kChimera && microbatches % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chimera needs an even number of microbatches, half for each pipe, not ", microbatches));
  }
  return absl::OkStatus();
}

}  // namespace lynx
