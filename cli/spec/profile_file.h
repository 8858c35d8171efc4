// A hardware profile as JSON, in the form in which `lynxctl nodes -o json` prints each node's "profile". Thread-safe.
#ifndef LYNX_CLI_SPEC_PROFILE_FILE_H_
#define LYNX_CLI_SPEC_PROFILE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"

namespace lynx::cli {

// Parses a profile. `file` names the text in messages. InvalidArgument: the text is not a profile that CheckProfile accepts.
absl::StatusOr<HardwareProfile> ParseProfileFile(const std::string& text, const std::string& file);
// Reads and parses a profile. NotFound and InvalidArgument name the file.
absl::StatusOr<HardwareProfile> ReadProfileFile(const std::string& path);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_PROFILE_FILE_H_
