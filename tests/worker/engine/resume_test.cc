// Tests that training continues after a checkpoint as if it had never stopped: in the same layout with the same bits, in
// another layout with the same losses up to rounding. In both cases every sample of an epoch must be used once, in the same
// order.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_index.h"

namespace lynx::worker {
namespace {

// The relative difference between layouts that is allowed, as in layouts_test.cc.
constexpr double kTolerance = 1e-4;
constexpr double kBfloat16Tolerance = 1e-2;

CheckpointIdentity IdentityOf(const TinyJob& job, int64_t step) {
  return {.job = JobId("tiny"),
          .generation = Generation(1),
          .step = step,
          .seed = job.train.seed,
          .model = job.model,
          .layout = job.layout};
}

absl::Status TrainSteps(TinyRank& rank, int64_t begin, int64_t end, std::vector<double>& losses) {
  for (int64_t step = begin; step < end; ++step) {
    LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(step));
    if (rank.rank == 0) losses.push_back(report.loss);
  }
  return absl::OkStatus();
}

// Trains the steps [0, end), then writes a checkpoint.
void TrainAndWrite(const TinyJob& job, int64_t end, const std::string& directory, std::vector<double>& losses) {
  const CheckpointIdentity identity = IdentityOf(job, end);
  for (const absl::Status& status : OnRanks(job, [&](TinyRank& rank) -> absl::Status {
         LYNX_RETURN_IF_ERROR(TrainSteps(rank, 0, end, losses));
         if (rank.coordinates.dp < WritingReplicas(job.layout)) {
           LYNX_RETURN_IF_ERROR(
               WriteShard(directory, identity, rank.context(), rank.coordinates.tp, rank.coordinates.dp, *rank.state).status());
         }
         LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
         if (rank.rank == 0) LYNX_RETURN_IF_ERROR(PublishCheckpoint(directory, identity).status());
         return rank.communicator->Barrier();
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
}

// `loaded`: the weights that new ranks load from a checkpoint. `trained`: their weights after they have trained steps [begin,
// end).
struct Continued {
  Parameters loaded, trained;
};
Continued LoadAndTrain(const TinyJob& job, int64_t begin, int64_t end, const std::string& directory,
                       std::vector<double>& losses) {
  Continued weights;
  std::mutex mutex;
  for (const absl::Status& status : OnRanks(job, [&](TinyRank& rank) -> absl::Status {
         LYNX_RETURN_IF_ERROR(LoadCheckpoint(directory, IdentityOf(job, begin), rank.context(), rank.coordinates.tp,
                                             *rank.state, {rank.rank, job.layout.ranks()}));
         LYNX_RETURN_IF_ERROR(rank.engine->GatherWeights());
         const auto collect = [&](Parameters& parameters) {
           const std::lock_guard lock(mutex);
           CollectWeights(*rank.state, parameters);
         };
         collect(weights.loaded);
         LYNX_RETURN_IF_ERROR(TrainSteps(rank, begin, end, losses));
         collect(weights.trained);
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  return weights;
}

std::string DirectoryOf(const std::string& name) { return TemporaryFolder() + "/resume-" + name; }

class Resume : public testing::TestWithParam<TinySetting> {};

// Compares two runs. The first one trains steps 0..9. The second one trains steps 0..4, writes a checkpoint, and trains steps
// 5..9 on new ranks.
void ExpectTheSameBits(const ModelSpec& model, const ParallelLayout& layout, const std::string& name) {
  TinyJob job{.model = model};
  job.Lower(layout, RecomputeMode::kFull);
  const TinyRun whole = Train(job, 10);
  const std::string directory = DirectoryOf(name);
  std::vector<double> losses;
  TrainAndWrite(job, 5, directory, losses);
  const Continued continued = LoadAndTrain(job, 5, 10, directory, losses);
  EXPECT_EQ(losses, whole.losses());
  EXPECT_TRUE(continued.trained == whole.weights);
}

TEST_P(Resume, ContinuesWithTheSameBits) { ExpectTheSameBits(SpecOf(GetParam()), GetParam().layout, TestName(GetParam())); }

// The cases: expert groups inside a replica and over several replicas; with and without ZeRO; replicas with the same tensor
// number but different experts.
TEST(ResumeExperts, ContinuesWithTheSameBits) {
  using enum ZeroStage;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const ParallelLayout& layout :
         {ParallelLayout{.dp = 4, .ep = 4}, ParallelLayout{.dp = 4, .ep = 2},
          ParallelLayout{.dp = 4, .ep = 2, .zero = kOptimizer},
          ParallelLayout{.tp = 2, .sequence_parallel = true, .zero = kOptimizer},
          ParallelLayout{.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true},
          ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .zero = kOptimizer}}) {
      SCOPED_TRACE(LayoutText(layout));
      for (const TinyModel model : {TinyModel::kMixtral, TinyModel::kGlm4Moe}) {
        ExpectTheSameBits(TinyMoe(dtype, model), layout,
                          absl::StrCat(TinyModelName(model), "-", TestName(layout), EnumName(dtype)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Resume, testing::ValuesIn([] {
      std::vector<TinySetting> settings;
      for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
        for (const TinyModel model : {TinyModel::kGpt, TinyModel::kLlama, TinyModel::kTiedGpt, TinyModel::kTiedLlama}) {
          for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer}) {
            settings.push_back({model, {.tp = 2, .pp = 2, .dp = 2, .zero = zero}, dtype});
          }
        }
      }
      return settings;
    }()),
    [](const auto& info) { return TestName(info.param); });

ParallelLayout CustomV() {
  ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kCustom};
  EXPECT_EQ(SetCustomSchedule("custom ranks=2 microbatches=4 placement=v\n"
                              "0F0 3F0 3B0 0B0 0F1 3F1 3B1 0B1 0F2 3F2 3B2 0B2 0F3 3F3 3B3 0B3\n"
                              "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1 1F2 2F2 2B2 1B2 1F3 2F3 2B3 1B3\n",
                              layout),
            absl::OkStatus());
  return layout;
}

// Trains five steps in one layout, and five more steps in another layout. Together, the layouts have every feature that a
// layout can have.
class ResumeElsewhere : public testing::TestWithParam<TinySetting> {};

TEST_P(ResumeElsewhere, ContinuesWithTheSameLosses) {
  constexpr int64_t kStepsEach = 5;
  const double tolerance = GetParam().dtype == DataType::kFloat32 ? kTolerance : kBfloat16Tolerance;
  TinyJob job{.model = SpecOf(GetParam())};
  job.train.global_batch = 4;  // the custom schedule is for 4 microbatches of one sample
  job.Lower({}, RecomputeMode::kNone);
  const TinyRun whole = Train(job, 2 * kStepsEach);
  const std::vector<ParallelLayout> layouts = {
      ParallelLayout{.tp = 2},
      {.pp = 4, .schedule = ScheduleKind::kZeroBubble},
      {.tp = 2, .sequence_parallel = true},
      {.tp = 2, .pp = 2, .dp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
      {.pp = 2, .dp = 2, .schedule = ScheduleKind::kChimera},
      {.dp = 4, .zero = ZeroStage::kOptimizer},
      {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
      CustomV(),
      {.pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer, .schedule = ScheduleKind::kChimera},
      {.dp = 4}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const ParallelLayout& next = layouts[(i + 1) % layouts.size()];
    SCOPED_TRACE(LayoutText(layouts[i]) + " -> " + LayoutText(next));
    const std::string directory = DirectoryOf(TestName(GetParam()) + "-" + std::to_string(i));
    std::vector<double> losses;
    job.Lower(layouts[i], RecomputeMode::kFull);
    ASSERT_NO_FATAL_FAILURE(TrainAndWrite(job, kStepsEach, directory, losses));
    const std::vector<double> before = losses;
    const Continued same = LoadAndTrain(job, kStepsEach, kStepsEach, directory, losses);
    job.Lower(next, RecomputeMode::kSelective);
    const Continued continued = LoadAndTrain(job, kStepsEach, 2 * kStepsEach, directory, losses);
    // If two ranks hold a tied embedding, one of them has it under a second name.
    for (const auto& [name, weights] : same.loaded) {
      const auto other = continued.loaded.find(name);
      EXPECT_TRUE(other == continued.loaded.end() || other->second == weights) << name;
    }
    ASSERT_EQ(losses.size(), whole.losses().size());
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], whole.losses()[step], tolerance * whole.losses()[step]) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ResumeElsewhere,
                         testing::Values(TinySetting{TinyModel::kGpt}, TinySetting{TinyModel::kLlama},
                                         TinySetting{TinyModel::kTiedGpt}, TinySetting{TinyModel::kTiedLlama},
                                         TinySetting{TinyModel::kGpt, {}, DataType::kBfloat16},
                                         TinySetting{TinyModel::kTiedLlama, {}, DataType::kBfloat16}),
                         [](const auto& info) { return TestName(info.param); });

// Records which samples the ranks of a run read. The key is the sample's number in the training, counted over all epochs.
class Ledger {
 public:
  void Enter(int64_t sample_number, int32_t sample) {
    const std::lock_guard lock(mutex_);
    entries_[sample_number].push_back(sample);
  }
  // Returns the samples with the numbers [begin, end), in order. Fails the test unless exactly these numbers were read, each by
  // the same number of ranks, and each number always gave the same sample.
  std::vector<int32_t> Order(int64_t begin, int64_t end) const {
    std::vector<int32_t> order;
    for (const auto& [number, read] : entries_) {
      EXPECT_EQ(number, begin + static_cast<int64_t>(order.size()));
      EXPECT_EQ(read, std::vector<int32_t>(entries_.begin()->second.size(), read.front())) << "number " << number;
      order.push_back(read.front());
    }
    EXPECT_EQ(static_cast<int64_t>(order.size()), end - begin);
    order.resize(static_cast<size_t>(end - begin));
    return order;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<int32_t>> entries_;
};

// A data set that records every read in the ledger. In its text, every token of sample i must be i.
class LedgerDataset : public Dataset {
 public:
  LedgerDataset(std::unique_ptr<Dataset> dataset, Ledger& ledger) : dataset_(std::move(dataset)), ledger_(ledger) {}
  int64_t SamplesPerEpoch() const override { return dataset_->SamplesPerEpoch(); }
  absl::Status Read(int64_t sample_number, int32_t* inputs, int32_t* targets) const override {
    LYNX_RETURN_IF_ERROR(dataset_->Read(sample_number, inputs, targets));
    ledger_.Enter(sample_number, inputs[0]);
    return absl::OkStatus();
  }
  const DataFingerprint& fingerprint() const override { return dataset_->fingerprint(); }

 private:
  std::unique_ptr<Dataset> dataset_;
  Ledger& ledger_;
};

// There are two epochs of 20 samples, in batches of 8. So the third step has samples of both epochs. After every two steps the
// run continues in the next layout.
TEST(SampleLedger, EverySampleIsUsedOnceAnEpochInOneOrderForAnyLayout) {
  constexpr int32_t kSamples = 20;
  TinyJob job;
  std::string text;
  for (int32_t sample = 0; sample < kSamples; ++sample)
    text.append(static_cast<size_t>(job.model.seq), static_cast<char>(sample));
  const std::string path = TemporaryFolder() + "/ledger-text";
  std::ofstream(path, std::ios::binary) << text << '\0';

  const std::vector<ParallelLayout> layouts = {
      ParallelLayout{},
      {.dp = 4},
      {.tp = 2, .pp = 2, .dp = 2},
      {.pp = 2, .dp = 2, .schedule = ScheduleKind::kChimera},
      {.tp = 2, .pp = 2, .virtual_stages = 2, .sequence_parallel = true, .schedule = ScheduleKind::kInterleaved}};
  std::vector<int32_t> expected;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const ParallelLayout& next = layouts[(i + 1) % layouts.size()];
    SCOPED_TRACE(LayoutText(layouts[i]) + " -> " + LayoutText(next));
    std::vector<double> losses;
    const std::string directory = DirectoryOf("ledger-" + std::to_string(i));
    Ledger before, after;
    Ledger* ledger = &before;
    job.open_dataset = [&]() -> absl::StatusOr<std::unique_ptr<Dataset>> {
      LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset,
                            OpenDataset({.path = path}, job.model.seq, job.model.vocab, job.train.seed));
      return std::make_unique<LedgerDataset>(std::move(dataset), *ledger);
    };
    job.Lower(layouts[i], RecomputeMode::kFull);
    ASSERT_NO_FATAL_FAILURE(TrainAndWrite(job, 2, directory, losses));
    ledger = &after;
    job.Lower(next, RecomputeMode::kFull);
    LoadAndTrain(job, 2, 5, directory, losses);

    std::vector<int32_t> order = before.Order(0, 16);
    for (const int32_t sample : after.Order(16, 40)) order.push_back(sample);
    for (const int epoch : {0, 1}) {
      const auto begin = order.begin() + epoch * kSamples;
      EXPECT_EQ(std::set<int32_t>(begin, begin + kSamples).size(), static_cast<size_t>(kSamples));
    }
    if (i == 0) expected = order;
    EXPECT_EQ(order, expected);
  }
}

}  // namespace
}  // namespace lynx::worker
