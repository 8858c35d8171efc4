// Parts that several pages have: headline figures, chips, bars and waterfalls of amounts, legends, folded tables. They are HTML
// without scripts and style attributes, which a page's policy may forbid; their colours and forms stand in
// planner/report/page/page.css. Plots with axes are in plot.h. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_PAGE_PARTS_H_
#define LYNX_PLANNER_REPORT_PAGE_PARTS_H_

#include <string>
#include <utility>
#include <vector>

#include "planner/report/table.h"
#include "planner/report/timeline.h"

namespace lynx {

// A part of a page: HTML, with all texts escaped. A page finds its place by the id.
struct PagePart {
  std::string id, html;
};

// A page that stands alone: `title` is the text of its <title>, `body` the HTML of its body. Its policy allows no script
// except, if `scripts`, those in `body`.
std::string PageDocument(const std::string& title, bool scripts, const std::string& body);

// A time such as FormatDuration, but with "µs" for "us", which a terminal may not be able to show.
std::string TimeText(Nanos time);

// ---- TextPairs: these functions escape all texts except those called `html` ----
using TextPairs = std::vector<std::pair<std::string, std::string>>;
std::string Chips(const TextPairs& names_and_values);
// A headline figure. The unit behind a number becomes smaller. `html` stands between value and `sub`.
std::string HeadlineFigure(const std::string& title, const std::string& value, const std::string& sub,
                           const std::string& html = "");
// A table that scrolls if the window is too narrow. `classes`: more style classes.
std::string ScrollingTable(const Table& table, const std::string& classes = "");
// A table that is collapsed until a reader opens it.
std::string FoldedTable(const Table& table, const std::string& title = "As a table");
// What the colours of kinds mean. LegendItems returns only the content of the element.
std::string Legend(const TextPairs& kinds_and_names);
std::string LegendItems(const TextPairs& kinds_and_names);
// The kinds of spans that take time on these timelines, with their names.
TextPairs KindsIn(const std::vector<StageTimeline>& timelines);

// ---- Amounts by kind ----
struct Amount {
  std::string kind;  // style class k-KIND: a SpanKindId, a MemoryKindId, ...
  std::string name, text;
  int64_t value = 0;
};
std::vector<Amount> AmountsOf(const Breakdown& times);
std::vector<Amount> AmountsOf(const LiveBytes& bytes);

// The amounts side by side; together `whole` (> 0) is the whole width. Amounts of 0 are left out.
std::string Bar(const std::string& classes, const std::vector<Amount>& amounts, int64_t whole);

struct BarRow {
  std::string name;
  std::vector<Amount> amounts;  // the same kinds in each row
  std::string end;              // the text behind the bar
};
// The rows as bars of one scale, and a legend of the kinds that occur.
std::string Bars(const std::vector<BarRow>& rows, int64_t whole);
// The amounts of the rows as a table. Kinds that do not occur have no column.
Table AmountsTable(const std::vector<BarRow>& rows);
// The same for memory, with the sum, the limit (0: none is known) and what is free of each stage.
Table MemoryTable(const std::vector<BarRow>& rows, const std::vector<Bytes>& limits);
// A waterfall of bytes: the bar of each amount begins where the one before ends. `limit` 0: no limit is known.
std::string Waterfall(const std::vector<Amount>& amounts, Bytes limit);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_PAGE_PARTS_H_
