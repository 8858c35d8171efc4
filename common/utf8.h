// UTF-8, the encoding of everything that people write for Lynx, and what of it a terminal may be given. Pure; thread-safe.
#ifndef LYNX_COMMON_UTF8_H_
#define LYNX_COMMON_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace lynx {

// Bytes of the longest beginning of `text` that is well-formed (Unicode 15, table 3-7): text.size() if all of it is.
size_t ValidUtf8Prefix(std::string_view text);

// Whether there is a control (C0 with tabs and line ends, DEL, C1) or a byte that is not UTF-8 in it: what a terminal may obey.
bool HasControls(std::string_view text);
// The same text with these written out ("\x1b", "\u009b", "\r") so that it moves no cursor, changes no title and hides nothing;
// a tab is a space. In a line line ends are written out, too ("\n"); a text keeps them.
std::string VisibleLine(std::string_view text);
std::string VisibleText(std::string_view text);

}  // namespace lynx

#endif  // LYNX_COMMON_UTF8_H_
