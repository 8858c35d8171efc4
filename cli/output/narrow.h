// Text for terminals that are narrower than the text. Pure, except TerminalWidth; thread-safe. Text is UTF-8, and each
// character counts as one column.
#ifndef LYNX_CLI_OUTPUT_NARROW_H_
#define LYNX_CLI_OUTPUT_NARROW_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lynx::cli {

// The columns of the terminal. nullopt: `fd` is no terminal, or the terminal does not say. TERM does not matter.
std::optional<size_t> TerminalWidth(int fd);

size_t ColumnsOf(std::string_view text);

// Returns the line, at most `width` columns of it. If something is left out, the last column is `mark`.
std::string CutLine(const std::string& line, size_t width, const std::string& mark = "~");

// Breaks the text at its spaces, so that no line has more than `width` columns. The first line stands after `used` columns that
// are already on the screen; later lines begin with `indent` spaces. A word that is longer than a line, such as a path, stays
// whole, so that people can copy it from the terminal. There is no newline at the end. Text that fits is returned as it is; in
// other text, one space stands for each run of spaces between words, and spaces at the beginning and the end are left out.
// `width` must be above `indent` and `used`; otherwise the text is returned as it is.
std::string Wrapped(std::string_view text, size_t width, size_t used, size_t indent);

// Leaves columns out of a table (rows[0] are the titles; all rows have as many cells) until it is at most `width` columns wide.
// They go in the order of `least_first`, which are places of columns in the whole table. The others stay, even if they are too
// wide.
void LeaveOutColumns(std::vector<std::vector<std::string>>& rows, size_t width, const std::vector<size_t>& least_first);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_NARROW_H_
