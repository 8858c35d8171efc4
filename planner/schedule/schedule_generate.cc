// One function for each schedule. A function gives the slots of one rank. See schedule_generate.h.
#include "planner/schedule/schedule_generate.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

// Collects the slots of one rank, in their order. The slots of one chunk and one kind of pass (forward, backward or weight
// gradient) are in ascending order of their microbatches. Slots of microbatches with a number of `microbatches` or more are
// left out, because these microbatches do not exist.
class RankSlots {
 public:
  RankSlots(const PipelineShape& shape, int32_t rank, int32_t microbatches, int32_t passes) : microbatches_(microbatches) {
    for (int32_t chunk = 0; chunk < shape.chunks; ++chunk) stages_.push_back(shape.StageOn(rank, chunk));
    done_.resize(stages_.size() * 3);
    slots_.reserve(static_cast<size_t>(passes) * static_cast<size_t>(microbatches) * stages_.size());
  }

  int32_t Done(Pass pass, int32_t chunk = 0) const { return done_[Index(pass, chunk)]; }

  void Run(Pass pass, int32_t chunk = 0) { RunMicrobatch(pass, chunk, done_[Index(pass, chunk)]); }

  void RunMicrobatch(Pass pass, int32_t chunk, int32_t microbatch) {
    ++done_[Index(pass, chunk)];
    if (microbatch >= microbatches_) return;
    slots_.push_back({.pass = pass, .stage = stages_[static_cast<size_t>(chunk)], .microbatch = microbatch});
  }

  std::vector<Slot> Take() && { return std::move(slots_); }

 private:
  static size_t Index(Pass pass, int32_t chunk) { return static_cast<size_t>(chunk) * 3 + static_cast<size_t>(pass); }

  int32_t microbatches_;
  std::vector<int32_t> stages_;  // for each chunk
  std::vector<int32_t> done_;    // for each chunk and pass
  std::vector<Slot> slots_;
};

void Gpipe(int32_t microbatches, RankSlots& slots) {
  for (int32_t i = 0; i < microbatches; ++i) slots.Run(Pass::kForward);
  for (int32_t i = 0; i < microbatches; ++i) slots.Run(Pass::kBackward);
}

void OneForwardOneBackwardOf(int32_t ranks, int32_t rank, int32_t microbatches, RankSlots& slots) {
  for (int32_t i = 0; i < std::min(ranks - rank, microbatches); ++i) slots.Run(Pass::kForward);
  while (slots.Done(Pass::kBackward) < microbatches) {
    slots.Run(Pass::kBackward);
    if (slots.Done(Pass::kForward) < microbatches) slots.Run(Pass::kForward);
  }
}

// On every rank, the k-th forward has the same chunk and microbatch, and so has the k-th backward. Microbatches come in groups
// of p. The forwards of a group run first on chunk 0, then on chunk 1, and so on. The backwards run through the chunks in
// descending order.
void Interleaved(const PipelineShape& shape, int32_t rank, int32_t microbatches, RankSlots& slots) {
  const int32_t p = shape.ranks;
  const int32_t v = shape.chunks;
  const int32_t groups = (microbatches + p - 1) / p;
  const int64_t passes = int64_t{groups} * p * v;
  const auto run = [&](Pass pass, int64_t k) {
    const int32_t group = static_cast<int32_t>(k / (p * v));
    const int32_t within = static_cast<int32_t>(k % (p * v));
    const int32_t chunk = within / p;
    slots.RunMicrobatch(pass, pass == Pass::kForward ? chunk : v - 1 - chunk, group * p + within % p);
  };
  const int64_t warm_up = std::min<int64_t>(2 * (p - rank - 1) + (v - 1) * p, passes);
  for (int64_t k = 0; k < warm_up; ++k) run(Pass::kForward, k);
  for (int64_t k = warm_up; k < passes; ++k) {
    run(Pass::kForward, k);
    run(Pass::kBackward, k - warm_up);
  }
  for (int64_t k = passes - warm_up; k < passes; ++k) run(Pass::kBackward, k);
}

// ZB-H1. If p microbatches have begun on this rank and their W has not run, a W runs before the next forward. After the last
// forward, a W runs between two backwards, at the times when 1F1B waits.
void ZeroBubbleH1(int32_t ranks, int32_t rank, int32_t microbatches, RankSlots& slots) {
  for (int32_t i = 0; i < std::min(ranks - rank, microbatches); ++i) slots.Run(Pass::kForward);
  while (slots.Done(Pass::kBackward) < microbatches) {
    slots.Run(Pass::kBackward);
    if (slots.Done(Pass::kForward) == microbatches) {
      slots.Run(Pass::kWeight);
      continue;
    }
    if (slots.Done(Pass::kForward) - slots.Done(Pass::kWeight) == ranks) slots.Run(Pass::kWeight);
    slots.Run(Pass::kForward);
  }
  while (slots.Done(Pass::kWeight) < microbatches) slots.Run(Pass::kWeight);
}

// ZB-V. On rank r, chunk 0 is piece r and chunk 1 is piece 2p-1-r. So the first microbatch's forward on chunk 1 begins 2(p-r)-1
// slots after its forward on chunk 0. Then forwards of the two chunks alternate for 2r+1 slots, until the first gradient of
// chunk 1 comes. Then chunk 1 runs F B W until the first gradient of chunk 0 comes. From then on, the sequences F B W of the
// two chunks alternate without stalls. At the end, the gradients go back through all stages, and the delayed W slots fill the
// gaps.
void ZeroBubbleVOf(int32_t ranks, int32_t rank, int32_t microbatches, RankSlots& slots) {
  const int32_t padded = std::max(microbatches, 2 * ranks - 1);
  constexpr int32_t kDown = 0, kUp = 1;
  const auto backward_and_weight = [&](int32_t chunk) {
    slots.Run(Pass::kBackward, chunk);
    slots.Run(Pass::kWeight, chunk);
  };
  for (int32_t i = 0; i < 2 * (ranks - rank) - 1; ++i) slots.Run(Pass::kForward, kDown);
  for (int32_t i = 0; i < rank; ++i) {
    slots.Run(Pass::kForward, kUp);
    slots.Run(Pass::kForward, kDown);
  }
  for (int32_t i = 0; i < ranks - rank; ++i) {
    slots.Run(Pass::kForward, kUp);
    backward_and_weight(kUp);
  }
  while (slots.Done(Pass::kForward, kUp) < padded) {
    if (slots.Done(Pass::kForward, kDown) < padded) slots.Run(Pass::kForward, kDown);
    backward_and_weight(kDown);
    slots.Run(Pass::kForward, kUp);
    backward_and_weight(kUp);
  }
  for (int32_t i = 0; i < rank; ++i) {
    slots.Run(Pass::kBackward, kDown);
    slots.Run(Pass::kBackward, kUp);
  }
  for (int32_t i = 0; i < ranks - rank; ++i) backward_and_weight(kDown);
  for (const int32_t chunk : {kUp, kDown}) {
    while (slots.Done(Pass::kWeight, chunk) < padded) slots.Run(Pass::kWeight, chunk);
  }
}

// Chimera. Consider a clock whose ticks are equal slots. Both pipes run 1F1B. On rank r, the m-th microbatch of the down pipe
// runs forward at tick r + 2m and backward at tick 2p-1-r + 2m. In the up pipe, r is replaced by p-1-r. A unit is the set of
// slots of p microbatches, half of them in each pipe. For even p and m < p/2, no two slots of a unit have the same tick, and
// the ticks of a unit's slots all have different remainders modulo 2p. So units that start 2p ticks apart fit together without
// gaps. The schedule is the order of the ticks.
std::vector<Slot> Chimera(const PipelineShape& shape, int32_t rank, int32_t microbatches) {
  const int32_t p = shape.ranks;
  const int32_t units = (microbatches + p - 1) / p;
  std::vector<std::optional<Slot>> ticks(static_cast<size_t>(units + 1) * 2 * static_cast<size_t>(p));
  for (int32_t unit = 0; unit < units; ++unit) {
    const int32_t first = unit * p;
    const int32_t half = std::min(p, microbatches - first) / 2;
    for (int32_t i = 0; i < 2 * half; ++i) {
      const int32_t chunk = i / half;  // first the down pipe, then the up pipe
      const int32_t place = chunk == 0 ? rank : p - 1 - rank;
      const int32_t tick = 2 * first + 2 * (i % half);
      const int32_t stage = shape.StageOn(rank, chunk);
      const auto put = [&](int32_t at, Pass pass) {
        std::optional<Slot>& slot = ticks[static_cast<size_t>(at)];
        LYNX_CHECK(!slot.has_value());
        slot = {.pass = pass, .stage = stage, .microbatch = first + i};
      };
      put(tick + place, Pass::kForward);
      put(tick + 2 * p - 1 - place, Pass::kBackward);
    }
  }
  std::vector<Slot> slots;
  slots.reserve(2 * static_cast<size_t>(microbatches));
  for (const std::optional<Slot>& slot : ticks) {
    if (slot.has_value()) slots.push_back(*slot);
  }
  return slots;
}

}  // namespace

std::vector<Slot> GenerateRank(const Schedule& schedule, int32_t rank) {
  const PipelineShape& shape = schedule.shape;
  const int32_t microbatches = schedule.microbatches;
  if (schedule.kind == ScheduleKind::kChimera) return Chimera(shape, rank, microbatches);
  RankSlots slots(shape, rank, microbatches, schedule.splits_weight ? 3 : 2);
  switch (schedule.kind) {
    case ScheduleKind::kGpipe: Gpipe(microbatches, slots); break;
    case ScheduleKind::kOneForwardOneBackward: OneForwardOneBackwardOf(shape.ranks, rank, microbatches, slots); break;
    case ScheduleKind::kInterleaved: Interleaved(shape, rank, microbatches, slots); break;
    case ScheduleKind::kZeroBubble: ZeroBubbleH1(shape.ranks, rank, microbatches, slots); break;
    case ScheduleKind::kZeroBubbleV: ZeroBubbleVOf(shape.ranks, rank, microbatches, slots); break;
    case ScheduleKind::kChimera:
    case ScheduleKind::kCustom:
    case ScheduleKind::kAuto: LYNX_CHECK(false);
  }
  return std::move(slots).Take();
}

absl::StatusOr<Schedule> GenerateSchedule(ScheduleKind kind, int32_t ranks, int32_t chunks, int32_t microbatches) {
  if (kind == ScheduleKind::kAuto) return absl::InvalidArgumentError("auto is no schedule but the choice of one");
  if (kind == ScheduleKind::kCustom) {
    return absl::InvalidArgumentError("a custom schedule is read from text; there is nothing to generate it from");
  }
  const ScheduleKindInfo& info = InfoOf(kind);
  Schedule schedule{.kind = kind,
                    .shape = {.placement = info.placement, .ranks = ranks, .chunks = chunks},
                    .microbatches = microbatches,
                    .splits_weight = info.splits_weight,
                    .ranks = {}};
  LYNX_RETURN_IF_ERROR(CheckScheduleShape(kind, schedule.shape, microbatches, schedule.splits_weight));
  schedule.ranks.reserve(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) schedule.ranks.push_back(GenerateRank(schedule, rank));
  return schedule;
}

Schedule GroupedSchedule(const Schedule& schedule, int32_t group, int32_t microbatches) {
  LYNX_CHECK(group >= 1 && schedule.microbatches == (microbatches + group - 1) / group);
  Schedule grouped{.kind = schedule.kind,
                   .shape = schedule.shape,
                   .microbatches = microbatches,
                   .splits_weight = schedule.splits_weight,
                   .ranks = {}};
  for (const std::vector<Slot>& slots : schedule.ranks) {
    std::vector<Slot>& to = grouped.ranks.emplace_back();
    for (const Slot& slot : slots) {
      const int32_t first = slot.microbatch * group, end = std::min(first + group, microbatches);
      for (int32_t microbatch = first; microbatch < end; ++microbatch) to.push_back({slot.pass, slot.stage, microbatch});
    }
  }
  return grouped;
}

}  // namespace lynx
