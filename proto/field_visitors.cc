// See field_visitors.h.
#include "proto/field_visitors.h"

#include <cctype>
#include <string_view>

namespace lynx {

std::string NameInPath(const char* name, PathNames names) {
  const std::string_view text = name;
  // Errors about these two fields still use the names in the message.
  if (names == PathNames::kMessage || text == "on_non_finite" || text == "node_check") return name;
  if (text == "forbidden") return "forbid";
  std::string joined;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') joined += i > 0 && text[i - 1] == '_' ? static_cast<char>(std::toupper(text[i])) : text[i];
  }
  return joined;
}

}  // namespace lynx
