// Which releases work together: a server takes agents and worker daemons of its own minor version and of the one before it, so
// that a cluster is upgraded without a stop, the server first. Pure; thread-safe.
#ifndef LYNX_COMMON_PEER_VERSION_H_
#define LYNX_COMMON_PEER_VERSION_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// FailedPrecondition unless a server of version `server` works with a daemon of version `peer`; says which of the two to
// upgrade. `daemon`: its program's name. Versions are MAJOR.MINOR with anything behind a further '.', as kVersion.
absl::Status CheckPeerVersion(const std::string& server, const std::string& daemon, const std::string& peer);

}  // namespace lynx

#endif  // LYNX_COMMON_PEER_VERSION_H_
