// See bounds.h.
#include "proto/bounds.h"

#include <arpa/inet.h>

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/utf8.h"

namespace lynx {
namespace {

// Quotes a value in an error. The quoted text is long enough to recognize the value, and limited so that a hostile value cannot
// fill the log.
std::string Quoted(const std::string& value) {
  constexpr size_t kShown = 80;
  const std::string shown = absl::CHexEscape(value.substr(0, kShown));
  return absl::StrCat("\"", shown, value.size() > kShown ? "...\"" : "\"");
}

}  // namespace

std::string FieldPath(const std::string& parent, const std::string& field) {
  return parent.empty() ? field : absl::StrCat(parent, ".", field);
}

std::string FieldPath(const std::string& parent, const std::string& field, int64_t index) {
  return absl::StrCat(FieldPath(parent, field), "[", index, "]");
}

absl::Status BadField(const std::string& path, const std::string& value, const std::string& rule) {
  return absl::InvalidArgumentError(absl::StrCat(path, " is ", value, ": ", rule));
}

absl::Status CheckRange(const std::string& path, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return BadField(path, absl::StrCat(value), absl::StrCat("must be from ", low, " to ", high));
}

absl::Status CheckFinite(const std::string& path, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return BadField(path, absl::StrCat(value), "must be a finite number");
}

absl::Status CheckSize(const std::string& path, size_t size, size_t low, size_t high, const char* what) {
  if (size >= low && size <= high) return absl::OkStatus();
  return BadField(path, absl::StrCat(size, " ", what, " long"), absl::StrCat("must have ", low, " to ", high, " ", what));
}

absl::Status CheckLine(const std::string& path, const std::string& value, size_t most) {
  if (value.size() > most) return CheckSize(path, value.size(), 0, most, "bytes");
  if (!HasControls(value)) return absl::OkStatus();
  return BadField(path, Quoted(value), "must be one line without control characters, such as tabs and escapes");
}

absl::Status CheckAbsolutePath(const std::string& path, const std::string& value) {
  if (value.size() > static_cast<size_t>(kMaxWirePathLength)) {
    return CheckSize(path, value.size(), 1, kMaxWirePathLength, "characters");
  }
  if (value.empty() || value[0] != '/') {
    return BadField(path, Quoted(value), "must be an absolute path, as the worker nodes see it");
  }
  if (value.find_first_of(std::string("\0\n\r", 3)) != std::string::npos) {
    return BadField(path, Quoted(value), "must not hold line ends or NUL");
  }
  return absl::OkStatus();
}

absl::Status CheckDigest(const std::string& path, const std::string& value) {
  if (value.size() == 64 && value.find_first_not_of("0123456789abcdef") == std::string::npos) {
    return absl::OkStatus();
  }
  return BadField(path, Quoted(value), "must be a SHA-256 digest of 64 lower-case hexadecimal digits");
}

absl::Status CheckName(const std::string& path, const std::string& value) {
  constexpr char kAllowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (!value.empty() && value.size() <= 63 && value.find_first_not_of(kAllowed) == std::string::npos) {
    return absl::OkStatus();
  }
  return BadField(path, Quoted(value), "must be 1 to 63 of the characters a-z, A-Z, 0-9, '.', '_' and '-'");
}

absl::Status CheckNumericHost(const std::string& path, const std::string& value) {
  unsigned char address[sizeof(in6_addr)];
  if (inet_pton(AF_INET, value.c_str(), address) == 1 || inet_pton(AF_INET6, value.c_str(), address) == 1) {
    return absl::OkStatus();
  }
  return BadField(path, Quoted(value), "must be a numeric IPv4 or IPv6 address");
}

}  // namespace lynx
