#include "planner/report/html_page.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "planner/report/page_text.h"
#include "planner/report/plan_table.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

// Pages are too long to be printed when an expectation fails.
::testing::AssertionResult Has(const std::string& page, const std::string& text) {
  if (page.find(text) != std::string::npos) return ::testing::AssertionSuccess() << "it has \"" << text << "\"";
  return ::testing::AssertionFailure() << "it has no \"" << text << "\"";
}

std::string PageOf(const ReportFixture& fixture, const PageLimits& limits = {}) {
  const absl::StatusOr<std::string> page = HtmlPage(fixture.step, limits);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.value_or("");
}

nlohmann::json DataOf(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(HtmlPage, SaysHowRowsOfPassesSideBySideAreRead) {
  const std::string alone = PageOf(*SmallStep()), pairs = PageOf(*WovenStep(WeaveMode::kPairs));
  const std::string neighbours = PageOf(*WovenStep(WeaveMode::kNeighbours));
  EXPECT_FALSE(Has(alone, "Rows of the compute lane"));
  EXPECT_TRUE(Has(pairs, "2 consecutive microbatches run side by side, and each has a row of its own"));
  EXPECT_TRUE(Has(neighbours, "the upper row has forwards, the lower row everything else"));
  EXPECT_EQ(DataOf(alone)["strands"], 1);
  EXPECT_EQ(DataOf(pairs)["strands"], 2);
  EXPECT_EQ(DataOf(pairs)["strandsAreMicrobatches"], true);
  EXPECT_EQ(DataOf(neighbours)["strandsAreMicrobatches"], false);
}

TEST(HtmlPage, IsSelfContained) {
  const std::string page = PageOf(*SmallStep());
  EXPECT_FALSE(Has(page, "{{"));
  // The page loads nothing and contains no address of another page.
  for (const char* loads : {"http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("}) {
    EXPECT_FALSE(Has(page, loads));
  }
  EXPECT_TRUE(Has(page, "default-src 'none'"));
  EXPECT_TRUE(Has(page, "prefers-reduced-motion"));
}

TEST(HtmlPage, EscapesNamesFromProfileAndJob) {
  const std::string page = PageOf(*SmallStep());
  EXPECT_TRUE(Has(page, "&lt;test&gt; &amp; device"));
  EXPECT_FALSE(Has(page, "<test>"));
}

TEST(HtmlPage, ShowsTheFiguresOfThePlanWithoutAScript) {
  const auto fixture = SmallStep();
  std::string page = PageOf(*fixture);
  page = page.substr(0, page.find("<script"));
  const PlanFigures figures = FiguresOf(fixture->plan);
  EXPECT_TRUE(Has(page, PercentText(figures.hidden.value, (figures.hidden + figures.exposed).value)));
  for (size_t i = 0; i < fixture->plan.stages.size(); ++i) {
    const StagePlan& stage = fixture->plan.stages[i];
    EXPECT_TRUE(Has(page, "<td>" + LayersText(fixture->plan, i) + "</td>"));
    EXPECT_TRUE(Has(page, FormatBytes(stage.arena)));
    EXPECT_TRUE(Has(page, FormatBytes(stage.arena + stage.states.total())));
  }
  for (const auto& row : PolicyTable(fixture->plan).rows) EXPECT_TRUE(Has(page, HtmlEscaped(row[2].text)));
  EXPECT_TRUE(Has(page, fixture->plan.digest));
}

TEST(HtmlPage, HoldsEveryActionWithItsTextAndTimes) {
  const auto fixture = SmallStep();
  const nlohmann::json data = DataOf(PageOf(*fixture));
  const int64_t tick = data["tick"];
  EXPECT_EQ(data["step"].get<int64_t>(), fixture->plan.step.value / tick);
  for (size_t s = 0; s < fixture->plan.stages.size(); ++s) {
    const Program& program = fixture->plan.stages[s].program;
    const auto& spans = fixture->step.simulation.stages[s].spans;
    std::multimap<std::string, int64_t> shown;
    const auto& flat = data["stages"][s]["spans"];
    int64_t begin = 0;
    for (size_t i = 0; i < flat.size(); i += 6) {
      begin += flat[i + 4].get<int64_t>();
      std::string text = data["texts"][flat[i + 2].get<size_t>()][0];
      if (const size_t at = text.find('#'); at != std::string::npos) {
        text.replace(at, 1, std::to_string(flat[i + 3].get<int>()));
      }
      shown.emplace(text, begin);
    }
    for (size_t i = 0; i < program.size(); ++i) {
      const bool start = InfoOf(program[i].kind).phase == Phase::kStart;
      const Nanos expected = start ? spans[i].transfer_begin : spans[i].begin;
      const auto [from, to] = shown.equal_range(ActionText(program[i]));
      EXPECT_TRUE(std::any_of(from, to, [&](const auto& s) { return s.second == expected.value / tick; }))
          << ActionText(program[i]);
    }
  }
}

TEST(HtmlPage, MemoryOverTimeReachesThePeak) {
  const auto fixture = SmallStep();
  const nlohmann::json data = DataOf(PageOf(*fixture));
  for (size_t s = 0; s < fixture->plan.stages.size(); ++s) {
    const auto& memory = data["stages"][s]["memory"];
    const size_t kinds = memory["kinds"].size();
    ASSERT_EQ(memory["values"].size(), memory["times"].size() * kinds);
    int64_t most = 0;
    for (size_t i = 0; i < memory["times"].size(); ++i) {
      int64_t total = 0;
      for (size_t k = 0; k < kinds; ++k) total += memory["values"][i * kinds + k].get<int64_t>();
      most = std::max(most, total * memory["unit"].get<int64_t>());
    }
    const int64_t peak = fixture->plan.stages[s].live_peak.value;
    EXPECT_LE(most, peak);
    EXPECT_GE(most, peak - peak / 100);
    const StagePlan& stage = fixture->plan.stages[s];
    EXPECT_TRUE(Has(data["stages"][s]["waterfall"], ">" + FormatBytes(stage.arena + stage.states.total()) + "</span>"));
  }
}

TEST(HtmlPage, LongStepsAreCutAndSaidToBe) {
  const auto fixture = SmallStep(kKiB * 1000, 400);
  const PageLimits limits{.spans = 600, .share_columns = 100, .memory_points = 400};
  const std::string page = PageOf(*fixture, limits);
  EXPECT_TRUE(Has(page, "more actions than a page should hold"));
  const std::string whole = PageOf(*fixture, {.spans = 1'000'000});
  EXPECT_LT(page.size(), whole.size() / 4);
  const nlohmann::json data = DataOf(page);
  ASSERT_EQ(data["detail"].size(), 2u);
  size_t spans = 0;
  for (const auto& stage : data["stages"]) {
    spans += stage["spans"].size() / 6;
    const std::string shares = stage["shares"];
    const auto columns = static_cast<size_t>(std::count(shares.begin(), shares.end(), ';')) + 1;
    EXPECT_EQ(columns, 50u);
    // Except for rounding, no interval is filled more than once.
    for (size_t begin = 0; begin < shares.size();) {
      const size_t end = std::min(shares.find(';', begin), shares.size());
      int total = 0;
      for (size_t i = begin; i < end; i += 3) total += std::stoi(shares.substr(i + 1, 2), nullptr, 36);
      EXPECT_LE(total, 1010);
      EXPECT_GT(total, 500);
      begin = end + 1;
    }
  }
  EXPECT_LE(spans, 700u);
  EXPECT_GT(spans, 500u);
  EXPECT_FALSE(Has(whole, "more actions than a page should hold"));
}

TEST(HtmlPage, PartsAreThePage) {
  const auto fixture = SmallStep();
  const absl::StatusOr<PlanParts> plan = PlanPageParts(fixture->step);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string page = PageOf(*fixture);
  std::vector<std::string> ids;
  for (const PagePart& part : plan->parts) {
    EXPECT_TRUE(Has(page, "data-part=\"" + part.id + "\">" + part.html)) << part.id;
    ids.push_back(part.id);
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"title", "subtitle", "chips", "figures", "legend", "timeline_note", "breakdown",
                                           "memory_aside", "memory", "plan_table", "policy_table", "strands", "profile_note",
                                           "footer"}));
  EXPECT_EQ(nlohmann::json::parse(plan->data), DataOf(page));
  // The view has a place for each part except those of the page's header.
  for (size_t i = 3; i < ids.size(); ++i)
    EXPECT_TRUE(Has(std::string(PlanView()), "data-part=\"" + ids[i] + "\"></")) << ids[i];
}

TEST(HtmlPage, ScriptsOfViewsAndChartsLoadNothing) {
  for (const std::string_view script : {SharedScript(), PlanViewScript(), ChartScript()}) {
    EXPECT_GT(script.size(), 1000u);
    for (const char* loads : {"https://", "src=", "fetch(", "XMLHttpRequest", "import(", "eval("}) {
      EXPECT_FALSE(Has(std::string(script), loads));
    }
  }
}

TEST(HtmlPage, SaysWhereThereIsNoLimitAndNothingRecomputed) {
  const std::string page = PageOf(*SmallStep(Bytes(0)));
  EXPECT_TRUE(Has(page, "no limit stated"));
  EXPECT_TRUE(Has(page, "everything is stored"));
  EXPECT_FALSE(Has(page, "k-exposed\"></i>exposed"));
}

TEST(HtmlPage, SameStepSameBytes) { EXPECT_EQ(PageOf(*SmallStep()), PageOf(*SmallStep())); }

TEST(HtmlPage, EveryKindHasAColour) {
  const std::string style(PageStyle());
  for (int i = 0; i < kSpanKindCount; ++i) {
    const std::string id = SpanKindId(static_cast<SpanKind>(i));
    EXPECT_TRUE(Has(style, "--" + id + ": light-dark("));
    EXPECT_TRUE(Has(style, ".k-" + id + " {"));
  }
  for (int i = 0; i < kMemoryKindCount; ++i) {
    const std::string id = MemoryKindId(static_cast<MemoryKind>(i));
    EXPECT_TRUE(Has(style, "--" + id + ": light-dark("));
    EXPECT_TRUE(Has(style, ".k-" + id + " {"));
  }
}

}  // namespace
}  // namespace lynx
