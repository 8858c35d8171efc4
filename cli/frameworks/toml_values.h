// Reads a TOML file as a flat list of keys with their values. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_TOML_VALUES_H_
#define LYNX_CLI_FRAMEWORKS_TOML_VALUES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::cli {

struct TomlValue {
  std::string path;  // "parallelism.tensor_parallel_degree"
  // The value as text: a string's content, or a list's items with a blank between them. If an item is a list itself, it is also
  // in `lists`.
  std::string text;
  std::vector<std::string> lists;  // the text of each item that is a list
};

// In the order of their paths. InvalidArgument: "FILE:LINE: not valid TOML: WHY"; or this program was built without a parser of
// TOML (libtomlplusplus-dev).
absl::StatusOr<std::vector<TomlValue>> ParseToml(const std::string& text, const std::string& file);

// True if this program was built with a parser of TOML.
bool ReadsToml();

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_TOML_VALUES_H_
