// Tests that the step report says how many rows the experts of a rank received, and how many were dropped. A router whose
// weights are 0 gives all experts the same score, so each token goes to the first `top_k` experts, and all counts are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr int32_t kAllLayers = -1;

TinyJob JobOf(const ParallelLayout& layout, double capacity, RecomputeMode mode = RecomputeMode::kNone) {
  TinyJob job{.model = TinyMoe()};
  job.model.moe.capacity = capacity;
  job.Lower(layout, mode);
  return job;
}

// Trains one step with routers of weight 0, in this layer or in all layers. Returns the load that each rank reports.
// `evaluate`: before the step, the ranks evaluate the model.
std::vector<ExpertLoad> LoadsOfEqualScores(TinyJob job, int32_t only = kAllLayers, bool evaluate = false) {
  job.train.eval_batches = 1;
  std::vector<ExpertLoad> loads(static_cast<size_t>(job.layout.ranks()));
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    for (const StageSlice& slice : rank.context().slices) {
      for (int32_t layer = slice.first_layer; layer < slice.end_layer; ++layer) {
        if (only != kAllLayers && only != layer) continue;
        std::fill_n(WeightOf(*rank.state, layer, Parameter::kRouterWeight),
                    rank.state->Slot(layer, Parameter::kRouterWeight).count, 0.0f);
      }
    }
    LYNX_RETURN_IF_ERROR(rank.engine->GatherWeights());
    if (evaluate) LYNX_RETURN_IF_ERROR(rank.engine->Evaluate(*rank.dataset).status());
    LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(0));
    loads[static_cast<size_t>(rank.rank)] = report.experts;
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return loads;
}

// Returns the number of dispatches in a step of one rank: one for each layer and microbatch.
int64_t DispatchesOf(const TinyJob& job) {
  return int64_t{job.model.layers} / job.layout.pp * job.stages.front().context.microbatches;
}

TEST(ExpertLoad, IsCountedOnOneRank) {
  const TinyJob job = JobOf({}, 4);
  const int64_t tokens = job.model.seq, routed = 2 * tokens * DispatchesOf(job);
  // All rows go to two of eight experts. The rank has all experts, so its load is even.
  EXPECT_THAT(LoadsOfEqualScores(job),
              testing::ElementsAre(
                  ExpertLoad{.rows_routed = routed, .skew = 1, .rows = routed, .fullest_dispatch = 1, .fullest_expert = 4}));
}

TEST(ExpertLoad, IsCountedOverAnExpertGroup) {
  const TinyJob job = JobOf({.dp = 2, .ep = 2}, 4);
  const int64_t tokens = job.model.seq, routed = 2 * tokens * DispatchesOf(job);  // `routed`: by each of the two ranks
  const std::vector<ExpertLoad> loads = LoadsOfEqualScores(job);
  EXPECT_EQ(loads[0], (ExpertLoad{.rows_routed = 2 * routed,
                                  .skew = 2,
                                  .rows = 2 * routed,
                                  .fullest_dispatch = 2,
                                  .fullest_expert = 4,
                                  .median_expert = 4}));
  EXPECT_EQ(loads[1], (ExpertLoad{.rows_routed = 2 * routed, .skew = 2}));
}

// Each of the two stages has two expert groups. The fullest ranks of all four groups are equally full, so the first of them is
// named. The rows of all ranks count.
TEST(ExpertLoad, IsThatOfTheWholeJob) {
  const TinyJob job = JobOf({.pp = 2, .dp = 4, .ep = 2}, 4);
  const int64_t routed = 8 * 2 * int64_t{job.model.seq} * DispatchesOf(job);
  for (const ExpertLoad& load : LoadsOfEqualScores(job)) {
    EXPECT_EQ(load.rows_routed, routed);
    EXPECT_EQ(load.skew, 2);
    EXPECT_EQ(load.fullest_rank, 0);
  }
}

// With a small capacity, each rank sends only as many rows as two rooms hold.
TEST(ExpertLoad, SaysWhatIsDropped) {
  for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.dp = 2, .ep = 2}}) {
    const TinyJob job = JobOf(layout, 1);
    const int64_t tokens = job.model.seq, room = job.stages.front().context.shape().expert_room();
    ASSERT_LT(room, tokens);
    const int64_t dispatches = DispatchesOf(job) * layout.ranks();
    const ExpertLoad load = LoadsOfEqualScores(job)[0];
    EXPECT_EQ(load.rows_routed, dispatches * 2 * tokens) << LayoutText(layout);
    EXPECT_EQ(load.rows_dropped, dispatches * 2 * (tokens - room)) << LayoutText(layout);
    EXPECT_EQ(load.rows, dispatches * 2 * room) << "the first rank has both experts; " << LayoutText(layout);
    EXPECT_DOUBLE_EQ(load.skew, static_cast<double>(room * layout.ep) / static_cast<double>(tokens)) << LayoutText(layout);
  }
}

TEST(ExpertLoad, NamesTheFullestDispatch) {
  const TinyJob job = JobOf({.dp = 2, .ep = 2}, 4);
  ASSERT_GT(job.model.layers, 1);
  const ExpertLoad load = LoadsOfEqualScores(job, 0)[0];
  EXPECT_EQ(load.fullest_dispatch, 2);
  EXPECT_LT(load.skew, 2);
  EXPECT_GT(load.skew, 1);
  EXPECT_GT(load.emptiest_expert, 0);
}

TEST(ExpertLoad, LeavesOutEvaluations) {
  const TinyJob job = JobOf({.dp = 2, .ep = 2}, 1);
  EXPECT_EQ(LoadsOfEqualScores(job, kAllLayers, true), LoadsOfEqualScores(job));
}

std::vector<ExpertLoad> LoadsOf(const TinyRun& run) {
  std::vector<ExpertLoad> loads;
  for (const std::vector<StepReport>& reports : run.reports) {
    for (const StepReport& report : reports) loads.push_back(report.experts);
  }
  return loads;
}

// Recomputation runs the router and repeats dispatches, and woven passes change their order.
TEST(ExpertLoad, IsTheSameWithEveryPolicy) {
  for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.dp = 2, .ep = 2}}) {
    const std::vector<ExpertLoad> expected = LoadsOf(Train(JobOf(layout, 1), 2));
    EXPECT_GT(expected[0].rows_dropped, 0);
    EXPECT_LT(expected[0].rows_dropped, expected[0].rows_routed);
    for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective}) {
      EXPECT_EQ(LoadsOf(Train(JobOf(layout, 1, mode), 2)), expected) << LayoutText(layout) << ", " << EnumName(mode);
    }
    if (layout.ep == 1) continue;
    ParallelLayout woven = layout;
    woven.weave = WeaveMode::kPairs;
    EXPECT_EQ(LoadsOf(Train(JobOf(woven, 1, RecomputeMode::kFull), 2)), expected) << "woven";
  }
}

TEST(ExpertLoad, IsLeftOutWithoutExperts) {
  TinyJob job;
  job.Lower({}, RecomputeMode::kNone);
  EXPECT_EQ(Train(job, 1).reports[0][0].experts, ExpertLoad());
}

}  // namespace
}  // namespace lynx::worker
