// Tests plans for models with experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/status.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/hardware_profile.h"
#include "planner/program/memory_model.h"
#include "planner/program/validate.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

// A layer that is small enough to plan in milliseconds.
PlanRequest Request() {
  PlanRequest request;
  ModelSpec& model = request.spec.model;
  model = {.layers = 4, .hidden = 256, .heads = 8, .ffn = 512, .seq = 128, .vocab = 512, .dropout = 0};
  model.family = ModelFamily::kLlama;
  model.dtype = DataType::kBfloat16;
  model.moe = {.experts = 8, .top_k = 2};
  request.spec.name = "experts";
  request.spec.data.path = "/data";
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 32;
  request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
  NodeGroup group{.name = "nodes", .nodes = 2, .devices_per_node = 4};
  group.profile = StatedCpuProfile();
  group.memory_per_device = Bytes(int64_t{8} << 30);
  request.cluster.groups = {group};
  Normalize(request.spec);
  return request;
}

absl::StatusOr<Plan> Planned(const PlanRequest& request) {
  LYNX_ASSIGN_OR_RETURN(const PlanResult result, MakePlan(request));
  if (const auto* plan = std::get_if<Plan>(&result)) return *plan;
  return absl::ResourceExhaustedError("the job does not fit");
}

TEST(ExpertsPlan, ChoosesADegreeAndEveryProgramIsValid) {
  const PlanRequest request = Request();
  ASSERT_TRUE(ValidateJobSpec(request.spec).ok()) << ValidateJobSpec(request.spec);
  const absl::StatusOr<Plan> plan = Planned(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(RanksOfStage(plan->layout) % plan->layout.ep, 0);
  EXPECT_TRUE(CheckPlan(*plan).ok()) << CheckPlan(*plan);
}

TEST(ExpertsPlan, PinnedDegreesAreKept) {
  for (const int32_t ep : {1, 2, 4, 8}) {
    PlanRequest request = Request();
    request.spec.parallel.ep = ep;
    request.spec.parallel.pp = 1;
    const absl::StatusOr<Plan> plan = Planned(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->layout.ep, ep);
    EXPECT_TRUE(CheckPlan(*plan).ok()) << CheckPlan(*plan);
  }
}

TEST(ExpertsPlan, GroupsWithoutExpertsAreRefused) {
  absl::StatusOr<Plan> plan = Planned(Request());
  ASSERT_TRUE(plan.ok()) << plan.status();
  plan->model.moe = {};
  plan->layout.ep = 2;
  EXPECT_EQ(CheckPlan(*plan).message(), "plan: parallel.ep is 2, and the model has no experts (model.moe.experts)");
}

// If every rank has all experts, there is no all-to-all. If ranks have few experts, the transfers take time, and the states
// less memory.
TEST(ExpertsPlan, MoreRanksShareTheStatesOfExperts) {
  const auto states = [](int32_t ep) {
    PlanRequest request = Request();
    request.spec.parallel = {.tp = 1, .pp = 1, .dp = 8, .ep = ep, .zero = ZeroStage::kNone};
    const absl::StatusOr<Plan> plan = Planned(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->stages[0].states.total();
  };
  const LayerShape shape = ShapeOf(Request().spec.model, ParallelLayout{}, 1);
  const int64_t experts = 4 * ExpertParameters(shape) * (2 + 4 + 12);  // weights, gradients, optimizer
  EXPECT_EQ(states(1) - states(8), Bytes(experts * 7 / 8));
}

// A small DeepSeek.
PlanRequest Deepseek() {
  PlanRequest request = Request();
  ModelSpec& model = request.spec.model;
  model.attention = AttentionKernel::kFused;
  model.head_dim = 48;
  model.rotary.dims = 16;
  model.latent = {.query_rank = 96, .kv_rank = 64, .value_dim = 32};
  model.moe.ffn = 128, model.moe.shared_ffn = 256;
  return request;
}

TEST(ExpertsPlan, LatentAttentionAndSharedExpertsArePlannedWithEveryPolicy) {
  using enum RecomputeMode;
  for (const RecomputeMode mode : {kNone, kFull, kFullKeepCollectives, kBalanced, kUniform, kHeu, kAuto}) {
    for (const int32_t tp : {1, 2}) {
      for (const int32_t rank : {0, 96}) {
        SCOPED_TRACE(::testing::Message() << EnumName(mode) << " tp " << tp << " query rank " << rank);
        PlanRequest request = Deepseek();
        request.spec.model.latent.query_rank = rank;
        request.spec.recompute = mode;
        request.spec.parallel = {.tp = tp, .pp = 2, .ep = 4};
        request.spec.parallel.sequence_parallel = tp > 1 ? Choice::kOn : Choice::kAuto;
        ASSERT_TRUE(ValidateJobSpec(request.spec).ok()) << ValidateJobSpec(request.spec);
        const absl::StatusOr<Plan> plan = Planned(request);
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_TRUE(CheckPlan(*plan).ok()) << CheckPlan(*plan);
      }
    }
  }
}

TEST(ExpertsPlan, SharedExpertsAndLatentsCostTimeAndMemory) {
  const auto planned = [](void (*change)(ModelSpec&)) {
    PlanRequest request = Deepseek();
    change(request.spec.model);
    request.spec.recompute = RecomputeMode::kNone;
    request.spec.parallel = {.tp = 1, .pp = 1, .dp = 8, .ep = 8};
    request.spec.parallel.schedule = ScheduleKind::kOneForwardOneBackward;
    request.spec.train.micro_batch = 4;
    const absl::StatusOr<Plan> plan = Planned(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  };
  const Plan all = planned([](ModelSpec&) {});
  const Plan without = planned([](ModelSpec& m) { m.moe.shared_ffn = 0; });
  EXPECT_GT(all.step, without.step);
  // Four layers store gate, up and their product, each for 4 * 128 tokens in 16 bits.
  const double kept = 4 * (4 * 128) * 3 * 256 * 2;
  EXPECT_NEAR(static_cast<double>((all.stages.at(0).live_peak - without.stages.at(0).live_peak).value), kept, 0.02 * kept);
  EXPECT_EQ(all.stages.at(0).states.weights - without.stages.at(0).states.weights, Bytes(4 * 3 * 256 * 256 * 2));
  const Plan wide = planned([](ModelSpec& m) { m.latent.query_rank = 0, m.latent.kv_rank = 1024; });
  EXPECT_GT(wide.step, all.step);
}

TEST(ExpertsPlan, SkewCostsTimeAndMemory) {
  const auto plan = [](double skew) {
    PlanRequest request = Request();
    request.spec.model.moe.skew = skew;
    request.spec.parallel = {.tp = 1, .pp = 1, .dp = 8, .ep = 8};
    request.spec.recompute = RecomputeMode::kNone;
    return *Planned(request);
  };
  const Plan even = plan(1), skewed = plan(1.5);
  EXPECT_GT(skewed.step, even.step);
  EXPECT_GT(skewed.stages[0].arena, even.stages[0].arena);
}

// Tensor parallelism does not shard experts, so it need not divide model.ffn.
TEST(ExpertsPlan, TensorParallelismNeedNotDivideTheWidth) {
  PlanRequest request = Request();
  request.spec.model.ffn = 193;
  request.spec.model.moe.ffn = 96;
  request.spec.parallel = {.tp = 2, .pp = 1, .dp = 4, .ep = 4};
  const absl::StatusOr<Plan> plan = Planned(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
}

// The first layers have no experts. They dispatch no rows, and their states are those of an ordinary layer.
TEST(ExpertsPlan, FirstLayersMayHaveNoExperts) {
  PlanRequest request = Request();
  request.spec.model.ffn = 1024;
  request.spec.model.moe.ffn = 128;
  request.spec.model.moe.dense_layers = 1;
  request.target = PlanTarget::kAnyFramework;
  request.spec.parallel = {.tp = 1, .pp = 2, .dp = 4, .ep = 4, .zero = ZeroStage::kNone};
  request.spec.parallel.schedule = ScheduleKind::kOneForwardOneBackward;
  const absl::StatusOr<Plan> plan = Planned(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPlan(*plan).ok()) << CheckPlan(*plan);
  std::set<int32_t> dispatching;
  for (const StagePlan& stage : plan->stages) {
    for (const Action& action : stage.program) {
      if (InfoOf(action.kind).group == Group::kExpert) dispatching.insert(action.layer);
    }
  }
  EXPECT_THAT(dispatching, ::testing::ElementsAre(1, 2, 3));
  const LayerShape shape = ShapeOf(request.spec.model, plan->layout, 1);
  const auto parameters = [&](LayerType type) { return LayerParameters(type, shape); };
  const int64_t dense = LayerParameters(LayerType::kTransformer, DenseShape(shape));
  EXPECT_EQ(dense - parameters(LayerType::kTransformer),
            3 * 256 * 1024 - 2 * 3 * 256 * 128 - 256 * 8);  // without two experts and the router
  const int32_t first = plan->stages[0].slices[0].layers();
  const int64_t of_first = dense + (first - 1) * parameters(LayerType::kTransformer) + parameters(LayerType::kEmbedding);
  EXPECT_EQ(plan->stages[0].states.total(), Bytes(of_first * (2 + 4 + 12)));
}

// With many pieces, it is not known before the partition which ranks have the layers without experts. These layers need less
// memory here. So a plan that counts too many of them on a rank would exceed the memory of the device.
TEST(ExpertsPlan, NoRankExceedsItsDeviceWhereverTheFirstLayersAre) {
  PlanRequest request = Request();
  request.spec.model.layers = 12;
  request.spec.model.ffn = 128;
  request.spec.model.moe = {.experts = 8, .top_k = 2, .ffn = 512, .dense_layers = 3};
  request.target = PlanTarget::kAnyFramework;
  request.spec.parallel = {.tp = 1, .pp = 4, .dp = 2, .ep = 1, .virtual_stages = 2, .zero = ZeroStage::kNone};
  request.spec.parallel.weave = WeaveMode::kOff;
  Normalize(request.spec);
  int planned = 0;
  for (int64_t memory = 300; memory <= 700; memory += 20) {
    request.cluster.groups.front().memory_per_device = Bytes(memory << 20);
    const absl::StatusOr<Plan> plan = Planned(request);
    if (!plan.ok()) continue;
    ++planned;
    for (const StagePlan& stage : plan->stages) {
      EXPECT_LE(stage.states.total() + stage.arena, Bytes(memory << 20)) << memory << " MiB";
    }
  }
  EXPECT_GT(planned, 5);
}

// A rank with some of the wide first layers gets fewer layers than a rank whose layers all have experts.
TEST(ExpertsPlan, WideFirstLayersTakeTimeAndMemory) {
  PlanRequest request = Request();
  request.spec.model.layers = 8;
  request.spec.model.ffn = 64 * 256;
  request.spec.model.moe.ffn = 128;
  request.target = PlanTarget::kAnyFramework;
  request.spec.parallel = {.tp = 1, .pp = 2, .dp = 4, .ep = 4, .schedule = ScheduleKind::kOneForwardOneBackward};
  const auto layers_of_first = [&](int32_t dense) {
    request.spec.model.moe.dense_layers = dense;
    const absl::StatusOr<Plan> plan = Planned(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->stages[0].slices[0].layers() : 0;
  };
  EXPECT_GE(layers_of_first(0), 4);
  EXPECT_LT(layers_of_first(1), layers_of_first(0));
}

// With one replica, the tensor-parallel ranks that hold the same experts divide the states of these experts among them.
TEST(ExpertsPlan, ExpertsHaveReplicasOnTensorParallelRanks) {
  PlanRequest request = Request();
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.parallel = {.tp = 2, .pp = 1, .dp = 1, .ep = 1};
  const auto states = [&](ZeroStage zero) {
    request.spec.parallel.zero = zero;
    return Planned(request)->stages[0].states.optimizer;
  };
  EXPECT_LT(states(ZeroStage::kOptimizer), states(ZeroStage::kNone));
  EXPECT_EQ(states(ZeroStage::kAuto), states(ZeroStage::kOptimizer));
}

TEST(ExpertsPlan, RefusesWhatItCannotPlan) {
  const auto error = [](const auto& change) {
    PlanRequest request = Request();
    change(request.spec);
    const absl::Status valid = ValidateJobSpec(request.spec);
    return std::string(valid.ok() ? Planned(request).status().message() : valid.message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.ep = 3; }),
              HasSubstr("model.moe.experts is 8: must be a multiple of parallel.ep"));
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.ep = 8, s.parallel.pp = 4; }), HasSubstr("a stage has at most 2 ranks"));
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.zero = ZeroStage::kWeights; }), HasSubstr("parallel.zero is weights"));
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.sequence_parallel = Choice::kOff, s.parallel.tp = 2; }),
              HasSubstr("parallel.sequenceParallel is off"));
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.schedule = ScheduleKind::kChimera; }), HasSubstr("use another schedule"));
  EXPECT_THAT(error([](JobSpec& s) { s.model.moe = {}, s.parallel.ep = 2; }), HasSubstr("is for models with experts"));
}

}  // namespace
}  // namespace lynx
