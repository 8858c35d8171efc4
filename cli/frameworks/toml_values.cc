#include "cli/frameworks/toml_values.h"

#ifdef LYNX_HAS_TOML
#include <toml++/toml.h>
#endif

#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx::cli {

#ifdef LYNX_HAS_TOML
namespace {

// Tables inside one another; a configuration has a few. The parser has a limit of its own.
constexpr int kMaxDepth = 16;

std::string TextOf(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  std::string joined;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) absl::StrAppend(&joined, joined.empty() ? "" : " ", TextOf(item));
    return joined;
  }
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_boolean<decltype(value)>) {
      out << (*value ? "true" : "false");
    } else if constexpr (toml::is_value<decltype(value)>) {
      out << *value;
    }
  });
  return out.str();
}

void Flatten(const toml::table& table, const std::string& path, int depth, std::vector<TomlValue>& values) {
  for (const auto& [key, node] : table) {
    const std::string name = path.empty() ? std::string(key.str()) : absl::StrCat(path, ".", std::string(key.str()));
    if (const toml::table* inner = node.as_table(); inner != nullptr && depth < kMaxDepth) {
      Flatten(*inner, name, depth + 1, values);
      continue;
    }
    TomlValue value{name, TextOf(node), {}};
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& item : *list) {
        if (item.is_array()) value.lists.push_back(TextOf(item));
      }
    }
    values.push_back(std::move(value));
  }
}

}  // namespace

bool ReadsToml() { return true; }

absl::StatusOr<std::vector<TomlValue>> ParseToml(const std::string& text, const std::string& file) {
  try {
    const toml::table root = toml::parse(text, file);
    std::vector<TomlValue> values;
    Flatten(root, "", 0, values);
    return values;
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", error.source().begin.line, ": not valid TOML: ", std::string(error.description())));
  }
}

#else

bool ReadsToml() { return false; }

absl::StatusOr<std::vector<TomlValue>> ParseToml(const std::string&, const std::string& file) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": this program was built without a parser of TOML; build it where libtomlplusplus-dev is installed"));
}

#endif

}  // namespace lynx::cli
