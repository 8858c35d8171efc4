#include "planner/report/table.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/utf8.h"

namespace lynx {
namespace {

const Cell& CellAt(const std::vector<Cell>& row, size_t column) {
  static const Cell* const kEmpty = new Cell("");
  return column < row.size() ? row[column] : *kEmpty;
}

// Width in a terminal: the number of UTF-8 code points.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Class on a page, and code of a terminal. The index is the Tone.
constexpr std::array<std::pair<const char*, const char*>, 5> kTones = {
    {{"", ""}, {"good", "32"}, {"bad", "31"}, {"muted", "2"}, {"strong", "1"}}};

std::string Colored(const Cell& cell, bool color) {
  const char* code = kTones[static_cast<size_t>(cell.tone)].second;
  if (!color || *code == '\0' || cell.text.empty()) return cell.text;
  return absl::StrCat("\033[", code, "m", cell.text, "\033[0m");
}

std::string Line(const std::vector<Column>& columns, const std::vector<Cell>& row, const std::vector<size_t>& widths,
                 bool color) {
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    const Cell& cell = CellAt(row, i);
    const std::string padding(widths[i] - Width(cell.text), ' ');
    const bool right = columns[i].align == Align::kRight;
    absl::StrAppend(&line, i == 0 ? "" : "  ", right ? padding : "", Colored(cell, color), right ? "" : padding);
  }
  absl::StripTrailingAsciiWhitespace(&line);
  return line + "\n";
}

std::string ClassAttribute(Align align, Tone tone) {
  std::string names = align == Align::kRight ? "r" : "";
  if (tone != Tone::kPlain) absl::StrAppend(&names, names.empty() ? "" : " ", kTones[static_cast<size_t>(tone)].first);
  return names.empty() ? "" : absl::StrCat(" class=\"", names, "\"");
}

}  // namespace

std::string TextOf(const Table& table, bool color) {
  std::vector<std::vector<Cell>> rows = table.rows;
  for (std::vector<Cell>& row : rows) {
    for (Cell& cell : row) cell.text = VisibleLine(cell.text);
  }
  std::vector<Cell> titles;
  std::vector<size_t> widths;
  for (const Column& column : table.columns) {
    titles.emplace_back(column.title);
    widths.push_back(Width(column.title));
  }
  for (const std::vector<Cell>& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], Width(CellAt(row, i).text));
  }
  std::string text = Line(table.columns, titles, widths, false);
  for (const std::vector<Cell>& row : rows) text += Line(table.columns, row, widths, color);
  return text;
}

std::string HtmlOf(const Table& table) {
  std::string html = "<table>\n<thead><tr>";
  for (const Column& column : table.columns) {
    absl::StrAppend(&html, "<th scope=\"col\"", ClassAttribute(column.align, Tone::kPlain));
    if (!column.meaning.empty()) absl::StrAppend(&html, " title=\"", HtmlEscaped(column.meaning), "\"");
    absl::StrAppend(&html, ">", HtmlEscaped(column.title), "</th>");
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const Cell& cell = CellAt(row, i);
      const char* tag = i == 0 ? "th" : "td";
      absl::StrAppend(&html, "<", tag, i == 0 ? " scope=\"row\"" : "", ClassAttribute(table.columns[i].align, cell.tone), ">",
                      HtmlEscaped(cell.text), "</", tag, ">");
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

std::string HtmlEscaped(std::string_view text) {
  return absl::StrReplaceAll(std::string(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == '<') {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      json += c;
    }
  }
  return json + '"';
}

}  // namespace lynx
