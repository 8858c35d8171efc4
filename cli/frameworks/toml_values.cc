#include "cli/frameworks/toml_values.h"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

#ifdef LYNX_HAS_TOML
// Version 3.3 of the library asserts conditions that wrong input can break. Here such input causes an error, and not the end of
// the program.
#define TOML_ASSERT(condition)                                                         \
  do {                                                                                 \
    if (!(condition)) throw std::runtime_error("a key or value has an odd character"); \
  } while (false)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate"
#include <toml++/toml.h>
#pragma GCC diagnostic pop
#endif

namespace lynx::cli {

#ifdef LYNX_HAS_TOML
namespace {

// The maximum depth of tables inside tables; real configurations have only a few levels. The library also has its own limit.
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
  } catch (const std::runtime_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not valid TOML: ", error.what()));
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
