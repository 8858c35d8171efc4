#include "planner/plan/plan.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/digest.h"
#include "planner/candidates/search.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns a request for four ranks on two nodes. If everything is stored, the arena takes some MiB.
PlanRequest SmallRequest() {
  PlanRequest request;
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = 16;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = Bytes(0)};
  request.cluster = UniformCluster(2, 2, StatedCpuProfile());
  return request;
}

HardwareProfile& ProfileOf(PlanRequest& request) { return request.cluster.groups.front().profile; }
Bytes& DeviceMemoryOf(PlanRequest& request) { return request.cluster.groups.front().memory_per_device; }

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return {};
  if (const auto* infeasible = std::get_if<Infeasible>(&*result)) {
    ADD_FAILURE() << "infeasible: " << infeasible->reason;
    return {};
  }
  return std::get<Plan>(*result);
}

std::optional<Infeasible> InfeasibleOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok() || std::holds_alternative<Plan>(*result)) return std::nullopt;
  return std::get<Infeasible>(*result);
}

std::string ErrorOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

Bytes LargestArena(const Plan& plan) {
  Bytes largest;
  for (const StagePlan& stage : plan.stages) largest = std::max(largest, stage.arena);
  return largest;
}

Nanos Recomputed(const Plan& plan) {
  Nanos sum;
  for (const StagePlan& stage : plan.stages) sum += stage.recompute_hidden + stage.recompute_exposed;
  return sum;
}

Bytes ParsedSize(const std::string& text) {
  const int64_t number = std::atoll(text.c_str());
  if (text.find("GiB") != std::string::npos) return kGiB * number;
  EXPECT_THAT(text, testing::AnyOf(HasSubstr("MiB"), HasSubstr("KiB")));
  return (text.find("MiB") != std::string::npos ? kMiB : kKiB) * number;
}

// Sets the fields that a suggestion names, as a user would, and adds the hardware that the suggestion names.
void Apply(std::string suggestion, PlanRequest& request) {
  if (const size_t nodes = suggestion.find(" ("); nodes != std::string::npos) {
    request.cluster.groups.back().nodes += std::atoi(suggestion.c_str() + nodes + 2);
    suggestion.resize(nodes);
  }
  constexpr std::string_view kDevices = "devices with at least ";
  if (suggestion.starts_with(kDevices)) {
    DeviceMemoryOf(request) = ParsedSize(suggestion.substr(kDevices.size()));
    return;
  }
  for (const auto& piece : absl::StrSplit(suggestion, ", ")) {
    const std::vector<std::string> words = absl::StrSplit(piece, ": ");
    ASSERT_THAT(words, SizeIs(2)) << suggestion;
    const int64_t number = std::atoll(words[1].c_str());
    if (words[0] == "train.microBatch") {
      request.spec.train.micro_batch = static_cast<int32_t>(number);
    } else if (words[0] == "resources.activationMemoryPerRank") {
      request.spec.resources.activation_memory_per_rank = ParsedSize(words[1]);
    } else if (words[0] == "model.seq") {
      request.spec.model.seq = static_cast<int32_t>(number);
    } else if (suggestion == "model.attention: fused") {
      request.spec.model.attention = AttentionKernel::kFused;
    } else if (words[0] == "resources.ranks") {
      request.spec.resources.min_ranks = request.spec.resources.max_ranks = static_cast<int32_t>(number);
    } else if (words[0] == "parallel.tp") {
      request.spec.parallel.tp = static_cast<int32_t>(number);
    } else if (words[0] == "parallel.pp") {
      request.spec.parallel.pp = static_cast<int32_t>(number);
    } else if (words[0] == "parallel.dp") {
      request.spec.parallel.dp = static_cast<int32_t>(number);
    } else if (words[0] == "recompute" && words[1] == "auto") {
      request.spec.recompute = RecomputeMode::kAuto;
    } else {
      FAIL() << "unknown suggestion: " << suggestion;
    }
  }
}

// MakePlan calls FinishedPlan at its end, and only FinishedPlan gives a plan its digest.
TEST(Plan, IsFinishedOnlyIfItsProgramsAreValid) {
  const Plan plan = PlanOf(SmallRequest());
  Plan again = plan;
  again.digest.clear();
  const absl::StatusOr<Plan> finished = FinishedPlan(again);
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_EQ(finished->digest, plan.digest);
  again.stages.back().program.pop_back();
  const absl::Status refused = FinishedPlan(again).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the planner made an invalid plan"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("report it"));
}

TEST(Plan, AmpleMemoryStoresEverything) {
  PlanRequest request = SmallRequest();
  request.spec.resources.activation_memory_per_rank = kGiB;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.mode, RecomputeMode::kNone);
  EXPECT_EQ(Recomputed(plan), Nanos(0));
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  request.spec.resources.activation_memory_per_rank = Bytes(0);
  const Plan unlimited = PlanOf(request);
  EXPECT_EQ(unlimited.activation_limit, Bytes(0));
  EXPECT_EQ(unlimited.step, plan.step);
}

TEST(Plan, TightMemoryRecomputesWithinTheLimitAndMoreMemoryIsNotSlower) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {
      .tp = 2, .pp = 2, .dp = 1, .sequence_parallel = Choice::kOff, .schedule = ScheduleKind::kOneForwardOneBackward};
  const Plan ample = PlanOf(request);
  Nanos previous = ample.step;
  int recomputing = 0;
  for (int percent = 90; percent >= 30; percent -= 10) {
    SCOPED_TRACE(percent);
    request.spec.resources.activation_memory_per_rank = LargestArena(ample) * percent / 100;
    const Plan plan = PlanOf(request);
    EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
    EXPECT_LE(LargestArena(plan), request.spec.resources.activation_memory_per_rank);
    EXPECT_GE(plan.step, previous);
    previous = plan.step;
    recomputing += Recomputed(plan).value > 0;
  }
  EXPECT_GE(recomputing, 4);
}

TEST(Plan, SlowLinksHideRecomputation) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {
      .tp = 2, .pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward, .weave = WeaveMode::kOff};
  request.spec.train.micro_batch = 1;
  ProfileOf(request).intra_node = {Nanos(50'000), 20'000'000};  // 32 KiB of x take 1.7 ms
  const Plan ample = PlanOf(request);
  request.spec.resources.activation_memory_per_rank = LargestArena(ample) * 55 / 100;
  const Plan overlapped = PlanOf(request);
  EXPECT_EQ(overlapped.mode, RecomputeMode::kAuto);
  Nanos hidden;
  for (const StagePlan& stage : overlapped.stages) hidden += stage.recompute_hidden;
  EXPECT_GT(hidden.value * 10, Recomputed(overlapped).value * 9);
  request.spec.recompute = RecomputeMode::kFull;
  const Plan full = PlanOf(request);
  EXPECT_LT(overlapped.step.value * 100, full.step.value * 85);
  // The step takes at most one percent longer than the step that stores everything.
  EXPECT_LT(overlapped.step.value * 100, ample.step.value * 101);
}

TEST(Plan, AutoIsNeverSlowerThanANamedPolicy) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  const Plan ample = PlanOf(request);
  for (int percent : {80, 60, 40}) {
    request.spec.resources.activation_memory_per_rank = LargestArena(ample) * percent / 100;
    request.spec.recompute = RecomputeMode::kAuto;
    const Plan best = PlanOf(request);
    for (RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull}) {
      request.spec.recompute = mode;
      const auto result = MakePlan(request);
      ASSERT_TRUE(result.ok());
      if (!std::holds_alternative<Plan>(*result)) continue;
      const Plan& named = std::get<Plan>(*result);
      EXPECT_EQ(named.mode, mode);
      EXPECT_EQ(CheckPlan(named), absl::OkStatus());
      EXPECT_LE(best.step, named.step) << EnumName(mode) << " at " << percent;
    }
  }
}

TEST(Plan, EqualStagesHaveTheBubbleOfOneForwardOneBackward) {
  PlanRequest request = SmallRequest();
  request.spec.model = TinyModel(4);
  request.spec.parallel = {.tp = 1, .pp = 4, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.spec.train.global_batch = 8;
  request.spec.train.micro_batch = 1;
  ProfileOf(request) = RoundProfile(request.spec.model);
  ProfileOf(request).intra_node = ProfileOf(request).inter_node = {Nanos(0), 1'000'000'000'000'000};
  for (ShapeTimes& times : ProfileOf(request).measured) {
    times.optimizer_per_mega_parameter = Nanos(0);
    for (const OpInfo& info : LayerGraph::Of({}).ops()) {
      if (info.layer_type != LayerType::kTransformer) times.ops[static_cast<int>(info.op)] = {};
    }
  }
  const Plan plan = PlanOf(request);
  EXPECT_TRUE(plan.measured_profile);
  // A layer has 11 ops, which take 100 ns forward and 200 ns backward, and 6 weight gradients of 100 ns.
  const int64_t microbatch = 1100 + 2200 + 600;
  const int64_t transfers = 2 * 3 * 2 + 1;  // each transfer rounds up to a nanosecond
  EXPECT_NEAR(static_cast<double>(plan.step.value), static_cast<double>((8 + 3) * microbatch), 2.0 * transfers);
  for (const StagePlan& stage : plan.stages) {
    EXPECT_EQ((stage.forward + stage.backward + stage.weight).value, 8 * microbatch);
  }
  EXPECT_NEAR(static_cast<double>(plan.stages[0].stall.value) / (8 * microbatch), 3.0 / 8, 0.005);
}

TEST(Plan, PinnedValuesAreObeyed) {
  PlanRequest request = SmallRequest();
  const ParallelLayout replicas_first{.pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp};
  for (const ParallelLayout& layout : {ParallelLayout{1, 4, 1}, ParallelLayout{2, 1, 2}, replicas_first}) {
    request.spec.parallel = {.tp = layout.tp,
                             .pp = layout.pp,
                             .dp = layout.dp,
                             .schedule = ScheduleKind::kOneForwardOneBackward,
                             .zero = ZeroStage::kNone,
                             .weave = WeaveMode::kOff,
                             .rank_order = layout.rank_order};
    request.spec.train.micro_batch = 2;
    const Plan plan = PlanOf(request);
    EXPECT_EQ(plan.layout, layout);
    EXPECT_EQ(plan.micro_batch, 2);
    EXPECT_EQ(plan.microbatches * plan.layout.dp * 2, 16);
    EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  }
}

// With zero: optimizer, each of two replicas updates half of the weights and waits for the other half. The step then is shorter
// on a fast link and longer on a slow one. If memory is short, a plan fits only with this sharing.
TEST(Plan, SharesOutStatesWhereThatIsFasterOrFits) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {.tp = 2, .dp = 2};
  const auto with = [&](ZeroStage zero) {
    request.spec.parallel.zero = zero;
    return PlanOf(request);
  };
  ProfileOf(request).intra_node = ProfileOf(request).inter_node = {Nanos(0), 100'000'000'000};
  const Plan fast = with(ZeroStage::kAuto);
  EXPECT_EQ(fast.layout.zero, ZeroStage::kOptimizer);
  EXPECT_LT(fast.step, with(ZeroStage::kNone).step);
  EXPECT_EQ(with(ZeroStage::kNone).layout.zero, ZeroStage::kNone);

  ProfileOf(request).intra_node = ProfileOf(request).inter_node = {Nanos(1'000'000), 10'000'000};
  const Plan slow = with(ZeroStage::kAuto);
  EXPECT_EQ(slow.layout.zero, ZeroStage::kNone);
  EXPECT_LT(slow.step, with(ZeroStage::kOptimizer).step);

  DeviceMemoryOf(request) = slow.stages[0].states.total();
  EXPECT_EQ(with(ZeroStage::kAuto).layout.zero, ZeroStage::kOptimizer);
}

TEST(Plan, UsesMoreRanksOnlyWhereThatIsFaster) {
  PlanRequest request = SmallRequest();
  request.spec.resources.min_ranks = 1;
  EXPECT_EQ(PlanOf(request).layout.ranks(), 4);
  ProfileOf(request).intra_node = ProfileOf(request).inter_node = {Nanos(1'000'000'000), 1'000'000};
  EXPECT_EQ(PlanOf(request).layout.ranks(), 1);
}

TEST(Plan, StatesAndArenaShareTheDevice) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {
      .tp = 2, .pp = 2, .dp = 1, .sequence_parallel = Choice::kOff, .schedule = ScheduleKind::kOneForwardOneBackward};
  const Plan ample = PlanOf(request);
  Bytes states;
  for (const StagePlan& stage : ample.stages) states = std::max(states, stage.states.total());
  DeviceMemoryOf(request) = states + LargestArena(ample) / 2;
  const Plan plan = PlanOf(request);
  for (const StagePlan& stage : plan.stages) {
    EXPECT_LE(stage.states.total() + stage.arena, DeviceMemoryOf(request));
    EXPECT_LE(stage.arena, plan.activation_limit);
  }
  EXPECT_GT(Recomputed(plan).value, 0);
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  DeviceMemoryOf(request) = kMiB;
  const auto infeasible = InfeasibleOf(request);
  ASSERT_TRUE(infeasible.has_value());
  EXPECT_THAT(infeasible->reason, HasSubstr("model states"));
  EXPECT_THAT(infeasible->suggestion, HasSubstr("devices with at least "));
  Apply(infeasible->suggestion, request);
  EXPECT_EQ(CheckPlan(PlanOf(request)), absl::OkStatus());
}

TEST(Plan, SaysWhatWouldFit) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.spec.train.micro_batch = 1;
  request.spec.resources.activation_memory_per_rank = kKiB * 300;
  const auto infeasible = InfeasibleOf(request);
  ASSERT_TRUE(infeasible.has_value());
  EXPECT_EQ(infeasible->limit, kKiB * 300);
  EXPECT_GT(infeasible->needed, infeasible->limit);
  EXPECT_THAT(infeasible->reason, HasSubstr(absl::StrCat("stage ", infeasible->stage, " needs ")));
  EXPECT_THAT(infeasible->reason, HasSubstr("with everything recomputed"));
  EXPECT_THAT(infeasible->suggestion, HasSubstr("resources.activationMemoryPerRank: "));
  Apply(infeasible->suggestion, request);
  EXPECT_LE(LargestArena(PlanOf(request)), request.spec.resources.activation_memory_per_rank);
  // If the micro-batch is pinned, the suggestion is a smaller micro-batch.
  request.spec.train.micro_batch = 8;
  const auto large = InfeasibleOf(request);
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(large->suggestion, "train.microBatch: 1");
  // If the recomputation policy is pinned, the suggestion is to let the planner choose it.
  request.spec.train.micro_batch = 1;
  request.spec.recompute = RecomputeMode::kNone;
  const auto none = InfeasibleOf(request);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->suggestion, "recompute: auto");
  EXPECT_THAT(none->reason, HasSubstr("with recompute none"));
}

TEST(Plan, SuggestsAnotherLayoutWhereTheDeviceIsFull) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {.tp = 1, .pp = 1, .dp = 1};
  request.spec.resources = {.min_ranks = 1, .max_ranks = 1};
  DeviceMemoryOf(request) = kMiB * 14;  // the states of the whole model take 19 MiB
  const auto infeasible = InfeasibleOf(request);
  ASSERT_TRUE(infeasible.has_value());
  EXPECT_THAT(infeasible->suggestion, HasSubstr("resources.ranks: "));
  Apply(infeasible->suggestion, request);
  EXPECT_EQ(CheckPlan(PlanOf(request)), absl::OkStatus());
}

TEST(Plan, RandomRequestsGiveValidPlansOrSuggestionsThatHold) {
  int plans = 0, infeasible = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const auto pick = [&](std::initializer_list<int64_t> values) { return *(values.begin() + rng() % values.size()); };
    PlanRequest request = SmallRequest();
    request.spec.model.layers = static_cast<int32_t>(pick({2, 3, 5, 8}));
    request.spec.model.seq = static_cast<int32_t>(pick({16, 64, 128}));
    request.spec.train.global_batch = static_cast<int32_t>(pick({4, 6, 16}));
    request.spec.train.micro_batch = static_cast<int32_t>(pick({0, 0, 1, 2}));
    request.spec.resources = {.min_ranks = static_cast<int32_t>(pick({1, 2, 4})), .max_ranks = 4};
    request.spec.resources.activation_memory_per_rank = kKiB * pick({100, 400, 1000, 2000, 4000, 8000});
    request.spec.recompute = static_cast<RecomputeMode>(pick({0, 0, 0, 1, 2, 3, 4}));
    DeviceMemoryOf(request) = kMiB * pick({0, 0, 10, 30});
    ProfileOf(request).intra_node.bytes_per_second = pick({10'000'000, 1'500'000'000});
    const auto result = MakePlan(request);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    if (const auto* lacking = std::get_if<Infeasible>(&*result)) {
      ++infeasible;
      EXPECT_GT(lacking->needed, lacking->limit);
      Apply(lacking->suggestion, request);
      EXPECT_EQ(CheckPlan(PlanOf(request)), absl::OkStatus()) << lacking->suggestion;
      continue;
    }
    ++plans;
    const Plan& plan = std::get<Plan>(*result);
    EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
    EXPECT_LE(LargestArena(plan), request.spec.resources.activation_memory_per_rank);
    EXPECT_EQ(PlanOf(request).digest, plan.digest);
  }
  EXPECT_GT(plans, 20);
  EXPECT_GT(infeasible, 5);
}

TEST(Plan, RequestsThatNoLayoutSatisfiesAreErrors) {
  PlanRequest request = SmallRequest();
  request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
  EXPECT_EQ(ErrorOf(request),
            "the job asks for at least 8 ranks, but the cluster has 4 devices (2 nodes of 2): lower "
            "resources.ranks or add nodes");
  request = SmallRequest();
  request.spec.parallel.tp = 4;
  EXPECT_THAT(ErrorOf(request), HasSubstr("parallel.tp is 4, but a node has 2 devices"));
  request = SmallRequest();
  request.spec.train.global_batch = 15;
  request.spec.train.micro_batch = 2;
  request.even_batches = true;
  EXPECT_THAT(ErrorOf(request), HasSubstr("train.globalBatch is 15, which is not a multiple of train.microBatch = 2"));
  request = SmallRequest();
  ProfileOf(request) = {};
  EXPECT_THAT(ErrorOf(request), HasSubstr("measure the nodes again"));
}

TEST(Plan, CheckPlanFindsWhatWasChanged) {
  PlanRequest request = SmallRequest();
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  const Plan plan = PlanOf(request);
  ASSERT_EQ(CheckPlan(plan), absl::OkStatus());
  const auto error = [](Plan changed, bool sign) {
    if (sign) changed.digest = Sha256Hex(PlanText(changed));
    return std::string(CheckPlan(changed).message());
  };
  Plan changed = plan;
  changed.step += Nanos(1);
  EXPECT_THAT(error(changed, false), HasSubstr("digest"));
  changed = plan;
  changed.model.dropout += 1e-12;
  EXPECT_THAT(error(changed, false), HasSubstr("digest"));
  changed = plan;
  changed.stages[1].arena += Bytes(256);
  EXPECT_THAT(error(changed, true), HasSubstr("stage 1 states an arena"));
  changed = plan;
  changed.activation_limit = Bytes(1);
  EXPECT_THAT(error(changed, true), HasSubstr("more than the limit"));
  changed = plan;
  changed.stages[0].states.weights += Bytes(4);
  EXPECT_THAT(error(changed, true), HasSubstr("model states"));
  changed = plan;
  changed.stages[0].program.pop_back();
  EXPECT_NE(error(changed, true), "");
  changed = plan;
  changed.stages.pop_back();
  EXPECT_THAT(error(changed, true), HasSubstr("1 stages"));
  changed = plan;
  changed.stages[1].slices[0].first_layer += 1;
  EXPECT_THAT(error(changed, true), HasSubstr("comes next"));
}

// Returns a plan that has slices but no programs.
Plan PlanOfSlices(const ParallelLayout& layout, const std::vector<int32_t>& layers) {
  Plan plan{.model = SmallRequest().spec.model, .layout = layout};
  plan.model.layers = std::accumulate(layers.begin(), layers.end(), 0);
  for (const StageContext& context : PipelineContexts(plan.model, layout, 1, 4, layers)) {
    StagePlan stage;
    for (const StageSlice& slice : context.slices) {
      const StagePolicy policy = NamedPolicy(context.graph(), RecomputeMode::kNone, slice.layers());
      stage.slices.push_back({slice.stage, slice.first_layer, slice.end_layer, policy});
    }
    plan.stages.push_back(stage);
  }
  return plan;
}

TEST(Plan, HasASliceForEachVirtualStage) {
  const Plan chunks = PlanOfSlices({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, {1, 2, 1, 1});
  EXPECT_THAT(PlanText(chunks), HasSubstr("stage 1\nslice 1 layers 1 to 3\npolicy layers 1-2: store all\n"
                                          "slice 3 layers 4 to 5\npolicy layer 4: store all\nbytes"));
  EXPECT_EQ(LayersText(chunks, 0), "embed 0, 3");
  EXPECT_EQ(LayersText(chunks, 1), "1-2, 4 head");
  const Plan vee = PlanOfSlices({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}, {1, 2, 1, 1});
  EXPECT_EQ(LayersText(vee, 0), "embed 0, 4 head");
  const Plan pipes = PlanOfSlices({.pp = 2, .schedule = ScheduleKind::kChimera}, {2, 3});
  EXPECT_EQ(LayersText(pipes, 1), "2-4 head, embed 0-1");
  EXPECT_EQ(pipes.ContextOf(1), PipelineContexts(pipes.model, pipes.layout, 1, 1, {2, 3})[1]);
}

TEST(Plan, CheckPlanFindsSlicesThatAreNotTheLayouts) {
  const Plan plan = PlanOfSlices({.pp = 2, .schedule = ScheduleKind::kChimera}, {2, 3});
  const auto error = [&](const std::function<void(Plan&)>& change) {
    Plan changed = plan;
    change(changed);
    return std::string(CheckPlan(changed).message());
  };
  EXPECT_THAT(error([](Plan& p) { p.stages[1].slices.pop_back(); }),
              HasSubstr("stage 1 has 1 slices, tp1 pp2 dp1 chimera puts 2 on each"));
  EXPECT_THAT(error([](Plan& p) { std::swap(p.stages[0].slices[0], p.stages[0].slices[1]); }),
              HasSubstr("stage 0 has virtual stage 3 as slice 0, but tp1 pp2 dp1 chimera has 0 there"));
  EXPECT_THAT(error([](Plan& p) { p.stages[1].slices[1].first_layer = 1; }), HasSubstr("layer 0 comes next"));
  EXPECT_THAT(error([](Plan& p) { p.stages[0].slices[1].policy.layers.pop_back(); }),
              HasSubstr("policies for 2 layers in a stage that has layers 2 to 5"));
  EXPECT_THAT(error([](Plan& p) {
                p.stages[0].slices[1].end_layer = 4;
                p.stages[0].slices[1].policy.layers.pop_back();
              }),
              HasSubstr("stages cover 4 of 5 layers"));
  EXPECT_THAT(error([](Plan& p) { p.layout.virtual_stages = 0; }), HasSubstr("does not divide"));
}

// A schedule with this many slots would need programs that fill any memory.
TEST(Plan, RefusesSchedulesWithoutBound) {
  PlanRequest request = SmallRequest();
  request.spec.model.layers = 16;
  request.spec.train.global_batch = 1 << 20;
  request.spec.train.micro_batch = 1;
  request.spec.resources = {.min_ranks = 16, .max_ranks = 16};
  request.spec.parallel = {.tp = 1, .pp = 16, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.cluster = UniformCluster(2, 8, StatedCpuProfile());
  EXPECT_THAT(ErrorOf(request), HasSubstr("a schedule has at most 16777216 slots"));
}

TEST(Plan, WantedShapesAreDistinctAndFew) {
  PlanRequest request = SmallRequest();
  const std::vector<LayerShape> shapes = WantedShapes(request.spec, request.cluster);
  EXPECT_THAT(shapes, SizeIs(8));  // tp 1 and 2, with micro-batches 1, 2, 4 and 8 each
  EXPECT_EQ(std::set<LayerShape>(shapes.begin(), shapes.end()).size(), shapes.size());
  request.cluster = UniformCluster(8, 8);
  request.spec.model.heads = 8;
  request.spec.resources = {.min_ranks = 1, .max_ranks = 64};
  EXPECT_THAT(WantedShapes(request.spec, request.cluster), SizeIs(12));
  request.spec.parallel.tp = 2;
  request.spec.train.micro_batch = 4;
  EXPECT_EQ(WantedShapes(request.spec, request.cluster), std::vector{ShapeOf(request.spec.model, ParallelLayout{.tp = 2}, 4)});
}

// If the first layers have no experts, their op times are measured too.
TEST(Plan, WantedShapesAreThoseOfBothKindsOfLayers) {
  PlanRequest request = SmallRequest();
  request.spec.model.family = ModelFamily::kLlama;
  request.spec.model.dropout = 0;
  request.spec.model.moe = {.experts = 8, .top_k = 2, .capacity = 1.5};
  const std::vector<LayerShape> sparse = WantedShapes(request.spec, request.cluster);
  ASSERT_FALSE(sparse.empty());
  request.spec.model.moe.dense_layers = 1;
  const std::vector<LayerShape> shapes = WantedShapes(request.spec, request.cluster);
  ASSERT_GT(shapes.size(), sparse.size());
  EXPECT_EQ(std::vector(shapes.begin(), shapes.begin() + std::ssize(sparse)), sparse);
  std::set<LayerShape> dense;
  for (const LayerShape& shape : sparse) dense.insert(DenseShape(shape));
  EXPECT_EQ(std::set(shapes.begin() + std::ssize(sparse), shapes.end()), dense);
  EXPECT_EQ(shapes.size(), sparse.size() + dense.size());
  EXPECT_TRUE(std::none_of(dense.begin(), dense.end(), [](const LayerShape& shape) { return shape.moe(); }));
}

// The planner finds the wanted shapes without a list of all candidates: a job for 1 to 1,024 ranks has about 250,000.
TEST(Plan, WantedShapesAreThoseOfTheCandidates) {
  PlanRequest request = SmallRequest();
  request.cluster = UniformCluster(4, 2);
  for (const auto& [least, most, batch] :
       {std::tuple(1, 8, 16), std::tuple(8, 8, 7), std::tuple(3, 5, 3), std::tuple(9, 16, 16)}) {
    for (const ParallelSpec& parallel :
         {ParallelSpec{}, ParallelSpec{.pp = 4}, ParallelSpec{.dp = 3}, ParallelSpec{.sequence_parallel = Choice::kOn}}) {
      request.spec.resources = {.min_ranks = least, .max_ranks = most};
      request.spec.train.global_batch = batch;
      request.spec.parallel = parallel;
      std::set<LayerShape> expected;
      for (const Candidate& c : SearchSpace(request.spec, request.cluster, PlanTarget::kLynxEngine)) {
        LayerShape shape = ShapeOf(request.spec.model, c.layout, c.micro_batch);
        if (parallel.sequence_parallel == Choice::kAuto) shape.sequence_parallel = false;
        expected.insert(shape);
      }
      const std::vector<LayerShape> shapes = WantedShapes(request.spec, request.cluster);
      EXPECT_EQ(std::set<LayerShape>(shapes.begin(), shapes.end()), expected) << least << " to " << most << " ranks";
    }
  }
}

TEST(Plan, TextHoldsEveryProgramAndParsesBack) {
  const Plan plan = PlanOf(SmallRequest());
  const std::string text = PlanText(plan);
  EXPECT_EQ(plan.digest, Sha256Hex(text));
  for (const StagePlan& stage : plan.stages) {
    EXPECT_THAT(text, HasSubstr(ProgramText(stage.program)));
    const auto parsed = ParseProgram(ProgramText(stage.program));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, stage.program);
  }
}

}  // namespace
}  // namespace lynx
