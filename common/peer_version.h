// Peer versions: which releases work together. A server accepts agents and worker daemons of its own minor version and of the
// one before it, so a cluster can be upgraded without a stop, the server first. Pure; thread-safe.
#ifndef LYNX_COMMON_PEER_VERSION_H_
#define LYNX_COMMON_PEER_VERSION_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// FailedPrecondition if a server of version `server` does not work with a daemon of version `peer`; says which of the two to
// upgrade. `daemon`: the name of its program. Versions are MAJOR.MINOR, optionally with '.' and more text, like kVersion.
absl::Status CheckPeerVersion(const std::string& server, const std::string& daemon, const std::string& peer);

}  // namespace lynx

#endif  // LYNX_COMMON_PEER_VERSION_H_
