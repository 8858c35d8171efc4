// UTF-8, the encoding of everything that people write for Lynx. Pure; thread-safe.
#ifndef LYNX_COMMON_UTF8_H_
#define LYNX_COMMON_UTF8_H_

#include <cstddef>
#include <string_view>

namespace lynx {

// Bytes of the longest beginning of `text` that is well-formed (Unicode 15, table 3-7): text.size() if all of it is.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace lynx

#endif  // LYNX_COMMON_UTF8_H_
