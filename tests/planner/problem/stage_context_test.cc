#include "planner/problem/stage_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "planner/program/memory_model.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

// Returns the slices of a rank as text, with "e" before a slice that has the embedding and "h" after one that has the head: "e
// 0:[0,2) | 2:[4,6) h".
std::string SlicesText(const StageContext& context) {
  std::string text;
  for (const StageSlice& slice : context.slices) {
    absl::StrAppend(&text, text.empty() ? "" : " | ", slice.has_embedding ? "e " : "", slice.stage, ":[", slice.first_layer,
                    ",", slice.end_layer, ")", slice.has_head ? " h" : "");
  }
  return text;
}

std::vector<std::string> RanksOf(ScheduleKind schedule, int32_t pp, int32_t virtual_stages,
                                 const std::vector<int32_t>& layers) {
  int32_t sum = 0;
  for (const int32_t count : layers) sum += count;
  const ParallelLayout layout{.pp = pp, .virtual_stages = virtual_stages, .schedule = schedule};
  std::vector<std::string> texts;
  for (const StageContext& context : PipelineContexts(SmallModel(sum), layout, 2, 4, layers)) {
    EXPECT_EQ(context.pipeline_rank, static_cast<int32_t>(texts.size()));
    texts.push_back(SlicesText(context));
  }
  return texts;
}

using ::testing::ElementsAre;

TEST(PipelineContextsTest, OneSliceForEachVirtualStageOfTheRank) {
  EXPECT_THAT(RanksOf(ScheduleKind::kOneForwardOneBackward, 2, 1, {1, 2}), ElementsAre("e 0:[0,1)", "1:[1,3) h"));
  EXPECT_THAT(RanksOf(ScheduleKind::kInterleaved, 2, 2, {1, 2, 3, 4}),
              ElementsAre("e 0:[0,1) | 2:[3,6)", "1:[1,3) | 3:[6,10) h"));
  EXPECT_THAT(RanksOf(ScheduleKind::kZeroBubbleV, 2, 1, {1, 2, 3, 4}),
              ElementsAre("e 0:[0,1) | 3:[6,10) h", "1:[1,3) | 2:[3,6)"));
  // Each rank holds parts of two copies of the model, which run in opposite directions.
  EXPECT_THAT(RanksOf(ScheduleKind::kChimera, 2, 1, {1, 2}), ElementsAre("e 0:[0,1) | 3:[1,3) h", "1:[1,3) h | e 2:[0,1)"));
}

TEST(PipelineContextsDeathTest, LayersMustMakeUpTheModel) {
  EXPECT_DEATH(PipelineContexts(SmallModel(4), {.pp = 2}, 1, 1, {1, 2}), "LYNX_CHECK");
  EXPECT_DEATH(PipelineContexts(SmallModel(3), {.pp = 3}, 1, 1, {1, 2}), "LYNX_CHECK");
}

TEST(StageContextTest, FindsSlicesByVirtualStage) {
  const ParallelLayout layout{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  const StageContext rank = PipelineContexts(SmallModel(4), layout, 1, 2, {1, 1, 1, 1})[1];
  ASSERT_NE(rank.FindSlice(3), nullptr);
  EXPECT_EQ(rank.FindSlice(3)->first_layer, 3);
  EXPECT_EQ(rank.FindSlice(0), nullptr);
  EXPECT_FALSE(rank.has_embedding());
  EXPECT_TRUE(rank.has_head());
  EXPECT_DEATH(rank.only_slice(), "LYNX_CHECK");
}

TEST(StageContextTest, GradientsAreSummedOverAllRanksWithTheSameWeights) {
  const auto ranks_of = [](const ParallelLayout& layout) { return StageContext{.layout = layout}.gradient_ranks(); };
  EXPECT_EQ(ranks_of({.tp = 2, .pp = 4}), 1);
  EXPECT_EQ(ranks_of({.dp = 3, .cp = 2}), 6);
  EXPECT_EQ(ranks_of({.pp = 4, .dp = 3, .schedule = ScheduleKind::kChimera}), 6);
}

std::vector<std::string> KeysOf(const std::string& action, const StageContext& context) {
  const absl::StatusOr<Action> parsed = ParseAction(action);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> keys;
  for (const Access& access : AccessesOf(*parsed, context)) keys.push_back(BufferKeyText(access.key));
  return keys;
}

// Two slices of one rank may have gradients of the same microbatch at the same time.
TEST(BufferKeyTest, SlicesOfARankDoNotShareGradients) {
  const ParallelLayout layout{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  const StageContext rank = PipelineContexts(SmallModel(8), layout, 1, 2, {2, 2, 2, 2})[0];
  EXPECT_THAT(KeysOf("0RB+1", rank), ElementsAre("grad[0,1]"));
  EXPECT_THAT(KeysOf("2SB+1", rank), ElementsAre("grad[4,1]"));
  EXPECT_THAT(KeysOf("0SF+1", rank), ElementsAre("x[2,1]"));
  EXPECT_THAT(KeysOf("2RF+1", rank), ElementsAre("x[4,1]"));
  EXPECT_THAT(KeysOf("2F1:5.end", rank), ElementsAre("x1[5,1]", "x[6,1]"));
  const StageContext last = PipelineContexts(SmallModel(8), layout, 1, 2, {2, 2, 2, 2})[1];
  EXPECT_THAT(KeysOf("3F1:7.end", last), ElementsAre("x1[7,1]", "x[h,1]"));
  EXPECT_THAT(KeysOf("1F1:3.end", last), ElementsAre("x1[3,1]", "x[4,1]"));
}

// At the turn of the V both neighbours are on one rank, so x and its gradient are passed in place.
TEST(BufferKeyTest, NeighbouringSlicesOfOneRankPassTensorsInPlace) {
  const ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kZeroBubbleV};
  const StageContext rank = PipelineContexts(SmallModel(8), layout, 1, 2, {2, 2, 2, 2})[1];
  EXPECT_THAT(KeysOf("1F0:3.end", rank), ElementsAre("x1[3,0]", "x[4,0]"));
  EXPECT_THAT(KeysOf("2F0:4.attn", rank), ::testing::Contains("x[4,0]"));
  EXPECT_THAT(KeysOf("2B0:4.end", rank), ElementsAre("x[4,0]", "grad_ln1[4,0]", "grad[2,0]"));
  EXPECT_THAT(KeysOf("1B0:3.mlp", rank), ::testing::Contains("grad[2,0]"));
  EXPECT_THAT(KeysOf("1SB+0", rank), ElementsAre("grad[2,0]"));
}

TEST(StatesTest, ARankHoldsTheStatesOfAllItsSlices) {
  const ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kChimera};
  const std::vector<StageContext> contexts = PipelineContexts(SmallModel(4), layout, 1, 2, {1, 3});
  const LayerShape shape = contexts[0].shape();
  const int64_t all = 4 * LayerParameters(LayerType::kTransformer, shape) + LayerParameters(LayerType::kEmbedding, shape) +
                      LayerParameters(LayerType::kHead, shape);
  EXPECT_EQ(StatesOf(contexts[0]).weights, Bytes(4 * all));
  EXPECT_EQ(StatesOf(contexts[1]).weights, Bytes(4 * all));
}

}  // namespace
}  // namespace lynx
