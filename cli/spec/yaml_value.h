// YamlValue: a YAML document as a plain tree that remembers the position of each value, for files that people write.
// Features that make such a file hard to read or to check (anchors, aliases, tags, several documents, great depth) are
// errors.
//
// Pure functions of text; thread-safe.
#ifndef LYNX_CLI_SPEC_YAML_VALUE_H_
#define LYNX_CLI_SPEC_YAML_VALUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::cli {

enum class YamlKind : uint8_t { kNull, kScalar, kList, kMap };

struct YamlEntry;

struct YamlValue {
  YamlKind kind = YamlKind::kNull;
  std::string scalar;              // for kScalar: the text of the scalar, without quotes
  std::vector<YamlValue> items;    // for kList
  std::vector<YamlEntry> entries;  // for kMap: in the file's order; a key may occur twice
  int32_t line = 1;                // counted from 1
  int32_t column = 1;

  bool IsScalar() const { return kind == YamlKind::kScalar; }
  bool IsList() const { return kind == YamlKind::kList; }
  bool IsMap() const { return kind == YamlKind::kMap; }
  // The first value with this key; nullptr if the key is missing or this is not a map.
  const YamlValue* Find(const std::string& key) const;
};

struct YamlEntry {
  YamlValue key;  // kScalar or kNull
  YamlValue value;
};

inline constexpr size_t kMaxYamlBytes = 1 << 20;
inline constexpr int kMaxYamlDepth = 32;

// Parses a YAML document. InvalidArgument: "FILE:LINE:COLUMN: not valid YAML: WHY", and similar texts for valid YAML that is
// refused. An empty text gives kNull.
absl::StatusOr<YamlValue> ParseYaml(const std::string& text, const std::string& file);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_YAML_VALUE_H_
