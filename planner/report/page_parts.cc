#include "planner/report/page_parts.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "planner/report/page_text.h"

namespace lynx {
namespace {

constexpr size_t kManyRows = 12;  // if there are more rows than this, they are thinner

// Returns `part` / `whole` as a percentage with three decimals, rounded down.
std::string Share(int64_t part, int64_t whole) {
  const auto thousandths = static_cast<int64_t>(static_cast<__int128>(part) * 100'000 / std::max<int64_t>(1, whole));
  return absl::StrFormat("%d.%03d%%", thousandths / 1000, thousandths % 1000);
}

std::string Block(const Amount& amount, int64_t from, int64_t whole) {
  return absl::StrCat("<rect class=\"k-", amount.kind, "\" x=\"", Share(from, whole), "\" width=\"", Share(amount.value, whole),
                      "\" height=\"100%\"><title>", HtmlEscaped(absl::StrCat(amount.name, ": ", amount.text)),
                      "</title></rect>");
}

template <class Kind, class Values, class Text>
std::vector<Amount> ByKind(const Values& values, const char* (*id)(Kind), const char* (*name)(Kind), const Text& text) {
  std::vector<Amount> amounts;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto kind = static_cast<Kind>(i);
    amounts.push_back({id(kind), name(kind), text(values[i]), values[i].value});
  }
  return amounts;
}

// The index of each kind that occurs in a row.
std::vector<size_t> Occurring(const std::vector<BarRow>& rows) {
  std::vector<size_t> kinds;
  for (size_t k = 0; !rows.empty() && k < rows.front().amounts.size(); ++k) {
    if (std::any_of(rows.begin(), rows.end(), [&](const BarRow& row) { return row.amounts[k].value > 0; })) kinds.push_back(k);
  }
  return kinds;
}

int64_t SumOf(const std::vector<Amount>& amounts) {
  int64_t sum = 0;
  for (const Amount& amount : amounts) sum += amount.value;
  return sum;
}

}  // namespace

std::string PageDocument(const std::string& title, bool scripts, const std::string& body) {
  return absl::StrReplaceAll(std::string(PageTemplate()), {{"{{title}}", HtmlEscaped(title)},
                                                           {"{{scripts}}", scripts ? " script-src 'unsafe-inline';" : ""},
                                                           {"{{style}}", std::string(PageStyle())},
                                                           {"{{body}}", body}});
}

std::string TimeText(Nanos time) { return absl::StrReplaceAll(FormatDuration(time), {{" us", " µs"}}); }

std::string Chips(const TextPairs& names_and_values) {
  std::string html;
  for (const auto& [name, value] : names_and_values) {
    absl::StrAppend(&html, "<li>", HtmlEscaped(name), " <b>", HtmlEscaped(value), "</b></li>");
  }
  return html;
}

std::string HeadlineFigure(const std::string& title, const std::string& value, const std::string& sub,
                           const std::string& html) {
  std::string shown = HtmlEscaped(value);
  const size_t space = shown.rfind(' ');
  if (space != std::string::npos && std::isdigit(static_cast<unsigned char>(shown[0])) != 0) {
    shown = absl::StrCat(shown.substr(0, space), " <small>", shown.substr(space + 1), "</small>");
  }
  return absl::StrCat("<div class=\"figure\"><h2>", HtmlEscaped(title), "</h2><p class=\"value\">", shown, "</p>", html,
                      "<p class=\"sub\">", HtmlEscaped(sub), "</p></div>\n");
}

std::string ScrollingTable(const Table& table, const std::string& classes) {
  return absl::StrCat("<div class=\"scroll", classes.empty() ? "" : " ", classes, "\">", HtmlOf(table), "</div>");
}

std::string FoldedTable(const Table& table, const std::string& title) {
  return absl::StrCat("<details><summary>", HtmlEscaped(title), "</summary>", ScrollingTable(table), "</details>\n");
}

std::string LegendItems(const TextPairs& kinds_and_names) {
  std::string html;
  for (const auto& [kind, name] : kinds_and_names) {
    absl::StrAppend(&html, "<span><i class=\"swatch k-", kind, "\"></i>", HtmlEscaped(name), "</span>");
  }
  return html;
}

std::string Legend(const TextPairs& kinds_and_names) {
  return absl::StrCat("<div class=\"legend flat\">", LegendItems(kinds_and_names), "</div>\n");
}

TextPairs KindsIn(const std::vector<StageTimeline>& timelines) {
  std::array<bool, kSpanKindCount> occurs{};
  for (const StageTimeline& timeline : timelines) {
    for (const TimelineSpan& span : timeline.spans) {
      if (span.begin < span.end) occurs[static_cast<size_t>(span.kind)] = true;
    }
  }
  TextPairs kinds;
  for (size_t i = 0; i < occurs.size(); ++i) {
    if (occurs[i]) kinds.emplace_back(SpanKindId(static_cast<SpanKind>(i)), SpanKindName(static_cast<SpanKind>(i)));
  }
  return kinds;
}

std::vector<Amount> AmountsOf(const Breakdown& times) { return ByKind<SpanKind>(times, SpanKindId, SpanKindName, TimeText); }
std::vector<Amount> AmountsOf(const LiveBytes& bytes) {
  return ByKind<MemoryKind>(bytes, MemoryKindId, MemoryKindName, [](Bytes amount) { return FormatBytes(amount); });
}

std::string Bar(const std::string& classes, const std::vector<Amount>& amounts, int64_t whole) {
  std::string blocks;
  int64_t from = 0;
  for (const Amount& amount : amounts) {
    if (amount.value > 0) blocks += Block(amount, from, whole);
    from += amount.value;
  }
  return absl::StrCat("<svg class=\"", classes, "\" aria-hidden=\"true\">", blocks, "</svg>");
}

std::string Bars(const std::vector<BarRow>& rows, int64_t whole) {
  std::string html = absl::StrCat("<div class=\"bars", rows.size() > kManyRows ? " many" : "", "\">\n");
  for (const BarRow& row : rows) {
    absl::StrAppend(&html, "<b>", HtmlEscaped(row.name), "</b>", Bar("bar", row.amounts, whole), "<span class=\"end\">",
                    HtmlEscaped(row.end), "</span>\n");
  }
  TextPairs kinds;
  for (const size_t k : Occurring(rows)) kinds.emplace_back(rows.front().amounts[k].kind, rows.front().amounts[k].name);
  return absl::StrCat(html, "</div>\n", Legend(kinds));
}

Table AmountsTable(const std::vector<BarRow>& rows) {
  Table table{.columns = {""}};
  for (const BarRow& row : rows) table.rows.push_back({row.name});
  for (const size_t k : Occurring(rows)) {
    table.columns.push_back(Right(rows.front().amounts[k].name));
    for (size_t i = 0; i < rows.size(); ++i) table.rows[i].emplace_back(rows[i].amounts[k].text);
  }
  return table;
}

Table MemoryTable(const std::vector<BarRow>& rows, const std::vector<Bytes>& limits) {
  Table table = AmountsTable(rows);
  for (const char* title : {"together", "limit", "free"}) table.columns.push_back(Right(title));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Bytes total(SumOf(rows[i].amounts)), limit = limits[i];
    const bool known = limit.value > 0;
    table.rows[i].emplace_back(FormatBytes(total), Tone::kStrong);
    table.rows[i].emplace_back(known ? FormatBytes(limit) : "none stated");
    table.rows[i].emplace_back(known ? FormatBytes(limit - total) : "", known && limit < total ? Tone::kBad : Tone::kPlain);
  }
  return table;
}

std::string Waterfall(const std::vector<Amount>& amounts, Bytes limit) {
  const Bytes total(SumOf(amounts));
  const int64_t whole = std::max(total, limit).value;
  const std::string at = Share(limit.value, whole);
  const std::string mark = limit.value == 0 ? "" : absl::StrCat("<line x1=\"", at, "\" x2=\"", at, "\" y1=\"-3\" y2=\"19\"/>");
  std::string html = "<div class=\"fall\">";
  const auto row = [&](const Amount& amount, int64_t from) {
    absl::StrAppend(&html, "<span>", HtmlEscaped(amount.name), "</span><svg class=\"track\" aria-hidden=\"true\">",
                    Block(amount, from, whole), mark, "</svg><span class=\"amount\">", amount.text, "</span>\n");
  };
  const auto sum = [&](const char* name, Bytes bytes) {
    absl::StrAppend(&html, "<span class=\"sum\">", name, "</span><span></span><span class=\"amount sum\">", FormatBytes(bytes),
                    "</span>\n");
  };
  int64_t from = 0;
  for (const Amount& amount : amounts) {
    if (amount.value > 0) row(amount, from);
    from += amount.value;
  }
  sum("together", total);
  if (limit.value > 0) {
    const Bytes free = limit - total, over = total - limit;
    if (free.value >= 0) row({"free", "free", FormatBytes(free), free.value}, total.value);
    if (free.value < 0) row({"over", "over the limit", FormatBytes(over), over.value}, limit.value);
    sum("limit", limit);
  }
  return absl::StrCat(html, "</div>\n");
}

}  // namespace lynx
