// Table: rows and columns of text as a value, printed for a terminal or a page. Plan tables, policies and comparisons all
// use it, so that layout is implemented once. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_TABLE_H_
#define LYNX_PLANNER_REPORT_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lynx {

enum class Align : uint8_t { kLeft, kRight };

// The meaning of a cell, which decides its colour: kGood: a gain; kBad: a loss; kMuted: less important; kStrong: the row's
// name.
enum class Tone : uint8_t { kPlain, kGood, kBad, kMuted, kStrong };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  std::string meaning;  // one sentence, shown when the mouse is over the title; "" = no text

  Column(std::string t, Align a = Align::kLeft, std::string m = "")  // NOLINT: a title is a column
      : title(std::move(t)), align(a), meaning(std::move(m)) {}
  Column(const char* t, Align a = Align::kLeft, std::string m = "")  // NOLINT
      : title(t), align(a), meaning(std::move(m)) {}
};

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;

  Cell(std::string t, Tone o = Tone::kPlain) : text(std::move(t)), tone(o) {}  // NOLINT: a text is a cell
  Cell(const char* t) : text(t) {}                                             // NOLINT
};

struct Table {
  std::string caption;  // "" = none
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // a row may be shorter than the columns; the rest is empty
};

// Columns are padded to their widest cell and separated by two spaces, without trailing spaces. Titles come first; the caption
// is not printed. `color`: use terminal colours for tones. Control characters in cells (including line ends) are escaped, so
// that each row is one line, whatever the cells contain.
std::string TextOf(const Table& table, bool color = false);

// A <table> with caption, <th scope> and a class for each tone ("good", "bad", "muted", "strong") and alignment
// ("r"). The first cell of a row is its header.
std::string HtmlOf(const Table& table);

// Escapes text for HTML text or an attribute value: replaces & < > " '.
std::string HtmlEscaped(std::string_view text);

// A JSON string with its quotes. "<" becomes \u003c, so that the text may stand inside a <script> element.
std::string JsonString(std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_TABLE_H_
