// See peer_version.h.
#include "common/peer_version.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"

namespace lynx {
namespace {

constexpr size_t kLongest = 64;

struct Release {
  int32_t major = 0;
  int32_t minor = 0;
};

std::optional<int32_t> NumberOf(const std::string& text) {
  int32_t number = 0;
  const bool digits = std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  return digits && absl::SimpleAtoi(text, &number) ? std::optional(number) : std::nullopt;
}

std::optional<Release> ReleaseOf(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, absl::MaxSplits('.', 2));
  if (version.size() > kLongest || parts.size() < 2) return std::nullopt;
  const std::optional<int32_t> major = NumberOf(parts[0]), minor = NumberOf(parts[1]);
  return major.has_value() && minor.has_value() ? std::optional(Release{*major, *minor}) : std::nullopt;
}

}  // namespace

absl::Status CheckPeerVersion(const std::string& server, const std::string& daemon, const std::string& peer) {
  const std::optional<Release> own = ReleaseOf(server);
  LYNX_CHECK(own.has_value());
  const std::optional<Release> other = ReleaseOf(peer);
  if (!other.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(daemon, " states no version that lynx-server ", server,
                                                      " can read; install ", daemon, " ", server, " on the node"));
  }
  const bool same_major = other->major == own->major;
  if (same_major && (other->minor == own->minor || other->minor == own->minor - 1)) return absl::OkStatus();
  const bool newer = other->major > own->major || (same_major && other->minor > own->minor);
  const std::string known =
      absl::StrCat(own->major, ".", own->minor, own->minor > 0 ? absl::StrCat(" and ", own->major, ".", own->minor - 1) : "");
  return absl::FailedPreconditionError(
      absl::StrCat(daemon, " ", peer, " does not work with lynx-server ", server, ", which works with nodes of ", known, ": ",
                   newer ? "upgrade lynx-server first" : absl::StrCat("install ", daemon, " ", server, " on the node")));
}

}  // namespace lynx
