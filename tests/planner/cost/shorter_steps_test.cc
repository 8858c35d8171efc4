// Compares the step that follows from two shorter steps with the simulation of the whole step.
#include "planner/problem/shorter_steps.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/cost/simulate.h"
#include "planner/lower/weave.h"
#include "planner/problem/layout_schedule.h"
#include "planner/search/make_plan.h"
#include "tests/planner/lower/stage_programs.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

TEST(ShorterSteps, AreWholePeriodsShorter) {
  const ParallelLayout layout{.pp = 4};
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(layout, 1003);
  ASSERT_TRUE(shorter.has_value());
  EXPECT_EQ(shorter->fewer, 27);
  EXPECT_EQ(shorter->more, 35);
  EXPECT_EQ(shorter->Extrapolated(1003, Nanos(100), Nanos(107)), Nanos(107 + 7 * 121));
}

TEST(ShorterSteps, HaveWholeGroupsOfAWovenLayout) {
  const ParallelLayout layout{.tp = 2, .pp = 3, .weave = WeaveMode::kQuads};
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(layout, 1002);
  ASSERT_TRUE(shorter.has_value());
  EXPECT_EQ(shorter->more - shorter->fewer, 24);
  EXPECT_EQ(shorter->fewer % 24, 1002 % 24);
}

TEST(ShorterSteps, ExistOnlyWhereTheyAreShorterAndTheScheduleRepeats) {
  EXPECT_FALSE(ShorterStepsOf({.pp = 4}, 50).has_value());
  EXPECT_FALSE(ShorterStepsOf({.pp = 4, .schedule = ScheduleKind::kGpipe}, 100'000).has_value());
  EXPECT_FALSE(ShorterStepsOf({.pp = 4, .schedule = ScheduleKind::kCustom}, 100'000).has_value());
}

// Returns the step of random policies, which depend on the seed alone, with this number of microbatches.
Nanos StepOf(uint64_t seed, const ModelSpec& model, const ParallelLayout& layout, const CostModel& costs,
             int32_t microbatches) {
  std::mt19937_64 rng(seed);
  std::vector<StageContext> contexts = ContextsOf(model, layout, microbatches);
  const LayerGraph& graph = contexts.front().graph();
  Pipeline pipeline =
      LoweredWith(std::move(contexts), [&](const StageSlice& slice) { return RandomPolicy(rng, graph, slice.layers()); });
  if (layout.weave != WeaveMode::kOff) {
    for (size_t rank = 0; rank < pipeline.programs.size(); ++rank) {
      pipeline.programs[rank] = WeaveAs(pipeline.programs[rank], pipeline.contexts[rank], costs, 0);
    }
  }
  const absl::StatusOr<Simulation> simulation = Simulate(pipeline.programs, pipeline.contexts, costs);
  if (!simulation.ok()) ADD_FAILURE() << simulation.status();
  return simulation.ok() ? simulation->step : Nanos(0);
}

TEST(ShorterSteps, GiveTheStepOfTheWholeSimulation) {
  int shortened = 0, exact = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 rng(seed);
    ParallelLayout layout = RandomLayout(rng);
    if (layout.tp > 1 && layout.zero < ZeroStage::kGradients && layout.schedule != ScheduleKind::kChimera &&
        Draw(rng, 0, 2) == 0) {
      layout.weave =
          static_cast<WeaveMode>(Draw(rng, static_cast<int>(WeaveMode::kPairs), static_cast<int>(WeaveMode::kNeighbours)));
    }
    const ModelSpec model = RandomModel(rng, PipelineOf(layout).pieces() + Draw(rng, 0, 3));
    const int32_t microbatches = Draw(rng, 60, 240) * 2;
    if (!CheckScheduleOf(layout, microbatches).ok()) continue;
    const std::optional<ShorterSteps> shorter = ShorterStepsOf(layout, microbatches);
    if (!shorter) continue;
    ++shortened;
    HardwareProfile profile = StatedCpuProfile();
    profile.inter_node.bytes_per_second = int64_t{1} << Draw(rng, 20, 34);
    profile.intra_node.bytes_per_second = int64_t{1} << Draw(rng, 24, 36);
    const CostModel costs(profile, model, layout, 2, 4);
    const auto step = [&](int32_t count) { return StepOf(seed, model, layout, costs, count); };
    const Nanos whole = step(microbatches);
    const Nanos extrapolated = shorter->Extrapolated(microbatches, step(shorter->fewer), step(shorter->more));
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << LayoutText(layout) << ", " << microbatches
                                    << " microbatches");
    exact += whole == extrapolated;
    EXPECT_NEAR(Seconds(extrapolated), Seconds(whole), 1e-4 * Seconds(whole));
  }
  EXPECT_GT(shortened, 100);
  EXPECT_GT(exact, shortened * 95 / 100);  // in the others, waits need longer until they repeat
}

TEST(ShorterSteps, GiveTheStepAndTheTimesOfALongPlan) {
  PlanRequest request;
  request.spec.model = {.layers = 4, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 6'002;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .virtual_stages = 1, .weave = WeaveMode::kOff};
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 4;
  request.spec.recompute = RecomputeMode::kFull;
  request.cluster = UniformCluster(1, 4, SmallGpu());
  Normalize(request.spec);
  const Plan whole = std::get<Plan>(MakePlan(request).value());
  request.most_program_actions = 100'000;
  const Plan shortened = std::get<Plan>(MakePlan(request).value());
  EXPECT_EQ(whole.program_microbatches, 0);
  ASSERT_GT(shortened.program_microbatches, 0);
  EXPECT_LT(shortened.program_microbatches, 100);
  EXPECT_EQ(shortened.microbatches, 6'002);
  EXPECT_TRUE(CheckPlan(shortened).ok()) << CheckPlan(shortened);
  EXPECT_NE(shortened.digest, whole.digest);
  EXPECT_EQ(shortened.step, whole.step);
  for (size_t i = 0; i < whole.stages.size(); ++i) {
    const StagePlan &a = whole.stages[i], &b = shortened.stages[i];
    EXPECT_LT(b.program.size() * 100, a.program.size());
    EXPECT_EQ(a.arena, b.arena);
    EXPECT_GT(a.recompute_exposed, Nanos(0));
    for (const auto time : {&StagePlan::forward, &StagePlan::backward, &StagePlan::optimizer, &StagePlan::recompute_hidden,
                            &StagePlan::recompute_exposed, &StagePlan::communication_exposed, &StagePlan::stall}) {
      EXPECT_EQ(a.*time, b.*time) << i;
    }
  }
  request.spec.train.global_batch = 600;
  Normalize(request.spec);
  EXPECT_EQ(std::get<Plan>(MakePlan(request).value()).program_microbatches, 0) << "a short step keeps its programs";
}

}  // namespace
}  // namespace lynx
