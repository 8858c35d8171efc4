#include "planner/frameworks/framework_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/candidates/search.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

JobSpec Job() {
  JobSpec spec;
  spec.name = "small";
  spec.model = {.layers = 8,
                .hidden = 1024,
                .heads = 8,
                .ffn = 4096,
                .seq = 512,
                .vocab = 4096,
                .dropout = 0,
                .attention = AttentionKernel::kFused,
                .dtype = DataType::kBfloat16};
  spec.train.steps = 10;
  spec.train.global_batch = 32;
  spec.resources = {.min_ranks = 8, .max_ranks = 8};
  return spec;
}

ClusterTopology Nodes(Bytes memory) {
  NodeGroup group;
  group.nodes = 2;
  group.devices_per_node = 4;
  group.memory_per_device = memory;
  group.profile = StatedCpuProfile();
  return ClusterTopology{{group}};
}

FrameworkPlan Planned(const JobSpec& spec, const ClusterTopology& cluster, Framework framework) {
  const absl::StatusOr<FrameworkPlan> plan = PlanForFramework(spec, cluster, framework);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : FrameworkPlan{};
}

TEST(FrameworkPlan, IsTheFastestThatFits) {
  const ClusterTopology cluster = Nodes(Bytes(0));
  const FrameworkPlan best = Planned(Job(), cluster, Framework::kMegatron);
  EXPECT_TRUE(best.fits());
  EXPECT_EQ(best.request.traits, TraitsOf(Framework::kMegatron));
  EXPECT_EQ(best.request.ranks_per_node, 4);
  int32_t compared = 0;
  for (const Candidate& one : SearchSpace(Job(), cluster, PlanTarget::kAnyFramework, true)) {
    if (!RunsLayout(Framework::kMegatron, one.layout)) continue;
    StepRequest request = best.request;
    request.layout = one.layout;
    request.micro_batch = one.micro_batch;
    request.microbatches = one.microbatches;
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
      request.recompute = mode;
      const absl::StatusOr<FrameworkPlan> other = EstimateOn(request, Framework::kMegatron, cluster);
      ASSERT_TRUE(other.ok()) << other.status();
      EXPECT_LE(best.step.step, other->step.step) << LayoutText(one.layout);
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(FrameworkPlan, RecomputesIfMemoryIsShort) {
  JobSpec spec = Job();
  spec.parallel.tp = 1;
  spec.parallel.pp = 1;
  spec.parallel.cp = 1;
  spec.parallel.zero = ZeroStage::kNone;
  spec.train.micro_batch = 4;
  const FrameworkPlan roomy = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_EQ(roomy.request.recompute, RecomputeMode::kNone);
  const FrameworkPlan tight = Planned(spec, Nodes(roomy.peak() - Bytes(1)), Framework::kMegatron);
  EXPECT_TRUE(tight.fits());
  EXPECT_EQ(tight.request.recompute, RecomputeMode::kSelective) << "the feed-forward block alone";
  EXPECT_EQ(tight.request.modules, std::vector{RecomputeModule::kMlp});
  EXPECT_GT(tight.step.step, roomy.step.step);
  spec.recompute_options.forbidden = {RecomputeMode::kSelective};
  const FrameworkPlan full = Planned(spec, Nodes(roomy.peak() - Bytes(1)), Framework::kMegatron);
  EXPECT_TRUE(full.fits());
  EXPECT_EQ(full.request.recompute, RecomputeMode::kFull);
  EXPECT_GT(full.step.step, tight.step.step);
}

TEST(FrameworkPlan, SaysWhatNeedsTheLeastIfNothingFits) {
  const FrameworkPlan plan = Planned(Job(), Nodes(Bytes(1000)), Framework::kMegatron);
  EXPECT_FALSE(plan.fits());
  EXPECT_LT(plan.peak(), Planned(Job(), Nodes(Bytes(0)), Framework::kMegatron).peak());
}

TEST(FrameworkPlan, HasOnlyLayoutsOfTheFramework) {
  const FrameworkPlan plan = Planned(Job(), Nodes(Bytes(0)), Framework::kFsdp);
  EXPECT_EQ(plan.request.layout.dp, 8);
  EXPECT_GE(plan.request.layout.zero, ZeroStage::kGradients);
}

TEST(FrameworkPlan, KeepsWhatTheJobPins) {
  JobSpec spec = Job();
  spec.parallel.tp = 2;
  spec.recompute = RecomputeMode::kFull;
  const FrameworkPlan plan = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_EQ(plan.request.layout.tp, 2);
  EXPECT_EQ(plan.request.recompute, RecomputeMode::kFull);
}

TEST(FrameworkPlan, HasTheLayersOfStagesThatTheJobPins) {
  JobSpec spec = Job();
  spec.parallel = {.tp = 2, .pp = 2, .virtual_stages = 1, .zero = ZeroStage::kOptimizer};
  const FrameworkPlan even = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  spec.parallel.stage_layers = {7, 1};
  const FrameworkPlan uneven = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_GT(uneven.step.step, even.step.step);
  EXPECT_GT(uneven.memory[0].weights, even.memory[0].weights);
  EXPECT_LT(uneven.memory[1].weights, even.memory[1].weights);
  StepRequest request = uneven.request;
  request.stage_layers = {7, 2};
  EXPECT_EQ(std::string(EstimateOn(request, Framework::kMegatron, Nodes(Bytes(0))).status().message()),
            "the layers of 2 stages are given, 9 in all, but the model has 8 layers in 2 parts");
}

TEST(FrameworkPlan, StatesAreShardedOverAGroupOfReplicas) {
  JobSpec spec = Job();
  spec.parallel = {.tp = 1, .pp = 1, .zero = ZeroStage::kOptimizer};
  const FrameworkPlan all = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  spec.parallel.zero_group = 4;
  const FrameworkPlan groups = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_EQ(groups.request.layout.zero_group, 4);
  EXPECT_EQ(groups.memory[0].optimizer, all.memory[0].optimizer * 2);
  EXPECT_THAT(std::string(PlanForFramework(spec, Nodes(Bytes(0)), Framework::kNanotron).status().message()),
              testing::HasSubstr("no layout that the job allows is one that nanotron can run"));
}

TEST(FrameworkPlan, RefusesWhatTheFrameworkCannotRun) {
  JobSpec spec = Job();
  spec.parallel.tp = 2;
  const auto refused = PlanForFramework(spec, Nodes(Bytes(0)), Framework::kFsdp);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("no layout that the job allows is one that fsdp can run"));
}

// If long steps were not extrapolated, this test would take hours.
TEST(FrameworkPlan, VeryManyMicrobatchesAreExtrapolated) {
  JobSpec spec = Job();
  spec.train.global_batch = 1 << 20;
  const FrameworkPlan plan = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_TRUE(plan.fits());
  spec.train.global_batch = 1 << 10;
  const FrameworkPlan less = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_GT(plan.step.step, less.step.step * 1000);
}

TEST(FrameworkPlan, RefusesPinsThatItDoesNotCount) {
  const auto message = [](const JobSpec& spec, Framework framework) {
    return std::string(PlanForFramework(spec, Nodes(Bytes(0)), framework).status().message());
  };
  JobSpec spec = Job();
  spec.resources.activation_memory_per_rank = kGiB;
  EXPECT_THAT(message(spec, Framework::kMegatron), testing::StartsWith("resources.activationMemoryPerRank: only Lynx's"));
  spec = Job();
  spec.recompute_options.offload_permille = 500;
  EXPECT_THAT(message(spec, Framework::kMegatron), testing::StartsWith("recomputeOptions.offloadShare: "));
  spec = Job();
  spec.parallel.rank_order = RankOrder::kTpPpDp;
  EXPECT_THAT(message(spec, Framework::kMegatron),
              testing::StartsWith("parallel.rankOrder: megatron is estimated with tp-dp-pp"));
  spec = Job();
  spec.recompute = RecomputeMode::kBalanced;
  EXPECT_THAT(message(spec, Framework::kTorchtitan),
              testing::StartsWith("recompute: torchtitan does not have balanced for this model"));
  spec = Job();
  spec.recompute = RecomputeMode::kSelective;
  spec.recompute_options.modules = {RecomputeModule::kMlp};
  for (const Framework framework : {Framework::kTorchtitan, Framework::kDeepspeed, Framework::kFsdp}) {
    EXPECT_THAT(message(spec, framework),
                testing::StartsWith("recomputeOptions.modules: " + std::string(EnumName(framework)) + " has no such modules"));
  }
  spec = Job();
  spec.recompute_options.forbidden = {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kSelective};
  EXPECT_THAT(message(spec, Framework::kMegatron), testing::StartsWith("recomputeOptions.forbid: forbids every"));
  spec = Job();
  spec.resources = {.min_ranks = 64, .max_ranks = 64};
  EXPECT_THAT(message(spec, Framework::kMegatron), testing::Not(testing::HasSubstr("leave more fields")));
}

TEST(FrameworkPlan, RefusesProductsOfWhichDevicesHaveNoRate) {
  JobSpec spec = Job();
  spec.model.matmul_type = MatmulType::kNvfp4;
  EXPECT_EQ(std::string(PlanForFramework(spec, Nodes(Bytes(0)), Framework::kMegatron).status().message()),
            "model.matmulType nvfp4: the devices of kind \"" + StatedCpuProfile().device_kind +
                "\" have no known rate of 4-bit products");
}

TEST(FrameworkPlan, CountsTheLayersOfTheFullestRank) {
  JobSpec spec = Job();
  spec.parallel.tp = 1;
  spec.parallel.pp = 2;
  spec.parallel.stage_layers = {7, 1};
  spec.parallel.virtual_stages = 1;
  EXPECT_EQ(Planned(spec, Nodes(Bytes(0)), Framework::kMegatron).most_layers, 7);
}

TEST(FrameworkPlan, SumsBothKindsOfLayers) {
  FrameworkPlan plan{.most_layers = 5, .most_dense = 2};
  plan.request.microbatches = 4;
  plan.step.layer.recompute = Nanos(10);
  plan.step.dense_layer.recompute = Nanos(100);
  EXPECT_EQ(plan.OfLayers(&LayerEstimate::recompute), Nanos(4 * (3 * 10 + 2 * 100)));
  JobSpec spec = Job();
  spec.model.family = ModelFamily::kLlama;
  spec.model.moe = {.experts = 4, .top_k = 2, .ffn = 1024, .dense_layers = 3};
  spec.parallel.pp = 2;
  spec.parallel.stage_layers = {2, 6};
  spec.parallel.virtual_stages = 1;
  plan = Planned(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_EQ(plan.most_layers, 6);
  EXPECT_EQ(plan.most_dense, 1) << "the third layer of the model";
  EXPECT_NE(plan.step.dense_layer.forward, plan.step.layer.forward);
}

TEST(FrameworkPlan, NormsArePartOfLinearsOrNot) {
  FrameworkTraits traits = TraitsOf(Framework::kMegatron);
  traits.fuses_norms = false;
  const absl::StatusOr<FrameworkPlan> plan = PlanForFramework(Job(), Nodes(Bytes(0)), Framework::kMegatron, traits);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->request.traits.fuses_norms);
}

TEST(FrameworkPlan, OtherFrameworksKeepTheMasksOfDropout) {
  JobSpec spec = Job();
  spec.model.dropout = 0.1;
  EXPECT_EQ(Planned(spec, Nodes(Bytes(0)), Framework::kMegatron).request.model.dropout_masks, DropoutMasks::kStored);
}

TEST(FrameworkPlan, RefusesSeveralGroupsOfNodes) {
  ClusterTopology cluster = Nodes(Bytes(0));
  cluster.groups.push_back(cluster.groups.front());
  const auto refused = PlanForFramework(Job(), cluster, Framework::kMegatron);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("the cluster has 2 groups of nodes"));
}

TEST(FrameworkPlan, RefusesPoliciesThatDifferByLayer) {
  JobSpec spec = Job();
  spec.recompute = RecomputeMode::kHeu;
  const auto refused = PlanForFramework(spec, Nodes(Bytes(0)), Framework::kMegatron);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("\"heu\" does not treat every layer alike"));
}

}  // namespace
}  // namespace lynx
