// What every program that talks to others does at its start: its name, its defaults.
#ifndef LYNX_NODE_DAEMON_H_
#define LYNX_NODE_DAEMON_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// Some builds of Abseil (Debian's is one) watch the order in which locks are taken, with one graph for the whole process that
// every lock of gRPC passes through: thousands of streams then queue for it. From here on nothing is watched. To be called
// before the first channel or server.
void StopWatchingLockOrder();

// The machine's host name, with characters that a node name may not have replaced by '-'.
std::string DefaultNodeName();
// InvalidArgument unless [a-zA-Z0-9._-]{1,63}.
absl::Status CheckNodeName(const std::string& name);

// InvalidArgument unless an IPv4 or IPv6 address in numbers; names the flag.
absl::Status CheckNumericAddress(const std::string& address, const std::string& flag);

// The file beside the running binary.
std::string BesideThisBinary(const std::string& name);
// NotFound or PermissionDenied unless the path is a file that may be executed; says which flag to give.
absl::Status CheckExecutable(const std::string& path, const std::string& flag);

// Differs between any two starts of a process.
std::string NewBootId();

}  // namespace lynx

#endif  // LYNX_NODE_DAEMON_H_
