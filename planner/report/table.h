// A table has rows and columns of text, and is a value. It is printed for a terminal or for a page. Plan tables, policies and
// comparisons all use it, so the layout of tables is implemented once. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_TABLE_H_
#define LYNX_PLANNER_REPORT_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lynx {

enum class Align : uint8_t { kLeft, kRight };

// The meaning of a cell, which decides the cell's colour. kGood: a gain. kBad: a loss. kMuted: less important. kStrong: the
// name of the row.
enum class Tone : uint8_t { kPlain, kGood, kBad, kMuted, kStrong };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  std::string meaning;  // one sentence, shown when the mouse is over the title; "" = no text

  Column(std::string t, Align a = Align::kLeft, std::string m = "")  // NOLINT: a title alone converts to a column
      : title(std::move(t)), align(a), meaning(std::move(m)) {}
  Column(const char* t, Align a = Align::kLeft, std::string m = "")  // NOLINT
      : title(t), align(a), meaning(std::move(m)) {}
};
// A column of numbers.
inline Column Right(std::string title, std::string meaning = "") {
  return {std::move(title), Align::kRight, std::move(meaning)};
}

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;

  Cell(std::string t, Tone o = Tone::kPlain) : text(std::move(t)), tone(o) {}  // NOLINT: a text alone converts to a cell
  Cell(const char* t) : text(t) {}                                             // NOLINT
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // a row may have fewer cells than there are columns; the missing cells are empty
};

// Returns the table as text. Each column is as wide as its widest cell, and two spaces separate columns. Lines have no trailing
// spaces. The titles come first. If `color`, tones are shown in terminal colours. Control characters in cells (also line ends)
// are escaped, so each row is one line, whatever the cells contain.
std::string TextOf(const Table& table, bool color = false);

// Returns a <table> with <th scope>. Each tone ("good", "bad", "muted", "strong") and the right alignment ("r") has
// a class. The first cell of a row is the header of the row.
std::string HtmlOf(const Table& table);

// Escapes text for HTML text or an attribute value: replaces & < > " '.
std::string HtmlEscaped(std::string_view text);

// Returns a JSON string with its quotes. "<" becomes \u003c, so that the text may stand inside a <script> element.
std::string JsonString(std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_TABLE_H_
