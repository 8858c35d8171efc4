// The memory of a pipeline rank's programs: peaks by sums, and peaks and arenas of lowered programs. See stage_oracle.h.
#include <algorithm>
#include <limits>

#include "common/check.h"
#include "planner/lower/lower.h"
#include "planner/lower/weave.h"
#include "planner/problem/layout_schedule.h"
#include "planner/program/arena_layout.h"
#include "planner/program/memory_model.h"
#include "planner/stages/stage_oracle.h"

namespace lynx {
namespace {

// A probe program has at most 2 * (n + kProbeMicrobatches) microbatches. n is the number of microbatches in flight or of
// pipeline ranks, whichever is larger. With more microbatches, the arena would not be larger.
constexpr int32_t kProbeMicrobatches = 2;
// In a program with more actions than this, the search for a small arena takes too long to make it for every policy.
constexpr size_t kLongProgram = 4096;
constexpr size_t kLongWovenProgram = 2048;
constexpr Bytes kUnlimited{std::numeric_limits<int64_t>::max()};

}  // namespace

Bytes StageOracle::Peak(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit) {
  // The memory that a chain holds for a microbatch depends on the actions before and after the chain. So only a program gives
  // the peak.
  if (!std::all_of(policies.begin(), policies.end(), StoresAlike)) {
    return Probe(stage, policies, Probed::kLiveness).live_peak;
  }
  int32_t layers = 0;
  for (const StagePolicy& policy : policies) layers += static_cast<int32_t>(policy.layers.size());
  const bool mixed = DenseLayersOf(stage, layers) > 0;  // StagePeaks knows only layers with experts
  if (lowers_peaks_ || mixed) {
    return PeakOfProgram(stage, policies, lowers_peaks_ ? Probed::kArena : Probed::kLiveness, limit);
  }
  return PeakOfSums(stage, policies);
}

Bytes StageOracle::PeakOfSums(int32_t stage, const std::vector<StagePolicy>& policies) {
  if (candidate_.layout.schedule != ScheduleKind::kOneForwardOneBackward || candidate_.layout.weave != WeaveMode::kOff) {
    return PeakOfSlots(stage, policies);
  }
  const SliceEnds ends = PartsOf(stage, 1).front().ends;
  return peaks_.Peak(ends, policies.front(), InFlightOf(stage), candidate_.microbatches);
}

// The whole microbatch is held from the begin of F to the end of B. What W reads is held until the end of W. In addition, a
// slot needs as much transient memory as a slot of a pipeline with one virtual stage. Each of the slots that run side by side
// needs this transient memory.
Bytes StageOracle::PeakOfSlots(int32_t stage, const std::vector<StagePolicy>& policies) {
  const auto chunks = static_cast<size_t>(pipeline_.chunks);
  const bool split = SplitsWeight(candidate_.layout);
  std::vector<Bytes> stored(chunks), for_weights(chunks), beside(chunks);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const SliceEnds ends = PartsOf(stage, pipeline_.chunks)[chunk].ends;
    const int32_t in_flight = ends.head ? 1 : RepeatsFrom(policies[chunk]);
    stored[chunk] = peaks_.StoredOf(ends, policies[chunk]);
    if (split) for_weights[chunk] = peaks_.StoredForWeights(ends, policies[chunk]);
    beside[chunk] = (peaks_.Peak(ends, policies[chunk], in_flight, in_flight + 2) - stored[chunk] * in_flight) *
                    StrandsOf(candidate_.layout.weave);
  }
  Bytes held, peak;
  for (const Slot& slot : facts_->schedule.ranks[static_cast<size_t>(stage)]) {
    const auto chunk = static_cast<size_t>(pipeline_.ChunkOf(slot.stage));
    if (slot.pass == Pass::kForward) held += stored[chunk];
    peak = std::max(peak, held + beside[chunk]);
    if (slot.pass == Pass::kBackward) held += for_weights[chunk] - stored[chunk];
    if (slot.pass == Pass::kWeight) held -= for_weights[chunk];
  }
  return peak;
}

Bytes StageOracle::PeakOfProgram(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed,
                                 std::optional<Bytes> limit) {
  std::vector<LayerPolicy> all;
  for (const StagePolicy& policy : policies) all.insert(all.end(), policy.layers.begin(), policy.layers.end());
  auto [it, inserted] = lowered_peaks_.try_emplace({stage, probed, limit.value_or(Bytes(0)), std::move(all)});
  if (inserted) {
    const MemoryPlan memory = Probe(stage, policies, probed, limit);
    it->second = probed == Probed::kArena ? memory.arena : memory.live_peak;
  }
  return it->second;
}

Program StageOracle::Lower(const StageContext& context, const std::vector<RankSlot>& slots,
                           const std::vector<StagePolicy>& policies) const {
  Program program = LowerStage(context, slots, policies);
  if (context.layout.weave == WeaveMode::kOff) return program;
  const CostModel& costs = costs_.Of(context.pipeline_rank);
  if (tuning_) return WeaveAs(program, context, costs, *tuning_);
  return Weave(program, context, costs, Limit(context)).program;
}

bool StageOracle::WithinLimit(const StageContext& context, const Program& program) const {
  const std::optional<Bytes> limit = Limit(context);
  const absl::StatusOr<MemoryPlan> memory = FoldLiveness(program, context);
  LYNX_CHECK(memory.ok());
  return !limit || memory->live_peak <= *limit;
}

// Lowers a program of which only the memory is used. If it is woven, the first program of a stage finds a tuning, and later
// programs use the same tuning, because the best order hardly depends on the policies. If the memory then exceeds the limit,
// all tunings are tried again, unless it is known that no other tuning needs less memory.
Program StageOracle::LowerToProbe(const StageContext& context, const std::vector<RankSlot>& slots,
                                  const std::vector<StagePolicy>& policies, std::optional<Bytes> limit) {
  Program program = LowerStage(context, slots, policies);
  if (context.layout.weave == WeaveMode::kOff) return program;
  const CostModel& costs = costs_.Of(context.pipeline_rank);
  if (tuning_) return WeaveAs(program, context, costs, *tuning_);
  const auto fits = [&](const Program& woven) {
    if (!limit) return true;
    const absl::StatusOr<MemoryPlan> memory = FoldLiveness(woven, context);
    LYNX_CHECK(memory.ok());
    return memory->live_peak <= *limit;
  };
  const auto known = tunings_.find(context.pipeline_rank);
  if (known != tunings_.end()) {
    Program same = WeaveAs(program, context, costs, known->second.tuning);
    if (known->second.least || fits(same)) return same;
  }
  WovenProgram woven = Weave(program, context, costs, limit);
  tunings_[context.pipeline_rank] = {woven.tuning, !fits(woven.program)};
  return std::move(woven.program);
}

MemoryPlan StageOracle::Probe(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed,
                              std::optional<Bytes> limit) {
  int32_t layers = 0;
  for (const StagePolicy& policy : policies) layers += static_cast<int32_t>(policy.layers.size());
  StageContext context = Context(stage, layers);
  // The program has more microbatches than are ever in flight, unless the step itself has no more. `enough` is even, because a
  // schedule with two pipes needs this.
  const int32_t enough = 2 * (std::max(pipeline_.ranks, in_flight_[static_cast<size_t>(stage)]) + kProbeMicrobatches);
  // A custom schedule has a fixed number of microbatches.
  const bool any_number = candidate_.layout.schedule != ScheduleKind::kCustom;
  context.microbatches = any_number ? std::min(candidate_.microbatches, enough) : candidate_.microbatches;
  const PipelineSlots& slots = caches_.SlotsOf(candidate_.layout, context.microbatches);
  const Program program = LowerToProbe(context, slots[static_cast<size_t>(stage)], policies, limit);
  absl::StatusOr<MemoryPlan> memory = FoldLiveness(program, context);
  LYNX_CHECK(memory.ok());
  if (probed == Probed::kArena) {
    // In a short program, the search for a small arena is fast, and a small arena leaves more memory for HEU's budget. In a
    // long program, most arenas are within the limit at the first attempt, or cannot be within it because the live peak is
    // above it. The search is made only for the other arenas.
    const bool woven = context.layout.weave != WeaveMode::kOff;  // with more live buffers, the search takes longer
    const bool searches = !limit || program.size() <= (woven ? kLongWovenProgram : kLongProgram);
    const bool hopeless = !searches && memory->live_peak > *limit;
    LayOut(program, hopeless ? kUnlimited : searches ? Bytes(0) : *limit, *memory);
  }
  return *std::move(memory);
}

}  // namespace lynx
