// Checks of bounds for decoded messages. Each check returns OK, or InvalidArgument, which names the field by its path, the
// value, and what is allowed. Pure; thread-safe.
#ifndef LYNX_PROTO_BOUNDS_H_
#define LYNX_PROTO_BOUNDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/limits.h"

namespace lynx {

// Joins paths: "" and "x" give "x"; "a.b" and "x" give "a.b.x".
std::string FieldPath(const std::string& parent, const std::string& field);
// Returns a path with an index, such as "a.b[3]".
std::string FieldPath(const std::string& parent, const std::string& field, int64_t index);

absl::Status BadField(const std::string& path, const std::string& value, const std::string& rule);

absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high);
// The value must be neither NaN nor infinite.
absl::Status CheckFinite(const std::string& path, double value);
// For strings and repeated fields. `what`: the unit of the size in the error, such as "bytes" or "entries".
absl::Status CheckSize(const std::string& path, size_t size, size_t low, size_t high, const char* what);
// The value must have at most `most` bytes and no control characters, because it is shown in one line on terminals.
absl::Status CheckLine(const std::string& path, const std::string& value, size_t most);
// The value must be an absolute path of at most 4096 bytes, without NUL and line breaks.
absl::Status CheckAbsolutePath(const std::string& path, const std::string& value);
// The value must be 64 lower-case hexadecimal digits.
absl::Status CheckDigest(const std::string& path, const std::string& value);
// The value must match [a-zA-Z0-9._-]{1,63}: for names of nodes and ids of jobs.
absl::Status CheckName(const std::string& path, const std::string& value);
// The value must be a numeric IPv4 or IPv6 address.
absl::Status CheckNumericHost(const std::string& path, const std::string& value);

}  // namespace lynx

#endif  // LYNX_PROTO_BOUNDS_H_
