// Network domain: a node's place in the network, as its owner names it. It lists the parts that contain the node, from the
// widest to the closest, such as "row2/rack7" or "pod1". Nodes in one part reach each other without leaving it. Pure;
// thread-safe.
#ifndef LYNX_COMMON_NETWORK_DOMAIN_H_
#define LYNX_COMMON_NETWORK_DOMAIN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lynx {

inline constexpr size_t kMaxDomainParts = 4;

// OK for an empty text (unknown) and for 1 to 4 parts of [a-zA-Z0-9._-]{1,63}, separated by slashes; otherwise InvalidArgument.
absl::Status CheckNetworkDomain(std::string_view domain);

// Returns < 0, 0 or > 0 if `a` is before, equal to or after `b`, in an order that keeps the domains of a part together.
int CompareDomains(std::string_view a, std::string_view b);

// The part at this depth; 0 is the widest. Empty: the domain is less deep.
std::string_view DomainPart(std::string_view domain, size_t depth);

}  // namespace lynx

#endif  // LYNX_COMMON_NETWORK_DOMAIN_H_
