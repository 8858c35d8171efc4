// Compares the planner with published figures, and checks that the differences are below thresholds. docs/validation.md shows
// the figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "planner/problem/flops.h"
#include "planner/problem/model_presets.h"
#include "tests/validation/fit.h"
#include "tests/validation/korthikanti.h"
#include "tests/validation/report.h"
#include "tests/validation/yuan.h"

namespace lynx::validation {
namespace {

const std::string kSource = LYNX_SOURCE_DIR;

Table TableNamed(const std::string& name) {
  const absl::StatusOr<Table> table = ReadTable(kSource + "/tests/validation/reference/" + name + ".csv");
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *table : Table{};
}
Table Korthikanti() { return TableNamed("korthikanti_2022"); }
Table Yuan() { return TableNamed("yuan_atc24"); }
HardwareProfile A100() { return ProfileOf(kSource + "/examples/clusters/a100-80gb-nvlink.yaml"); }
HardwareProfile H800() { return ProfileOf(kSource + "/examples/clusters/h800.yaml"); }

void ExpectWithin(const std::vector<Comparison>& all, double difference) {
  EXPECT_FALSE(all.empty());
  for (const Comparison& one : all) EXPECT_NEAR(one.ours, one.published, difference) << one.row << " " << one.what;
}

TEST(KorthikantiTest, LayersKeepWhatTheFormulasSay) {
  const std::vector<Comparison> memory = LayerMemory(Korthikanti());
  EXPECT_EQ(memory.size(), 4u * 6u) << "four models, six techniques";
  EXPECT_LE(WorstError(memory), 0.001);
}

TEST(KorthikantiTest, StagesKeepWhatTheFormulasSay) {
  for (const Comparison& one : StageMemory(Korthikanti())) {
    // The published figures are rounded to a megabyte, or to a tenth of a percent.
    const double rounding = one.unit == "%" ? 0.05 : 0.0005;
    EXPECT_NEAR(one.ours, one.published, 0.001 * one.published + rounding) << one.row << " " << one.what;
  }
  const ModelSpec& model = FindModelPreset("gpt-530b")->model;
  const Bytes output = TensorBytes(Tensor::kX, ShapeOf(model, {.tp = 8}, 1));
  EXPECT_NEAR(static_cast<double>(output.value) * 35 / static_cast<double>(kGiB.value),
              Value(Korthikanti(), "AppB", "530B", "dealloc_saving_first_stage"), 0.005);
}

TEST(KorthikantiTest, UtilizationFollowsFromTheTimes) {
  ExpectWithin(Utilization(Korthikanti()), 0.0051);
  for (const auto& [row, preset] : {std::pair{"GPT-3", "gpt-175b"}, {"MT-NLG", "gpt-530b"}}) {
    const ModelSpec& model = FindModelPreset(preset)->model;
    const double overhead =
        StepFlops(model, 1, FlopCount::kSelectiveRecomputePublished) / StepFlops(model, 1, FlopCount::kModel) - 1;
    EXPECT_NEAR(100 * overhead, Value(Korthikanti(), "S5", row, "selective_flops_overhead"), 0.05);
  }
}

TEST(KorthikantiTest, LayerTimesAgree) {
  const std::vector<Comparison> times = LayerTimes(Korthikanti(), A100());
  EXPECT_EQ(times.size(), 10u);
  EXPECT_LE(WorstError(times), 0.02);
}

TEST(KorthikantiTest, IterationTimesAreWithinFivePercentAndTwoInTheMean) {
  const std::vector<Comparison> times = IterationTimes(Korthikanti(), A100());
  EXPECT_EQ(times.size(), 4u);
  EXPECT_LE(WorstError(times), 0.05);
  EXPECT_LE(MeanError(times), 0.02);
}

TEST(KorthikantiTest, ConstantsComeFromLayerTimesAlone) {
  HardwareProfile profile = A100();
  const LayerFit here = FitToLayerTimes(Korthikanti(), profile);
  profile.efficiency[static_cast<size_t>(OpClass::kGemm)].back().permille = 600;
  profile.efficiency[static_cast<size_t>(OpClass::kScores)].back().permille = 900;
  profile.overlap_slowdown_permille = 1200;
  const LayerFit afar = FitToLayerTimes(Korthikanti(), profile);
  ASSERT_EQ(afar.constants.size(), 3u);
  EXPECT_EQ(here.profile, A100()) << "the cluster file has the constants that the fit finds";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(afar.constants[i].value, here.constants[i].value, 10) << afar.constants[i].name << ", from elsewhere";
  }
}

TEST(YuanTest, MemoryUnderOffloadingIsWithinTwoPercent) {
  const std::vector<Comparison> memory = OffloadedMemory(Yuan());
  EXPECT_EQ(memory.size(), 8u);
  EXPECT_LE(WorstError(memory), 0.02);
}

TEST(YuanTest, OffloadedSharesAreFound) {
  const std::vector<Comparison> shares = OffloadedShares(Yuan());
  EXPECT_EQ(shares.size(), 21u);
  ExpectWithin(shares, 0.005);
}

TEST(YuanTest, IterationTimesAreWithinSixPercentInTheMedianAndTwelveAtWorst) {
  const std::vector<Comparison> times = SearchedTimes(Yuan(), H800());
  EXPECT_EQ(times.size(), 21u);
  EXPECT_LE(MedianError(times), 0.06);
  EXPECT_LE(WorstError(times), 0.12);
}

TEST(YuanTest, OneConstantServesAllConfigurations) {
  HardwareProfile profile = H800();
  profile.efficiency[static_cast<size_t>(OpClass::kGemm)].back().permille = 800;
  const SearchedFit fit = FitToSearchedTimes(Yuan(), profile);
  EXPECT_EQ(fit.constants.size(), 1u);
  EXPECT_EQ(fit.profile, H800()) << "the cluster file has the constant that the fit finds";
}

TEST(YuanTest, TheDemonstrationIsPredictedWithoutAFit) {
  const std::vector<Comparison> throughput = DemoThroughput(Yuan(), A100(), H800());
  EXPECT_EQ(throughput.size(), 4u);
  EXPECT_LE(WorstError(throughput), 0.12);
  // The published figures have one decimal.
  ExpectWithin(DemoUtilization(Yuan()), 0.06);
}

TEST(ValidationTest, ThePageIsWhatTheCommandWrites) {
  const absl::StatusOr<std::string> report = ValidationReport(kSource);
  ASSERT_TRUE(report.ok()) << report.status();
  std::ifstream in(kSource + "/docs/validation.md");
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_EQ(page.str(), *report) << "write it again: build/bin/lynx_validate . docs/validation.md";
}

TEST(ValidationTest, TablesThatCannotBeReadAreNamed) {
  EXPECT_EQ(ReadTable("/nowhere.csv").status().message(), "/nowhere.csv cannot be read");
  EXPECT_FALSE(ValidationReport("/nowhere").ok());
  const std::string path = ::testing::TempDir() + "table.csv";
  std::ofstream(path) << "a,b\n1,\"2,3\"\n\n4\n";
  EXPECT_EQ(ReadTable(path).status().message(), path + ":4: 1 fields, but 2 columns");
  std::ofstream(path) << "a,b\n1,\"2,3\"\n";
  EXPECT_EQ(ReadTable(path).value(), (Table{{{"a", "1"}, {"b", "2,3"}}}));
  std::remove(path.c_str());
}

TEST(ValidationTest, FitsFindTheLeastWithinTheirBounds) {
  int32_t x = 900, y = 1;
  const auto error = [&] { return std::pow(x - 123, 2) + std::pow(y - 77, 2); };
  EXPECT_EQ(FitConstants({{"x", &x, 0, 1000}, {"y", &y, 0, 50}}, error), (std::vector<Constant>{{"x", 123}, {"y", 50}}));
  EXPECT_EQ(x, 123);
}

}  // namespace
}  // namespace lynx::validation
