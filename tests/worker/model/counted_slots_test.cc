// Tests which gradients count in the norm, over all ranks of a world.
#include "worker/model/counted_slots.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "worker/collectives/group.h"

namespace lynx::worker {
namespace {

ModelSpec SmallModel(bool experts, bool tied) {
  ModelSpec model;
  model.family = ModelFamily::kLlama;
  model.layers = 2;
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 4;
  model.ffn = 12;
  model.seq = 8;
  model.vocab = 13;
  model.qk_norm = true;
  model.tied_embeddings = tied;
  if (experts) model.moe = {.experts = 24, .top_k = 2, .ffn = 5, .capacity = 1};
  return model;
}

// With experts: groups inside a replica, over replicas, and of all ranks of a stage.
std::vector<ParallelLayout> Layouts(bool experts) {
  std::vector<ParallelLayout> layouts;
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer}) {
    for (const auto& [tp, pp, dp] :
         {std::tuple(1, 1, 1), {1, 1, 2}, {1, 2, 3}, {1, 1, 4}, {2, 1, 1}, {2, 2, 2}, {2, 1, 3}, {4, 1, 2}}) {
      for (int32_t ep = 1; ep <= (experts ? tp * dp : 1); ++ep) {
        if (tp * dp % ep != 0) continue;
        for (const RankOrder order : {RankOrder::kTpPpDp, RankOrder::kTpDpPp}) {
          layouts.push_back(
              {.tp = tp, .pp = pp, .dp = dp, .ep = ep, .sequence_parallel = tp > 1, .zero = zero, .rank_order = order});
        }
      }
    }
  }
  return layouts;
}

// How often the slots contain each element (row, column) of each parameter.
using Times = std::map<std::string, std::map<std::pair<int64_t, int64_t>, int>>;

void Add(const std::vector<ParameterSlot>& slots, Times& times) {
  for (const ParameterSlot& slot : slots) {
    for (const ParameterPiece& piece : slot.pieces) {
      for (int64_t row = piece.row; row < piece.row + piece.rows; ++row) {
        for (int64_t column = piece.column; column < piece.column + piece.columns; ++column) {
          ++times[slot.whole_name][{row, column}];
        }
      }
    }
  }
}

Times Counted(const ModelSpec& model, const ParallelLayout& layout) {
  Times counted;
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const RankCoordinates at = CoordinatesOf(layout, rank);
    const PipelineShape pipeline = PipelineOf(layout);
    StageContext context{.model = model, .layout = layout, .micro_batch = 1, .pipeline_rank = at.stage};
    for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      const int32_t stage = pipeline.StageOn(at.stage, chunk), pieces = pipeline.pieces(), piece = pipeline.PieceOf(stage);
      context.slices.push_back(SliceOf(layout, stage, model.layers * piece / pieces, model.layers * (piece + 1) / pieces));
    }
    const int32_t data_index = MembersOf(layout, rank, Group::kData).index;
    const StateIndex index = StateIndexOf(context, at.tp, data_index);
    if (model.moe.any()) EXPECT_EQ(index.expert, MembersOf(layout, rank, Group::kExpertData).index);
    const std::vector<ParameterSlot> slots = ParameterSlotsOf(context, at.tp, data_index);
    Add(CountedSlots(context, at.tp, index, UpdatedSlots(context, slots, index)), counted);
  }
  return counted;
}

// On one rank, each element of the model counts once. In any other layout, the ranks of the world must count the same elements.
TEST(CountedSlots, HaveEachElementOnceInTheWorld) {
  for (const bool experts : {false, true}) {
    for (const bool tied : {false, true}) {
      const ModelSpec model = SmallModel(experts, tied);
      const Times whole = Counted(model, {});
      for (const auto& [name, elements] : whole) {
        for (const auto& [element, times] : elements) ASSERT_EQ(times, 1) << name;
      }
      EXPECT_EQ(whole.contains("layers.1.experts.fc1.weight"), experts);
      for (const ParallelLayout& layout : Layouts(experts)) {
        EXPECT_TRUE(Counted(model, layout) == whole) << LayoutText(layout) << (experts ? ", with experts" : "");
      }
    }
  }
}

TEST(CountedSlots, OfABidirectionalPipelineToo) {
  const ModelSpec model = SmallModel(false, false);
  const Times whole = Counted(model, {});
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer}) {
    EXPECT_TRUE(Counted(model, {.pp = 2, .dp = 2, .zero = zero, .schedule = ScheduleKind::kChimera}) == whole);
  }
}

}  // namespace
}  // namespace lynx::worker
