// See narrow.h.
#include "cli/output/narrow.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>

namespace lynx::cli {
namespace {

bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// The first `width` columns of the text.
std::string_view FirstColumns(std::string_view text, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (BeginsCharacter(text[i]) && ++columns > width) return text.substr(0, i);
  }
  return text;
}

}  // namespace

std::optional<size_t> TerminalWidth(int fd) {
  winsize size{};
  if (isatty(fd) != 1 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

size_t ColumnsOf(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), BeginsCharacter));
}

std::string CutLine(const std::string& line, size_t width, const std::string& mark) {
  if (ColumnsOf(line) <= width || width == 0) return width == 0 ? "" : line;
  return std::string(FirstColumns(line, width - 1)) + mark;
}

std::string Wrapped(std::string_view text, size_t width, size_t used, size_t indent) {
  if (width <= indent || width <= used || used + ColumnsOf(text) <= width) return std::string(text);
  std::string out;
  size_t column = used;
  bool begins = true;  // no word stands on this line yet
  const auto next_line = [&] {
    out += '\n';
    out.append(indent, ' ');
    column = indent;
    begins = true;
  };
  while ((text = text.substr(std::min(text.find_first_not_of(' '), text.size()))) != "") {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    if (!begins && column + 1 + ColumnsOf(word) > width) next_line();
    if (begins && column > indent && column + ColumnsOf(word) > width) next_line();
    if (!begins) {
      out += ' ';
      ++column;
    }
    out += word;
    column += ColumnsOf(word);
    begins = false;
  }
  return out;
}

void LeaveOutColumns(std::vector<std::vector<std::string>>& rows, size_t width, const std::vector<size_t>& least_first) {
  if (rows.empty()) return;
  constexpr size_t kBetween = 2;  // spaces between two columns
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], ColumnsOf(row[i]));
  }
  size_t whole = 0;
  for (const size_t one : widths) whole += one + kBetween;
  std::set<size_t, std::greater<>> left_out;  // in descending order: erasing one does not move those that are erased later
  for (const size_t column : least_first) {
    if (whole <= width + kBetween) break;
    whole -= widths[column] + kBetween;
    left_out.insert(column);
  }
  for (auto& row : rows) {
    for (const size_t column : left_out) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

}  // namespace lynx::cli
