// Tests custom schedules: the planner reads them from text, checks them against a layout, and plans with them.
#include "planner/problem/layout_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/plan/plan.h"
#include "planner/schedule/custom_schedule.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using testing::HasSubstr;

// Before its first backward pass, stage 0 runs one more forward pass than in 1F1B.
constexpr char kEager[] =
    "custom ranks=2 chunks=1 microbatches=4 placement=looping weight=fused\n"
    "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\n"
    "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n";

std::string Generated(ScheduleKind kind, int32_t ranks, int32_t chunks, int32_t microbatches) {
  return ScheduleText(*GenerateSchedule(kind, ranks, chunks, microbatches));
}

std::string ErrorOf(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

PlanRequest RequestWith(const std::string& text) {
  PlanRequest request{.cluster = UniformCluster(1, 2, SmallGpu()), .target = PlanTarget::kAnyFramework};
  request.spec.name = "custom";
  request.spec.data.path = "text";
  request.spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 4;
  request.spec.train.micro_batch = 1;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 2;
  request.spec.parallel = {.tp = 1, .dp = 1, .cp = 1, .schedule = ScheduleKind::kCustom, .schedule_text = text};
  Normalize(request.spec);
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result));
  return result.ok() && std::holds_alternative<Plan>(*result) ? std::get<Plan>(*result) : Plan{};
}

TEST(CustomSchedule, ReadsAnyTextAndPrintsItAsCustom) {
  const absl::StatusOr<SharedSchedule> eager = ReadCustomSchedule(kEager);
  ASSERT_TRUE(eager.ok()) << eager.status();
  const absl::StatusOr<SharedSchedule> bubble = ReadCustomSchedule(Generated(ScheduleKind::kZeroBubbleV, 2, 2, 4));
  ASSERT_TRUE(bubble.ok()) << bubble.status();
  EXPECT_EQ(bubble->schedule->kind, ScheduleKind::kCustom);
  ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kCustom, .custom = *eager};
  EXPECT_EQ(CustomScheduleText(layout), kEager);
  EXPECT_FALSE(SplitsWeight(layout));
  layout.custom = *bubble;
  EXPECT_TRUE(SplitsWeight(layout));
  EXPECT_EQ(ScheduleOf(layout, 4), *bubble->schedule);
  EXPECT_NE(*eager, *bubble);
  EXPECT_EQ(*eager, *ReadCustomSchedule(kEager));
}

TEST(CustomSchedule, WhatIsNoScheduleIsNamed) {
  const auto error = [](const std::string& text) { return ErrorOf(ReadCustomSchedule(text).status()); };
  EXPECT_THAT(error("custom ranks=2"), HasSubstr("microbatches= is missing"));
  EXPECT_THAT(error("custom ranks=1 microbatches=1\n0B0 0F0\n"), HasSubstr("no 0F0 stands before it"));
  EXPECT_THAT(error("custom ranks=1 microbatches=2\n0F1 0F0 0B0 0B1\n"), HasSubstr("ascending order"));
}

TEST(CustomSchedule, MustHaveTheLayoutsShape) {
  ParallelLayout layout{.pp = 4, .schedule = ScheduleKind::kCustom};
  EXPECT_THAT(ErrorOf(SetCustomSchedule(kEager, layout)),
              HasSubstr("one of 2 ranks, 1 virtual stages and 4 microbatches; the layout has 4, 1 and 4"));
  layout = {.pp = 2, .schedule = ScheduleKind::kGpipe};
  EXPECT_THAT(ErrorOf(SetCustomSchedule(kEager, layout)), HasSubstr("a text comes with the schedule gpipe"));
  EXPECT_TRUE(SetCustomSchedule("", layout).ok());
  layout = {.pp = 2, .schedule = ScheduleKind::kCustom};
  EXPECT_FALSE(SetCustomSchedule("", layout).ok());
  EXPECT_THAT(ErrorOf(CheckScheduleOf(layout, 4)), HasSubstr("has the slots of its schedule if that is custom"));
  ASSERT_TRUE(SetCustomSchedule(kEager, layout).ok());
  EXPECT_TRUE(CheckScheduleOf(layout, 4).ok());
  EXPECT_THAT(ErrorOf(CheckScheduleOf(layout, 5)), HasSubstr("the layout has 2, 1 and 5"));
}

TEST(CustomSchedule, FixesTheDegreesOfAJob) {
  const JobSpec spec = RequestWith(Generated(ScheduleKind::kInterleaved, 2, 3, 4)).spec;
  EXPECT_EQ(spec.parallel.pp, 2);
  EXPECT_EQ(spec.parallel.virtual_stages, 3);
  EXPECT_THAT(spec.parallel.schedule_text, testing::StartsWith("custom ranks=2 chunks=3"));
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  EXPECT_EQ(RequestWith(Generated(ScheduleKind::kZeroBubbleV, 2, 2, 4)).spec.parallel.virtual_stages, 1);

  const auto error = [](const std::function<void(ParallelSpec&)>& change) {
    JobSpec changed = RequestWith(kEager).spec;
    change(changed.parallel);
    return ErrorOf(ValidateJobSpec(changed));
  };
  EXPECT_THAT(error([](ParallelSpec& p) { p.pp = 1; }), HasSubstr("parallel.pp is 1: must be 2 or auto"));
  EXPECT_THAT(error([](ParallelSpec& p) { p.virtual_stages = 2; }), HasSubstr("parallel.virtualStages is 2: must be 1"));
  EXPECT_THAT(error([](ParallelSpec& p) { p.schedule_text = "none"; }), HasSubstr("parallel.schedule: "));
  EXPECT_THAT(error([](ParallelSpec& p) { p.schedule = ScheduleKind::kGpipe; }),
              HasSubstr("parallel.schedule is gpipe: only a custom schedule has a text"));
}

// A schedule is printed, and the text is read again. The plan for the text must have the same programs, times and memory as the
// plan for the schedule.
TEST(CustomSchedule, ThePlanIsThatOfTheScheduleThatItSays) {
  using enum ScheduleKind;
  for (const auto& [kind, chunks] : {std::pair(kGpipe, 1), std::pair(kOneForwardOneBackward, 1), std::pair(kInterleaved, 2),
                                     std::pair(kZeroBubble, 1), std::pair(kZeroBubbleV, 2), std::pair(kChimera, 2)}) {
    PlanRequest request = RequestWith(Generated(kind, 2, chunks, 4));
    request.spec.recompute = RecomputeMode::kFull;
    const Plan custom = PlanOf(request);
    EXPECT_EQ(CheckPlan(custom), absl::OkStatus()) << EnumName(kind);
    request.spec.parallel.schedule = kind;
    request.spec.parallel.schedule_text.clear();
    const Plan plan = PlanOf(request);
    EXPECT_EQ(custom.step, plan.step) << EnumName(kind);
    ASSERT_EQ(custom.stages.size(), plan.stages.size());
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      EXPECT_EQ(custom.stages[i].program, plan.stages[i].program) << EnumName(kind) << ", stage " << i;
      EXPECT_EQ(custom.stages[i].arena, plan.stages[i].arena) << EnumName(kind) << ", stage " << i;
    }
  }
}

TEST(CustomSchedule, IsPlannedWithinALimit) {
  PlanRequest request = RequestWith(kEager);
  const Plan all = PlanOf(request);
  request.spec.resources.activation_memory_per_rank = all.stages[0].arena / 2;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  EXPECT_LE(plan.stages[0].arena, request.spec.resources.activation_memory_per_rank);
  EXPECT_GE(plan.step, all.step);
  EXPECT_GT(plan.stages[0].recompute_hidden + plan.stages[0].recompute_exposed, Nanos(0));
  EXPECT_EQ(plan.layout.schedule, ScheduleKind::kCustom);
}

TEST(CustomSchedule, AnotherNumberOfMicrobatchesIsRefused) {
  PlanRequest request = RequestWith(kEager);
  request.spec.train.global_batch = 8;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_THAT(ErrorOf(result.status()), HasSubstr("the custom schedule is one of 4 microbatches"));
}

}  // namespace
}  // namespace lynx
