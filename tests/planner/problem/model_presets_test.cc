#include "planner/problem/model_presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/problem/layer_graph.h"

#include <set>
#include <string>

namespace lynx {
namespace {

JobSpec JobOf(const ModelSpec& model) {
  JobSpec spec;
  spec.name = "preset";
  spec.model = model;
  spec.data = {DataKind::kMegatron, "/data"};
  spec.train.steps = spec.train.global_batch = 1;
  return spec;
}

TEST(ModelPresets, AreValidNormalizedAndNamedOnce) {
  std::set<std::string> names;
  for (const ModelPreset& preset : ModelPresets()) {
    SCOPED_TRACE(preset.name);
    JobSpec spec = JobOf(preset.model);
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
    Normalize(spec);
    EXPECT_EQ(spec.model, preset.model);
    EXPECT_TRUE(names.insert(preset.name).second);
    EXPECT_EQ(FindModelPreset(preset.name), &preset);
    EXPECT_NE(preset.source, "");
  }
  EXPECT_EQ(FindModelPreset("gpt-2"), nullptr);
  EXPECT_EQ(ModelPresets().size(), 14u);
}

// The name of a preset contains its size. The parameter count of the layer graph must agree with this size.
TEST(ModelPresets, HaveAsManyParametersAsTheirNamesSay) {
  for (const ModelPreset& preset : ModelPresets()) {
    SCOPED_TRACE(preset.name);
    const std::string size = preset.name.substr(preset.name.find('-') + 1);
    const double unit = size.back() == 't' ? 1e12 : 1e9;
    const double stated = std::stod(size) * unit;
    // Llama 7B has 6.7 and 70B has 69 billion; the names of the GPTs are right to about one per cent.
    const double tolerance = preset.model.family == ModelFamily::kLlama ? 0.05 : 0.015;
    EXPECT_NEAR(static_cast<double>(ModelParameters(preset.model)) / stated, 1.0, tolerance);
  }
}

// The weights of these models are public. The counts must be exactly the published ones.
TEST(ModelPresets, LlamaCountsAreTheReleasedOnes) {
  EXPECT_EQ(ModelParameters(FindModelPreset("llama-7b")->model), 6'738'415'616);
  EXPECT_EQ(ModelParameters(FindModelPreset("llama-65b")->model), 65'285'660'672);
  EXPECT_EQ(ModelParameters(FindModelPreset("llama-70b")->model), 68'976'648'192);
}

}  // namespace
}  // namespace lynx
