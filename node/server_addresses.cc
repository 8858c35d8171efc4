#include "node/server_addresses.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lynx {
namespace {

constexpr char kHow[] = "write HOST:PORT, or several with commas, such as a:7470,b:7470";

// Says what is wrong with one address; "" if it is right.
std::string WrongWith(const std::string& address) {
  if (address.empty()) return "is empty";
  const size_t colon = address.rfind(':');
  const bool in_brackets = address.front() == '[';
  const size_t bracket = address.find(']');
  if (in_brackets && (bracket == std::string::npos || bracket < 2)) return "has a host that is not complete";
  if (colon == std::string::npos || (in_brackets && colon < bracket)) return "has no port";
  const std::string host = address.substr(0, colon);
  if (host.empty()) return "has no host";
  if (!in_brackets && host.find(':') != std::string::npos)
    return "has a host with colons, which stands in brackets: [::1]:7470";
  if (in_brackets && bracket + 1 != colon) return "has text between the host and the port";
  const std::string port = address.substr(colon + 1);
  int number = 0;
  const bool digits = !port.empty() && std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) return "has no port from 1 to 65535";
  if (std::any_of(host.begin(), host.end(), absl::ascii_isspace)) return "has a space in its host";
  return "";
}

}  // namespace

absl::StatusOr<ServerAddresses> ServerAddresses::Parse(const std::string& text) {
  std::vector<std::string> all;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::string address(absl::StripAsciiWhitespace(part));
    std::string wrong = WrongWith(address);
    if (wrong.empty() && std::find(all.begin(), all.end(), address) != all.end()) wrong = "is there twice";
    if (wrong.empty() && all.size() == kMaxServers) wrong = absl::StrCat("is one too many: there may be ", kMaxServers);
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" does not name servers: part ", all.size() + 1, " (\"",
                                                     address, "\") ", wrong, "; ", kHow));
    }
    all.push_back(address);
  }
  return ServerAddresses(std::move(all));
}

std::string ServerAddresses::text() const { return absl::StrJoin(all_, ","); }

std::optional<size_t> ServerAddresses::IndexOf(const std::string& address) const {
  const auto found = std::find(all_.begin(), all_.end(), address);
  if (found == all_.end()) return std::nullopt;
  return static_cast<size_t>(found - all_.begin());
}

bool ServerAddresses::HasAll(const ServerAddresses& others) const {
  return std::all_of(others.all_.begin(), others.all_.end(), [&](const std::string& one) { return Has(one); });
}

void ServerAddresses::BeginWith(const std::string& address) {
  if (const std::optional<size_t> known = IndexOf(address); known.has_value()) present_ = *known;
}

void ServerAddresses::Answered() { std::fill(tried_.begin(), tried_.end(), false); }

ServerAddresses::Next ServerAddresses::Failed(const std::string& leader) {
  tried_[present_] = true;
  const std::optional<size_t> named = IndexOf(leader);
  named_ = named.has_value() && !tried_[*named];
  if (named_) {
    present_ = *named;
    return Next::kAtOnce;
  }
  for (size_t step = 1; step < all_.size(); ++step) {
    const size_t next = (present_ + step) % all_.size();
    if (tried_[next]) continue;
    present_ = next;
    return Next::kAtOnce;
  }
  // The leader may have been named after it had failed: it may have begun to lead only then.
  named_ = named.has_value() && *named != present_;
  present_ = named_ ? *named : (present_ + 1) % all_.size();
  Answered();
  return Next::kAfterWait;
}

std::string StandbyText(const ServerAddresses& servers, const std::string& leader) {
  if (leader.empty()) return "stands by, and no server leads at present";
  if (servers.Has(leader)) return absl::StrCat("stands by; the server at ", leader, " leads");
  return absl::StrCat("stands by; the server at ", leader, " leads, which is not among the addresses given (", servers.text(),
                      "): add it");
}

}  // namespace lynx
