// Tests plans of jobs that say how many layers each stage has (parallel.stageLayers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/supported.h"
#include "planner/export/export.h"
#include "planner/search/compare.h"
#include "planner/search/make_plan.h"
#include "planner/stages/layout_planner.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using enum ScheduleKind;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Returns a request for 13 layers on two stages of four devices each.
PlanRequest Request(const ParallelSpec& parallel, std::vector<int32_t> layers) {
  PlanRequest request;
  request.target = PlanTarget::kAnyFramework;
  request.spec.name = "job";
  request.spec.data.path = "corpus";
  request.spec.model = {.layers = 13, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 8;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = parallel;
  request.spec.parallel.stage_layers = std::move(layers);
  request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
  request.cluster = UniformCluster(2, 4, SmallGpu());
  Normalize(request.spec);
  EXPECT_EQ(ValidateJobSpec(request.spec), absl::OkStatus());
  return request;
}

// The layers of each piece of the model.
std::vector<int32_t> PieceLayers(const Plan& plan) {
  const PipelineShape pipeline = PipelineOf(plan.layout);
  std::vector<int32_t> layers(static_cast<size_t>(pipeline.pieces()));
  for (const StagePlan& stage : plan.stages) {
    for (const SlicePlan& slice : stage.slices) layers[static_cast<size_t>(pipeline.PieceOf(slice.stage))] = slice.layers();
  }
  return layers;
}

Plan Planned(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << result.status();
  return result.ok() && std::holds_alternative<Plan>(*result) ? std::get<Plan>(*result) : Plan();
}

TEST(StageLayers, AreThoseOfThePlanInEverySchedule) {
  struct Case {
    ParallelSpec parallel;
    std::vector<int32_t> layers;
    int64_t limit = 4500;  // KiB; less than all activations, so that stages recompute
  };
  const Case cases[] = {
      {{.tp = 4, .pp = 2, .schedule = kGpipe}, {5, 8}},
      {{.tp = 4, .pp = 2}, {10, 3}},
      {{.tp = 2, .pp = 4, .schedule = kZeroBubble}, {1, 5, 6, 1}, 7000},
      {{.tp = 4, .pp = 2, .schedule = kZeroBubbleV}, {1, 5, 3, 4}},
      {{.tp = 4, .pp = 2, .schedule = kChimera}, {9, 4}},
      {{.tp = 4, .pp = 2, .schedule = kInterleaved}, {1, 7, 3, 2}},
      {{.tp = 4, .pp = 2}, {1, 1, 1, 6, 3, 1}},  // three chunks, because the list has six entries
  };
  for (const auto& [parallel, layers, tight] : cases) {
    for (const int64_t limit : {int64_t{0}, tight}) {
      SCOPED_TRACE(testing::Message() << EnumName(parallel.schedule) << " limit " << limit);
      PlanRequest request = Request(parallel, layers);
      request.spec.resources.activation_memory_per_rank = kKiB * limit;
      const Plan plan = Planned(request);
      ASSERT_FALSE(plan.stages.empty());
      EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
      EXPECT_THAT(PieceLayers(plan), ElementsAreArray(layers));
      for (const StagePlan& stage : plan.stages) {
        if (limit > 0) EXPECT_LE(stage.arena, kKiB * limit);
      }
    }
  }
}

// The planner's own partition is at least as fast, and the list of its numbers of layers gives the same step.
TEST(StageLayers, OfThePlannersPartitionGiveItsPlan) {
  PlanRequest free = Request({.tp = 4, .pp = 2, .virtual_stages = 1, .schedule = kOneForwardOneBackward}, {});
  free.spec.resources.activation_memory_per_rank = kKiB * 4500;
  const Plan best = Planned(free);
  PlanRequest same = free;
  same.spec.parallel.stage_layers = PieceLayers(best);
  EXPECT_EQ(Planned(same).step, best.step);
  PlanRequest other = free;
  other.spec.parallel.stage_layers = {11, 2};
  EXPECT_GT(Planned(other).step, best.step);
}

TEST(StageLayers, NoSimulatedStepIsShorterThanTheBound) {
  for (const std::vector<int32_t>& layers :
       {std::vector<int32_t>{10, 3}, std::vector<int32_t>{1, 7, 3, 2}, std::vector<int32_t>{1, 1, 1, 6, 3, 1}}) {
    for (const int64_t limit : {0, 3000, 4500}) {
      PlanRequest request = Request({.tp = 4, .pp = 2, .dp = 1}, layers);
      request.spec.resources.activation_memory_per_rank = kKiB * limit;
      const auto candidates = SupportedCandidates(request);
      ASSERT_TRUE(candidates.ok()) << candidates.status();
      PlanCaches caches(request);
      for (const Candidate& candidate : *candidates) {
        SCOPED_TRACE(testing::Message() << LayoutText(candidate.layout) << " limit " << limit);
        EXPECT_EQ(PipelineOf(candidate.layout).pieces(), static_cast<int32_t>(layers.size()));
        const std::optional<Draft> draft =
            LayoutPlanner(request, candidate, caches).Best(Nanos(std::numeric_limits<int64_t>::max()));
        if (!draft) continue;
        const std::optional<Nanos> bound = CandidateBound(request, candidate, caches).Bound();
        ASSERT_TRUE(bound.has_value());
        EXPECT_LE(*bound, draft->step);
      }
    }
  }
}

// The states of twelve layers do not fit on a device, and those of seven layers do.
TEST(StageLayers, OtherNumbersAreTheSmallestChangeIfTheyFit) {
  PlanRequest request = Request({.tp = 4, .pp = 2, .dp = 1}, {12, 1});
  request.spec.model.attention = AttentionKernel::kFused;
  request.cluster = UniformCluster(2, 4, SmallGpu(), kMiB * 9);
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok() && std::holds_alternative<Infeasible>(*result)) << result.status();
  EXPECT_EQ(std::get<Infeasible>(*result).suggestion, "parallel.stageLayers: []");
  EXPECT_EQ(std::get<Infeasible>(*result).stage, 0);
}

TEST(StageLayers, AreComparedWithThePartitionMethods) {
  const PlanRequest request = Request({.tp = 4, .pp = 2, .dp = 1}, {10, 3});
  const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(request);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(PieceLayers(comparison->best), ElementsAreArray({10, 3}));
  ASSERT_TRUE(comparison->partitions.front().plan.has_value());
  EXPECT_LT(comparison->partitions.front().plan->step, comparison->best.step) << "exact ignores the list";
}

TEST(StageLayers, AreExportedAsTheLayoutOfMegatron) {
  const ExportTarget megatron = NewestTarget(ExportFormat::kMegatron);
  const PlanRequest request = Request({.tp = 4, .pp = 2, .dp = 1}, {1, 7, 3, 2});
  const absl::StatusOr<PlanResult> result = MakePlanFor(ExportFormat::kMegatron, request);
  ASSERT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << result.status();
  const absl::StatusOr<ExportedPlan> exported = ExportPlan(megatron, request, std::get<Plan>(*result));
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->files[0].text, HasSubstr("--pipeline-model-parallel-layout 'Et|t*7|t*3|t*2L'"));
}

// Other frameworks interleave only whole groups of microbatches, so the error names this reason.
TEST(StageLayers, OfChunksAreExportedWithWholeGroupsOfMicrobatches) {
  PlanRequest request = Request({.tp = 4, .pp = 2, .dp = 1}, {1, 7, 3, 2});
  request.spec.train.global_batch = 7;
  EXPECT_TRUE(MakePlan(request).ok()) << "planned for the engine's order";
  const auto error = [&] { return std::string(MakePlanFor(ExportFormat::kMegatron, request).status().message()); };
  EXPECT_THAT(error(), HasSubstr("the microbatches of the interleaved schedule be a multiple of parallel.pp"));
  request.spec.parallel.cp = 1;
  EXPECT_THAT(error(), HasSubstr("for other frameworks the interleaved schedule (parallel.virtualStages 2) needs a multiple of "
                                 "parallel.pp = 2 microbatches"));
}

}  // namespace
}  // namespace lynx
