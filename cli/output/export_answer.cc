#include "cli/output/export_answer.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace lynx::cli {

std::string ExportMissingText(const std::string& format, const ExportedPlan& exported) {
  if (exported.missing.empty()) return absl::StrCat(format, " expresses all of this plan\n");
  std::string text = absl::StrCat("what ", format, " cannot express of this plan:\n");
  for (const std::string& sentence : exported.missing) absl::StrAppend(&text, "  - ", sentence, "\n");
  return text;
}

std::string ExportJson(const ExportTarget& target, const ExportedPlan& exported) {
  nlohmann::ordered_json json;
  json["format"] = EnumName(target.format);
  json["targetVersion"] = ExportVersions(target.format)[target.version].name;
  json["files"] = nlohmann::ordered_json::array();
  for (const ExportedFile& file : exported.files) json["files"].push_back({{"name", file.name}, {"text", file.text}});
  json["notExpressed"] = exported.missing;
  return json.dump(1) + "\n";
}

}  // namespace lynx::cli
