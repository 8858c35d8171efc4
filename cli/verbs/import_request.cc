#include "cli/verbs/import_request.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::cli {

absl::StatusOr<ImportedRun> ReadImportedRun(const ImportOptions& options) {
  Framework framework;
  if (!ParseEnum(options.framework, framework)) {
    return absl::InvalidArgumentError(absl::StrCat("--from ", options.framework, ": expected ", ImportedFrameworksText()));
  }
  ImportRequest request;
  request.file = options.file;
  request.devices = options.devices;
  for (const std::string& text : options.set) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat("--set ", text, ": expected NAME=VALUE or FIELD=VALUE"));
    }
    const std::string name = text.substr(0, equals);
    if (name.find('.') == std::string::npos) {
      request.variables[name] = text.substr(equals + 1);
    } else {
      request.overrides.push_back(text);
    }
  }
  LYNX_ASSIGN_OR_RETURN(request.text, ReadTextFile(options.file));
  if (!options.model.empty()) {
    request.model_file = options.model;
    absl::StatusOr<std::string> model = ReadTextFile(options.model);
    if (!model.ok()) return Annotate(model.status(), "--model");
    request.model = *std::move(model);
  }
  std::error_code error;
  request.folder = std::filesystem::absolute(options.file, error).parent_path().string();
  return ImportRun(framework, request);
}

}  // namespace lynx::cli
