#include "cli/spec/profile_file.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "cli/spec/job_file.h"
#include "common/status.h"
#include "proto/convert.h"

namespace lynx::cli {

absl::StatusOr<HardwareProfile> ParseProfileFile(const std::string& text, const std::string& file) {
  v1::HardwareProfile message;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &message);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a hardware profile: ", std::string(parsed.message()),
                                                   "; 'lynxctl nodes -o json' prints each node's under 'profile'"));
  }
  LYNX_ASSIGN_OR_RETURN(HardwareProfile profile, FromProto(message, file));
  LYNX_RETURN_IF_ERROR(Annotate(CheckProfile(profile), file));
  return profile;
}

absl::StatusOr<HardwareProfile> ReadProfileFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Annotate(text.status(), "profile");
  return ParseProfileFile(*text, path);
}

}  // namespace lynx::cli
