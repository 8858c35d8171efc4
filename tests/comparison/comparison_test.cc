// Checks three things: the claims of docs/comparison.md on settings that are quick to plan, the page in the source tree, and
// the text of the figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/comparison/chart.h"
#include "tests/comparison/figures.h"
#include "tests/comparison/page.h"

namespace lynx::comparison {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSource = LYNX_SOURCE_DIR;
// Two equivalent plans may have slightly different simulated times, because the order of their actions differs.
constexpr double kEqual = 0.9999;

Curve CurveFor(const Setting& setting, const std::vector<double>& shares) {
  absl::StatusOr<Curve> curve = CurveOf(kSource, setting, shares);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? *std::move(curve) : Curve{};
}

// Returns the cells of a line of a Markdown table, or no cells for other lines.
std::vector<std::string> Cells(const std::string& line) {
  if (line.empty() || line[0] != '|') return {};
  std::vector<std::string> cells;
  for (const auto cell : absl::StrSplit(line.substr(1), '|')) cells.emplace_back(absl::StripAsciiWhitespace(cell));
  cells.pop_back();
  return cells;
}

std::string PageInTree() {
  std::ifstream in(kSource + "/docs/comparison.md");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Comparison, LynxIsFarFasterThanMegatronsFullRecomputationAtItsBest) {
  const Curve curve = CurveFor({"a100-40gb-pcie", "gpt-6.7b", 2048, 4, 2, 2}, {0.2});
  ASSERT_EQ(curve.points.size(), 1u);
  EXPECT_GE(curve.points[0].AloneOver(curve.points[0].Step(Baseline::kMegatronFull)), 1.37);
  EXPECT_GE(BestSpeedup(curve, Baseline::kMegatronFull), 1.6);
}

// In each of these cases, Lynx was once slower than a baseline. In the first case, a peak was rounded, so the planner has to
// plan the chosen partition once more. In the second case, everything fits exactly, and another balanced partition is faster
// than the first one found. In the third case, the peaks of plans with windows once changed which plan without windows the
// planner found.
TEST(Comparison, LynxIsNoSlowerWhereItWas) {
  const std::pair<Setting, double> settings[] = {{{"a100-80gb-nvlink", "gpt-20.2b", 4096, 4, 8, 1}, 0.7},
                                                 {{"a100-80gb-nvlink", "gpt-20.2b", 1024, 4, 8, 4}, 1.0},
                                                 {{"a100-80gb-nvlink", "gpt-4.7b", 1024, 4, 4, 4}, 0.15}};
  for (const auto& [setting, share] : settings) {
    const Curve curve = CurveFor(setting, {share});
    ASSERT_EQ(curve.points.size(), 1u);
    const Point& point = curve.points[0];
    EXPECT_GE(point.AloneOver(point.Step(Baseline::kNoOverlap)), kEqual) << setting.model << ", " << setting.seq;
  }
}

TEST(Comparison, LynxIsNowhereSlowerThanTheBestWithoutOverlap) {
  int compared = 0;
  for (const char* cluster : {"a100-80gb-nvlink", "a100-40gb-pcie"}) {
    for (const int32_t seq : {1024, 4096}) {
      const Curve curve = CurveFor({cluster, "gpt-1.3b", seq, 4, 2, 4096 / seq}, {0.25, 0.6});
      for (const Point& point : curve.points) {
        const auto best = point.Best();
        if (!best) continue;
        ++compared;
        EXPECT_GE(point.SpeedupOver(point.alone), 1.0) << cluster << ", " << seq << " tokens, " << point.share;
        EXPECT_GE(point.AloneOver(point.Step(*best)), kEqual)
            << cluster << ", " << seq << " tokens, " << point.share << ": slower than " << BaselineName(*best);
      }
    }
  }
  EXPECT_EQ(compared, 8) << "every point has a plan";
}

TEST(Comparison, MegatronsFullCostsMoreThanLynxsAndMoreMemoryNeverCosts) {
  const Curve curve = CurveFor({"a100-80gb-nvlink", "gpt-1.3b", 2048, 4, 2, 2}, {0.3, 0.6, 1});
  ASSERT_EQ(curve.points.size(), 3u);
  const Point& all = curve.points.back();
  ASSERT_TRUE(all.Step(Baseline::kStoreAll) && all.alone && all.lynx);
  EXPECT_EQ(*all.Step(Baseline::kStoreAll), curve.unlimited);
  EXPECT_EQ(*all.alone, curve.unlimited);
  // Megatron-LM's full recomputation repeats a collective and a product of each layer that kFullKeepCollectives does not
  // repeat.
  EXPECT_GT(*all.Step(Baseline::kMegatronFull), *all.Step(Baseline::kFullKeepCollectives));
  for (size_t i = 1; i < curve.points.size(); ++i) EXPECT_LE(*curve.points[i].alone, *curve.points[i - 1].alone);
}

TEST(Comparison, UnknownNamesAreErrors) {
  EXPECT_EQ(CurveOf(kSource, {"a100-40gb-pcie", "gpt-0b", 1024, 4, 4, 4}, {1}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(CurveOf(kSource, {"nowhere", "gpt-1.3b", 1024, 4, 4, 4}, {1}).ok());
}

// The page in the source tree must have every setting, and its claims must be true.
TEST(ComparisonPage, HoldsItsClaims) {
  const std::string page = PageInTree();
  for (const Setting& s : Settings()) {
    EXPECT_THAT(page, HasSubstr("**" + s.model + ", " + std::to_string(s.seq) + " tokens**"));
  }
  double alone_over_megatron = 0, woven_over_megatron = 0;
  size_t rows = 0;
  for (const auto line : absl::StrSplit(page, '\n')) {
    const std::vector<std::string> cells = Cells(std::string(line));
    double alone = 0, woven = 0, over_best = 0, over_all = 0;
    if (cells.size() != 11 || !absl::SimpleAtod(cells[7], &over_best) || !absl::SimpleAtod(cells[10], &over_all)) continue;
    ++rows;
    EXPECT_GE(over_best, 1.0) << line;
    EXPECT_GE(over_all, 1.0) << line;
    if (cells[0].find("all fits") != std::string::npos) continue;
    if (absl::SimpleAtod(cells[6], &alone)) alone_over_megatron = std::max(alone_over_megatron, alone);
    if (absl::SimpleAtod(cells[9], &woven)) woven_over_megatron = std::max(woven_over_megatron, woven);
  }
  EXPECT_GE(alone_over_megatron, 1.37);
  EXPECT_GE(woven_over_megatron, 1.6);
  EXPECT_GE(rows, Settings().size() * 4);
}

TEST(ComparisonPage, ShowsWhatDoesNotFit) {
  Curve curve{.setting = {"a100-40gb-pcie", "gpt-1.3b", 1024, 4, 2, 4}, .stored = kGiB, .unlimited = Nanos(1'000'000)};
  Point point{.limit = kMiB, .share = 0.5};
  curve.points.push_back(point);
  point.alone = Nanos(2'000'000'000);
  point.lynx = Nanos(1'600'000'000);
  point.baselines[static_cast<size_t>(Baseline::kSelective)] = Nanos(2'500'000'000);
  curve.points.push_back(point);
  const std::string page = ComparisonPage({curve});
  EXPECT_THAT(page, HasSubstr("| 50% | 0.0 | - | none fits | - | - | - | - | - | - | - |"));
  EXPECT_THAT(page, HasSubstr("| 50% | 0.0 | - | selective | 2.500 | 2.000 | - | 1.250 | 1.600 | - | 1.250 |"));
  EXPECT_THAT(page, HasSubstr("| a100-40gb-pcie | the best of all policies without overlap | 1.250 | 1.250 | 1.250 | 1.562 |"));
  EXPECT_THAT(page, HasSubstr("| the best of all that run one pass at a time | 1.000 | 1.000 | 1.000 | 1.250 |"));
  EXPECT_THAT(page, Not(HasSubstr("all fits")));
  EXPECT_THAT(page, HasSubstr("16 microbatches"));
  point.baselines[static_cast<size_t>(Baseline::kStoreAll)] = Nanos(2'500'000'000);
  curve.points = {point};
  EXPECT_THAT(ComparisonPage({curve}),
              HasSubstr("| 50%, all fits | 0.0 | - | store all | 2.500 | 2.000 | - | 1.250 | 1.600 | - | 1.250 |"));
  EXPECT_EQ(BestSpeedup(curve, Baseline::kSelective), 0) << "nothing has to be recomputed";
}

TEST(Chart, PlacesPointsBetweenItsAxes) {
  Chart chart{.title = "a < b", .columns = 1, .panel_width = 156, .panel_height = 166, .legend = {{0, "one"}}};
  Panel panel{.title = "p", .x = {.low = 1, .high = 100, .logarithmic = true}, .y = {.low = 0, .high = 10}};
  panel.series.push_back({.style = 0, .points = {{1, 0}, {10, 5}, {100, 20}}});
  chart.panels = {panel};
  const std::string svg = SvgOf(chart);
  EXPECT_THAT(svg, HasSubstr("<title>a &lt; b</title>"));
  // The plot is 100 by 100 pixels at (46, 26). The third point is above the axis and is drawn at the end of the axis.
  EXPECT_THAT(svg, HasSubstr("points=\"46.0,126.0 96.0,76.0 146.0,26.0\""));
  chart.panels[0].bars = true;
  EXPECT_THAT(SvgOf(chart), Not(HasSubstr("<polyline class=\"line s0\" points=\"46.0,126.0")));
  EXPECT_THAT(SvgOf(chart), HasSubstr("height=\"50.0\""));
}

}  // namespace
}  // namespace lynx::comparison
