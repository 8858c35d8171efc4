// The answers of the verb export, as texts. Pure; thread-safe.
#ifndef LYNX_CLI_OUTPUT_EXPORT_ANSWER_H_
#define LYNX_CLI_OUTPUT_EXPORT_ANSWER_H_

#include <string>

#include "planner/export/export.h"

namespace lynx::cli {

// The parts of the plan that the framework cannot express, one sentence per line. `format`: the framework's name.
std::string ExportMissingText(const std::string& format, const ExportedPlan& exported);
// {"format", "targetVersion", "files": [{"name", "text"}], "notExpressed": [...]}, indented.
std::string ExportJson(const ExportTarget& target, const ExportedPlan& exported);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_EXPORT_ANSWER_H_
