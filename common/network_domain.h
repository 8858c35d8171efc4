// A network domain is a node's place in the network, as the owner of the node names it. It lists the parts of the network that
// contain the node, from the widest to the closest, such as "row2/rack7" or "pod1". Traffic between two nodes of one part stays
// inside this part. Pure; thread-safe.
#ifndef LYNX_COMMON_NETWORK_DOMAIN_H_
#define LYNX_COMMON_NETWORK_DOMAIN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lynx {

inline constexpr size_t kMaxDomainParts = 4;

// Returns OK for an empty text (unknown) and for 1 to 4 parts of [a-zA-Z0-9._-]{1,63} with slashes between them. Otherwise
// returns InvalidArgument.
absl::Status CheckNetworkDomain(std::string_view domain);

// Returns < 0 if `a` is before `b`, 0 if they are equal, and > 0 if `a` is after `b`. In this order, the domains inside one
// part are neighbours.
int CompareDomains(std::string_view a, std::string_view b);

// Returns the part at `depth`; 0 is the widest part. Empty if the domain has no part at this depth.
std::string_view DomainPart(std::string_view domain, size_t depth);

}  // namespace lynx

#endif  // LYNX_COMMON_NETWORK_DOMAIN_H_
