// Training goes on from a checkpoint as if it had never stopped.
#include <gtest/gtest.h>

#include <mutex>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {
namespace {

class Resume : public testing::TestWithParam<TinyModel> {};

// Steps 0..9 in one go, and steps 0..4, a checkpoint, and steps 5..9 from new ranks.
TEST_P(Resume, ContinuesWithTheSameBits) {
  TinyJob job{.model = SpecOf(GetParam())};
  job.Lower({2, 2, 2}, RecomputeMode::kFull);
  const TinyRun whole = Train(job, 10);
  const std::string directory = TemporaryFolder() + "/resume-" + TestName(TinySetting{GetParam(), job.layout});
  const CheckpointIdentity identity{.job = JobId("tiny"),
                                    .generation = Generation(1),
                                    .step = 5,
                                    .seed = job.train.seed,
                                    .model = job.model,
                                    .layout = job.layout};
  const auto train = [](TinyRank& rank, int64_t begin, int64_t end, std::vector<double>& losses) -> absl::Status {
    for (int64_t step = begin; step < end; ++step) {
      LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(step));
      if (rank.rank == 0) losses.push_back(report.loss);
    }
    return absl::OkStatus();
  };
  std::vector<double> losses;
  for (const absl::Status& status : OnRanks(job, [&](TinyRank& rank) -> absl::Status {
         LYNX_RETURN_IF_ERROR(train(rank, 0, 5, losses));
         if (rank.coordinates.dp == 0) {
           LYNX_RETURN_IF_ERROR(
               WriteShard(directory, identity, rank.context(), rank.coordinates.tp, *rank.state).status());
         }
         LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
         if (rank.rank == 0) LYNX_RETURN_IF_ERROR(PublishCheckpoint(directory, identity).status());
         return rank.communicator->Barrier();
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  Parameters weights;
  std::mutex mutex;
  for (const absl::Status& status : OnRanks(job, [&](TinyRank& rank) -> absl::Status {
         LYNX_RETURN_IF_ERROR(LoadCheckpoint(directory, identity, rank.context(), rank.coordinates.tp, *rank.state));
         LYNX_RETURN_IF_ERROR(train(rank, 5, 10, losses));
         const std::lock_guard lock(mutex);
         CollectPieces(*rank.state, rank.state->weights(), weights);
         return absl::OkStatus();
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(losses, whole.losses());
  EXPECT_TRUE(weights == whole.weights);
}

INSTANTIATE_TEST_SUITE_P(, Resume, testing::Values(TinyModel::kGpt, TinyModel::kLlama, TinyModel::kTiedGpt),
                         [](const auto& info) { return TestName(TinySetting{info.param, {2, 2, 2}}); });

}  // namespace
}  // namespace lynx
