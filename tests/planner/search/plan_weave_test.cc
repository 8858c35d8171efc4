// Tests plans whose passes run side by side (parallel.weave).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <variant>

#include "planner/problem/layout_schedule.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

// Two ranks of a tensor-parallel group over a link that moves `rate` bytes per second.
PlanRequest PairOver(int64_t rate, WeaveMode weave) {
  HardwareProfile profile = StatedCpuProfile();
  profile.intra_node = profile.inter_node = {Nanos(0), rate};
  profile.overlap_slowdown_permille = 1050;
  PlanRequest request{.spec = {}, .cluster = UniformCluster(1, 2, profile)};
  JobSpec& spec = request.spec;
  spec.name = "pair";
  spec.model = {.layers = 4, .hidden = 256, .heads = 4, .seq = 128, .vocab = 256, .dropout = 0.1};
  spec.train.global_batch = 8;
  spec.resources.min_ranks = spec.resources.max_ranks = 2;
  spec.parallel.tp = 2;
  spec.parallel.weave = weave;
  Normalize(spec);
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::holds_alternative<Plan>(*result));
  const Plan plan = std::get<Plan>(*result);
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  return plan;
}

std::string Refusal(const PlanRequest& request) { return std::string(MakePlan(request).status().message()); }

TEST(PlanWeave, AutoWeavesWhereTheLinkIsSlow) {
  const Plan plain = PlanOf(PairOver(100'000'000, WeaveMode::kOff));
  const Plan woven = PlanOf(PairOver(100'000'000, WeaveMode::kAuto));
  EXPECT_EQ(plain.layout.weave, WeaveMode::kOff);
  EXPECT_NE(woven.layout.weave, WeaveMode::kOff);
  EXPECT_LT(Seconds(woven.step), 0.9 * Seconds(plain.step));
  EXPECT_THAT(LayoutText(woven.layout), HasSubstr("weave-"));
  EXPECT_THAT(PlanText(woven), HasSubstr("weave-"));
  EXPECT_NE(woven.digest, plain.digest);
}

TEST(PlanWeave, AutoIsNeverSlowerWhateverTheLinkAndTheMemory) {
  for (const int64_t rate : {int64_t{20'000'000}, int64_t{500'000'000}, int64_t{20'000'000'000}}) {
    for (const int64_t kibibytes : {0, 700, 1000, 3000}) {
      PlanRequest off = PairOver(rate, WeaveMode::kOff), any = PairOver(rate, WeaveMode::kAuto);
      off.spec.resources.activation_memory_per_rank = any.spec.resources.activation_memory_per_rank = Bytes(kibibytes * 1024);
      const absl::StatusOr<PlanResult> plain = MakePlan(off), chosen = MakePlan(any);
      ASSERT_TRUE(plain.ok() && chosen.ok());
      ASSERT_EQ(std::holds_alternative<Plan>(*plain), std::holds_alternative<Plan>(*chosen));
      if (!std::holds_alternative<Plan>(*plain)) continue;
      EXPECT_LE(std::get<Plan>(*chosen).step, std::get<Plan>(*plain).step) << rate << ", " << kibibytes << " KiB";
    }
  }
}

TEST(PlanWeave, APinnedWayIsKeptWithinTheMemory) {
  PlanRequest request = PairOver(100'000'000, WeaveMode::kPairs);
  request.spec.train.micro_batch = 1;
  request.spec.recompute = RecomputeMode::kFull;
  const Bytes least = PlanOf(request).stages[0].arena;
  request.spec.recompute = RecomputeMode::kHeu;
  request.spec.resources.activation_memory_per_rank = least + least / 2;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.layout.weave, WeaveMode::kPairs);
  EXPECT_LE(plan.stages[0].arena, least + least / 2);
}

TEST(PlanWeave, SaysWhatCannotBeWoven) {
  PlanRequest request = PairOver(100'000'000, WeaveMode::kPairs);
  request.target = PlanTarget::kAnyFramework;
  request.spec.parallel.zero = ZeroStage::kWeights;
  EXPECT_THAT(Refusal(request),
              HasSubstr("parallel.weave pairs with parallel.zero weights is not planned by this version: use zero "
                        "none or optimizer, or weave off"));
  request = PairOver(100'000'000, WeaveMode::kPairs);
  request.spec.model.tied_embeddings = true;
  request.spec.parallel.schedule = ScheduleKind::kZeroBubble;
  EXPECT_THAT(Refusal(request), HasSubstr("with tied embeddings and parallel.schedule zero-bubble is not planned"));
}

TEST(PlanWeave, LeavesAnOpenNumberOfStagesOpen) {
  // Tied embeddings do not prevent weaving if there are several stages.
  PlanRequest request = PairOver(100'000'000, WeaveMode::kPairs);
  request.cluster = UniformCluster(1, 4, request.cluster.groups[0].profile);
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 4;
  request.spec.model.tied_embeddings = true;
  request.spec.parallel.schedule = ScheduleKind::kZeroBubble;
  EXPECT_EQ(PlanOf(request).layout.pp, 2);
}

TEST(PlanWeave, TheLimitsOfSchedulesHoldForAllMicrobatchesOfTheGroups) {
  const ParallelLayout layout{.tp = 2, .pp = 16, .weave = WeaveMode::kPairs};
  EXPECT_EQ(CheckScheduleOf(layout, 1 << 19), absl::OkStatus());
  EXPECT_FALSE(CheckScheduleOf(layout, 1 << 20).ok());
}

TEST(PlanWeave, SuggestsToStopWeavingWhereOnlyThatFits) {
  PlanRequest request = PairOver(100'000'000, WeaveMode::kOff);
  request.spec.train.micro_batch = 1;
  // Finds nearly the smallest limit with which a plan fits.
  Bytes& limit = request.spec.resources.activation_memory_per_rank;
  limit = PlanOf(request).stages[0].arena;
  for (Bytes less = limit; less.value > 0; less = limit / 100 * 97) {
    const Bytes last = std::exchange(limit, less);
    if (std::holds_alternative<Plan>(*MakePlan(request))) continue;
    limit = last;
    break;
  }
  request.spec.parallel.weave = WeaveMode::kPairs;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok() && std::holds_alternative<Infeasible>(*result));
  EXPECT_EQ(std::get<Infeasible>(*result).suggestion, "parallel.weave: off");
}

TEST(PlanWeave, CustomAndBidirectionalSchedulesHaveNoGroups) {
  const ModelSpec model{.layers = 4, .hidden = 16, .heads = 4};
  ParallelLayout chimera{.pp = 2, .schedule = ScheduleKind::kChimera, .weave = WeaveMode::kQuads};
  EXPECT_THAT(std::string(CheckWeave(model, chimera).message()),
              HasSubstr("parallel.weave quads with parallel.schedule chimera"));
  chimera.weave = WeaveMode::kNeighbours;
  EXPECT_EQ(CheckWeave(model, chimera), absl::OkStatus());
  ParallelLayout custom{.schedule = ScheduleKind::kCustom, .weave = WeaveMode::kPairs};
  ASSERT_EQ(SetCustomSchedule("custom ranks=1 microbatches=2\n0F0 0B0 0F1 0B1\n", custom), absl::OkStatus());
  EXPECT_THAT(std::string(CheckWeave(model, custom).message()), HasSubstr("with a custom schedule"));
}

// Two nodes of eight devices that resemble H100s.
ClusterTopology TwoNodes() {
  HardwareProfile profile;
  profile.device_kind = "test";
  profile.flops_per_second = 67'000'000'000'000;
  profile.bfloat16_flops_per_second = 989'000'000'000'000;
  profile.memory_bytes_per_second = 3'350'000'000'000;
  const auto curve = [&](OpClass of) -> EfficiencyCurve& { return profile.efficiency[static_cast<size_t>(of)]; };
  curve(OpClass::kGemm) = {{1'000'000'000, 200}, {10'000'000'000, 450}, {100'000'000'000, 600}, {1'000'000'000'000, 700}};
  curve(OpClass::kAttention) = {{512, 250}, {2048, 400}, {16384, 600}};
  curve(OpClass::kAttentionBackward) = {{512, 200}, {2048, 330}, {16384, 500}};
  curve(OpClass::kMemory) = {{kMiB.value, 250}, {16 * kMiB.value, 600}, {256 * kMiB.value, 850}};
  profile.gemm_tiles = {132, 256, 128};
  profile.op_overhead = Nanos(2'000);
  profile.intra_node = {Nanos(2'000), 360'000'000'000};
  profile.inter_node = {Nanos(10'000), 42'500'000'000};
  profile.adapters = 8;
  profile.overlap_slowdown_permille = 1500;
  ClusterTopology cluster = UniformCluster(2, 8, profile);
  cluster.groups[0].memory_per_device = kGiB * 78;
  return cluster;
}

// For many pipelines with few groups of microbatches, bounds are far below the steps. They must not take all guesses from a
// layout without a pipeline, whose bound is larger and whose step is shorter.
TEST(PlanWeave, PipelinesDoNotTakeAllGuesses) {
  PlanRequest request{.spec = {}, .cluster = TwoNodes()};
  JobSpec& spec = request.spec;
  spec.name = "experts";
  spec.model = {.layers = 16, .hidden = 2048, .heads = 16, .ffn = 4096, .seq = 4096, .vocab = 32000};
  spec.model.family = ModelFamily::kLlama;
  spec.model.dtype = DataType::kBfloat16;
  spec.model.attention = AttentionKernel::kFused;
  spec.model.moe = {.experts = 64, .top_k = 4, .ffn = 768};
  spec.train.global_batch = 64;
  spec.resources.min_ranks = spec.resources.max_ranks = 16;
  Normalize(spec);
  const Plan open = PlanOf(request);
  spec.parallel.pp = 1;
  const Plan pinned = PlanOf(request);
  EXPECT_NE(pinned.layout.weave, WeaveMode::kOff);
  EXPECT_LE(open.step, pinned.step);
}

}  // namespace
}  // namespace lynx
