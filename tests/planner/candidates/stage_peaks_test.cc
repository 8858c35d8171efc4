#include "planner/candidates/stage_peaks.h"

#include <random>

#include <gtest/gtest.h>

#include "planner/program/memory_model.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

ModelSpec RandomModel(std::mt19937_64& rng, int32_t layers) {
  ModelSpec model = SmallModel(layers);
  if (rng() % 2) model.family = ModelFamily::kLlama, model.dropout = 0;
  if (rng() % 2) model.attention = AttentionKernel::kFused;
  if (rng() % 2) model.dtype = DataType::kBfloat16;
  return model;
}

// Compares the peak of every rank of a pipeline with the peak of the program of a whole step. The policies are random, and
// nearly all of them are more irregular than any policy that the planner makes. A few of their programs become periodic only
// after more microbatches than StagePeaks looks at. So at most 1% of the peaks may differ, by at most 5%.
TEST(StagePeaks, AreThePeaksOfWholeSteps) {
  constexpr uint64_t kSeed = 20261121;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 rng(kSeed);
  int ranks = 0, exact = 0;
  for (int i = 0; i < 300; ++i) {
    const int32_t p = Draw(rng, 1, 6), microbatches = Draw(rng, 1, 12);
    const ModelSpec model = RandomModel(rng, p * Draw(rng, 1, 3));
    ParallelLayout layout{.tp = rng() % 2 ? 2 : 1, .pp = p};
    layout.sequence_parallel = layout.tp > 1 && rng() % 2;
    StagePeaks peaks(model, layout, 2);
    for (const StageContext& context : ContextsOf(model, layout, microbatches)) {
      const int32_t rank = context.pipeline_rank;
      const StagePolicy policy = RandomPolicy(rng, context.graph(), context.only_slice().layers());
      const absl::StatusOr<MemoryPlan> memory = FoldLiveness(LowerStage(context, policy), context);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const Bytes peak = peaks.Peak({rank == 0, rank == p - 1}, policy, InFlight(rank, p, microbatches), microbatches);
      ++ranks;
      exact += peak == memory->live_peak;
      EXPECT_NEAR(static_cast<double>(peak.value) / static_cast<double>(memory->live_peak.value), 1, 0.05)
          << "rank " << rank << " of " << p << ", " << microbatches << " microbatches, tp " << layout.tp << "\n"
          << StagePolicyText(context.graph(), policy, 0);
    }
  }
  EXPECT_GE(exact, ranks * 99 / 100) << "of " << ranks;
}

// Compares the same peaks for programs that also copy tensors to the host and back.
TEST(StagePeaks, WithCopiesAreThePeaksOfWholeSteps) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 rng(kSeed);
  int ranks = 0, exact = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t p = Draw(rng, 4, 10), microbatches = Draw(rng, 4, 20);
    const ModelSpec model = RandomModel(rng, p * Draw(rng, 1, 5));
    const ParallelLayout layout{.tp = rng() % 2 ? 2 : 1, .pp = p};
    StagePeaks peaks(model, layout, 2);
    for (const StageContext& context : ContextsOf(model, layout, microbatches)) {
      const int32_t rank = context.pipeline_rank;
      StagePolicy policy = RandomPolicy(rng, context.graph(), context.only_slice().layers());
      for (LayerPolicy& layer : policy.layers) {
        for (size_t k = 0; k < context.graph().recomputable().size(); ++k) {
          if (layer[k] == Placement::kStore && rng() % 2) layer[k] = Placement::kOffload;
        }
      }
      const absl::StatusOr<MemoryPlan> memory = FoldLiveness(LowerStage(context, policy), context);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const Bytes peak = peaks.Peak({rank == 0, rank == p - 1}, policy, InFlight(rank, p, microbatches), microbatches);
      ++ranks;
      exact += peak == memory->live_peak;
      EXPECT_NEAR(static_cast<double>(peak.value) / static_cast<double>(memory->live_peak.value), 1, 0.05)
          << "rank " << rank << " of " << p << ", " << microbatches << " microbatches";
    }
  }
  EXPECT_GE(exact, ranks * 99 / 100) << "of " << ranks;
}

TEST(StagePeaks, OfNamedPoliciesAreExact) {
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kBalanced,
                                   RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull}) {
    SCOPED_TRACE(EnumName(mode));
    const ParallelLayout layout{.tp = 2, .pp = 5};
    const ModelSpec model = SmallModel(15);
    StagePeaks peaks(model, layout, 2);
    for (const StageContext& context : ContextsOf(model, layout, 11)) {
      const int32_t rank = context.pipeline_rank;
      const StagePolicy policy = NamedPolicy(context.graph(), mode, 3);
      const absl::StatusOr<MemoryPlan> memory = FoldLiveness(LowerStage(context, policy), context);
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_EQ(peaks.Peak({rank == 0, rank == 4}, policy, InFlight(rank, 5, 11), 11), memory->live_peak);
    }
  }
}

}  // namespace
}  // namespace lynx
