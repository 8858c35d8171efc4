// Compares programs with their schedules. The values of a program must not depend on the schedule. Its memory must follow the
// schedule's in-flight counts, and its time must be that of the schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/cost/cost_model.h"
#include "planner/cost/simulate.h"
#include "planner/problem/layout_schedule.h"
#include "planner/program/memory_model.h"
#include "planner/program/validate.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/schedule/schedule_memory.h"
#include "planner/schedule/transfer_timeline.h"
#include "tests/planner/lower/same_values.h"
#include "tests/planner/lower/stage_programs.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/schedule/schedules.h"

namespace lynx {
namespace {

Schedule ScheduleOf(const StageContext& context) {
  const PipelineShape pipeline = context.pipeline();
  return Generated(context.layout.schedule, pipeline.ranks, pipeline.chunks, context.microbatches);
}

TEST(ScheduleProgram, ComputesTheSameWhateverScheduleAndPolicy) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 rng(seed);
    const Pipeline p = RandomPipeline(rng, /*experts=*/seed % 3 == 0);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << NameOf(p));
    ExpectSameValues(p);
    if (HasFailure()) return;
  }
}

// Returns the slot to which a compute action belongs.
Slot SlotOf(const Action& action, bool splits_weight) {
  Pass pass = action.kind == ActionKind::kForward ? Pass::kForward : Pass::kBackward;
  if (action.kind == ActionKind::kWeight && splits_weight) pass = Pass::kWeight;
  return {pass, action.stage, action.microbatch};
}

bool IsPass(const Action& action) {
  return action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeight;
}

struct SlotEnd {
  Slot slot;
  int32_t action;  // index of the last action of the slot
};

std::vector<SlotEnd> SlotEnds(const Program& program, bool splits_weight) {
  std::vector<SlotEnd> ends;
  for (size_t i = 0; i < program.size(); ++i) {
    if (!IsPass(program[i])) continue;
    const Slot slot = SlotOf(program[i], splits_weight);
    if (ends.empty() || ends.back().slot != slot) ends.push_back({slot, 0});
    ends.back().action = static_cast<int32_t>(i);
  }
  return ends;
}

TEST(ScheduleProgram, RunsItsSlotsInOrder) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 rng(seed);
    const Pipeline p = RandomPipeline(rng);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << NameOf(p));
    const Schedule schedule = ScheduleOf(p.contexts.front());
    for (size_t rank = 0; rank < p.programs.size(); ++rank) {
      std::vector<Slot> slots;
      for (const SlotEnd& end : SlotEnds(p.programs[rank], schedule.splits_weight)) slots.push_back(end.slot);
      ASSERT_EQ(slots, schedule.ranks[rank]);
    }
  }
}

// Finds what a rank holds between slots. Two kinds of tensors do not count, because they only cross the rank's border: inputs
// that arrived early, and results that are not sent yet.
class HeldMemory {
 public:
  HeldMemory(const Program& program, const StageContext& context, const MemoryPlan& memory, const Schedule& schedule)
      : context_(context), memory_(memory), ends_(SlotEnds(program, schedule.splits_weight)) {}

  // Returns for each virtual stage what its first microbatch holds after its forward pass and after its backward pass.
  std::map<int32_t, StageHeldBytes> PerStage() const {
    std::map<int32_t, StageHeldBytes> held;
    std::set<std::pair<int32_t, Pass>> seen;
    for (const SlotEnd& end : ends_) {
      if (!seen.insert({end.slot.stage, end.slot.pass}).second) continue;
      const Bytes bytes = Across(end.action, [&](const BufferKey& key) {
        return key.microbatch == end.slot.microbatch && StageOf(key) == end.slot.stage;
      });
      if (end.slot.pass == Pass::kForward) held[end.slot.stage].activations = bytes;
      if (end.slot.pass == Pass::kBackward) held[end.slot.stage].weights = bytes;
    }
    return held;
  }

  Bytes Peak() const {
    Bytes peak;
    // Stage and microbatch of forward slots (begun) and backward slots (ended).
    std::set<std::pair<int32_t, int32_t>> begun, ended;
    for (const SlotEnd& end : ends_) {
      if (end.slot.pass == Pass::kForward) begun.insert({end.slot.stage, end.slot.microbatch});
      peak = std::max(peak, Across(end.action, [&](const BufferKey& key) {
                        const int32_t stage = StageOf(key);
                        return stage >= 0 && begun.contains({stage, key.microbatch});
                      }));
    }
    return peak;
  }

 private:
  // Returns the bytes of the buffers that are still alive after the action and for which `counts` is true.
  template <class Counts>
  Bytes Across(int32_t action, const Counts& counts) const {
    Bytes sum;
    for (const BufferInstance& buffer : memory_.buffers) {
      if (buffer.first <= action && buffer.last > action && counts(buffer.key)) sum += buffer.bytes;
    }
    return sum;
  }

  // Returns the virtual stage that holds a buffer. -1: the buffer is a gradient that is being sent, or an x that no layer of
  // this rank reads.
  int32_t StageOf(const BufferKey& key) const {
    if (key.tensor == Tensor::kGrad) return -1;
    for (const StageSlice& slice : context_.slices) {
      if (key.layer == kEmbeddingLayer && slice.has_embedding) return slice.stage;
      if (key.layer == kHeadLayer && slice.has_head) return slice.stage;
      if (key.layer >= slice.first_layer && key.layer < slice.end_layer) return slice.stage;
    }
    return -1;
  }

  const StageContext& context_;
  const MemoryPlan& memory_;
  const std::vector<SlotEnd> ends_;
};

TEST(ScheduleProgram, MemoryFollowsTheInFlightCounts) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    std::mt19937_64 rng(seed);
    const ParallelLayout layout = RandomLayout(rng, 6);
    const int32_t pieces = PipelineOf(layout).pieces();
    const int32_t microbatches = 2 * Draw(rng, 1, 8);
    const Pipeline p = NamedPipeline(RecomputeMode::kNone, pieces + Draw(rng, 0, pieces), layout, microbatches);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << NameOf(p));
    const Schedule schedule = ScheduleOf(p.contexts.front());
    std::vector<StageHeldBytes> held(static_cast<size_t>(schedule.shape.stages()));
    std::vector<Bytes> peaks, live_peaks;
    for (size_t rank = 0; rank < p.programs.size(); ++rank) {
      const absl::StatusOr<MemoryPlan> memory = FoldLiveness(p.programs[rank], p.contexts[rank]);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const HeldMemory measured(p.programs[rank], p.contexts[rank], *memory, schedule);
      for (const auto& [stage, bytes] : measured.PerStage()) held[static_cast<size_t>(stage)] = bytes;
      peaks.push_back(measured.Peak());
      EXPECT_GE(memory->live_peak, peaks.back());
    }
    for (const StageHeldBytes& bytes : held) {
      EXPECT_GT(bytes.activations, Bytes(0));
      EXPECT_EQ(bytes.weights > Bytes(0), schedule.splits_weight);
    }
    EXPECT_EQ(peaks, PeakHeldBytes(schedule, held));
    if (HasFailure()) return;
  }
}

// Returns when the last pass of the step ends.
Nanos EndOfPasses(const Pipeline& pipeline, const Simulation& simulation) {
  Nanos end;
  for (size_t rank = 0; rank < pipeline.programs.size(); ++rank) {
    for (size_t i = 0; i < pipeline.programs[rank].size(); ++i) {
      if (IsPass(pipeline.programs[rank][i])) end = std::max(end, simulation.stages[rank].spans[i].end);
    }
  }
  return end;
}

// Returns the times of the passes of each virtual stage, without recomputation.
std::vector<TransferPassTimes> PassTimesOf(const std::vector<StageContext>& contexts, const CostModel& costs, int32_t stages) {
  std::vector<TransferPassTimes> times(static_cast<size_t>(stages));
  for (const StageContext& context : contexts) {
    for (const StageSlice& slice : context.slices) {
      TransferPassTimes& of = times[static_cast<size_t>(slice.stage)];
      const auto add = [&](LayerType type, int32_t count) {
        of.forward += costs.LayerTime(type, Pass::kForward) * count;
        of.backward += costs.InputGradientTime(type) * count;
        of.weight += costs.LayerTime(type, Pass::kWeight) * count;
      };
      add(LayerType::kTransformer, slice.layers());
      if (slice.has_embedding) add(LayerType::kEmbedding, 1);
      if (slice.has_head) add(LayerType::kHead, 1);
      of.transfer = costs.BoundaryTime(0, TensorBytes(Tensor::kX, context.shape()));
      of.after_post = costs.LayerTime(LayerType::kTransformer, Pass::kBackward) / 2;
    }
  }
  return times;
}

// Without recomputation and collectives, the timeline with transfers must give the simulated time, whatever the speed of the
// links is, and whether the layers are spread evenly or not.
TEST(ScheduleProgram, TakesTheTimeOfItsTransfers) {
  const ModelSpec model = TinyModel(24);
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 rng(seed);
    HardwareProfile profile = RoundProfile(model);
    profile.overlap_slowdown_permille = 1000;
    profile.intra_node = profile.inter_node = {Nanos(0), 64'000'000'000 / Draw(rng, 1, 200)};
    ParallelLayout layout = RandomLayout(rng, 6);
    layout.tp = layout.dp = layout.cp = 1;
    layout.sequence_parallel = false;
    const int32_t pieces = PipelineOf(layout).pieces();
    std::vector<int32_t> layers(static_cast<size_t>(pieces), 1);
    const bool even = seed % 2 == 0;
    for (int32_t i = pieces; i < model.layers; ++i) ++layers[(even ? static_cast<uint64_t>(i) : rng()) % layers.size()];
    const int32_t microbatches = 2 * Draw(rng, 1, 10);
    const std::vector<StageContext> contexts = PipelineContexts(model, layout, 1, microbatches, layers);
    const LayerGraph& graph = contexts.front().graph();
    const Pipeline p = LoweredWith(
        contexts, [&](const StageSlice& slice) { return NamedPolicy(graph, RecomputeMode::kNone, slice.layers()); });
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << NameOf(p));
    const CostModel costs(profile, model, layout, 1, 64);
    const absl::StatusOr<Simulation> simulation = Simulate(p.programs, contexts, costs);
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    const Schedule schedule = ScheduleOf(contexts.front());
    const std::vector<TransferPassTimes> times = PassTimesOf(contexts, costs, schedule.shape.stages());
    TransferScratch scratch;
    const TransferOrder order = OrderTransfers(*OrderSlots(schedule), SlotsToLower(layout, microbatches));
    const double expected = Seconds(StepTime(order, times, scratch));
    EXPECT_NEAR(Seconds(EndOfPasses(p, *simulation)), expected, 0.015 * expected);
    if (HasFailure()) return;
  }
}

TEST(ScheduleProgram, OneRanksSlotsAreThoseOfTheWholePipeline) {
  for (const ScheduleKind kind : kAllKinds) {
    const int32_t unit = kind == ScheduleKind::kChimera ? 2 : 1;
    for (int32_t p = unit; p <= 8; p += unit) {
      for (int32_t m = unit; m <= 20; m += unit) {
        ParallelLayout layout{.pp = p, .schedule = kind};
        if (kind == ScheduleKind::kInterleaved) layout.virtual_stages = 3;
        const PipelineSlots slots = SlotsToLower(layout, m);
        for (int32_t rank = 0; rank < p; ++rank) {
          ASSERT_EQ(SlotsOfRank(layout, m, rank), slots[static_cast<size_t>(rank)]) << LayoutText(layout) << " " << m;
        }
      }
    }
  }
}

// Every possible order of slots is a schedule, but programs cannot be made for all of them.
TEST(ScheduleProgram, LowersSchedulesReadFromText) {
  const Schedule read = Read(
      "custom ranks=2 microbatches=2 placement=v weight=split\n"
      "0F0 3F0 3B0 0F1 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1\n"
      "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1 2W0 2W1 1W0 1W1\n");
  const absl::StatusOr<PipelineSlots> slots = SlotsToLower(read);
  ASSERT_TRUE(slots.ok()) << slots.status();
  Pipeline p = NamedPipeline(RecomputeMode::kFull, 4, {.tp = 2, .pp = 2, .schedule = ScheduleKind::kZeroBubbleV}, 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    p.programs[rank] = LowerStage(p.contexts[rank], (*slots)[rank], p.policies[rank]);
    std::vector<Slot> run;
    for (const SlotEnd& end : SlotEnds(p.programs[rank], true)) run.push_back(end.slot);
    EXPECT_EQ(run, read.ranks[rank]);
  }
  EXPECT_TRUE(ValidatePrograms(p.programs, p.contexts).ok()) << ValidatePrograms(p.programs, p.contexts);
  ExpectSameValues(p);
  const CostModel costs(StatedCpuProfile(), p.contexts[0].model, p.contexts[0].layout, 2, 4);
  EXPECT_TRUE(Simulate(p.programs, p.contexts, costs).ok());
}

// Makes a schedule: again and again, one of the slots that can run now is chosen at random, on any rank. Each stage runs its
// microbatches in order.
Schedule AnyOrder(std::mt19937_64& rng, const ParallelLayout& layout, int32_t microbatches) {
  Schedule schedule{.shape = PipelineOf(layout),
                    .microbatches = microbatches,
                    .splits_weight = InfoOf(layout.schedule).splits_weight,
                    .ranks = std::vector<std::vector<Slot>>(static_cast<size_t>(layout.pp))};
  const PipelineShape& shape = schedule.shape;
  std::vector<std::vector<int32_t>> of_pipe(2);
  for (int32_t k = 0; k < microbatches; ++k) {
    of_pipe[static_cast<size_t>(shape.pipes() == 1 ? 0 : k < 2 ? k : Draw(rng, 0, 1))].push_back(k);
  }
  std::map<std::pair<Pass, int32_t>, size_t> done;
  const auto can_run = [&](Pass pass, int32_t stage) {
    const size_t n = done[{pass, stage}];
    if (n == of_pipe[static_cast<size_t>(shape.PipeOf(stage))].size()) return false;
    const int32_t needs = pass == Pass::kForward ? shape.Previous(stage) : shape.Next(stage);
    if (pass == Pass::kBackward && done[{Pass::kForward, stage}] <= n) return false;
    if (pass == Pass::kWeight) return done[{Pass::kBackward, stage}] > n;
    return needs == kNoStage || done[{pass, needs}] > n;
  };
  while (true) {
    std::vector<std::pair<Pass, int32_t>> runnable;
    for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      if (pass == Pass::kWeight && !schedule.splits_weight) continue;
      for (int32_t stage = 0; stage < shape.stages(); ++stage) {
        if (can_run(pass, stage)) runnable.push_back({pass, stage});
      }
    }
    if (runnable.empty()) return schedule;
    const auto [pass, stage] = runnable[rng() % runnable.size()];
    const int32_t k = of_pipe[static_cast<size_t>(shape.PipeOf(stage))][done[{pass, stage}]++];
    schedule.ranks[static_cast<size_t>(shape.RankOf(stage))].push_back({pass, stage, k});
  }
}

TEST(ScheduleProgram, LowersSlotsInAnyOrderWithoutDeadlock) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 rng(seed);
    const ParallelLayout layout = RandomLayout(rng, 8);
    const int32_t pieces = PipelineOf(layout).pieces();
    const int32_t microbatches = 2 * Draw(rng, 1, 5);
    const std::vector<StageContext> contexts = ContextsOf(SmallModel(pieces), layout, microbatches);
    const LayerGraph& graph = contexts.front().graph();
    Pipeline p = LoweredWith(contexts, [&](const StageSlice& slice) { return RandomPolicy(rng, graph, slice.layers()); });
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << NameOf(p));
    const Schedule schedule = AnyOrder(rng, layout, microbatches);
    const absl::StatusOr<PipelineSlots> slots = SlotsToLower(schedule);
    ASSERT_TRUE(slots.ok()) << slots.status() << "\n" << ScheduleText(schedule);
    for (size_t rank = 0; rank < p.programs.size(); ++rank) {
      p.programs[rank] = LowerStage(p.contexts[rank], (*slots)[rank], p.policies[rank]);
    }
    const absl::Status valid = ValidatePrograms(p.programs, p.contexts);
    ASSERT_TRUE(valid.ok()) << valid << "\n" << ScheduleText(schedule);
    const CostModel costs(StatedCpuProfile(), p.contexts[0].model, layout, 2, 8);
    const absl::StatusOr<Simulation> simulation = Simulate(p.programs, p.contexts, costs);
    ASSERT_TRUE(simulation.ok()) << simulation.status() << "\n" << ScheduleText(schedule);
    ExpectSameValues(p);
    if (HasFailure()) return;
  }
}

TEST(ScheduleProgram, RefusesSchedulesThatItMakesNoProgramsFor) {
  const auto error = [](const std::string& text) { return std::string(SlotsToLower(Read(text)).status().message()); };
  EXPECT_EQ(error("custom ranks=1 microbatches=2\n0F1 0F0 0B0 0B1\n"),
            "rank 0: 0F0 stands after 0F1; programs are made of schedules in which each stage runs its microbatches in "
            "ascending order");
  EXPECT_EQ(error("custom ranks=1 microbatches=2\n0F0 0F1 0B1 0B0\n").substr(0, 32), "rank 0: 0B0 stands after 0B1; pr");
  EXPECT_EQ(error("custom ranks=1 microbatches=2 placement=bidirectional\n0F0 1F1 0B0 1B1\n").substr(0, 37),
            "a bidirectional pipeline of 1 ranks h");
  EXPECT_EQ(error("custom ranks=1 microbatches=1\n0F0\n"), "rank 0: 0B0 is missing");
}

}  // namespace
}  // namespace lynx
