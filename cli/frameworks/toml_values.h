// Reads a TOML file as a flat list of keys with their values. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_TOML_VALUES_H_
#define LYNX_CLI_FRAMEWORKS_TOML_VALUES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::cli {

struct TomlValue {
  std::string path;  // "parallelism.tensor_parallel_degree"
  // The value as text: of a string its content, of a list its items with a blank between them; of a list of lists the number of
  // lists is `lists`.
  std::string text;
  std::vector<std::string> lists;  // the inner lists of a list of lists, as text each
};

// In the order of their paths. InvalidArgument: "FILE:LINE: not valid TOML: WHY"; or this program was built without a parser of
// TOML (libtomlplusplus-dev).
absl::StatusOr<std::vector<TomlValue>> ParseToml(const std::string& text, const std::string& file);

// True if this program was built with a parser of TOML.
bool ReadsToml();

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_TOML_VALUES_H_
