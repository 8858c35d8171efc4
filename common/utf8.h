// UTF-8 checks for text from users, and conversion to text that is safe to print on a terminal. Pure; thread-safe.
#ifndef LYNX_COMMON_UTF8_H_
#define LYNX_COMMON_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lynx {

// Length in bytes of the longest well-formed prefix of `text` (Unicode 15, table 3-7). It is text.size() if the whole text is
// well-formed.
size_t ValidUtf8Prefix(std::string_view text);

// True if the text has control characters (C0 with tabs and line ends, DEL, C1) or bytes that are not UTF-8. A terminal may
// treat these as commands.
bool HasControls(std::string_view text);
// Returns the text with an escape ("\x1b", "\u009b", "\r") in place of each control character and each byte that is not UTF-8.
// So a terminal shows them and does not obey them. A tab becomes a space. VisibleLine also escapes line ends ("\n");
// VisibleText keeps them.
std::string VisibleLine(std::string_view text);
std::string VisibleText(std::string_view text);

}  // namespace lynx

#endif  // LYNX_COMMON_UTF8_H_
