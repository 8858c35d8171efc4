// Compares losses of Lynx with those of the same model in PyTorch. model_reference.py has made the golden file.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "tests/reference/reference_job.h"

namespace lynx {
namespace {

constexpr double kTolerance = 1e-4;  // a relative difference

struct ReferenceStep {
  double loss = 0;
  double gradient_norm = 0;
};

std::vector<ReferenceStep> ReadGolden(worker::TinyModel model) {
  std::vector<ReferenceStep> steps;
  std::ifstream file(std::string(LYNX_SOURCE_DIR "/tests/golden/reference/") + TinyModelName(model) + "_reference_losses.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    ReferenceStep step;
    std::istringstream(line) >> step.loss >> step.gradient_norm;
    steps.push_back(step);
  }
  return steps;
}

class Reference : public testing::TestWithParam<worker::TinySetting> {};

void ExpectReference(worker::TinyJob job, const worker::TinySetting& setting) {
  const std::vector<ReferenceStep> expected = ReadGolden(setting.model);
  ASSERT_EQ(expected.size(), job.train.steps);
  job.Lower(setting.layout, RecomputeMode::kFull);
  const worker::TinyRun run = Train(job, job.train.steps);
  for (size_t step = 0; step < expected.size(); ++step) {
    const StepReport& report = run.reports[0][step];
    EXPECT_NEAR(report.loss, expected[step].loss, kTolerance * expected[step].loss) << "step " << step;
    // The norm depends on every gradient. Late in the training it is a difference of large sums, so its tolerance is larger.
    EXPECT_NEAR(report.gradient_norm, expected[step].gradient_norm, 10 * kTolerance * expected[step].gradient_norm)
        << "step " << step;
  }
}

TEST_P(Reference, LossesAgreeWithPyTorch) { ExpectReference(ReferenceJob(GetParam().model), GetParam()); }

// With small rooms, most rows go through rounds. The losses must be those of a model that drops no row.
TEST_P(Reference, LossesWithRoundsAgreeWithPyTorch) {
  worker::TinyJob job = ReferenceJob(GetParam().model);
  if (!job.model.moe.any()) return;
  job.model.moe.capacity = 0.5;
  job.model.moe.dropless = true;
  ExpectReference(std::move(job), GetParam());
}

// Returns each model without tied embeddings: on one rank, and with pipeline and data parallelism on several ranks. The latter
// setting also has tensor parallelism if the model's heads allow it.
std::vector<worker::TinySetting> Settings() {
  std::vector<worker::TinySetting> settings;
  for (const worker::TinySetting& setting :
       worker::AllModelsIn({ParallelLayout{1, 1, 1}, ParallelLayout{2, 3, 2}, ParallelLayout{1, 3, 2}})) {
    const ModelSpec model = SpecOf(setting.model);
    const bool over_tp = model.key_heads() % 2 == 0 && !model.qk_norm_whole;
    if (setting.model == worker::TinyModel::kTiedGpt || setting.model == worker::TinyModel::kTiedLlama) continue;
    if (over_tp && setting.layout.tp == 1 && setting.layout.pp > 1) continue;
    settings.push_back(setting);
  }
  for (const worker::TinyModel model :
       {worker::TinyModel::kMixtral, worker::TinyModel::kQwen3Moe, worker::TinyModel::kQwen2Moe, worker::TinyModel::kGlm4Moe,
        worker::TinyModel::kOlmoe, worker::TinyModel::kDeepseekV2, worker::TinyModel::kDeepseekV3}) {
    settings.push_back({model, ParallelLayout{.pp = 3, .dp = 2, .ep = 2}});
  }
  return settings;
}

INSTANTIATE_TEST_SUITE_P(, Reference, testing::ValuesIn(Settings()),
                         [](const auto& info) { return worker::TestName(info.param); });

}  // namespace
}  // namespace lynx
