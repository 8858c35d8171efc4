// Tests the main promise of Lynx: recomputation changes no bit. Losses and final weights must be equal for every recomputation
// policy, with dropout, while every dead buffer holds NaN.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "planner/plan/plan.h"
#include "planner/problem/layout_schedule.h"
#include "planner/search/make_plan.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr int64_t kSteps = 6;

// With experts, rooms are too small, so rows are dropped, and routers have losses.
TinyJob JobOf(const TinySetting& setting) {
  TinyJob job{.model = SpecOf(setting)};
  if (!job.model.moe.any()) return job;
  job.model.moe.capacity = 0.75;
  job.model.moe.aux_loss = 0.02;
  job.model.moe.z_loss = 0.01;
  return job;
}

// Returns a policy with a random placement for every tensor. If a placement is not possible, lowering moves the work to a place
// that is possible.
StagePolicy RandomPolicy(const StageContext& context, const StageSlice& slice, uint64_t seed) {
  StagePolicy policy = NamedPolicy(context.graph(), RecomputeMode::kNone, slice.layers());
  uint64_t draw = Mix64(seed ^ static_cast<uint64_t>(slice.stage) << 32);
  for (LayerPolicy& layer : policy.layers) {
    for (Placement& placement : layer) {
      draw = Mix64(draw);
      placement = static_cast<Placement>(draw % static_cast<uint64_t>(kPlacementCount));
    }
  }
  return policy;
}

class Policies : public testing::TestWithParam<TinySetting> {};

void ExpectSameBits(const TinyRun& run, const TinyRun& expected, const std::string& what) {
  EXPECT_EQ(run.losses(), expected.losses()) << what;
  ASSERT_EQ(run.weights.size(), expected.weights.size()) << what;
  for (const auto& [name, values] : expected.weights) {
    EXPECT_TRUE(run.weights.at(name) == values) << what << ": " << name << " differs";
  }
}

TEST_P(Policies, LossesAndWeightsHaveTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  for (RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective}) {
    job.Lower(GetParam().layout, mode);
    ExpectSameBits(Train(job, kSteps), expected, EnumName(mode));
  }
}

TEST_P(Policies, RandomPlacementsHaveTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    job.Lower(GetParam().layout,
              [&](const StageContext& context, const StageSlice& slice) { return RandomPolicy(context, slice, seed); });
    ExpectSameBits(Train(job, kSteps), expected, "random policy");
  }
}

// Passes run side by side in every way that the layout allows, over links of two speeds, with random placements.
TEST_P(Policies, WeavingHasTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  const int32_t microbatches = job.stages.front().context.microbatches;
  for (const WeaveMode weave : {WeaveMode::kPairs, WeaveMode::kQuads, WeaveMode::kNeighbours}) {
    ParallelLayout layout = GetParam().layout;
    layout.weave = weave;
    if (!CheckWeave(job.model, layout).ok() || !CheckScheduleOf(layout, microbatches).ok()) continue;
    for (const int64_t link : {2'000'000, 200'000'000}) {
      job.link_bytes_per_second = link;
      job.Lower(layout, [&](const StageContext& context, const StageSlice& slice) {
        return RandomPolicy(context, slice, static_cast<uint64_t>(link));
      });
      ExpectSameBits(Train(job, kSteps), expected, absl::StrCat(EnumName(weave), ", link ", link));
    }
  }
}

// The policies recompute no tensors or some of them, and move stored tensors to the host's memory for a while.
TEST_P(Policies, OffloadingHasTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  int64_t copies = 0;
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kSelective}) {
    for (const int32_t permille : {400, 1000}) {
      job.Lower(GetParam().layout, [&](const StageContext& context, const StageSlice& slice) {
        return NamedPolicy(context.shape(), mode, {.offload_permille = permille}, slice.layers());
      });
      for (const StageProgram& stage : job.stages) {
        copies += std::count_if(stage.program.begin(), stage.program.end(),
                                [](const Action& action) { return action.kind == ActionKind::kReloadStart; });
      }
      ExpectSameBits(Train(job, kSteps), expected, "offloading");
    }
  }
  EXPECT_GT(copies, 0);
}

// Some layers store no input, and the layers below them run again to compute it. The chains are groups of 2 or 3 layers, as in
// Megatron-LM, or one chain of all layers with random placements.
TEST_P(Policies, ChainsOfLayersHaveTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  for (int32_t group : {2, 3}) {
    job.Lower(GetParam().layout, [&](const StageContext& context, const StageSlice& slice) {
      return NamedPolicy(context.shape(), RecomputeMode::kUniform, {.layers = group}, slice.layers());
    });
    ExpectSameBits(Train(job, kSteps), expected, "uniform");
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    job.Lower(GetParam().layout, [&](const StageContext& context, const StageSlice& slice) {
      StagePolicy policy = RandomPolicy(context, slice, seed);
      policy.input_recomputed.assign(policy.layers.size(), true);
      policy.input_recomputed[0] = false;
      return policy;
    });
    ExpectSameBits(Train(job, kSteps), expected, "random policy with chains");
  }
}

// Poison is NaN that is written into dead buffers. Without poison the results must be the same as with it.
TEST_P(Policies, PoisonChangesNoBit) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kFull);
  const TinyRun expected = Train(job, kSteps);
  job.dead_buffers = DeadBuffers::kLeave;
  ExpectSameBits(Train(job, kSteps), expected, "without poison");
}

// Returns a job with the programs of an automatic plan (by HEU, see planner/recompute/stage_heu.h). The memory limit is half
// way between what recomputing everything and storing everything need. Copies to the host cost almost nothing. Without host
// memory, links are so slow that every collective is a window.
TinyJob AutoJob(const TinySetting& setting, Bytes host_memory) {
  const ParallelLayout& layout = setting.layout;
  TinyJob job = JobOf(setting);
  const auto largest_arena = [&](RecomputeMode mode) {
    job.Lower(layout, mode);
    Bytes largest;
    for (const StageProgram& stage : job.stages) largest = std::max(largest, stage.arena);
    return largest;
  };
  PlanRequest request;
  request.spec.name = "tiny";
  request.spec.model = job.model;
  request.spec.data.path = "/text";
  request.spec.train = job.train;
  request.spec.parallel = {.tp = layout.tp,
                           .pp = layout.pp,
                           .dp = layout.dp,
                           .ep = job.model.moe.any() ? layout.ep : 0,
                           .virtual_stages = layout.virtual_stages,
                           .sequence_parallel = layout.sequence_parallel ? Choice::kOn : Choice::kOff,
                           .schedule = layout.schedule,
                           .zero = layout.zero};
  request.spec.resources = {
      .min_ranks = layout.ranks(),
      .max_ranks = layout.ranks(),
      .activation_memory_per_rank = (largest_arena(RecomputeMode::kFull) + largest_arena(RecomputeMode::kNone)) / 2};
  HardwareProfile profile = StatedCpuProfile();
  if (host_memory == Bytes(0)) profile.intra_node.latency = Nanos(10'000'000);
  const int64_t rate = int64_t{1} << 40;
  profile.host = {Nanos(0), rate, rate, 2 * rate, 1000};
  request.cluster = UniformCluster(1, layout.ranks(), profile);
  request.cluster.groups[0].host_memory = host_memory;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  const Plan& plan = std::get<Plan>(*result);
  job.layout = plan.layout;
  job.stages.clear();
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    job.stages.push_back({plan.ContextOf(stage), plan.stages[stage].program, plan.stages[stage].arena});
  }
  return job;
}

bool HasKind(const TinyJob& job, ActionKind kind) {
  return std::any_of(job.stages.begin(), job.stages.end(), [&](const StageProgram& stage) {
    return std::any_of(stage.program.begin(), stage.program.end(), [&](const Action& action) { return action.kind == kind; });
  });
}

TEST_P(Policies, AutomaticPlansHaveTheSameBits) {
  const TinyJob automatic = AutoJob(GetParam(), /*host_memory=*/Bytes(0));
  ParallelLayout layout = automatic.layout;
  layout.weave = GetParam().layout.weave;  // the plan may also let passes run side by side
  EXPECT_EQ(layout, GetParam().layout);
  EXPECT_TRUE(HasKind(automatic, ActionKind::kRecompute));
  const TinyRun run = Train(automatic, kSteps);
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  ExpectSameBits(run, Train(job, kSteps), "automatic plan");
}

// With GPipe so much is in flight that tensors of even these few layers are offloaded for a while.
TEST(AutomaticPlans, ThatOffloadHaveTheSameBits) {
  const ParallelLayout layout{.pp = 2, .dp = 2, .schedule = ScheduleKind::kGpipe};
  for (const TinySetting& setting : ModelsIn({layout}, {layout})) {
    SCOPED_TRACE(TestName(setting));
    const TinyJob automatic = AutoJob(setting, kGiB);
    EXPECT_TRUE(HasKind(automatic, ActionKind::kReloadStart));
    TinyJob job = JobOf(setting);
    job.Lower(layout, RecomputeMode::kNone);
    ExpectSameBits(Train(automatic, kSteps), Train(job, kSteps), "automatic plan");
  }
}

std::string NameOf(const testing::TestParamInfo<TinySetting>& info) { return TestName(info.param); }

const std::vector<ParallelLayout>& AllLayouts() {
  static const std::vector<ParallelLayout> layouts = {
      ParallelLayout{1, 1, 1},
      ParallelLayout{2, 1, 1},
      ParallelLayout{1, 2, 1},
      ParallelLayout{2, 2, 1},
      ParallelLayout{1, 4, 1},
      ParallelLayout{2, 2, 2},
      ParallelLayout{.pp = 2, .dp = 2, .schedule = ScheduleKind::kGpipe},
      ParallelLayout{.tp = 2, .pp = 2, .schedule = ScheduleKind::kZeroBubble},
      ParallelLayout{.pp = 2, .dp = 2, .schedule = ScheduleKind::kZeroBubbleV},
      ParallelLayout{.tp = 2, .pp = 2, .schedule = ScheduleKind::kChimera},
      ParallelLayout{.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
      ParallelLayout{.tp = 2, .sequence_parallel = true},
      ParallelLayout{.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubble}};
  return layouts;
}

const std::vector<ParallelLayout>& LayoutsInBfloat16() {
  static const std::vector<ParallelLayout> layouts = {
      ParallelLayout{1, 1, 1}, ParallelLayout{2, 2, 2}, ParallelLayout{.tp = 2, .pp = 2, .schedule = ScheduleKind::kChimera},
      ParallelLayout{.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubble},
      ParallelLayout{.pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer}};
  return layouts;
}

// Models with experts: all on each rank, some on each rank of an expert group, and the same on ranks of several groups.
std::vector<TinySetting> SettingsWithExperts() {
  constexpr TinyModel kModel = TinyModel::kMixtral, kGlm = TinyModel::kGlm4Moe, kQwen = TinyModel::kQwen2Moe;
  return {
      {kModel, ParallelLayout{}},
      {kModel, ParallelLayout{.dp = 2, .ep = 2}, DataType::kBfloat16},
      {kModel, ParallelLayout{.pp = 2, .dp = 4, .ep = 2, .zero = ZeroStage::kOptimizer}},
      {kModel, ParallelLayout{.tp = 2, .ep = 2, .sequence_parallel = true}},
      {kModel, ParallelLayout{.tp = 2, .sequence_parallel = true}, DataType::kBfloat16},
      {kModel, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubble}},
      {kModel, ParallelLayout{.tp = 2, .pp = 2, .ep = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubbleV}},
      {kQwen, ParallelLayout{}},
      {kQwen, ParallelLayout{.tp = 2, .pp = 2, .ep = 2, .sequence_parallel = true}, DataType::kBfloat16},
      {kQwen, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubble}},
      {TinyModel::kOlmoe, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16},
      {kGlm, ParallelLayout{}, DataType::kBfloat16},
      {kGlm, ParallelLayout{.dp = 2, .ep = 2}},
      {kGlm, ParallelLayout{.tp = 2, .ep = 2, .sequence_parallel = true}},
      {kGlm, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16},
      {kGlm, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}},
      {kGlm, ParallelLayout{.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubbleV}}};
}

INSTANTIATE_TEST_SUITE_P(, Policies, testing::ValuesIn(ModelsIn(AllLayouts(), LayoutsInBfloat16())), NameOf);
// Latent attention without experts in all kinds of layouts, and with experts.
std::vector<TinySetting> SettingsWithLatents() {
  constexpr TinyModel kModel = TinyModel::kLatent, kV2 = TinyModel::kDeepseekV2, kV3 = TinyModel::kDeepseekV3;
  return {
      {kModel, ParallelLayout{}},
      {kModel, ParallelLayout{.tp = 2}, DataType::kBfloat16},
      {kModel, ParallelLayout{.tp = 2, .pp = 2, .schedule = ScheduleKind::kZeroBubble}},
      {kModel, ParallelLayout{.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubbleV}},
      {kModel, ParallelLayout{.tp = 2, .pp = 2, .schedule = ScheduleKind::kChimera}, DataType::kBfloat16},
      {kModel, ParallelLayout{.tp = 2, .dp = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16},
      {kV2, ParallelLayout{}, DataType::kBfloat16},
      {kV2, ParallelLayout{.tp = 2, .ep = 2, .sequence_parallel = true}},
      {kV2, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubble}},
      {kV3, ParallelLayout{}},
      {kV3, ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16},
      {kV3, ParallelLayout{.tp = 2, .pp = 2, .ep = 2, .sequence_parallel = true}}};
}

INSTANTIATE_TEST_SUITE_P(Experts, Policies, testing::ValuesIn(SettingsWithExperts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Latents, Policies, testing::ValuesIn(SettingsWithLatents()), NameOf);

}  // namespace
}  // namespace lynx::worker
