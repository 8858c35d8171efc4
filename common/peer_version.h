// Says which releases work together. A server accepts agents and worker daemons of its own minor version and of the previous
// minor version. So a cluster can be upgraded without a stop, if the server is upgraded first. Pure; thread-safe.
#ifndef LYNX_COMMON_PEER_VERSION_H_
#define LYNX_COMMON_PEER_VERSION_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// Returns FailedPrecondition if a server of version `server` does not work with a daemon of version `peer`. The message says
// which of them to upgrade. `daemon` is the name of the daemon's program. Versions are MAJOR.MINOR, optionally with '.' and
// more text, like kVersion.
absl::Status CheckPeerVersion(const std::string& server, const std::string& daemon, const std::string& peer);

}  // namespace lynx

#endif  // LYNX_COMMON_PEER_VERSION_H_
