#include "common/network_domain.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr size_t kMaxPart = 63;

bool IsPart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPart && std::all_of(part.begin(), part.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

absl::Status CheckNetworkDomain(std::string_view domain) {
  if (domain.empty()) return absl::OkStatus();
  const auto parts = static_cast<size_t>(std::count(domain.begin(), domain.end(), '/')) + 1;
  bool right = parts <= kMaxDomainParts;
  for (size_t depth = 0; right && depth < parts; ++depth) right = IsPart(DomainPart(domain, depth));
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(domain.substr(0, 300)), "' is no place in the network; give up to ", kMaxDomainParts,
                   " parts from the widest to the closest, each of 1 to 63 letters, digits, '.', '_' and "
                   "'-', such as row2/rack7"));
}

int CompareDomains(std::string_view a, std::string_view b) {
  for (size_t depth = 0; depth < kMaxDomainParts; ++depth) {
    const int order = DomainPart(a, depth).compare(DomainPart(b, depth));
    if (order != 0) return order;
  }
  return 0;
}

std::string_view DomainPart(std::string_view domain, size_t depth) {
  for (; depth > 0; --depth) {
    const size_t slash = domain.find('/');
    if (slash == std::string_view::npos) return {};
    domain.remove_prefix(slash + 1);
  }
  return domain.substr(0, domain.find('/'));
}

}  // namespace lynx
