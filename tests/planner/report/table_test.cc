#include "planner/report/table.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

Table Sample() {
  Table table;
  table.columns = {{"stage", Align::kRight}, "layers", {"peak", Align::kRight, "what \"peak\" means"}};
  table.rows = {{"0", "embed 0-3", {"28.9 MiB", Tone::kBad}}, {"10", "é"}, {"", {"4", Tone::kGood}, "1 B"}};
  return table;
}

TEST(Table, AlignsColumnsByWhatATerminalShows) {
  EXPECT_EQ(TextOf(Sample()),
            "stage  layers         peak\n"
            "    0  embed 0-3  28.9 MiB\n"
            "   10  é\n"
            "       4               1 B\n");
}

TEST(Table, ColoursCellsWithoutMovingColumns) {
  EXPECT_EQ(TextOf(Sample(), true),
            "stage  layers         peak\n"
            "    0  embed 0-3  \033[31m28.9 MiB\033[0m\n"
            "   10  é\n"
            "       \033[32m4\033[0m               1 B\n");
}

TEST(Table, ShowsControlsAndKeepsEachRowOnALine) {
  Table table{.columns = {"a", "b"}};
  table.rows = {{"x\ty\n", {"\x1b[31mred\r", Tone::kGood}}, {"\xc2\x9b", "1"}};
  EXPECT_EQ(TextOf(table, true), "a       b\nx y\\n   \033[32m\\x1b[31mred\\r\033[0m\n\\u009b  1\n")
      << "its own colours are whole";
}

TEST(Table, BecomesAccessibleHtml) {
  EXPECT_EQ(HtmlOf(Sample()),
            "<table>\n<thead><tr><th scope=\"col\" class=\"r\">stage</th><th scope=\"col\">layers</th>"
            "<th scope=\"col\" class=\"r\" title=\"what &quot;peak&quot; means\">peak</th></tr></thead>\n<tbody>\n"
            "<tr><th scope=\"row\" class=\"r\">0</th><td>embed 0-3</td><td class=\"r bad\">28.9 MiB</td></tr>\n"
            "<tr><th scope=\"row\" class=\"r\">10</th><td>é</td><td class=\"r\"></td></tr>\n"
            "<tr><th scope=\"row\" class=\"r\"></th><td class=\"good\">4</td><td class=\"r\">1 B</td></tr>\n"
            "</tbody>\n</table>\n");
}

TEST(Table, EscapesForHtmlAndForScripts) {
  EXPECT_EQ(HtmlEscaped("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(JsonString("a\"b\\c\n</script>\x01é"), "\"a\\\"b\\\\c\\u000a\\u003c/script>\\u0001é\"");
}

}  // namespace
}  // namespace lynx
