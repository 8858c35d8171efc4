// Tests what the engine refuses, and what it reports.
#include "worker/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/contract/rank_progress.h"
#include "worker/engine/lr_schedule.h"

namespace lynx::worker {
namespace {

using ::testing::HasSubstr;

const ParallelLayout kSingle{1, 1, 1};

TinyJob SmallJob(const ParallelLayout& layout, RecomputeMode mode = RecomputeMode::kFull) {
  TinyJob job;
  job.Lower(layout, mode);
  return job;
}

absl::Status OkBody(TinyRank&) { return absl::OkStatus(); }

TEST(Engine, RefusesAnArenaThatDiffersFromThePlanned) {
  TinyJob job = SmallJob(kSingle);
  const Bytes needed = job.stages[0].arena;
  job.stages[0].arena = needed - Bytes(256);
  const absl::Status status = OnRanks(job, OkBody)[0];
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(needed.value)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(needed.value - 256)));
}

// The workspace of unfused attention must not have more rows than the backend uses. Train compares the arena's peak with its
// size, so it finds unused rows.
TEST(Engine, FillsItsArenaWithLongSamplesToo) {
  TinyJob job;
  job.model.seq = 96;
  job.Lower({.tp = 2}, [](const StageContext& context, const StageSlice& slice) {
    return NamedPolicy(context.graph(), RecomputeMode::kNone, slice.layers());
  });
  Train(job, 1);
}

TEST(Engine, RefusesAnInvalidProgram) {
  TinyJob job = SmallJob(kSingle);
  job.stages[0].program.pop_back();
  EXPECT_TRUE(absl::IsFailedPrecondition(OnRanks(job, OkBody)[0]));
}

TEST(Engine, RefusesMicrobatchesThatDoNotMakeUpTheGlobalBatch) {
  TinyJob job = SmallJob(kSingle);
  job.train.global_batch = 9;
  const absl::Status status = OnRanks(job, OkBody)[0];
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("global batch is 9"));
}

// A slow processor takes minutes for an action of a large layer. Its rank must not be taken for one that hangs.
TEST(Engine, MakesProgressWithEachOp) {
  const TinyJob job = SmallJob(kSingle);
  int64_t made = 0;
  const auto step = [&](TinyRank& rank) -> absl::Status {
    const int64_t before = OwnProgress().made();
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    made = OwnProgress().made() - before;
    return absl::OkStatus();
  };
  ASSERT_TRUE(OnRanks(job, step)[0].ok());
  EXPECT_GT(made, 2 * static_cast<int64_t>(job.stages[0].program.size())) << "more than each action";
}

TEST(Engine, ReportsTheStep) {
  const TinyJob job = SmallJob({2, 2, 1});
  const TinyRun run = Train(job, 3);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const StepReport& report = run.reports[rank][2];
    EXPECT_EQ(report.step, 2);
    EXPECT_EQ(report.tokens, 8 * 8);
    EXPECT_DOUBLE_EQ(report.lr, LearningRate(job.train, 2));
    EXPECT_GT(report.gradient_norm, 0);
    EXPECT_EQ(report.gradient_norm, run.reports[0][2].gradient_norm);
    EXPECT_GT(report.bytes_sent, 0);
    EXPECT_GT(report.duration, Nanos(0));
    EXPECT_GT(report.forward, Nanos(0));
    EXPECT_GT(report.backward, Nanos(0));
    EXPECT_GT(report.weight, Nanos(0));
    EXPECT_GT(report.optimizer, Nanos(0));
    EXPECT_GT(report.recompute_hidden + report.recompute_exposed, Nanos(0));
    const Nanos phases = report.forward + report.backward + report.weight + report.optimizer + report.recompute_hidden +
                         report.recompute_exposed + report.tensor_wait + report.stall + report.data_parallel_wait +
                         report.norm_wait;
    EXPECT_GT(report.data_wait, Nanos(0));
    EXPECT_LE(phases + report.data_wait, report.duration);
    EXPECT_GE(report.core_wait, Nanos(0));
    EXPECT_LE(report.core_wait, report.duration);
  }
}

// Four ranks share one core, so they must report that they waited for it.
TEST(Engine, ReportsHowLongItWaitedForACore) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0)
    GTEST_SKIP() << "this kernel does not keep how long threads wait for a core";
  cpu_set_t before, one;
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);  // the threads of the ranks inherit this
  const TinyRun run = Train(SmallJob({2, 2, 1}), 3);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
  Nanos waited;
  for (const auto& reports : run.reports) {
    for (const StepReport& report : reports) waited += report.core_wait;
  }
  EXPECT_GT(waited, Nanos(0));
}

TEST(Engine, TracesEveryActionInOrder) {
  const TinyJob job = SmallJob({2, 1, 1});
  const auto statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    const std::vector<ActionTrace>& trace = rank.engine->trace();
    const std::vector<int32_t> starts = StartsOfWaits(rank.engine->program());
    for (size_t i = 0; i < trace.size(); ++i) {
      EXPECT_LE(trace[i].begin, trace[i].end);
      EXPECT_LE(i == 0 ? Nanos(0) : trace[i - 1].end, trace[i].begin);
      if (starts[i] < 0) continue;
      EXPECT_GE(trace[starts[i]].transfer_end, trace[starts[i]].begin);
      EXPECT_LE(trace[starts[i]].transfer_end, trace[i].end);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// The weights of one rank become invalid. Every rank must stop in the same step, before it updates its weights.
TEST(Engine, EndsWhenTheLossIsNotANumber) {
  const TinyJob job = SmallJob({1, 2, 1});
  std::vector<absl::Status> ends(job.layout.ranks());
  // The bodies return OK. If a body failed, it would abort the communication, perhaps before the other rank finds the problem
  // itself.
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    if (rank.rank == 0) *WeightOf(*rank.state, 0, Parameter::kQkvWeight) = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> before(rank.state->weights().begin(), rank.state->weights().end());
    ends[rank.rank] = rank.engine->RunStep(1).status();
    EXPECT_EQ(std::memcmp(before.data(), rank.state->weights().data(), before.size() * sizeof(float)), 0);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsOutOfRange(end)) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("step 1"));
    EXPECT_THAT(std::string(end.message()), HasSubstr("the loss is nan, by what rank "));
  }
}

// Every rank must skip the update of the same step, and the next step must be normal.
TEST(Engine, SkipsTheUpdateOfALossThatIsNotANumberWhereItIsTold) {
  TinyJob job = SmallJob({2, 2, 1});
  job.train.on_non_finite = NonFinitePolicy::kSkip;
  std::vector<std::string> reasons(job.layout.ranks());
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    const auto states = [&] {
      std::vector<float> all(rank.state->weights().begin(), rank.state->weights().end());
      all.insert(all.end(), rank.state->first_moments().begin(), rank.state->first_moments().end());
      all.insert(all.end(), rank.state->second_moments().begin(), rank.state->second_moments().end());
      return all;
    };
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    EXPECT_EQ(rank.engine->skip_reason(), "");
    float* const weight = rank.rank == 0 ? WeightOf(*rank.state, 0, Parameter::kQkvWeight) : nullptr;
    const float good = weight == nullptr ? 0 : *weight;
    if (weight != nullptr) *weight = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> before = states();
    LYNX_ASSIGN_OR_RETURN(const StepReport skipped, rank.engine->RunStep(1));
    EXPECT_TRUE(std::isnan(skipped.loss));
    reasons[rank.rank] = rank.engine->skip_reason();
    const std::vector<float> after = states();
    EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
    if (weight != nullptr) *weight = good;
    LYNX_ASSIGN_OR_RETURN(const StepReport next, rank.engine->RunStep(2));
    EXPECT_TRUE(std::isfinite(next.loss));
    EXPECT_EQ(rank.engine->skip_reason(), "");
    EXPECT_TRUE(states() != before);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  for (const std::string& reason : reasons) {
    EXPECT_EQ(reason, reasons[0]);
    EXPECT_THAT(reason, HasSubstr("the loss is nan, by what rank "));
  }
}

TEST(Engine, SkipsNoMoreThanSoManyStepsInARow) {
  TinyJob job = SmallJob(kSingle);
  job.train.on_non_finite = NonFinitePolicy::kSkip;
  const absl::Status status = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    *WeightOf(*rank.state, 0, Parameter::kQkvWeight) = std::numeric_limits<float>::quiet_NaN();
    for (int64_t step = 0; step + 1 < kMaxSkipsInARow; ++step) {
      const absl::Status skipped = rank.engine->RunStep(step).status();
      EXPECT_TRUE(skipped.ok()) << skipped;
    }
    return rank.engine->RunStep(kMaxSkipsInARow - 1).status();
  })[0];
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the 100th step in a row without an update"));
}

TEST(Engine, EndsWhenTheGradientNormIsNotFinite) {
  const TinyJob job = SmallJob(kSingle);
  const absl::Status status = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    // If all queries, keys and values are zero, attention gives zeros. So the huge weights of proj have an effect only in the
    // backward pass.
    std::fill_n(WeightOf(*rank.state, 0, Parameter::kQkvWeight), 3 * 16 * 16, 0.0f);
    std::fill_n(WeightOf(*rank.state, 0, Parameter::kProjWeight), 16 * 16, 3e38f);
    float* const out = WeightOf(*rank.state, kHeadLayer, Parameter::kHeadOutWeight);
    for (int i = 0; i < 67 * 16; ++i) out[i] *= 1e6f;
    return rank.engine->RunStep(0).status();
  })[0];
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the gradient norm is"));
}

TEST(Engine, ClippingBoundsTheUpdateOfPlainGradients) {
  // With beta1 = 0, the first moments after a step are the clipped gradients.
  TinyJob job = SmallJob(kSingle);
  job.train.optimizer = {.lr = 1, .beta1 = 0, .beta2 = 0, .eps = 1e6, .weight_decay = 0, .clip_norm = 1e-3};
  job.train.warmup_steps = 0;
  const absl::Status status = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    const std::vector<float> before(rank.state->weights().begin(), rank.state->weights().end());
    LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(0));
    EXPECT_GT(report.gradient_norm, 1e-2);
    for (size_t i = 0; i < before.size(); ++i) {
      const double expected = -1e-6 * (1e-3 / report.gradient_norm) * rank.state->gradients()[i];
      EXPECT_NEAR(rank.state->first_moments()[i], expected * -1e6, 1e-6);
    }
    return absl::OkStatus();
  })[0];
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Engine, APeerThatGivesUpEndsTheStepOnEveryRank) {
  const TinyJob job = SmallJob({2, 2, 1});
  const auto statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    if (rank.rank == 3) return absl::InternalError("out of luck");
    return rank.engine->RunStep(1).status();
  });
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(absl::IsUnavailable(statuses[rank])) << statuses[rank];
    // This rank fails in step 1, or already at the end of step 0 if it hears early that rank 3 has failed.
    EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr(", action "));
    EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("out of luck"));
  }
}

}  // namespace
}  // namespace lynx::worker
