// The few socket functions that are used both to connect and to communicate. Every socket is non-blocking and closed on exec.
// Thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_SOCKET_H_
#define LYNX_WORKER_COLLECTIVES_SOCKET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"
#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

Nanos MonotonicNow();  // CLOCK_MONOTONIC

std::string PeerAddressText(const PeerAddress& address);  // "10.0.0.1:4000", "[::1]:4000"

// Returns the address of the other end, or "an unknown address" if the connection does not exist any more.
std::string AddressOfPeer(int fd);

// Starts to connect. When the socket becomes writable, the connection is established or has failed (see ConnectResult).
absl::StatusOr<UniqueFd> BeginConnect(const PeerAddress& address);
// Returns the errno of the finished attempt, or 0 if the connection is established.
int ConnectResult(int fd);

// Sets the options of a connection between ranks: no delay, buffers, keepalive, pacing (bytes per second, 0 = off).
absl::Status ConfigureLink(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_H_
