#include "planner/report/framework_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lynx {
namespace {

using testing::HasSubstr;

// A step of 2 s on 4 ranks, with figures that are easy to check.
FrameworkPlan Plan(Bytes device_memory = kGiB * 64) {
  FrameworkPlan plan{.framework = Framework::kMegatron, .device_memory = device_memory};
  plan.request.model = {.layers = 4, .hidden = 64, .heads = 4, .ffn = 256, .seq = 100, .vocab = 256};
  plan.request.layout = {.pp = 2, .dp = 2};
  plan.request.micro_batch = 5;
  plan.request.microbatches = 4;
  plan.request.recompute = RecomputeMode::kFull;
  plan.most_layers = 2;
  const Nanos second(1'000'000'000);
  plan.step = {.step = second * 2, .pipeline = second, .data_reduction = second / 2, .optimizer = second / 2};
  plan.step.layer.recompute = second / 80;
  const MemoryEstimate rank{.weights = kGiB * 2,
                            .gradients = kGiB * 4,
                            .optimizer = kGiB * 12,
                            .activations = kGiB * 8,
                            .transient = kGiB,
                            .workspace = kGiB};
  plan.memory = {rank, rank};
  plan.memory.push_back(rank);
  plan.memory.back().transient = kGiB * 3;
  return plan;
}

TEST(FrameworkTable, ShowsWhatTheBytesAre) {
  EXPECT_EQ(TextOf(FrameworkMemoryTable(Plan())),
            "pipeline rank  weights  gradients  optimizer  activations  transient     total\n"
            "0-1            2.0 GiB    4.0 GiB   12.0 GiB      8.0 GiB    2.0 GiB  28.0 GiB\n"
            "2              2.0 GiB    4.0 GiB   12.0 GiB      8.0 GiB    4.0 GiB  30.0 GiB\n");
}

TEST(FrameworkTable, ShowsWhereTheTimeGoes) {
  // Two layers of a stage, four microbatches, 12.5 ms each. Nothing is tied.
  EXPECT_EQ(TextOf(FrameworkTimeTable(Plan())),
            "part of the step             time   share\n"
            "passes of the pipeline     1.00 s   50.0%\n"
            "  of it recomputation    100.0 ms    5.0%\n"
            "gradients over replicas  500.0 ms   25.0%\n"
            "optimizer                500.0 ms   25.0%\n"
            "step                       2.00 s  100.0%\n");
}

TEST(FrameworkTable, CountsTokensAndFlops) {
  EXPECT_DOUBLE_EQ(TokensPerSecond(Plan()), 5 * 4 * 2 * 100 / 2.0);
  HardwareProfile profile = StatedCpuProfile();
  const std::string text = FrameworkPlanText(Plan(), profile);
  EXPECT_THAT(text, HasSubstr("megatron: tp1 pp2 dp2 (4 ranks), micro-batch 5 x 4 microbatches, recompute full\n"));
  EXPECT_THAT(text, HasSubstr("2000 tokens/s (500 on each device)"));
  EXPECT_THAT(text, HasSubstr("memory: at most 30.0 GiB of 64.0 GiB on a device\n"));
}

TEST(FrameworkTable, SaysHowMuchIsMissing) {
  EXPECT_THAT(FrameworkPlanText(Plan(kGiB * 20), StatedCpuProfile()),
              HasSubstr("memory: does not fit; the fullest device needs 30.0 GiB, 10.0 GiB more than it has\n"));
  EXPECT_THAT(FrameworkPlanText(Plan(Bytes(0)), StatedCpuProfile()), HasSubstr("the memory of a device is not known\n"));
}

TEST(FrameworkTable, NamesWhatIsRecomputed) {
  FrameworkPlan plan = Plan();
  plan.request.recompute = RecomputeMode::kSelective;
  plan.request.modules = {RecomputeModule::kMlp};
  EXPECT_THAT(FrameworkPlanText(plan, StatedCpuProfile()), HasSubstr("microbatches, recompute selective (mlp)\n"));
  const auto json = nlohmann::json::parse(FrameworkPlanJson(plan, StatedCpuProfile()));
  EXPECT_EQ(json["recompute"], "selective");
  EXPECT_EQ(json["recomputeModules"], "mlp");
  EXPECT_FALSE(nlohmann::json::parse(FrameworkPlanJson(Plan(), StatedCpuProfile())).contains("recomputeModules"));
  plan.framework = Framework::kTorchtitan;
  plan.request.traits = TraitsOf(Framework::kTorchtitan);
  plan.request.model.family = ModelFamily::kLlama;
  plan.request.model.attention = AttentionKernel::kFused;
  plan.request.modules.clear();
  plan.request.recompute = RecomputeMode::kBalanced;
  EXPECT_THAT(FrameworkPlanText(plan, StatedCpuProfile()), HasSubstr("recompute balanced (selective_ac_option op)\n"));
}

TEST(FrameworkTable, JsonHasWholeNumbers) {
  const auto json = nlohmann::json::parse(FrameworkPlanJson(Plan(kGiB * 20), StatedCpuProfile()));
  EXPECT_EQ(json["framework"], "megatron");
  EXPECT_EQ(json["step"], 2'000'000'000);
  EXPECT_EQ(json["recomputation"], 100'000'000);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["memory"].size(), 3u);
  EXPECT_EQ(json["memory"][2]["total"], (kGiB * 30).value);
}

}  // namespace
}  // namespace lynx
