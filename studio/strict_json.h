// Reads JSON that comes from a browser. Pure; thread-safe.
#ifndef LYNX_STUDIO_STRICT_JSON_H_
#define LYNX_STUDIO_STRICT_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace lynx {

inline constexpr int kMaxJsonDepth = 16;

// Parses a JSON text whose objects repeat no key, at most kMaxJsonDepth deep. InvalidArgument says what is wrong and where.
absl::StatusOr<nlohmann::json> ParseStrictJson(const std::string& text);

}  // namespace lynx

#endif  // LYNX_STUDIO_STRICT_JSON_H_
