// A node's place in the network, as its owner names it: the parts that it is in, from the widest to the closest, such as
// "row2/rack7" or "pod1". Nodes of one part reach each other without leaving it. Pure; thread-safe.
#ifndef LYNX_COMMON_NETWORK_DOMAIN_H_
#define LYNX_COMMON_NETWORK_DOMAIN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lynx {

inline constexpr size_t kMaxDomainParts = 4;

// OK for "" (not known) and for 1 to 4 parts of [a-zA-Z0-9._-]{1,63} with slashes between them; else InvalidArgument.
absl::Status CheckNetworkDomain(std::string_view domain);

// Before, at or after (< 0, 0, > 0), so that the domains of a part come one after another.
int CompareDomains(std::string_view a, std::string_view b);

// The part at a depth, from 0 for the widest; "" where the domain is not as deep.
std::string_view DomainPart(std::string_view domain, size_t depth);

}  // namespace lynx

#endif  // LYNX_COMMON_NETWORK_DOMAIN_H_
