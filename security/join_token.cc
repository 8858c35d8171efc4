// See join_token.h.
#include "security/join_token.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lynx {
namespace {

constexpr char kKind[] = "lynx-join-1";
constexpr size_t kDigits = 64;

bool IsHex(const std::string& text) {
  return text.size() == kDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string JoinTokenText(const JoinToken& token) {
  return absl::StrCat(kKind, ".", token.secret, ".", token.authority_digest);
}

absl::StatusOr<JoinToken> ParseJoinToken(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  if (parts.size() == 3 && parts[0] == kKind && IsHex(parts[1]) && IsHex(parts[2])) return JoinToken{parts[1], parts[2]};
  return absl::InvalidArgumentError(
      "that is no join token: one is lynx-join-1., 64 hexadecimal digits, a dot and 64 more, all on one line, as 'lynxctl "
      "admin "
      "join-token' prints it");
}

}  // namespace lynx
