#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/digest.h"
#include "planner/plan/plan.h"
#include "planner/problem/layout_schedule.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Plan& SomePlan() {
  static const Plan* plan = [] {
    PlanRequest request;
    request.spec.name = "gpt";
    request.spec.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
    request.spec.data.path = "/data/text";
    request.spec.train.steps = 10;
    request.spec.train.global_batch = 7;  // one place of the four microbatches is empty
    request.spec.train.micro_batch = 2;
    request.spec.resources = {.min_ranks = 4, .max_ranks = 4};
    request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1};
    Normalize(request.spec);
    request.cluster = UniformCluster(2, 2, StatedCpuProfile());
    return new Plan(std::get<Plan>(MakePlan(request).value()));
  }();
  return *plan;
}

TEST(ConvertPlanTest, PlansComeBackTheSame) {
  v1::Plan parsed;
  ASSERT_TRUE(parsed.ParseFromString(ToProto(SomePlan()).SerializeAsString()));
  const absl::StatusOr<Plan> back = FromProto(parsed);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(PlanText(*back), PlanText(SomePlan()));
  EXPECT_EQ(back->digest, SomePlan().digest);
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(back->stages[stage].program, SomePlan().stages[stage].program);
    EXPECT_EQ(back->stages[stage].slices.at(0).policy, SomePlan().stages[stage].slices.at(0).policy);
  }
  EXPECT_TRUE(CheckPlan(*back).ok()) << CheckPlan(*back);
}

TEST(ConvertPlanTest, WaitingForCoresComesBackTheSame) {
  Plan plan = SomePlan();
  plan.stages[1].core_wait = Nanos(7);
  plan.digest = Sha256Hex(PlanText(plan));
  EXPECT_NE(plan.digest, SomePlan().digest);
  const absl::StatusOr<Plan> back = FromProto(ToProto(plan));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->stages[0].core_wait, Nanos(0));
  EXPECT_EQ(back->stages[1].core_wait, Nanos(7));
}

TEST(ConvertPlanTest, TheOrderOfNodesComesBackTheSame) {
  Plan plan = SomePlan();
  plan.nodes = {{"a100", 1}, {"v100", 2}};
  plan.digest = Sha256Hex(PlanText(plan));
  EXPECT_NE(plan.digest, SomePlan().digest);
  const absl::StatusOr<Plan> back = FromProto(ToProto(plan));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->nodes, plan.nodes);
}

TEST(ConvertPlanTest, ProofsComeBackTheSame) {
  for (const ProofStatus status : {ProofStatus::kOptimal, ProofStatus::kTimeLimit, ProofStatus::kModel}) {
    Plan plan = SomePlan();
    plan.stages[1].proof = StageProof{status, Nanos(7), Nanos(5)};
    plan.digest = Sha256Hex(PlanText(plan));
    EXPECT_NE(plan.digest, SomePlan().digest);
    const absl::StatusOr<Plan> back = FromProto(ToProto(plan));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_FALSE(back->stages[0].proof.has_value());
    EXPECT_EQ(back->stages[1].proof, plan.stages[1].proof);
    EXPECT_EQ(PlanText(*back), PlanText(plan));
  }
}

TEST(ConvertPlanTest, ChainsAndHostMemoryComeBackTheSame) {
  PlanRequest request;
  request.spec.name = "gpt";
  request.spec.model = {.layers = 12, .hidden = 64, .heads = 4, .seq = 32};
  request.spec.data.path = "/data/text";
  request.spec.train.steps = 10;
  request.spec.train.global_batch = 8;
  request.spec.train.micro_batch = 2;
  request.spec.parallel = {.tp = 1, .pp = 1, .dp = 1};
  HardwareProfile profile = StatedCpuProfile();
  profile.host = {Nanos(1000), 1'000'000'000, 1'000'000'000, 2'000'000'000, 1000};
  request.cluster = UniformCluster(1, 1, profile);
  for (const auto& [mode, options] : {std::pair(RecomputeMode::kUniform, RecomputeOptions{.layers = 3}),
                                      std::pair(RecomputeMode::kNone, RecomputeOptions{.offload_permille = 500})}) {
    request.spec.recompute = mode;
    request.spec.recompute_options = options;
    Normalize(request.spec);
    const Plan plan = std::get<Plan>(MakePlan(request).value());
    const absl::StatusOr<Plan> back = FromProto(ToProto(plan));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(PlanText(*back), PlanText(plan));
    EXPECT_EQ(back->stages[0].slices[0].policy, plan.stages[0].slices[0].policy);
    EXPECT_EQ(back->stages[0].host, plan.stages[0].host);
    EXPECT_EQ(back->stages[0].host.value > 0, mode == RecomputeMode::kNone);
  }
}

TEST(ConvertPlanTest, ProgramsCanBeLeftOut) {
  const v1::Plan message = ToProto(SomePlan(), PlanPrograms::kLeftOut);
  EXPECT_TRUE(message.stages(0).program().empty());
  const absl::StatusOr<Plan> back = FromProto(message, PlanPrograms::kLeftOut);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->stages[0].program.empty());
  EXPECT_EQ(back->digest, SomePlan().digest);
  EXPECT_EQ(back->stages[1].arena, SomePlan().stages[1].arena);
  EXPECT_FALSE(FromProto(message, PlanPrograms::kIncluded).ok()) << "the digest needs the programs";
}

TEST(ConvertPlanTest, AChangedPlanIsFound) {
  v1::Plan message = ToProto(SomePlan());
  message.mutable_stages(0)->set_arena_bytes(message.stages(0).arena_bytes() + 256);
  const absl::Status status = FromProto(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("plan.digest is " + SomePlan().digest));
  EXPECT_THAT(std::string(status.message()), HasSubstr("changed or damaged"));
}

v1::SlicePlan& SliceOfStage(v1::Plan& plan, int stage) { return *plan.mutable_stages(stage)->mutable_slices(0); }

// Makes the slice begin one layer later.
void Shorten(v1::SlicePlan& slice) {
  slice.set_first_layer(slice.first_layer() + 1);
  slice.mutable_policy()->RemoveLast();
}

// Returns a plan in which each rank has two slices: with Chimera one of each copy of the model, otherwise one of each half of
// the model.
Plan PlanWithTwoSlicesEach(ScheduleKind schedule) {
  Plan plan{.model = {.layers = 4, .hidden = 64, .heads = 4, .ffn = 256, .seq = 32},
            .layout = {.pp = 2, .virtual_stages = 2, .schedule = schedule},
            .micro_batch = 1,
            .microbatches = 2};
  const PipelineShape pipeline = PipelineOf(plan.layout);
  const std::vector<int32_t> layers(static_cast<size_t>(pipeline.pieces()), 4 / pipeline.pieces());
  for (const StageContext& context : PipelineContexts(plan.model, plan.layout, 1, 2, layers)) {
    StagePlan stage;
    for (const StageSlice& slice : context.slices) {
      const StagePolicy policy = NamedPolicy(context.graph(), RecomputeMode::kFull, slice.layers());
      stage.slices.push_back({slice.stage, slice.first_layer, slice.end_layer, policy});
    }
    plan.stages.push_back(stage);
  }
  plan.digest = Sha256Hex(PlanText(plan));
  return plan;
}

TEST(ConvertPlanTest, SlicesOfAllVirtualStagesComeBack) {
  for (const ScheduleKind schedule : {ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleV, ScheduleKind::kChimera}) {
    const Plan plan = PlanWithTwoSlicesEach(schedule);
    v1::Plan message = ToProto(plan);
    const absl::StatusOr<Plan> back = FromProto(message);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(PlanText(*back), PlanText(plan));
    EXPECT_EQ(back->stages[1].slices[1].stage, plan.stages[1].slices[1].stage);
    Shorten(*message.mutable_stages(0)->mutable_slices(1));
    EXPECT_THAT(std::string(FromProto(message).status().message()), HasSubstr("plan.stages[0].slices[1].first_layer is "));
  }
}

TEST(ConvertPlanTest, ACustomScheduleComesBackWithItsSlots) {
  Plan plan = PlanWithTwoSlicesEach(ScheduleKind::kInterleaved);
  const Schedule schedule = ScheduleOf(plan.layout, 2);
  plan.layout.schedule = ScheduleKind::kCustom;
  ASSERT_EQ(SetCustomSchedule(ScheduleText(schedule), plan.layout), absl::OkStatus());
  plan.digest = Sha256Hex(PlanText(plan));
  v1::Plan message = ToProto(plan);
  const absl::StatusOr<Plan> back = FromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->layout, plan.layout);
  message.mutable_layout()->set_schedule_text("custom ranks=4 microbatches=2");
  EXPECT_THAT(std::string(FromProto(message).status().message()), HasSubstr("plan.layout.schedule_text: "));
}

TEST(ConvertPlanTest, BadPlansNameTheField) {
  using P = v1::Plan;
  struct Case {
    std::function<void(P&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](P& p) { p.mutable_model()->set_layers(0); }, "plan.model.layers is 0"},
      {[](P& p) { p.mutable_model()->set_heads(3); }, "plan.model.hidden is 64: must be a multiple of heads"},
      {[](P& p) { p.mutable_model()->set_dropout(2); }, "plan.model.dropout is 2"},
      {[](P& p) { p.clear_layout(); }, "plan.layout.tp is 0"},
      {[](P& p) { p.set_micro_batch(0); }, "plan.micro_batch is 0"},
      {[](P& p) { p.set_microbatches(-1); }, "plan.microbatches is -1"},
      {[](P& p) { p.set_empty_places(-1); }, "plan.empty_places is -1"},
      {[](P& p) { p.set_empty_places(p.micro_batch() * p.microbatches() * p.layout().dp()); }, "plan.empty_places is "},
      {[](P& p) { p.set_empty_places(p.micro_batch() * p.layout().dp()); }, "plan.empty_places is "},
      {[](P& p) { p.set_micro_batch(1 << 20), p.set_microbatches(1 << 20); },
       "plan.microbatches is 1048576: with micro_batch 1048576 and dp "},
      {[](P& p) { p.add_nodes()->set_group("a100"); }, "plan.nodes[0].nodes is 0"},
      {[](P& p) { p.set_mode(static_cast<v1::RecomputeMode>(77)); }, "plan.mode is 77"},
      {[](P& p) { p.set_activation_limit_bytes(-1); }, "plan.activation_limit_bytes is -1"},
      {[](P& p) { p.mutable_stages()->RemoveLast(); }, "plan.stages is 1 entries long"},
      {[](P& p) { p.mutable_stages(1)->clear_slices(); }, "plan.stages[1].slices is 0 entries long"},
      {[](P& p) { SliceOfStage(p, 1).set_stage(0); }, "plan.stages[1].slices[0].stage is 0"},
      {[](P& p) { Shorten(SliceOfStage(p, 1)); }, "plan.stages[1].slices[0].first_layer is 3"},
      {[](P& p) { SliceOfStage(p, 1).set_end_layer(5); }, "plan.stages[1].slices[0].end_layer is 5"},
      {[](P& p) { SliceOfStage(p, 0).mutable_policy()->RemoveLast(); }, "plan.stages[0].slices[0].policy is 1 entries long"},
      {[](P& p) { SliceOfStage(p, 0).mutable_policy(1)->set_placements(3, "nowhere"); },
       "plan.stages[0].slices[0].policy[1].placements[3] is \"nowhere\""},
      {[](P& p) { SliceOfStage(p, 0).mutable_policy(0)->mutable_placements()->RemoveLast(); },
       "plan.stages[0].slices[0].policy[0].placements is 7 entries long"},
      {[](P& p) { SliceOfStage(p, 1).mutable_policy(0)->set_input_recomputed(true); },
       "plan.stages[1].slices[0].policy[0].input_recomputed: no layer of the slice is below"},
      {[](P& p) { p.mutable_stages(1)->set_host_bytes(-1); }, "plan.stages[1].host_bytes is -1"},
      {[](P& p) { p.mutable_stages(1)->set_program("1F0:0.nothing"); }, "plan.stages[1].program: "},
      {[](P& p) { p.mutable_stages(1)->set_arena_bytes(-1); }, "plan.stages[1].arena_bytes is -1"},
      {[](P& p) { p.mutable_stages(1)->set_gradient_bytes(int64_t{1} << 60); }, "plan.stages[1].gradient_bytes is"},
      {[](P& p) { p.mutable_stages(0)->set_stall_ns(-1); }, "plan.stages[0].stall_ns is -1"},
      {[](P& p) { p.mutable_stages(0)->set_core_wait_ns(-1); }, "plan.stages[0].core_wait_ns is -1"},
      {[](P& p) { p.mutable_stages(0)->set_recompute_hidden_ns(-1); }, "plan.stages[0].recompute_hidden_ns is -1"},
      {[](P& p) { p.mutable_stages(0)->mutable_proof(); }, "plan.stages[0].proof.status is 0"},
      {[](P& p) { p.mutable_stages(0)->mutable_proof()->set_status(static_cast<v1::ProofStatus>(9)); },
       "plan.stages[0].proof.status is 9"},
      {[](P& p) {
         p.mutable_stages(0)->mutable_proof()->set_status(v1::PROOF_STATUS_OPTIMAL);
         p.mutable_stages(0)->mutable_proof()->set_bound_ns(1);
       },
       "plan.stages[0].proof.bound_ns is 1"},
      {[](P& p) { p.set_step_ns(-1); }, "plan.step_ns is -1"},
      {[](P& p) { p.set_digest("0"); }, "plan.digest is \"0\": must be a SHA-256 digest"},
  };
  for (const Case& c : cases) {
    P message = ToProto(SomePlan());
    c.change(message);
    const absl::Status status = FromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), StartsWith(c.message));
  }
}

}  // namespace
}  // namespace lynx
