// Text of any bytes in a database that takes only UTF-8 without zero bytes. Names and keys are UTF-8, but what ranks and
// systems say may be cut in the middle of a character. Pure.
#ifndef LYNX_SERVER_STORE_POSTGRES_TEXT_H_
#define LYNX_SERVER_STORE_POSTGRES_TEXT_H_

#include <string>

namespace lynx::server {

// Returns the text as UTF-8 without zero bytes. A byte b that cannot stay becomes the character U+10FF00 + b, which is for
// private use. A character U+10FF00 to U+10FFFF of the text itself is replaced byte by byte, so that the text comes back as it
// was.
std::string ToPostgresText(const std::string& text);
// The text from which ToPostgresText made `stored`.
std::string FromPostgresText(const std::string& stored);

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_POSTGRES_TEXT_H_
