// Common start-up code of all programs that communicate: node names, addresses, binaries, boot ids.
#ifndef LYNX_NODE_DAEMON_H_
#define LYNX_NODE_DAEMON_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// Turns off Abseil's detection of wrong lock orders. Some builds of Abseil (such as Debian's) record the order of all locks of
// the process in one graph. With thousands of streams, every lock of gRPC then waits for this graph. Call it before the first
// channel or server.
void StopWatchingLockOrder();

// The machine's host name; characters that are not allowed in node names are replaced by '-'.
std::string DefaultNodeName();
// Checks that the name matches [a-zA-Z0-9._-]{1,63}. If not, returns InvalidArgument.
absl::Status CheckNodeName(const std::string& name);

// Checks that the address is a numeric IPv4 or IPv6 address. If not, returns InvalidArgument, and the error names the flag.
absl::Status CheckNumericAddress(const std::string& address, const std::string& flag);

// The path of the file with this name in the directory of the running binary.
std::string BesideThisBinary(const std::string& name);
// Checks that the path is an executable file. If not, returns NotFound or PermissionDenied, and the error says which flag to
// give.
absl::Status CheckExecutable(const std::string& path, const std::string& flag);

// Returns a new id. A process takes one when it starts, so that others can tell this run of the process from earlier runs.
std::string NewBootId();

}  // namespace lynx

#endif  // LYNX_NODE_DAEMON_H_
