// Checks properties of woven programs, in which a rank runs several passes side by side. The layouts, models and policies are
// random, from fixed seeds.
#include "planner/lower/weave.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "planner/cost/simulate.h"
#include "planner/problem/layout_schedule.h"
#include "planner/program/live_peaks.h"
#include "planner/program/memory_model.h"
#include "planner/program/state_sharing.h"
#include "planner/program/validate.h"
#include "tests/planner/lower/same_values.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 300;

CostModel CostsOf(const Pipeline& p, int64_t link) {
  const StageContext& context = p.contexts.front();
  HardwareProfile profile = StatedCpuProfile();
  profile.intra_node.bytes_per_second = profile.inter_node.bytes_per_second = link;
  profile.overlap_slowdown_permille = 1050;
  profile.communication_compute_permille = 60;
  return {profile, context.model, context.layout, context.micro_batch, 64};
}

// Sends a tenth of the tensors that are not stored to the host instead.
void OffloadSome(std::mt19937_64& rng, StagePolicy& policy) {
  for (LayerPolicy& layer : policy.layers) {
    for (Placement& placement : layer) {
      if (placement != Placement::kStore && Draw(rng, 0, 9) == 0) placement = Placement::kOffload;
    }
  }
}

// Returns a random pipeline with a random weave mode that its layout supports. The programs are not yet woven.
Pipeline RandomWeavable(std::mt19937_64& rng, bool offloads, bool experts) {
  while (true) {
    Pipeline pipeline = RandomPipeline(rng, experts);
    ParallelLayout layout = pipeline.contexts.front().layout;
    layout.zero = std::min(layout.zero, ZeroStage::kOptimizer);
    layout.weave = static_cast<WeaveMode>(Draw(rng, 2, 4));
    ModelSpec model = pipeline.contexts.front().model;
    model.tied_embeddings = Draw(rng, 0, 1) == 1;
    const int32_t microbatches = pipeline.contexts.front().microbatches;
    for (std::vector<StagePolicy>& of_rank : pipeline.policies) {
      for (StagePolicy& policy : of_rank) {
        if (offloads) OffloadSome(rng, policy);
      }
    }
    if (!CheckWeave(model, layout).ok() || !CheckScheduleOf(layout, microbatches).ok()) continue;
    return Lowered(ContextsOf(model, layout, microbatches), std::move(pipeline.policies));
  }
}

Pipeline Woven(Pipeline pipeline, const CostModel& costs) {
  for (size_t rank = 0; rank < pipeline.programs.size(); ++rank) {
    pipeline.programs[rank] = Weave(pipeline.programs[rank], pipeline.contexts[rank], costs).program;
  }
  return pipeline;
}

// Returns for each action of `woven` its index in `program`, which has the same actions.
std::vector<int32_t> OrderOf(const Program& program, const Program& woven) {
  std::vector<int32_t> order;
  std::vector<bool> taken(program.size());
  for (const Action& action : woven) {
    size_t i = 0;
    while (taken[i] || program[i] != action) ++i;
    taken[i] = true;
    order.push_back(static_cast<int32_t>(i));
  }
  return order;
}

class Weaving : public ::testing::Test {
 protected:
  template <class Check>
  void ForEachSeed(const Check& check, bool offloads = true) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      std::mt19937_64 rng(seed);
      const Pipeline base = RandomWeavable(rng, offloads, /*experts=*/seed % 3 == 0);
      SCOPED_TRACE(NameOf(base));
      const int64_t link = int64_t{1} << Draw(rng, 16, 34);
      const CostModel costs = CostsOf(base, link);
      check(base, Woven(base, costs), costs);
      if (HasFailure()) return;
    }
  }
};

TEST_F(Weaving, Validates) {
  ForEachSeed([](const Pipeline&, const Pipeline& woven, const CostModel&) {
    const absl::Status status = ValidatePrograms(woven.programs, woven.contexts);
    EXPECT_TRUE(status.ok()) << status;
  });
}

// LivePeaks computes the memory of an order of actions without making the program.
TEST_F(Weaving, TheMemoryOfAnOrderIsTheMemoryOfItsProgram) {
  int differ = 0;
  ForEachSeed([&](const Pipeline& base, const Pipeline& woven, const CostModel&) {
    for (size_t rank = 0; rank < base.programs.size(); ++rank) {
      const Program& program = base.programs[rank];
      const auto peak_of = [&](const Program& of) { return FoldLiveness(of, base.contexts[rank]).value().live_peak; };
      LivePeaks peaks(program, base.contexts[rank]);
      EXPECT_EQ(peaks.Of({}), peak_of(program));
      EXPECT_EQ(peaks.Of(OrderOf(program, woven.programs[rank])), peak_of(woven.programs[rank]));
      EXPECT_EQ(peaks.Of({}), peak_of(program)) << "an order changes the result of the next";
      differ += peak_of(program) != peak_of(woven.programs[rank]);
    }
  });
  EXPECT_GT(differ, 0);
}

TEST_F(Weaving, MovesActionsAndChangesNone) {
  const auto sorted = [](Program program) {
    const auto key = [](const Action& a) {
      return std::tie(a.kind, a.stage, a.microbatch, a.layer, a.segment, a.ops, a.tensors);
    };
    std::sort(program.begin(), program.end(), [&](const Action& a, const Action& b) { return key(a) < key(b); });
    return program;
  };
  int moved = 0;
  ForEachSeed([&](const Pipeline& base, const Pipeline& woven, const CostModel&) {
    for (size_t rank = 0; rank < base.programs.size(); ++rank) {
      EXPECT_EQ(sorted(woven.programs[rank]), sorted(base.programs[rank]));
      moved += woven.programs[rank] != base.programs[rank];
    }
  });
  EXPECT_GT(moved, 100);
}

TEST_F(Weaving, RunsWithoutDeadlock) {
  ForEachSeed([](const Pipeline&, const Pipeline& woven, const CostModel& costs) {
    const absl::StatusOr<Simulation> simulation = Simulate(woven.programs, woven.contexts, costs);
    EXPECT_TRUE(simulation.ok()) << simulation.status();
  });
}

TEST_F(Weaving, ComputesTheSameValues) {
  // ProgramValues does not support copies to the host.
  ForEachSeed([](const Pipeline&, const Pipeline& woven, const CostModel&) { ExpectSameValues(woven); }, /*offloads=*/false);
}

// Maps each gradient to the actions that add to it, in order. The parameters of each segment of a layer have one gradient. The
// tied embedding has one gradient too.
using Sums = std::map<std::tuple<ActionKind, int32_t, int32_t, Segment>, Program>;
Sums SumsOf(const Program& program, const StageContext& context) {
  Sums sums;
  const bool tied = HoldsTiedEmbedding(context);
  for (const Action& action : program) {
    if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kWeight) continue;
    sums[{action.kind, action.stage, action.layer, action.segment}].push_back(action);
    const bool adds = (action.kind == ActionKind::kWeight && action.layer == kHeadLayer) ||
                      (action.kind == ActionKind::kBackward && action.layer == kEmbeddingLayer);
    if (tied && adds) sums[{ActionKind::kOptimizer, 0, 0, Segment::kNone}].push_back(action);
  }
  return sums;
}

// A sum of floating-point numbers has the same bits only if the order of its terms is the same. Weaving must
// not change this order. The order must also be that of the program without weaving, if such a program exists.
TEST_F(Weaving, AddsUpGradientsInTheSameOrder) {
  ForEachSeed([](const Pipeline& base, const Pipeline& woven, const CostModel&) {
    ParallelLayout plain = base.contexts.front().layout;
    plain.weave = WeaveMode::kOff;
    const int32_t microbatches = base.contexts.front().microbatches;
    const bool plain_exists = CheckScheduleOf(plain, microbatches).ok();
    for (size_t rank = 0; rank < base.programs.size(); ++rank) {
      const StageContext& context = base.contexts[rank];
      EXPECT_EQ(SumsOf(woven.programs[rank], context), SumsOf(base.programs[rank], context));
      if (!plain_exists) continue;
      StageContext unwoven = context;
      unwoven.layout = plain;
      EXPECT_EQ(SumsOf(woven.programs[rank], context), SumsOf(LowerStage(unwoven, base.policies[rank]), unwoven));
    }
  });
}

TEST_F(Weaving, TheSameRequestGivesTheSameOrder) {
  ForEachSeed([](const Pipeline& base, const Pipeline& woven, const CostModel& costs) {
    for (size_t rank = 0; rank < base.programs.size(); ++rank) {
      EXPECT_EQ(Weave(base.programs[rank], base.contexts[rank], costs).program, woven.programs[rank]);
    }
  });
}

// The validator has a rule for each way in which a woven order can be wrong.
class WovenMutation : public ::testing::Test {
 protected:
  WovenMutation() {
    const ModelSpec model = SmallModel(2);
    base_ = NamedPipeline(RecomputeMode::kNone, model, {.tp = 2, .sequence_parallel = true, .weave = WeaveMode::kPairs}, 2);
    woven_ = Weave(base_.programs[0], base_.contexts[0], CostsOf(base_, 1'000'000'000)).program;
  }

  size_t Place(const std::string& text) const {
    const Action action = *ParseAction(text);
    const auto found = std::find(woven_.begin(), woven_.end(), action);
    EXPECT_NE(found, woven_.end()) << text;
    return static_cast<size_t>(found - woven_.begin());
  }
  // Moves the action `moved` to just before `target`. Returns the message of the validator.
  std::string AfterMoving(const std::string& moved, const std::string& target) const {
    Program program = woven_;
    const Action action = *ParseAction(moved);
    std::erase(program, action);
    program.insert(std::find(program.begin(), program.end(), *ParseAction(target)), action);
    return std::string(ValidateProgram(program, base_.contexts[0]).message());
  }
  std::string Without(const std::string& removed) const {
    Program program = woven_;
    std::erase(program, *ParseAction(removed));
    return std::string(ValidateProgram(program, base_.contexts[0]).message());
  }

  Pipeline base_;
  Program woven_;
};

TEST_F(WovenMutation, TheWovenProgramIsValidAndHasTwoCollectivesAtOnce) {
  EXPECT_TRUE(ValidateProgram(woven_, base_.contexts[0]).ok());
  int now = 0, most = 0;
  for (const Action& action : woven_) {
    if (!InfoOf(action.kind).of_segment()) continue;
    now += InfoOf(action.kind).phase == Phase::kStart ? 1 : -1;
    most = std::max(most, now);
  }
  EXPECT_GT(most, 1);
}

TEST_F(WovenMutation, AMicrobatchThatOvertakes) {
  EXPECT_LT(Place("0F0:0.norm1"), Place("0F1:0.norm1"));
  EXPECT_THAT(AfterMoving("0F1:e.embed", "0F0:e.embed"), HasSubstr("overtakes microbatch 0"));
}

TEST_F(WovenMutation, WeightGradientsInAnotherOrder) {
  EXPECT_THAT(AfterMoving("0W1:0.mlp", "0W0:0.mlp"), HasSubstr("the next is of microbatch 0"));
  EXPECT_THAT(AfterMoving("0W0:0.mlp", "0B0:0.mlp"), HasSubstr("a weight pass follows the backward pass of its segment"));
}

TEST_F(WovenMutation, AWaitOfAnotherStrandsCollective) {
  EXPECT_THAT(Without("0RAG+1:0.norm1"), HasSubstr("waits for a transfer that has not started"));
  EXPECT_THAT(Without("0RAG-1:0.norm1"), HasSubstr("while 0RAG+1:0.norm1 writes it"));
}

TEST_F(WovenMutation, WhatACollectiveUnderWayWrites) {
  EXPECT_THAT(AfterMoving("0RAG-1:0.norm1", "0NORM+"), HasSubstr("while 0RAG+1:0.norm1 writes it"));
}

TEST_F(WovenMutation, ABackwardBesideItsOwnForward) {
  EXPECT_THAT(AfterMoving("0B0:h.head", "0F0:h.head"), HasSubstr("backward pass begins before its forward pass has ended"));
}

// Two tensor-parallel ranks with a slow link. Weaving is made for this case.
class WovenPair : public ::testing::Test {
 protected:
  static Pipeline Base(WeaveMode weave, RecomputeMode mode = RecomputeMode::kFullKeepCollectives, bool sequence = false) {
    const ModelSpec model{.layers = 4, .hidden = 256, .heads = 4, .ffn = 1024, .seq = 128, .vocab = 256};
    return NamedPipeline(mode, model, {.tp = 2, .sequence_parallel = sequence, .weave = weave}, 8);
  }
  static constexpr int64_t kLink = 100'000'000;

  static Nanos StepOf(const Pipeline& p, int64_t link) { return Simulate(p.programs, p.contexts, CostsOf(p, link))->step; }
};

TEST_F(WovenPair, HidesWhatAPassAloneCannot) {
  // `link` is the rate at which the collectives of the forward pass take as long as its ops.
  const Pipeline plain = Base(WeaveMode::kOff);
  const CostModel probe = CostsOf(plain, 1'000'000'000);
  const Nanos ops = probe.ComputeOfLayer(LayerType::kTransformer, Pass::kForward);
  const auto link =
      static_cast<int64_t>(1e9 * Seconds(probe.TransfersOfLayer(LayerType::kTransformer, Pass::kForward)) / Seconds(ops));
  for (const bool sequence : {false, true}) {
    const double before = Seconds(StepOf(Base(WeaveMode::kOff, RecomputeMode::kFullKeepCollectives, sequence), link));
    const auto after = [&](WeaveMode weave) {
      const Pipeline base = Base(weave, RecomputeMode::kFullKeepCollectives, sequence);
      return Seconds(StepOf(Woven(base, CostsOf(base, link)), link));
    };
    EXPECT_GT(before / after(WeaveMode::kPairs), 1.15);
    EXPECT_GT(before / after(WeaveMode::kQuads), 1.15);
  }
}

TEST_F(WovenPair, KeepsTheLimitWhereAnyOrderDoes) {
  const Pipeline base = Base(WeaveMode::kPairs);
  const CostModel costs = CostsOf(base, kLink);
  const auto peak = [&](std::optional<Bytes> limit) {
    return FoldLiveness(Weave(base.programs[0], base.contexts[0], costs, limit).program, base.contexts[0])->live_peak;
  };
  const Bytes least = peak(Bytes(0));
  EXPECT_LT(least, peak(std::nullopt));
  EXPECT_EQ(peak(least), least);
  EXPECT_LE(peak(least + least / 4), least + least / 4);
}

// Weight gradients do not pile up from microbatch to microbatch, over a slow link or a fast one.
TEST_F(WovenPair, MemoryDoesNotGrowWithTheNumberOfMicrobatches) {
  const ModelSpec model{.layers = 4, .hidden = 256, .heads = 4, .ffn = 1024, .seq = 128, .vocab = 256};
  for (const WeaveMode weave : {WeaveMode::kPairs, WeaveMode::kQuads, WeaveMode::kNeighbours}) {
    for (const int64_t link : {kLink, int64_t{100'000'000'000}}) {
      const auto peak = [&](int32_t microbatches) {
        const Pipeline base = NamedPipeline(RecomputeMode::kNone, model, {.tp = 2, .weave = weave}, microbatches);
        return FoldLiveness(Weave(base.programs[0], base.contexts[0], CostsOf(base, link)).program, base.contexts[0])
            ->live_peak;
      };
      EXPECT_LE(peak(32), peak(16) + peak(16) / 100) << EnumName(weave) << ", link " << link;
    }
  }
}

// A rank in the middle of a pipeline begins the second pass of a pair before it sends the result of the first pass.
TEST_F(WovenPair, OverlapsThePassesOfAGroupInTheMiddleOfAPipelineToo) {
  const ModelSpec model{.layers = 6, .hidden = 256, .heads = 4, .ffn = 1024, .seq = 128, .vocab = 256};
  const Pipeline base = NamedPipeline(RecomputeMode::kNone, model, {.tp = 2, .pp = 3, .weave = WeaveMode::kPairs}, 8);
  const Program woven = Weave(base.programs[1], base.contexts[1], CostsOf(base, kLink)).program;
  const auto place = [&](const char* text) { return std::find(woven.begin(), woven.end(), *ParseAction(text)); };
  EXPECT_LT(place("1F1:2.attn"), place("1SF+0"));
  EXPECT_LT(place("1B1:3.mlp"), place("1SB+0"));
}

TEST_F(WovenPair, WithOneStrandNothingMoves) {
  const Pipeline base = Base(WeaveMode::kOff);
  EXPECT_EQ(Weave(base.programs[0], base.contexts[0], CostsOf(base, kLink)).program, base.programs[0]);
}

}  // namespace
}  // namespace lynx
