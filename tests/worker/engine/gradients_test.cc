// Compares the gradient of every parameter with central differences of the loss.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

// fp32 rounds the loss by about 1e-7. So a difference over 2 * kStep has an error of about 1e-5, for gradients of 0.01 to 1.
// The error that comes from the curvature is proportional to kStep squared, and about as large.
constexpr float kStep = 3e-3f;
constexpr double kRelative = 1e-3;  // relative error of each parameter's gradient, in the Euclidean norm
constexpr double kAbsolute = 2e-5;  // absolute error: root mean square over the elements
// The initial matrices are so small that some gradients could not be measured. So the test multiplies them by this factor.
constexpr float kWeightFactor = 15;

// Returns the distance between the elements that are tested. Two tensor-parallel ranks spend most time in collectives, so they
// test only some elements. The distance has no common divisor with the sizes, so every row and column is tested.
int64_t StrideOf(const ParallelLayout& layout) { return layout.tp == 1 ? 1 : 5; }

TinyJob GradientJob(const TinySetting& setting) {
  const ParallelLayout& layout = setting.layout;
  TinyJob job{.model = SpecOf(setting.model)};
  job.model.layers = 2;
  job.model.hidden = 8;
  job.model.heads = job.model.family == ModelFamily::kLlama ? 4 : 2;  // in Llama models, two heads share each key head
  job.model.ffn = 16;
  job.model.seq = 4;
  job.model.vocab = 61;
  job.train.global_batch = layout.tp == 1 ? 2 : 1;
  job.train.optimizer.lr = 0;  // steps do not change the weights
  job.train.min_lr = 0;
  job.model.moe.bias_rate = 0;
  job.Lower(layout, RecomputeMode::kFull);
  return job;
}

// Returns the place where this rank holds element (row, column) of a parameter; nullptr if the rank does not hold it.
float* Element(TinyRank& rank, const ParameterSlot& slot, int64_t row, int64_t column) {
  for (const ParameterPiece& piece : slot.pieces) {
    if (row < piece.row || row >= piece.row + piece.rows) continue;
    if (column < piece.column || column >= piece.column + piece.columns) continue;
    const int64_t at = (row - piece.row) * piece.columns + (column - piece.column);
    return &rank.state->weights()[slot.offset + piece.offset + at];
  }
  return nullptr;
}

absl::StatusOr<double> LossWith(TinyRank& rank, float* element, float value) {
  const float before = element == nullptr ? 0 : *element;
  if (element != nullptr) *element = value;
  LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(0));
  if (element != nullptr) *element = before;
  return report.loss;
}

// Computes the central difference of the loss for every StrideOf(layout)-th element. All ranks take the elements in the same
// order. The layouts have no pipeline stages, so every rank has a piece of every parameter.
absl::Status Differences(TinyRank& rank, Parameters& differences) {
  const int64_t stride = StrideOf(rank.job->layout);
  for (const ParameterSlot& slot : rank.state->slots()) {
    if (slot.by_load) continue;  // it has no gradient
    std::vector<float>& out = differences[slot.name];
    out.resize(slot.global_rows * slot.global_columns);
    for (int64_t i = 0; i < slot.global_rows * slot.global_columns; i += stride) {
      float* const element = Element(rank, slot, i / slot.global_columns, i % slot.global_columns);
      const float value = element == nullptr ? 0 : *element;
      const float above = value + kStep, below = value - kStep;
      LYNX_ASSIGN_OR_RETURN(const double loss_above, LossWith(rank, element, above));
      LYNX_ASSIGN_OR_RETURN(const double loss_below, LossWith(rank, element, below));
      out[i] = static_cast<float>((loss_above - loss_below) / (2.0 * kStep));
    }
  }
  return absl::OkStatus();
}

void ExpectClose(const std::string& name, const std::vector<float>& gradient, const std::vector<float>& difference,
                 int64_t stride) {
  ASSERT_EQ(gradient.size(), difference.size()) << name;
  double error = 0, size = 0;
  for (size_t i = 0; i < gradient.size(); i += stride) {
    error += std::pow(static_cast<double>(gradient[i]) - difference[i], 2);
    size += std::pow(static_cast<double>(gradient[i]), 2);
  }
  const double floor = kAbsolute * std::sqrt(static_cast<double>(gradient.size() / stride));
  EXPECT_GT(std::sqrt(size), 10 * floor) << name << ": too small a gradient to tell anything";
  EXPECT_LT(std::sqrt(error), kRelative * std::sqrt(size) + floor)
      << name << ": gradient norm " << std::sqrt(size) << ", error " << std::sqrt(error);
}

class Gradients : public testing::TestWithParam<TinySetting> {};

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  const TinyJob job = GradientJob(GetParam());
  Parameters gradients, differences;
  std::mutex mutex;
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    for (const ParameterSlot& slot : rank.state->slots()) {
      if (!slot.decays) continue;
      for (int64_t i = 0; i < slot.count; ++i) rank.state->weights()[slot.offset + i] *= kWeightFactor;
    }
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    {
      const std::lock_guard lock(mutex);
      CollectGradients(*rank.state, gradients);
    }
    Parameters own;
    LYNX_RETURN_IF_ERROR(Differences(rank, own));
    if (rank.rank == 0) differences = own;
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
  const bool biases = job.model.family == ModelFamily::kGpt;
  const size_t more =
      2 * ((job.model.qkv_bias ? 1 : 0) + (job.model.qk_norm ? 2 : 0) + (job.model.latent.any() ? 3 : 0)) +
      (2 - job.model.moe.dense_layers) *
          ((job.model.moe.any() ? 1 : 0) + (job.model.moe.shared_ffn > 0 ? 2 : 0) + (job.model.moe.shared_gate ? 1 : 0));
  ASSERT_EQ(gradients.size(), (biases ? 2 + 2 * 12 + 3 : 1 + 2 * 6 + 2) + more - (job.model.tied_embeddings ? 1 : 0));
  const int64_t stride = StrideOf(job.layout);
  for (const auto& [name, gradient] : gradients) ExpectClose(name, gradient, differences[name], stride);
}

std::vector<TinySetting> Settings() {
  std::vector<TinySetting> settings =
      AllModelsIn({ParallelLayout{1, 1, 1}, ParallelLayout{2, 1, 1}, ParallelLayout{.tp = 2, .sequence_parallel = true}});
  settings.push_back({TinyModel::kMixtral, ParallelLayout{.dp = 2, .ep = 2}});
  settings.push_back({TinyModel::kGlm4Moe, ParallelLayout{.dp = 2, .ep = 2}});
  settings.push_back({TinyModel::kQwen2Moe, ParallelLayout{.dp = 2, .ep = 2}});
  settings.push_back({TinyModel::kOlmoe, ParallelLayout{.dp = 2, .ep = 2}});
  settings.push_back({TinyModel::kMixtral, ParallelLayout{.tp = 2, .ep = 2, .sequence_parallel = true}});
  return settings;
}

INSTANTIATE_TEST_SUITE_P(, Gradients, testing::ValuesIn(Settings()), [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace lynx::worker
