// A hardware profile as JSON, as `lynxctl nodes -o json` prints each node's under "profile". Thread-safe.
#ifndef LYNX_CLI_SPEC_PROFILE_FILE_H_
#define LYNX_CLI_SPEC_PROFILE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"

namespace lynx {

// `file` names the text in messages. InvalidArgument unless it is a profile that CheckProfile accepts.
absl::StatusOr<HardwareProfile> ParseProfileFile(const std::string& text, const std::string& file);
// Reads the file; NotFound / InvalidArgument with its name.
absl::StatusOr<HardwareProfile> ReadProfileFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_CLI_SPEC_PROFILE_FILE_H_
