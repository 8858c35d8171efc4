// The few socket calls that connecting and communicating share. Every socket is non-blocking and closed on exec.
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

// The address of the other end; "an unknown address" when the connection is gone.
std::string AddressOfPeer(int fd);

// Starts to connect. The connection is established, or has failed, when the socket becomes writable (see ConnectResult).
absl::StatusOr<UniqueFd> BeginConnect(const PeerAddress& address);
// The errno of the finished attempt; 0 when the connection is established.
int ConnectResult(int fd);

// Sets the options of a connection between ranks: no delay, buffers, keepalive, pacing (bytes per second, 0 = off).
absl::Status ConfigureLink(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_H_
