// Tests that a model that drops no rows trains like a model whose rooms have space for all rows, however small its rooms are.
// Recomputation and weaving must not change a bit of the result. The memory is planned, so Train expects that each rank uses
// its arena to the last byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "common/status.h"
#include "planner/problem/expert_rounds.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr double kTolerance = 1e-4;  // the same as in experts_test.cc
constexpr double kBfloat16Tolerance = 2e-2;

ModelSpec ModelOf(double capacity, DataType dtype = DataType::kFloat32) {
  ModelSpec model = TinyMoe(dtype);
  model.moe.aux_loss = 0.02;
  model.moe.z_loss = 0.001;
  model.moe.capacity = capacity;
  model.moe.dropless = true;
  return model;
}

TinyJob JobOf(const ModelSpec& model, const ParallelLayout& layout, RecomputeMode mode = RecomputeMode::kNone) {
  TinyJob job{.model = model};
  job.Lower(layout, mode);
  return job;
}

int64_t RoundsOf(const TinyRun& run) {
  int64_t rounds = 0;
  for (const StepReport& report : run.reports[0]) rounds += report.experts.rounds;
  return rounds;
}

std::vector<ParallelLayout> Layouts() {
  return {{},
          {.dp = 2},
          {.dp = 2, .ep = 2},
          {.dp = 4, .ep = 2, .zero = ZeroStage::kOptimizer},
          {.tp = 2, .sequence_parallel = true},
          {.tp = 2, .ep = 2, .sequence_parallel = true},
          {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
          {.pp = 2, .dp = 2, .ep = 2},
          {.pp = 2, .dp = 2, .ep = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
          {.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubble},
          {.pp = 2, .dp = 2, .ep = 2, .schedule = ScheduleKind::kZeroBubbleV},
          {.dp = 2, .ep = 2, .weave = WeaveMode::kPairs},
          {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .weave = WeaveMode::kNeighbours}};
}

class ExpertRoundsLayouts : public testing::TestWithParam<ParallelLayout> {
 protected:
  const ParallelLayout layout = GetParam();
};

TEST_P(ExpertRoundsLayouts, LossesAreThoseOfRoomForAllRows) {
  const std::vector<double> expected = Train(JobOf(ModelOf(4), layout), 8).losses();
  for (const double capacity : {0.3, 1.0}) {
    const TinyRun run = Train(JobOf(ModelOf(capacity), layout), 8);
    for (size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(run.losses()[step], expected[step], kTolerance * expected[step]) << "capacity " << capacity << " " << step;
      EXPECT_EQ(run.reports[0][step].experts.rows_dropped, 0);
      EXPECT_GT(run.reports[0][step].experts.rows_in_rounds, 0);
    }
    EXPECT_GT(RoundsOf(run), 0);
  }
}

// Compares every gradient, including those of experts and of the router.
TEST_P(ExpertRoundsLayouts, GradientsAreThoseOfRoomForAllRows) {
  const auto gradients_of = [&](const ModelSpec& model) {
    Parameters gradients;
    std::mutex mutex;
    const auto statuses = OnRanks(JobOf(model, layout), [&](TinyRank& rank) -> absl::Status {
      LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
      const std::lock_guard lock(mutex);
      if (!rank.state->shares_updates()) CollectGradients(*rank.state, gradients);
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    return gradients;
  };
  const Parameters expected = gradients_of(ModelOf(4)), got = gradients_of(ModelOf(0.3));
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double{values[i]}));
      difference = std::max(difference, std::abs(double{values[i]} - got.at(name)[i]));
    }
    EXPECT_GT(largest, 0) << name;
    EXPECT_LT(difference, 2e-5 * largest) << name;
  }
}

TEST_P(ExpertRoundsLayouts, PoliciesChangeNoBit) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    const ModelSpec model = ModelOf(0.75, dtype);
    const TinyRun expected = Train(JobOf(model, layout), 2);
    EXPECT_GT(RoundsOf(expected), 0);
    TinyJob job{.model = model};
    const auto expect_equal = [&](const std::string& what) {
      const TinyRun run = Train(job, 2);
      EXPECT_EQ(run.losses(), expected.losses()) << what;
      EXPECT_TRUE(run.weights == expected.weights) << what;
      for (size_t rank = 0; rank < run.reports.size(); ++rank) {
        EXPECT_EQ(run.reports[rank][1].experts, expected.reports[rank][1].experts) << what << ", rank " << rank;
      }
    };
    for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective}) {
      job.Lower(layout, mode);
      expect_equal(EnumName(mode));
    }
    job.Lower(layout, [&](const StageContext& context, const StageSlice& slice) {
      return NamedPolicy(context.shape(), RecomputeMode::kUniform, {.layers = 2}, slice.layers());
    });
    expect_equal("uniform");
    if (layout.weave != WeaveMode::kOff) continue;
    job.Lower(layout, [&](const StageContext& context, const StageSlice& slice) {
      return NamedPolicy(context.shape(), RecomputeMode::kNone, {.offload_permille = 500}, slice.layers());
    });
    expect_equal("offload");
  }
}

INSTANTIATE_TEST_SUITE_P(, ExpertRoundsLayouts, testing::ValuesIn(Layouts()),
                         [](const auto& info) { return TestName(info.param); });

// Weaving changes the order of passes, but the parts of a gradient are added in the same order.
TEST(ExpertRounds, WeavingChangesNoBit) {
  for (ParallelLayout layout :
       {ParallelLayout{.dp = 2, .ep = 2}, ParallelLayout{.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true},
        ParallelLayout{.pp = 2, .dp = 2, .ep = 2}}) {
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
      layout.weave = WeaveMode::kOff;
      const TinyRun expected = Train(JobOf(ModelOf(0.3), layout, mode), 3);
      EXPECT_GT(RoundsOf(expected), 0);
      for (const WeaveMode weave : {WeaveMode::kPairs, WeaveMode::kNeighbours}) {
        layout.weave = weave;
        const TinyRun run = Train(JobOf(ModelOf(0.3), layout, mode), 3);
        EXPECT_EQ(run.losses(), expected.losses()) << LayoutText(layout);
        EXPECT_TRUE(run.weights == expected.weights) << LayoutText(layout);
      }
    }
  }
}

TEST(ExpertRounds, TrainInBfloat16) {
  for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.dp = 2, .ep = 2}}) {
    const std::vector<double> expected = Train(JobOf(ModelOf(4, DataType::kBfloat16), layout), 6).losses();
    const std::vector<double> losses = Train(JobOf(ModelOf(0.5, DataType::kBfloat16), layout), 6).losses();
    for (size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(losses[step], expected[step], kBfloat16Tolerance * expected[step]) << LayoutText(layout) << " " << step;
    }
  }
}

// If every row has room, the field changes neither the program nor its memory nor a bit.
TEST(ExpertRounds, CostNothingIfEveryRowHasRoom) {
  const ParallelLayout layout{.dp = 2, .ep = 2};
  for (const double capacity : {4.0, 8.0}) {
    const TinyJob job = JobOf(ModelOf(capacity), layout);
    ModelSpec other = ModelOf(capacity);
    other.moe.dropless = false;
    const TinyJob plain = JobOf(other, layout);
    EXPECT_EQ(job.stages[0].arena, plain.stages[0].arena);
    const TinyRun run = Train(job, 2), expected = Train(plain, 2);
    EXPECT_TRUE(run.weights == expected.weights);
    EXPECT_EQ(run.reports[0][1].experts, expected.reports[0][1].experts);
    EXPECT_EQ(RoundsOf(run), 0);
  }
}

// The scratch of a round is planned, and grows with the rooms, not with the load.
TEST(ExpertRounds, TakePlannedMemory) {
  const TinyJob job = JobOf(ModelOf(1), {.dp = 2, .ep = 2});
  ModelSpec dropping = ModelOf(1);
  dropping.moe.dropless = false;
  const TinyJob plain = JobOf(dropping, {.dp = 2, .ep = 2});
  EXPECT_GT(job.stages[0].arena, plain.stages[0].arena);
  const LayerShape shape = job.stages[0].context.shape();
  EXPECT_EQ(shape.round_room(), (shape.expert_room() + 3) / 4);
  EXPECT_EQ(WorkspaceBytes(Op::kUnpermute, Pass::kForward, shape), RoundScratchOf(Pass::kForward, shape).total);
  EXPECT_EQ(WorkspaceBytes(Op::kPermute, Pass::kBackward, shape), RoundScratchOf(Pass::kBackward, shape).total);
  EXPECT_EQ(WorkspaceBytes(Op::kUnpermute, Pass::kForward, plain.stages[0].context.shape()), Bytes(0));
}

// Routers of weight 0 send every token to the first two experts, so all counts are known.
TEST(ExpertRounds, AreCounted) {
  for (const ParallelLayout& layout :
       {ParallelLayout{}, ParallelLayout{.dp = 2, .ep = 2}, ParallelLayout{.pp = 2, .dp = 4, .ep = 2},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}}) {
    const TinyJob job = JobOf(ModelOf(1), layout, RecomputeMode::kFull);
    const StageContext& context = job.stages.front().context;
    const LayerShape shape = context.shape();
    const int64_t late = shape.shard_tokens() - shape.expert_room();  // rows without room of each of the two experts
    const int64_t rounds = (late + shape.round_room() - 1) / shape.round_room();
    const int64_t dispatches = int64_t{job.model.layers} * context.microbatches;  // for each group with tokens
    const int64_t groups = int64_t{layout.tp} * layout.dp / layout.ep;
    const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
      for (const StageSlice& slice : rank.context().slices) {
        for (int32_t layer = slice.first_layer; layer < slice.end_layer; ++layer) {
          std::fill_n(WeightOf(*rank.state, layer, Parameter::kRouterWeight),
                      rank.state->Slot(layer, Parameter::kRouterWeight).count, 0.0f);
        }
      }
      LYNX_RETURN_IF_ERROR(rank.engine->GatherWeights());
      LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(0));
      const ExpertLoad& load = report.experts;
      EXPECT_EQ(load.rows_dropped, 0);
      EXPECT_EQ(load.rows_routed, dispatches * groups * layout.ep * 2 * shape.shard_tokens()) << LayoutText(layout);
      EXPECT_EQ(load.rows_in_rounds, dispatches * groups * layout.ep * 2 * late) << LayoutText(layout);
      EXPECT_EQ(load.rounds, dispatches * groups * rounds) << LayoutText(layout);
      EXPECT_EQ(load.most_rounds, rounds);
      EXPECT_DOUBLE_EQ(load.skew, layout.ep) << "rows of rounds are rows of the rank; " << LayoutText(layout);
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

// An evaluation also runs rounds. The report of the next step must not count them.
TEST(ExpertRounds, AreRunInEvaluations) {
  const auto run = [](double capacity) {
    TinyJob job = JobOf(ModelOf(capacity), {.dp = 2, .ep = 2});
    job.train.eval_batches = 2;
    std::pair<double, int64_t> first;
    const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
      LYNX_ASSIGN_OR_RETURN(const double loss, rank.engine->Evaluate(*rank.dataset));
      LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(0));
      if (rank.rank == 0) first = {loss, report.experts.rounds};
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    return first;
  };
  const auto [loss, rounds] = run(0.3);
  EXPECT_NEAR(loss, run(4).first, kTolerance * loss);
  EXPECT_EQ(rounds, RoundsOf(Train(JobOf(ModelOf(0.3), {.dp = 2, .ep = 2}), 1)));
}

// Forwards all calls, but fails one start of an all-to-all or of a gather in an expert group.
class FailingCommunicator final : public Communicator {
 public:
  FailingCommunicator(Communicator& inner, std::atomic<int64_t>& left) : inner_(inner), left_(left) {}

  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override {
    return inner_.StartAllReduce(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override {
    if (route.group == Group::kExpert && left_-- == 0) return absl::DataLossError("the gather breaks");
    return inner_.StartAllGather(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override {
    return inner_.StartReduceScatter(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                               int64_t count) override {
    if (left_-- == 0) return absl::DataLossError("the all-to-all breaks");
    return inner_.StartAllToAll(route, send, receive, count);
  }
  absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) override {
    return inner_.StartSend(neighbour, data, count);
  }
  absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) override {
    return inner_.StartRecv(neighbour, data, count);
  }
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override { return inner_.Wait(ticket); }
  absl::Status Barrier() override { return inner_.Barrier(); }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }
  absl::Status Failure() const override { return inner_.Failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override { inner_.SetIdleTimeout(idle_timeout); }
  int64_t BytesSent() const override { return inner_.BytesSent(); }
  Nanos ThreadCpuTime() const override { return inner_.ThreadCpuTime(); }

 private:
  Communicator& inner_;
  std::atomic<int64_t>& left_;
};

// Wherever a rank fails in a dispatch or a round, every rank ends with an error, and none waits for ever.
TEST(ExpertRounds, EndOnEveryRankIfOneFails) {
  TinyJob job{.model = ModelOf(0.5)};
  job.model.layers = 1;
  job.train.global_batch = 2;
  job.Lower({.dp = 2, .ep = 2}, RecomputeMode::kNone);
  bool completed = false;
  int64_t calls = 0;
  for (; !completed && calls < 1000; ++calls) {
    std::atomic<int64_t> left = calls, never = 1'000'000;
    job.make_communicator = [&](int32_t rank, Communicator& host, Backend&) -> absl::StatusOr<std::unique_ptr<Communicator>> {
      return std::make_unique<FailingCommunicator>(host, rank == 1 ? left : never);
    };
    const auto statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status { return rank.engine->RunStep(0).status(); });
    completed = left >= 0;
    for (const absl::Status& status : statuses) EXPECT_EQ(status.ok(), completed) << "call " << calls << ": " << status;
    if (!completed) EXPECT_THAT(std::string(statuses[1].message()), testing::HasSubstr("step 0, action "));
  }
  EXPECT_TRUE(completed);
  EXPECT_GT(calls, 12) << "a step has rounds in both passes";
}

}  // namespace
}  // namespace lynx::worker
