// Reads the kernel's counters of a TCP connection.
#ifndef LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
#define LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_

#include <cstdint>

#include "common/units.h"

namespace lynx::worker {

// What a connection has done since it was made. The fields have the meaning of the fields in LinkUse (common/link_use.h).
struct SocketUse {
  int64_t bytes = 0;  // bytes that the other end has acknowledged
  Nanos busy;         // time with unacknowledged bytes, without the time in which the other end did not read
};

// Returns the counters of a connected TCP socket; they are zero if the kernel does not provide them (before Linux 4.10).
SocketUse UseOfSocket(int fd);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
