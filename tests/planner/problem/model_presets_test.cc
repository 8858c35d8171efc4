#include "planner/problem/model_presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/problem/flops.h"
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
  EXPECT_EQ(ModelPresets().size(), 25u);
}

// The name of a preset contains its size. The parameter count of the layer graph must agree with this size.
TEST(ModelPresets, HaveAsManyParametersAsTheirNamesSay) {
  for (const ModelPreset& preset : ModelPresets()) {
    SCOPED_TRACE(preset.name);
    if (preset.model.moe.any()) continue;  // see below
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

// The totals are the numbers of elements in the published weights. The numbers of active parameters are those of the papers and
// model cards, which count the embeddings in different ways.
TEST(ModelPresets, ModelsWithExpertsHaveTheReleasedCounts) {
  const struct {
    const char* name;
    int64_t total;
    double active;
  } cases[] = {{"mixtral-8x7b", 46'702'792'704, 12.9e9},
               {"mixtral-8x22b", 140'620'634'112, 39e9},
               {"qwen3-30b-a3b", 30'532'122'624, 3.3e9},
               {"qwen3-235b-a22b", 235'093'634'560, 22e9},
               {"olmoe-1b-7b", 6'919'161'856, 1.3e9},
               {"gpt-oss-20b", 20'914'757'184, 3.61e9 + 201'088.0 * 2880},
               {"gpt-oss-120b", 116'829'156'672, 5.13e9 + 201'088.0 * 2880}};
  for (const auto& c : cases) {
    const ModelSpec& model = FindModelPreset(c.name)->model;
    if (model.plan_only == 0) {
      EXPECT_EQ(ModelParameters(model), c.total) << c.name;
    } else {
      // Norms over whole queries, biases of experts and scores of heads are planned without their own parameters.
      EXPECT_NEAR(static_cast<double>(ModelParameters(model)) / static_cast<double>(c.total), 1, 1e-3) << c.name;
    }
    EXPECT_NEAR(static_cast<double>(ActiveParameters(model)) / c.active, 1, 0.02) << c.name;
  }
  // The published totals of DeepSeek-V3 (671B) and Kimi K2 (1.04T) contain the biases with which experts are chosen; the
  // published numbers of active parameters leave out the embedding.
  const struct {
    const char* name;
    int64_t total, biases;
    double active;
  } latent[] = {{"deepseek-v2", 235'741'434'880, 0, 21e9},
                {"deepseek-v2-lite", 15'706'484'224, 0, 2.4e9},
                {"deepseek-v3", 671'026'419'200, 58 * 256, 37e9},
                {"kimi-k2", 1'026'408'232'448, 60 * 384, 32e9}};
  for (const auto& c : latent) {
    const ModelSpec& model = FindModelPreset(c.name)->model;
    EXPECT_EQ(ModelParameters(model), c.total - c.biases) << c.name;
    const int64_t embedding = int64_t{model.vocab} * model.hidden;
    EXPECT_NEAR(static_cast<double>(ActiveParameters(model) - embedding) / c.active, 1, 0.025) << c.name;
  }
  const ModelSpec& dense = FindModelPreset("llama-7b")->model;
  EXPECT_EQ(ActiveParameters(dense), ModelParameters(dense));
}

}  // namespace
}  // namespace lynx
