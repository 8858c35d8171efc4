#include "planner/report/page_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/report/plot.h"

namespace lynx {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Amount Of(const char* kind, const char* name, Bytes bytes) { return {kind, name, FormatBytes(bytes), bytes.value}; }

TEST(PageParts, OnlyAPageWithScriptsAllowsThem) {
  EXPECT_THAT(PageDocument("a <b>", false, "<p>{{style}}</p>"),
              AllOf(HasSubstr("<title>a &lt;b&gt;</title>"), HasSubstr("<body>\n<p>{{style}}</p></body>"),
                    Not(HasSubstr("script-src"))));
  EXPECT_THAT(PageDocument("a", true, ""), HasSubstr("style-src 'unsafe-inline'; script-src 'unsafe-inline';"));
}

TEST(PageParts, TheUnitBehindANumberIsSmaller) {
  EXPECT_THAT(HeadlineFigure("Step", "12.5 ms", "x < y"), AllOf(HasSubstr("12.5 <small>ms</small>"), HasSubstr("x &lt; y")));
  EXPECT_THAT(HeadlineFigure("Step", "not measured", ""), HasSubstr(">not measured<"));
}

TEST(PageParts, BarsHaveOneScaleAndALegendOfWhatOccurs) {
  const std::vector<BarRow> rows = {
      {"a",
       {Of("weights", "weights", Bytes(30)), Of("stored", "stored", Bytes(0)), Of("packing", "packing", Bytes(10))},
       "40 B"},
      {"b & c",
       {Of("weights", "weights", Bytes(50)), Of("stored", "stored", Bytes(0)), Of("packing", "packing", Bytes(0))},
       ""}};
  const std::string bars = Bars(rows, 100);
  EXPECT_THAT(bars, AllOf(HasSubstr("class=\"k-packing\" x=\"30.000%\" width=\"10.000%\""), HasSubstr("<b>b &amp; c</b>"),
                          HasSubstr("swatch k-packing"), Not(HasSubstr("k-stored")), HasSubstr("<div class=\"bars\">")));
  EXPECT_THAT(Bars(std::vector<BarRow>(13, rows[0]), 100), HasSubstr("<div class=\"bars many\">"));
  const std::string table = HtmlOf(MemoryTable(rows, {Bytes(0), Bytes(45)}));
  EXPECT_THAT(table, AllOf(HasSubstr("<td class=\"r strong\">40 B</td><td class=\"r\">none stated</td><td class=\"r\"></td>"),
                           HasSubstr("<td class=\"r\">45 B</td><td class=\"r bad\">-5 B</td>"), Not(HasSubstr("stored"))));
}

TEST(PageParts, AWaterfallSaysWhatIsFreeOrTooMuch) {
  const std::vector<Amount> amounts = {Of("weights", "weights", Bytes(60)), Of("stored", "activations", Bytes(20))};
  EXPECT_THAT(Waterfall(amounts, Bytes(100)), AllOf(HasSubstr("class=\"k-stored\" x=\"60.000%\" width=\"20.000%\""),
                                                    HasSubstr("class=\"k-free\" x=\"80.000%\" width=\"20.000%\""),
                                                    HasSubstr("<line x1=\"100.000%\""), Not(HasSubstr("over the limit"))));
  EXPECT_THAT(Waterfall(amounts, Bytes(40)),
              AllOf(HasSubstr("class=\"k-over\" x=\"50.000%\" width=\"50.000%\""), HasSubstr("over the limit"),
                    HasSubstr("<line x1=\"50.000%\""), Not(HasSubstr("k-free"))));
  EXPECT_THAT(Waterfall(amounts, Bytes(0)), AllOf(HasSubstr("together"), Not(HasSubstr("<line")), Not(HasSubstr(">limit<"))));
}

TEST(PageParts, NumbersOfAnAxisAreRoundInItsUnit) {
  const Axis y{.low = 0, .high = 3.2 * static_cast<double>(kGiB.value), .from = 100, .to = 0};
  EXPECT_THAT(GridLeft(y, 0, 10, InBytes(y.high)), AllOf(HasSubstr(">1 GiB<"), HasSubstr(">3 GiB<"), Not(HasSubstr("MiB"))));
  EXPECT_EQ(InBytes(700).unit, 1);
  const Axis x{.low = 0, .high = 5e6, .from = 0, .to = 100};
  EXPECT_THAT(GridBelow(x, 0, 10, InMillis(), 5), AllOf(HasSubstr(">2 ms<"), HasSubstr("x=\"40\"")));
}

}  // namespace
}  // namespace lynx
