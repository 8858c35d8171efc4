// Tests that a job with experts trains the same model in every layout: with expert groups inside a replica, over replicas, and
// of all ranks of a stage. Policies must not change a bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr int64_t kSteps = 12;
// The relative difference that is allowed. The layouts differ only in the order of sums. The choice of experts is a step
// function of the scores, so a token near the border may go to another expert after some steps.
constexpr double kTolerance = 1e-4;
constexpr double kBfloat16Tolerance = 2e-2;

ModelSpec ModelOf(const TinySetting& setting) { return TinyMoe(setting.dtype, setting.model); }

TinyJob JobOf(const ModelSpec& model, const ParallelLayout& layout, RecomputeMode mode) {
  TinyJob job{.model = model};
  job.Lower(layout, mode);
  return job;
}

std::vector<double> LossesOf(const TinySetting& setting) {
  return Train(JobOf(ModelOf(setting), setting.layout, RecomputeMode::kSelective), kSteps).losses();
}

const std::vector<double>& SingleRank(const TinySetting& setting) {
  static auto& known = *new std::map<std::pair<TinyModel, DataType>, std::vector<double>>;
  std::vector<double>& losses = known[{setting.model, setting.dtype}];
  if (losses.empty()) losses = LossesOf({setting.model, {}, setting.dtype});
  return losses;
}

class ExpertLayouts : public testing::TestWithParam<TinySetting> {};

TEST_P(ExpertLayouts, LossesAgreeWithASingleRank) {
  const DataType dtype = GetParam().dtype;
  const std::vector<double> losses = LossesOf(GetParam()), &expected = SingleRank(GetParam());
  const double tolerance = dtype == DataType::kFloat32 ? kTolerance : kBfloat16Tolerance;
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected[step], tolerance * expected[step]) << "step " << step;
  }
  EXPECT_LT(expected.back(), 0.97 * expected.front());  // the model must learn something
}

// Every gradient counts once in the norm. So the norm must be the same as on a single rank.
TEST_P(ExpertLayouts, GradientNormsAgreeWithASingleRank) {
  if (GetParam().dtype != DataType::kFloat32) return;
  const auto norm = [](const ParallelLayout& layout) {
    return Train(JobOf(ModelOf(GetParam()), layout, RecomputeMode::kNone), 1).reports[0][0].gradient_norm;
  };
  const double expected = norm({});
  EXPECT_NEAR(norm(GetParam().layout), expected, 1e-4 * expected);
}

TEST_P(ExpertLayouts, PoliciesChangeNoBit) {
  const ModelSpec model = ModelOf(GetParam());
  const TinyRun expected = Train(JobOf(model, GetParam().layout, RecomputeMode::kNone), 2);
  for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective}) {
    const TinyRun run = Train(JobOf(model, GetParam().layout, mode), 2);
    EXPECT_EQ(run.losses(), expected.losses()) << EnumName(mode);
    EXPECT_TRUE(run.weights == expected.weights) << EnumName(mode);
  }
}

// With a small capacity, some rows are dropped, and the router has its losses. The dropped rows depend on the layout, but not
// on the policy.
TEST(ExpertPolicies, ChangeNoBitIfRowsAreDropped) {
  for (const ParallelLayout& layout :
       {ParallelLayout{}, ParallelLayout{.dp = 2, .ep = 2},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .zero = ZeroStage::kOptimizer}}) {
    ModelSpec model = TinyMoe();
    model.moe.aux_loss = 0.02;
    model.moe.z_loss = 0.001;
    const TinyRun nothing_dropped = Train(JobOf(model, layout, RecomputeMode::kNone), 3);
    model.moe.capacity = 1;
    const TinyRun expected = Train(JobOf(model, layout, RecomputeMode::kNone), 3);
    EXPECT_NE(expected.losses(), nothing_dropped.losses()) << LayoutText(layout);
    for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives}) {
      const TinyRun run = Train(JobOf(model, layout, mode), 3);
      EXPECT_EQ(run.losses(), expected.losses()) << LayoutText(layout) << ", " << EnumName(mode);
      EXPECT_TRUE(run.weights == expected.weights) << LayoutText(layout) << ", " << EnumName(mode);
    }
  }
}

TEST(ExpertPolicies, OffloadingChangesNoBit) {
  const ParallelLayout layout{.dp = 2, .ep = 2};
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    TinyJob job = JobOf(TinyMoe(dtype), layout, RecomputeMode::kNone);
    const TinyRun expected = Train(job, 2);
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kSelective}) {
      job.Lower(layout, [&](const StageContext& context, const StageSlice& slice) {
        return NamedPolicy(context.shape(), mode, {.offload_permille = 1000}, slice.layers());
      });
      const TinyRun run = Train(job, 2);
      EXPECT_EQ(run.losses(), expected.losses()) << EnumName(mode);
      EXPECT_TRUE(run.weights == expected.weights) << EnumName(mode);
    }
  }
}

std::vector<TinySetting> Settings() {
  std::vector<TinySetting> settings;
  for (const ParallelLayout& layout :
       {ParallelLayout{.dp = 2, .ep = 2}, ParallelLayout{.dp = 2}, ParallelLayout{.dp = 4, .ep = 2},
        ParallelLayout{.dp = 4, .ep = 4, .zero = ZeroStage::kOptimizer},
        ParallelLayout{.dp = 4, .ep = 2, .zero = ZeroStage::kOptimizer}, ParallelLayout{.tp = 2, .sequence_parallel = true},
        ParallelLayout{.tp = 2, .ep = 2, .sequence_parallel = true},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
        ParallelLayout{.tp = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
        ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .rank_order = RankOrder::kTpDpPp},
        ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
        ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubble},
        ParallelLayout{.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubbleV},
        ParallelLayout{.dp = 2, .ep = 2, .weave = WeaveMode::kPairs},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .weave = WeaveMode::kNeighbours}}) {
    settings.push_back({TinyModel::kMixtral, layout});
    if (layout.ep > 1 && layout.pp == 1) settings.push_back({TinyModel::kMixtral, layout, DataType::kBfloat16});
    const TinyModel other = settings.size() % 3 == 0 ? TinyModel::kQwen2Moe : TinyModel::kGlm4Moe;
    settings.push_back({other, layout, settings.size() % 4 == 0 ? DataType::kBfloat16 : DataType::kFloat32});
  }
  return settings;
}

INSTANTIATE_TEST_SUITE_P(, ExpertLayouts, testing::ValuesIn(Settings()), [](const auto& info) { return TestName(info.param); });

TEST(ExpertEngine, SaysWhatItDoesNotTrain) {
  const auto expect_refused = [](const ModelSpec& model, const ParallelLayout& layout, const char* why) {
    const absl::Status status = CheckEngineRuns(model, layout);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(why));
  };
  EXPECT_EQ(CheckEngineRuns(TinyMoe(), {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true}), absl::OkStatus());
  ModelSpec unlimited = TinyMoe();
  unlimited.moe.capacity = 0;
  expect_refused(unlimited, {}, "model.moe.capacity 0");
  expect_refused(TinyMoe(), {.tp = 2}, "parallel.sequenceParallel off");
  expect_refused(TinyMoe(), {.pp = 2, .schedule = ScheduleKind::kChimera}, "pipelines of one direction");
  ModelSpec whole = TinyMoe(DataType::kFloat32, TinyModel::kOlmoe);
  EXPECT_EQ(CheckEngineRuns(whole, {.dp = 2, .ep = 2}), absl::OkStatus());
  expect_refused(whole, {.tp = 2, .sequence_parallel = true}, "parallel.tp above 1 can be planned");
  whole.kv_heads = whole.heads / 2;
  expect_refused(whole, {}, "as many as heads, if model.qkNormWhole is true");
  ParallelLayout custom{.pp = 2, .schedule = ScheduleKind::kCustom};
  ASSERT_EQ(
      SetCustomSchedule("custom ranks=2 microbatches=2 placement=bidirectional\n0F0 3F1 0B0 3B1\n1F0 2F1 1B0 2B1\n", custom),
      absl::OkStatus());
  expect_refused(TinyMoe(), custom, "pipelines of one direction");
}

// Ranks that hold the same experts must have the same weights after some steps.
TEST(ExpertReplicas, HaveTheSameWeights) {
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer}) {
    const ParallelLayout layout{.dp = 4, .ep = 2, .zero = zero};
    const TinyJob job = JobOf(TinyMoe(DataType::kFloat32), layout, RecomputeMode::kNone);
    std::vector<std::vector<float>> experts(4);
    const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
      for (int64_t step = 0; step < 3; ++step) LYNX_RETURN_IF_ERROR(rank.engine->RunStep(step).status());
      const ModelState::Range range = rank.state->ExpertRange(1);
      const auto begin = rank.state->weights().begin() + range.begin;
      experts[static_cast<size_t>(rank.rank)].assign(begin, begin + range.count);
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(experts[0], experts[2]);
    EXPECT_EQ(experts[1], experts[3]);
    EXPECT_NE(experts[0], experts[1]);
  }
}

// Gradients of parameters that all tensor-parallel ranks hold are summed in one transfer, or one by one. With two ranks, each
// sum has two terms, so both ways give the same bits.
TEST(ExpertEngine, SumsReplicatedGradientsPackedOrWhereTheyAre) {
  const ParallelLayout layout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true};
  TinyJob job = JobOf(TinyMoe(DataType::kFloat32, TinyModel::kGlm4Moe), layout, RecomputeMode::kNone);
  const TinyRun packed = Train(job, 3);
  for (const int64_t packed_numbers : {0, 100}) {
    job.packed_numbers = packed_numbers;
    const TinyRun run = Train(job, 3);
    EXPECT_EQ(run.losses(), packed.losses()) << packed_numbers;
    EXPECT_EQ(run.weights, packed.weights) << packed_numbers;
  }
}

// The loads are whole numbers, so all layouts move the biases by the same steps, in bfloat16 too: ranks read them in fp32.
TEST(RouterBiases, FollowTheLoadsOfAllRanks) {
  using enum ZeroStage;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const ParallelLayout& layout :
         {ParallelLayout{}, ParallelLayout{.dp = 4, .ep = 2, .zero = kOptimizer},
          ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true}, ParallelLayout{.pp = 2, .dp = 2, .ep = 2}}) {
      SCOPED_TRACE(LayoutText(layout) + " " + EnumName(dtype));
      ModelSpec model = TinyMoe(dtype, TinyModel::kGlm4Moe);
      model.moe.bias_rate = 0.001;
      constexpr int64_t kMoves = 4;
      const TinyRun run = Train(JobOf(model, layout, RecomputeMode::kFull), kMoves);
      EXPECT_FALSE(run.weights.contains("layers.0.router.bias")) << "the layer has no experts";
      for (const int32_t layer : {1, 2, 3}) {
        const std::vector<float>& biases = run.weights.at(absl::StrCat("layers.", layer, ".router.bias"));
        ASSERT_EQ(biases.size(), 8u);
        bool up = false, down = false;
        for (const float bias : biases) {
          const double moves = bias / model.moe.bias_rate;
          EXPECT_NEAR(moves, std::round(moves), 1e-3) << "layer " << layer;
          EXPECT_LE(std::abs(moves), kMoves + 1e-3);
          up = up || bias > 0, down = down || bias < 0;
        }
        EXPECT_TRUE(up && down) << "some experts have more than the mean load, and some less";
      }
    }
  }
}

// With the rate 0, the biases do not change.
TEST(RouterBiases, StayIfNothingMovesThem) {
  ModelSpec model = TinyMoe(DataType::kFloat32, TinyModel::kGlm4Moe);
  model.moe.bias_rate = 0;
  const TinyRun run = Train(JobOf(model, {}, RecomputeMode::kNone), 2);
  EXPECT_EQ(run.weights.at("layers.1.router.bias"), std::vector<float>(8));
}

// One bias is so large that it alone decides: all tokens go to two experts.
TEST(RouterBiases, DecideTheChoice) {
  ModelSpec model = TinyMoe(DataType::kFloat32, TinyModel::kGlm4Moe);
  model.moe.top_k = 2;
  const TinyJob job = JobOf(model, {}, RecomputeMode::kNone);
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    for (const int32_t layer : {1, 2, 3}) {
      rank.state->RouterBias(layer)[2] = 5;
      rank.state->RouterBias(layer)[7] = 4;
    }
    LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(0));
    EXPECT_EQ(report.experts.fullest_expert, 4) << "each of the two has half of the rows of eight";
    EXPECT_EQ(report.experts.median_expert, 0);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// An evaluation runs the forward all-to-alls too.
TEST(ExpertEvaluations, AgreeWithASingleRank) {
  const auto loss = [](const ParallelLayout& layout) {
    TinyJob job = JobOf(TinyMoe(DataType::kFloat32), layout, RecomputeMode::kNone);
    job.train.eval_batches = 2;
    double first = 0;
    const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
      LYNX_ASSIGN_OR_RETURN(const double own, rank.engine->Evaluate(*rank.dataset));
      if (rank.rank == 0) first = own;
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    return first;
  };
  const double expected = loss({});
  EXPECT_GT(expected, 1);
  EXPECT_NEAR(loss({.dp = 4, .ep = 4}), expected, kTolerance * expected);
}

}  // namespace
}  // namespace lynx::worker
