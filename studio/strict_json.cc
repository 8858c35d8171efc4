#include "studio/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lynx {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseStrictJson(const std::string& text) {
  std::vector<std::set<std::string>> keys;
  std::string wrong;
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMaxJsonDepth && wrong.empty())
      wrong = absl::StrCat("not valid here: deeper than ", kMaxJsonDepth, " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second && wrong.empty()) {
      wrong = absl::StrCat("the key '", parsed.get<std::string>(), "' occurs twice");
    }
    return wrong.empty();
  };
  try {
    Json json = Json::parse(text, look);
    if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
    return json;
  } catch (const Json::exception& error) {
    if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
    const std::string what = error.what();
    return absl::InvalidArgumentError(
        absl::StrCat("not valid JSON: ", what.substr(what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2)));
  }
}

}  // namespace lynx
